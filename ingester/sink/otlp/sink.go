package otlp

import (
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// Sink sends batches to an OTLP destination. It is safe for concurrent use.
type Sink struct {
	to       *sink.HTTP
	grpc     bool
	timeout  time.Duration
	compress *sink.Compressor
	// passes are the encodings in which a batch may leave as it came.
	passes []string
	// encoders holds *sink.Encoder, buffers *[]byte of compressed requests. They are
	// apart because a request waits for the network far longer than it takes to
	// encode.
	encoders, buffers sync.Pool
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
	s := &Sink{grpc: o.Protocol == ProtocolGRPC, timeout: time.Duration(o.Timeout)}
	var err error
	if s.compress, err = sink.NewCompressor(o.Compression); err != nil {
		return nil, err
	}
	if s.to, err = sink.NewHTTP(&o.HTTPOptions, s.grpc, logger, reg); err != nil {
		return nil, err
	}
	s.passes = append(slices.Clone(o.AcceptedEncodings), s.compress.Encoding())
	s.encoders.New = func() any { return new(sink.Encoder) }
	s.buffers.New = func() any { return new([]byte) }
	return s, nil
}

// Close closes the idle connections. Writes must have ended. The error is nil.
func (s *Sink) Close() error { return s.to.Close() }

// Write implements ingester.Sink: it sends the admitted groups of an OTLP batch and
// blocks until the destination has answered, or ctx has ended. Its errors are
// *ingester.SinkError. The retryable ones name every endpoint and what is wrong
// with it.
func (s *Sink) Write(ctx context.Context, b *ingester.Batch) error {
	kind, ok := kindOf(b.Format)
	if !ok {
		return &ingester.SinkError{Err: fmt.Errorf("format %d is not OTLP, which is all that this sink takes", b.Format)}
	}
	m, ok := s.pack(b)
	defer s.unpack(&m)
	if !ok {
		return nil
	}
	var rejected int64
	r := &sink.Request{Message: m.packed, Answers: longestAnswer}
	if s.grpc {
		s.callOf(r, b, kind, &m)
		r.Judge = func(resp *http.Response, body []byte) (a sink.Answer) {
			a, rejected = judgeCall(resp, body)
			return a
		}
	} else {
		s.postOf(r, b, kind, &m)
		r.Judge = func(resp *http.Response, body []byte) (a sink.Answer) {
			a, rejected = judgePost(resp, body, time.Now())
			return a
		}
	}
	if err := s.to.Post(ctx, r); err != nil {
		return err
	}
	sink.RejectLast(b, rejected)
	return nil
}

// kind is one of OTLP's three services.
type kind struct{ path, service string }

func kindOf(f ingester.Format) (kind, bool) {
	switch f {
	case ingester.OTLPMetrics:
		return kind{"v1/metrics", "opentelemetry.proto.collector.metrics.v1.MetricsService"}, true
	case ingester.OTLPLogs:
		return kind{"v1/logs", "opentelemetry.proto.collector.logs.v1.LogsService"}, true
	case ingester.OTLPTraces:
		return kind{"v1/traces", "opentelemetry.proto.collector.trace.v1.TraceService"}, true
	}
	return kind{}, false
}

// message is one request on its way.
type message struct {
	packed   []byte
	encoding string
	buffer   *[]byte // where packed lies if it is ours
}

// pack encodes and compresses a batch. It reports false if nothing is left to send.
// The message must be given to unpack.
func (s *Sink) pack(b *ingester.Batch) (m message, ok bool) {
	if b.Whole && len(b.Packed) > 0 && b.Encoding != "" && slices.Contains(s.passes, b.Encoding) {
		return message{packed: b.Packed, encoding: b.Encoding}, true
	}
	e := s.encoders.Get().(*sink.Encoder)
	defer s.encoders.Put(e)
	raw := e.Encode(b, nil)
	if len(raw) == 0 {
		return m, false
	}
	m.encoding = s.compress.Encoding()
	if m.encoding == "" && b.Whole {
		m.packed = raw // the batch's, which nobody writes to
		return m, true
	}
	m.buffer = s.buffers.Get().(*[]byte)
	if m.encoding == "" {
		// The encoder is free for others while the request waits.
		*m.buffer = append((*m.buffer)[:0], raw...)
	} else {
		*m.buffer = s.compress.Compress(*m.buffer, raw)
	}
	m.packed = *m.buffer
	return m, true
}

func (s *Sink) unpack(m *message) {
	if m.buffer != nil {
		s.buffers.Put(m.buffer)
	}
}

// postOf makes a request of OTLP over HTTP.
func (s *Sink) postOf(r *sink.Request, b *ingester.Batch, k kind, m *message) {
	r.Path = k.path
	protocol := []string{"Content-Type", "application/x-protobuf"}
	if m.encoding != "" {
		protocol = append(protocol, "Content-Encoding", m.encoding)
	}
	r.Header = s.to.Header(b.Headers, protocol...)
}

// callOf makes a request of OTLP over gRPC: a flag that says whether the message is
// compressed, its length, and the message.
func (s *Sink) callOf(r *sink.Request, b *ingester.Batch, k kind, m *message) {
	r.Path = k.service + "/Export"
	r.Prefix = make([]byte, 5)
	binary.BigEndian.PutUint32(r.Prefix[1:], uint32(len(m.packed)))
	protocol := []string{
		"Content-Type", "application/grpc", "Te", "trailers",
		"Grpc-Accept-Encoding", "gzip", "Grpc-Timeout", strconv.FormatInt(s.timeout.Milliseconds(), 10) + "m",
	}
	if m.encoding != "" {
		r.Prefix[0] = 1
		protocol = append(protocol, "Grpc-Encoding", m.encoding)
	}
	r.Header = s.to.Header(b.Headers, protocol...)
}
