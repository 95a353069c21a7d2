package sink

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Pool shares the writes of one sink among its endpoints. It is safe for
// concurrent use.
type Pool struct {
	names    []string
	patience time.Duration
	balancer *balancer
	log      *complaints
}

// NewPool makes a pool of endpoints. limit is the most writes in flight at one of
// them, patience how long a write waits in line for one.
func NewPool(names []string, limit int, patience time.Duration, logger *slog.Logger) *Pool {
	return &Pool{names: names, patience: patience, balancer: newBalancer(len(names), limit), log: newComplaints(logger)}
}

// State is what is known of an endpoint at some time.
type State struct {
	Healthy  bool
	InFlight int
	// Reason is the last failure of an endpoint that is not healthy.
	Reason error
	// Wait is how long the endpoint is left out for, 0 if its probe is due or
	// under way.
	Wait time.Duration
}

// State describes the i-th endpoint at the time now.
func (p *Pool) State(i int, now time.Time) State { return p.balancer.state(i, now) }

// Send makes one attempt at an endpoint. number is 0 for the first attempt of a
// batch.
type Send func(ctx context.Context, endpoint, number int) Answer

// Deliver gives a batch to one endpoint after the other until one has an answer
// that holds for all of them. A nil error says that the batch is stored, as the
// last answer of send describes. Others are *ingester.SinkError; the retryable ones
// name every endpoint and what is wrong with it.
func (p *Pool) Deliver(ctx context.Context, send Send) error {
	t := attempts{tried: make([]bool, len(p.names)), answers: make([]Answer, len(p.names))}
	for {
		g, err := p.balancer.acquire(ctx, time.Now(), p.patience, t.tried)
		if err != nil {
			return p.giveUp(err, &t)
		}
		a := p.attempt(ctx, g, send, t.count)
		t.count++
		name := p.names[g.endpoint]
		switch a.Outcome {
		case Stored:
			return nil
		case Refused:
			return &ingester.SinkError{Err: fmt.Errorf("%s %w", name, a.Err), Final: true}
		case Overloaded:
			return &ingester.SinkError{Err: fmt.Errorf("%s %w", name, a.Err), RetryAfter: a.Asked}
		}
		t.answers[g.endpoint] = a
	}
}

// attempts is what one write has tried so far.
type attempts struct {
	tried   []bool
	answers []Answer
	count   int
}

// attempt sends to the endpoint of a grant, which it gives back.
func (p *Pool) attempt(ctx context.Context, g grant, send Send, number int) (a Answer) {
	a = Answer{Outcome: Abandoned}
	// Deferred, so that a panic in a transport costs no connection.
	defer func() {
		now := time.Now()
		p.balancer.release(g, now, a.report(), rand.Float64())
		p.log.answer(p.names[g.endpoint], a, now)
	}()
	return send(ctx, g.endpoint, number)
}

// giveUp is the error of a write that no endpoint took. The sender is told to
// wait until the first of them may be tried again, or as long as it asked for.
func (p *Pool) giveUp(cause error, t *attempts) error {
	now := time.Now()
	err := &ingester.SinkError{}
	texts := []error{fmt.Errorf("no endpoint took the batch: %w", cause)}
	for i, name := range p.names {
		o, wait := p.State(i, now), time.Duration(0)
		switch a := t.answers[i]; {
		case a.Err != nil:
			texts = append(texts, fmt.Errorf("%s %w", name, a.Err))
			wait = max(o.Wait, a.Asked)
		case o.Wait > 0:
			texts = append(texts, fmt.Errorf("%s is left out for another %s: it %w", name, o.Wait.Round(time.Millisecond), o.Reason))
			wait = o.Wait
		case !o.Healthy:
			texts = append(texts, fmt.Errorf("%s is being tried by another batch: it %w", name, o.Reason))
		case errors.Is(cause, ErrFull):
			texts = append(texts, fmt.Errorf("%s has all of its %d connections in use", name, p.balancer.limit))
		default:
			texts = append(texts, fmt.Errorf("%s was not tried", name))
		}
		if wait > 0 && (err.RetryAfter == 0 || wait < err.RetryAfter) {
			err.RetryAfter = wait
		}
	}
	err.Err = joined(texts)
	return err
}

// joined is an error on one line whose causes can be found by errors.Is.
type joined []error

func (j joined) Error() string {
	text := j[0].Error()
	for _, err := range j[1:] {
		text += "; " + err.Error()
	}
	return text
}

func (j joined) Unwrap() []error { return j }
