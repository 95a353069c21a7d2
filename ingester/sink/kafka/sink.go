package kafka

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/segmentio/kafka-go"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// Sink produces batches to Kafka. It is safe for concurrent use.
type Sink struct {
	options     Options
	logger      *slog.Logger
	transport   *kafka.Transport
	client      *kafka.Client
	compression kafka.Compression
	pool        *sink.Pool
	topics      *topics
	metrics     *metrics
	// connections has room for as many produce requests as may be under way.
	connections chan struct{}
	encoders    sync.Pool
}

// Sink implements ingester.Sink.
var _ ingester.Sink = (*Sink)(nil)

// ReasonTooLarge is given to ingester.Batch.Reject: the item alone is larger than
// max_message_bytes.
const ReasonTooLarge = "larger_than_max_message_bytes"

// New makes a sink. It reads the files that the options name, connects to nothing
// and starts nothing. The logger says which sink it is; so must reg where several
// sinks share it, by a label of its own. reg may be nil.
func New(o Options, logger *slog.Logger, reg prometheus.Registerer) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	var names []string
	for _, topic := range o.Topics {
		names = append(names, topic)
	}
	transport, err := o.transport(names)
	if err != nil {
		return nil, err
	}
	timeout := time.Duration(o.Timeout)
	s := &Sink{options: o, logger: logger, transport: transport, connections: make(chan struct{}, o.MaxConnectionsPerBroker)}
	s.client = &kafka.Client{Addr: kafka.TCP(o.Brokers...), Timeout: timeout, Transport: transport}
	s.compression, _ = o.compression()
	// The cluster is one endpoint: a write needs all of it.
	s.pool = sink.NewPool([]string{"kafka " + strings.Join(o.Brokers, ",")}, o.MaxConnectionsPerBroker, timeout, logger)
	s.topics = &topics{client: s.client, create: o.CreateTopics, known: make(map[string]partitions)}
	s.metrics = newMetrics(reg, names, func() bool { return s.pool.State(0, time.Time{}).Healthy })
	s.encoders.New = func() any { return new(sink.Encoder) }
	return s, nil
}

// Start makes or checks the topics of the streams. A cluster that cannot be reached
// now is no error: it is logged, and the first write tries again. One that can be
// reached and has no such topic, or does not let us in, is.
func (s *Sink) Start(ctx context.Context, streams []ingester.Stream) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.options.Timeout))
	defer cancel()
	for _, stream := range streams {
		topic := s.options.Topics[stream.String()]
		_, err := s.topics.count(ctx, topic, time.Now())
		switch {
		case err == nil:
		case s.mayPass(err):
			s.logger.Warn("the cluster cannot be asked for a topic now; senders keep their data until it can", "topic", topic, "err", err)
			return nil
		default:
			return fmt.Errorf("topics.%s: topic %q: %w", stream, topic, err)
		}
	}
	return nil
}

// Close closes the connections. Writes must have ended. The error is nil.
func (s *Sink) Close() error {
	s.transport.CloseIdleConnections()
	return nil
}

// Write implements ingester.Sink: it produces the admitted groups of an OTLP batch
// and blocks until all in-sync replicas have acknowledged them, or the timeout is
// over. Its errors are *ingester.SinkError that may be retried.
func (s *Sink) Write(ctx context.Context, b *ingester.Batch) error {
	if b.Format != ingester.OTLPMetrics && b.Format != ingester.OTLPLogs && b.Format != ingester.OTLPTraces {
		return &ingester.SinkError{Err: fmt.Errorf("format %d is not OTLP, which is all that this sink takes", b.Format)}
	}
	topic := s.options.Topics[b.Stream.String()]
	var tooLarge []int
	err := s.pool.Deliver(ctx, func(ctx context.Context, _, _ int) sink.Answer {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(s.options.Timeout))
		defer cancel()
		n, err := s.topics.count(ctx, topic, time.Now())
		if err != nil {
			return s.answer(err)
		}
		var messages []message
		if messages, tooLarge, err = s.messages(b, n); err != nil {
			return sink.Answer{Outcome: sink.Refused, Err: err}
		}
		return s.answer(s.produceAll(ctx, topic, messages, headers(b)))
	})
	if err != nil {
		return err
	}
	for _, i := range tooLarge {
		g := &b.Groups[i]
		b.Reject(g, uint32(g.Items()), ReasonTooLarge)
	}
	return nil
}

// message is one record on its way.
type message struct {
	partition int
	value     []byte
}

// messages makes the messages of a batch for a topic of n partitions, and lists the
// groups that are too large for one. Their bytes are nobody else's, since the client
// may still be reading them when a write has timed out.
func (s *Sink) messages(b *ingester.Batch, n int) (messages []message, tooLarge []int, err error) {
	to := make([]int, 0, len(b.Groups))
	used := make([]bool, n)
	for i, key := range sink.Keys(nil, b) {
		p := int(key % uint64(n))
		to = append(to, p)
		used[p] = used[p] || b.Groups[i].Admitted()
	}
	e := s.encoders.Get().(*sink.Encoder)
	defer s.encoders.Put(e)
	for p := range used {
		if !used[p] {
			continue
		}
		keep := func(i int) bool { return to[i] == p }
		err = e.Split(b, keep, s.options.MaxMessageBytes, func(request []byte, alone int) error {
			if alone >= 0 {
				tooLarge = append(tooLarge, alone)
				return nil
			}
			messages = append(messages, message{p, slices.Clone(request)})
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return messages, tooLarge, nil
}

// headers are what is passed on with a batch.
func headers(b *ingester.Batch) (hs []kafka.Header) {
	for name, values := range b.Headers {
		for _, v := range values {
			hs = append(hs, kafka.Header{Key: strings.ToLower(name), Value: []byte(v)})
		}
	}
	return hs
}

// produceAll produces messages, those of one partition in their order, and returns
// the first error once all have ended.
func (s *Sink) produceAll(ctx context.Context, topic string, messages []message, hs []kafka.Header) error {
	var wg sync.WaitGroup
	var mu sync.Mutex
	var first error
	for len(messages) > 0 {
		n := 1
		for n < len(messages) && messages[n].partition == messages[0].partition {
			n++
		}
		same := messages[:n]
		messages = messages[n:]
		wg.Go(func() {
			for _, m := range same {
				if err := s.produce(ctx, topic, m, hs); err != nil {
					mu.Lock()
					defer mu.Unlock()
					if first == nil {
						first = fmt.Errorf("topic %s, partition %d: %w", topic, m.partition, err)
					}
					return
				}
			}
		})
	}
	wg.Wait()
	return first
}

// produce sends one message until it is acknowledged, an error cannot pass, or ctx
// ends.
func (s *Sink) produce(ctx context.Context, topic string, m message, hs []kafka.Header) error {
	select {
	case s.connections <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-s.connections }()
	began := time.Now()
	defer func() { s.metrics.seconds.WithLabelValues(topic).Observe(time.Since(began).Seconds()) }()
	var last error
	for wait := firstWait; ; wait = min(2*wait, longestWait) {
		err := s.once(ctx, topic, m, hs)
		if err == nil {
			s.metrics.messages.WithLabelValues(topic).Inc()
			s.metrics.bytes.WithLabelValues(topic).Add(float64(len(m.value)))
			return nil
		}
		s.metrics.errors.WithLabelValues(topic, errorName(err)).Inc()
		if last == nil || !errors.Is(err, context.DeadlineExceeded) {
			last = err // says more than that the time was over
		}
		if !s.mayPass(err) {
			return last
		}
		select {
		case <-ctx.Done():
			return last
		case <-time.After(wait):
		}
	}
}

// The waits between tries of one message. A new leader is elected within seconds.
const (
	firstWait   = 50 * time.Millisecond
	longestWait = time.Second
)

func (s *Sink) once(ctx context.Context, topic string, m message, hs []kafka.Header) error {
	key := strconv.Itoa(m.partition)
	r, err := s.client.Produce(ctx, &kafka.ProduceRequest{
		Topic: topic, Partition: m.partition, RequiredAcks: kafka.RequireAll, Compression: s.compression,
		Records: kafka.NewRecordReader(kafka.Record{
			Time: time.Now(), Key: kafka.NewBytes([]byte(key)), Value: kafka.NewBytes(m.value), Headers: hs,
		}),
	})
	if err != nil {
		return err
	}
	return r.Error
}

// mayPass says that an error may be gone in a while. What the cluster says about us
// or about a topic does not pass by itself; all else, the network first of all, may.
func (s *Sink) mayPass(err error) bool {
	var e kafka.Error
	switch {
	case errors.Is(err, errMissing):
		return false
	case errors.As(err, &e):
		return e.Temporary() || e.Timeout()
	}
	return true
}

// answer is what an error says about the cluster.
func (s *Sink) answer(err error) sink.Answer {
	switch {
	case err == nil:
		return sink.Answer{Outcome: sink.Stored}
	case errors.Is(err, context.Canceled):
		return sink.Answer{Outcome: sink.Abandoned, Err: err}
	case errors.Is(err, kafka.MessageSizeTooLarge):
		return sink.Answer{Outcome: sink.Misconfigured, Err: fmt.Errorf("%w: set max_message_bytes to what the topic's max.message.bytes allows", err)}
	case !s.mayPass(err):
		return sink.Answer{Outcome: sink.Misconfigured, Err: err}
	}
	return sink.Answer{Outcome: sink.Broken, Err: err}
}

// errorName is what metrics call an error.
func errorName(err error) string {
	var e kafka.Error
	if errors.As(err, &e) {
		return strings.ReplaceAll(strings.ToLower(e.Title()), " ", "_")
	}
	return networkError
}
