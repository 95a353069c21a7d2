package remotewrite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/version"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Sink forwards batches to a remote write destination. It is safe for concurrent
// use.
type Sink struct {
	format    ingester.Format
	timeout   time.Duration
	endpoints []*endpoint
	balancer  *balancer
	metrics   *metrics
	log       *complaints
	// encoders holds *encoder, scratch and buffers *[]byte: what is compressed into,
	// and compressed requests. They are apart because a request waits for the
	// network far longer than it takes to encode, and needs a tenth of the memory then.
	encoders, scratch, buffers sync.Pool
}

// Sink implements ingester.Sink.
var _ ingester.Sink = (*Sink)(nil)

// New makes a sink. It reads the files that the options name, connects to nothing
// and starts nothing. The logger says which sink it is; so must reg where several
// sinks share it, by a label of its own. reg may be nil.
func New(o Options, logger *slog.Logger, reg prometheus.Registerer) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{
		format:   o.format(),
		timeout:  time.Duration(o.Timeout),
		balancer: newBalancer(len(o.Endpoints), o.MaxConnectionsPerEndpoint),
		metrics:  newMetrics(reg),
		log:      newComplaints(logger),
	}
	s.encoders.New = func() any { return newEncoder() }
	s.scratch.New = func() any { return new([]byte) }
	s.buffers.New = func() any { return new([]byte) }
	header := o.header()
	for i, u := range o.Endpoints {
		transport, err := newTransport(&o)
		if err != nil {
			return nil, err
		}
		name := endpointName(u.URL)
		s.endpoints = append(s.endpoints, &endpoint{
			name:   name,
			url:    u.String(),
			header: header,
			client: &http.Client{
				Transport:     transport,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
			v2:      s.format == ingester.RemoteWrite2,
			metrics: s.metrics.endpoint(name, func() bool { return s.balancer.outlook(i, time.Time{}).healthy }),
		})
	}
	return s, nil
}

// header are the headers of every request.
func (o *Options) header() http.Header {
	h := make(http.Header)
	for name, value := range o.Headers {
		h.Set(name, value)
	}
	h.Set("Content-Encoding", "snappy")
	h.Set("User-Agent", version.ComponentUserAgent("Spillway"))
	h.Set("Content-Type", "application/x-protobuf")
	h.Set(versionHeader, "0.1.0")
	if o.ProtobufMessage == MessageV2 {
		h.Set("Content-Type", "application/x-protobuf;proto="+MessageV2)
		h.Set(versionHeader, "2.0.0")
	}
	return h
}

// Close closes the idle connections. Writes must have ended. The error is nil.
func (s *Sink) Close() error {
	for _, e := range s.endpoints {
		e.client.CloseIdleConnections()
	}
	return nil
}

// Write implements ingester.Sink: it sends the admitted groups and blocks until
// the destination has answered, or ctx has ended. Its errors are
// *ingester.SinkError. The retryable ones name every endpoint and what is wrong
// with it.
func (s *Sink) Write(ctx context.Context, b *ingester.Batch) error {
	m := s.pack(b)
	defer s.unpack(m)
	if len(m.packed) == 0 {
		s.settle(b, m, answer{})
		return nil
	}
	a, err := s.deliver(ctx, m)
	if err != nil {
		return err
	}
	s.settle(b, m, a)
	return nil
}

// message is one request on its way.
type message struct {
	packed []byte
	// buffer is where packed lies if it is ours.
	buffer *[]byte
	sent   sent
}

// pack encodes and compresses a batch. s2 writes valid snappy blocks as fast as
// golang/snappy where series are much alike, 2.5 times as fast where their labels
// hold random parts; the sizes differ by a few percent either way. The message must
// be given to unpack.
func (s *Sink) pack(b *ingester.Batch) *message {
	m := &message{}
	if b.Whole && b.Format == s.format {
		for i := range b.Groups {
			m.sent.add(&b.Groups[i])
		}
		if m.packed = b.Packed; len(m.packed) == 0 {
			s.compress(m, b.Body[:b.Size])
		}
		return m
	}
	e := s.encoders.Get().(*encoder)
	defer s.encoders.Put(e)
	raw := e.encode(b, s.format)
	m.sent = e.sent
	m.sent.refused = append([]refusal(nil), e.sent.refused...)
	if len(raw) > 0 {
		s.compress(m, raw)
	}
	return m
}

func (s *Sink) compress(m *message, raw []byte) {
	scratch := s.scratch.Get().(*[]byte)
	defer s.scratch.Put(scratch)
	*scratch = s2.EncodeSnappy((*scratch)[:cap(*scratch)], raw)
	m.buffer = s.buffers.Get().(*[]byte)
	m.packed = append((*m.buffer)[:0], *scratch...)
	*m.buffer = m.packed
}

func (s *Sink) unpack(m *message) {
	if m.buffer != nil {
		s.buffers.Put(m.buffer)
	}
}

// deliver sends a message to one endpoint after the other until one has an
// answer that holds for all of them.
func (s *Sink) deliver(ctx context.Context, m *message) (answer, error) {
	t := attempts{tried: make([]bool, len(s.endpoints)), answers: make([]answer, len(s.endpoints))}
	for {
		g, err := s.balancer.acquire(ctx, time.Now(), s.timeout, t.tried)
		if err != nil {
			return answer{}, s.giveUp(err, &t)
		}
		e := s.endpoints[g.endpoint]
		if t.count > 0 {
			e.metrics.retries.Inc()
		}
		a := s.attempt(ctx, g, m, t.count)
		t.count++
		switch a.outcome {
		case stored:
			return a, nil
		case refused:
			return a, &ingester.SinkError{Err: fmt.Errorf("%s %w", e.name, a.err), Final: true}
		case overloaded:
			return a, &ingester.SinkError{Err: fmt.Errorf("%s %w", e.name, a.err), RetryAfter: a.asked}
		}
		t.answers[g.endpoint] = a
	}
}

// attempts is what one write has tried so far.
type attempts struct {
	tried   []bool
	answers []answer
	count   int
}

// attempt sends a message to the endpoint of a grant, which it gives back.
func (s *Sink) attempt(ctx context.Context, g grant, m *message, number int) (a answer) {
	e := s.endpoints[g.endpoint]
	a = answer{outcome: abandoned}
	// Deferred, so that a panic in a transport costs no connection.
	defer func() {
		now := time.Now()
		s.balancer.release(g, now, a.report(), rand.Float64())
		s.log.answer(e, a, now)
	}()
	return e.send(ctx, m.packed, s.timeout, number)
}

// report is what an answer says about the endpoint. One that answers at once that
// it does not accept our requests would look like the least loaded, so it counts
// as failed.
func (a answer) report() report {
	switch a.outcome {
	case broken, misconfigured:
		return report{verdict: failedIt, reason: a.err, asked: a.asked}
	case abandoned:
		return report{verdict: saysNothing}
	}
	return report{verdict: tookIt}
}

// giveUp is the error of a write that no endpoint took. The sender is told to
// wait until the first of them may be tried again, or as long as it asked for.
func (s *Sink) giveUp(cause error, t *attempts) error {
	now := time.Now()
	err := &ingester.SinkError{}
	texts := []error{fmt.Errorf("no endpoint took the batch: %w", cause)}
	for i, e := range s.endpoints {
		o, wait := s.balancer.outlook(i, now), time.Duration(0)
		switch a := t.answers[i]; {
		case a.err != nil:
			texts = append(texts, fmt.Errorf("%s %w", e.name, a.err))
			wait = max(o.wait, a.asked)
		case o.wait > 0:
			texts = append(texts, fmt.Errorf("%s is left out for another %s: it %w", e.name, o.wait.Round(time.Millisecond), o.reason))
			wait = o.wait
		case !o.healthy:
			texts = append(texts, fmt.Errorf("%s is being tried by another batch: it %w", e.name, o.reason))
		case errors.Is(cause, errFull):
			texts = append(texts, fmt.Errorf("%s has all of its max_connections_per_endpoint (%d) in use", e.name, s.balancer.limit))
		default:
			texts = append(texts, fmt.Errorf("%s was not tried", e.name))
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
