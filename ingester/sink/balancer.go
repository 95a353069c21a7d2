package sink

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// balancer decides which endpoint takes the next write. Among the endpoints that
// are ready and have room it picks, in this order, one that is due for a probe,
// then the one with the least writes in flight; equals take turns.
//
// A write that finds every ready endpoint full waits in line. The line is served
// whenever a write ends. A write that finds no ready endpoint does not wait: the
// sender is told when to come back.
type balancer struct {
	limit int // of writes in flight at one endpoint

	mu struct {
		sync.Mutex
		endpoints []load
		// turn is where the search for the least loaded starts.
		turn int
		// line holds the waiting writes, first come first.
		line []*waiter
	}
}

// load is an endpoint as the balancer sees it.
type load struct {
	health   health
	inFlight int
	// reason is the last failure, for the error of a write that finds the
	// endpoint left out.
	reason error
}

// grant is the right to send one write to one endpoint.
type grant struct {
	endpoint int
	probe    int // as health.begin numbers it, 0 for none
}

type waiter struct {
	tried []bool
	// answer takes the outcome; it has room for it, so that who answers never
	// blocks.
	answer chan choice
}

// choice is the outcome of a search for an endpoint.
type choice struct {
	grant
	// ok says that there is a grant; full that waiting may help.
	ok, full bool
}

// Causes of a write that found no endpoint.
var (
	// ErrNoEndpoint says that every endpoint was tried or is left out.
	ErrNoEndpoint = errors.New("every one failed or is left out")
	// ErrFull says that the endpoints that are ready stayed full.
	ErrFull = errors.New("every connection stayed in use")
)

// verdict is what a write that ended says about its endpoint.
type verdict int

const (
	tookIt verdict = iota
	failedIt
	saysNothing
)

func newBalancer(endpoints, limit int) *balancer {
	b := &balancer{limit: limit}
	b.mu.endpoints = make([]load, endpoints)
	return b
}

// acquire returns the right to send to one of the endpoints that are not marked
// in tried, which it marks. While all that are ready are full it blocks, for
// patience at most. Its error is ErrNoEndpoint, ErrFull or that of ctx. Every
// grant must be given to release.
func (b *balancer) acquire(ctx context.Context, now time.Time, patience time.Duration, tried []bool) (grant, error) {
	if ctx.Err() != nil {
		return grant{}, context.Cause(ctx)
	}
	c, w := b.chooseOrWait(now, tried)
	if w == nil {
		return c.take(tried)
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	err := ErrFull
	select {
	case c = <-w.answer:
		return c.take(tried)
	case <-timer.C:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if b.leaveLine(w) {
		return grant{}, err
	}
	// The answer came at the same moment.
	return (<-w.answer).take(tried)
}

// chooseOrWait returns a choice, or the place in line of a write that must wait.
func (b *balancer) chooseOrWait(now time.Time, tried []bool) (choice, *waiter) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.mu.line) == 0 {
		if c := b.chooseLocked(now, tried); c.ok || !c.full {
			return c, nil
		}
	}
	// Who comes now does not overtake the line, unless the line waits for
	// endpoints that this write has tried.
	w := &waiter{tried: tried, answer: make(chan choice, 1)}
	b.mu.line = append(b.mu.line, w)
	b.serveLocked(now)
	return choice{}, w
}

// leaveLine reports whether the waiter was still in line.
func (b *balancer) leaveLine(w *waiter) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.mu.line, w)
	if i < 0 {
		return false
	}
	b.mu.line = slices.Delete(b.mu.line, i, i+1)
	return true
}

func (c choice) take(tried []bool) (grant, error) {
	if !c.ok {
		return grant{}, ErrNoEndpoint
	}
	tried[c.endpoint] = true
	return c.grant, nil
}

// report is what a write that ended says about its endpoint.
type report struct {
	verdict verdict
	// reason is why the endpoint failed, asked how long it asked to be left alone.
	reason error
	asked  time.Duration
}

// release gives a grant back. random is as in health.failed.
func (b *balancer) release(g grant, now time.Time, r report, random float64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := &b.mu.endpoints[g.endpoint]
	e.inFlight--
	switch r.verdict {
	case tookIt:
		e.health.succeeded()
	case failedIt:
		e.health.failed(now, g.probe, r.asked, random)
		e.reason = r.reason
	case saysNothing:
		e.health.abandoned(g.probe)
	}
	b.serveLocked(now)
}

// serveLocked answers every waiting write that need not wait any longer.
func (b *balancer) serveLocked(now time.Time) {
	b.mu.line = slices.DeleteFunc(b.mu.line, func(w *waiter) bool {
		c := b.chooseLocked(now, w.tried)
		if c.full && !c.ok {
			return false
		}
		w.answer <- c
		return true
	})
}

// chooseLocked picks an endpoint and counts the write there.
func (b *balancer) chooseLocked(now time.Time, tried []bool) (c choice) {
	n := len(b.mu.endpoints)
	best := -1
	for k := range n {
		i := (b.mu.turn + k) % n
		e := &b.mu.endpoints[i]
		if tried[i] || !e.health.ready(now) {
			continue
		}
		if e.inFlight >= b.limit {
			c.full = true
			continue
		}
		if !e.health.healthy() {
			best = i
			break
		}
		if best < 0 || e.inFlight < b.mu.endpoints[best].inFlight {
			best = i
		}
	}
	if best < 0 {
		return c
	}
	e := &b.mu.endpoints[best]
	e.inFlight++
	b.mu.turn = (best + 1) % n
	return choice{grant: grant{endpoint: best, probe: e.health.begin()}, ok: true}
}

// state describes an endpoint at the time now.
func (b *balancer) state(i int, now time.Time) State {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := &b.mu.endpoints[i]
	return State{Healthy: e.health.healthy(), InFlight: e.inFlight, Reason: e.reason, Wait: max(0, e.health.until.Sub(now))}
}
