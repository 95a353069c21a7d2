package remotewrite

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/klauspost/compress/s2"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// Sink forwards batches to a remote write destination. It is safe for concurrent
// use.
type Sink struct {
	format  ingester.Format
	to      *sink.HTTP
	metrics *metrics
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
	to, err := sink.NewHTTP(&o.HTTPOptions, false, logger, reg)
	if err != nil {
		return nil, err
	}
	s := &Sink{format: o.format(), to: to, metrics: newMetrics(reg)}
	s.encoders.New = func() any { return newEncoder() }
	s.scratch.New = func() any { return new([]byte) }
	s.buffers.New = func() any { return new([]byte) }
	return s, nil
}

// protocol are the headers that the protocol demands, in pairs.
func (s *Sink) protocol() []string {
	if s.format == ingester.RemoteWrite2 {
		return []string{"Content-Encoding", "snappy", "Content-Type", "application/x-protobuf;proto=" + MessageV2, versionHeader, "2.0.0"}
	}
	return []string{"Content-Encoding", "snappy", "Content-Type", "application/x-protobuf", versionHeader, "0.1.0"}
}

// Close closes the idle connections. Writes must have ended. The error is nil.
func (s *Sink) Close() error { return s.to.Close() }

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
	var a answer
	err := s.to.Post(ctx, &sink.Request{
		Header:  s.to.Header(b.Headers, s.protocol()...),
		Message: m.packed,
		Judge: func(r *http.Response, body []byte) sink.Answer {
			a = judge(r.StatusCode, r.Header, sink.OneLine(body), s.format == ingester.RemoteWrite2, time.Now())
			return a.Answer
		},
	})
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
