package otlp

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/relabel"
)

// stored is one item as a sink got it.
type stored struct {
	labels map[string]string // those in view, after the rules
	item   string            // the message's bytes
	items  uint32
	chain  []string // the messages around it, from the outermost, without what they hold
}

// recorder is a sink that keeps what it gets.
type recorder struct {
	mu      sync.Mutex
	items   []stored
	headers []http.Header
	batches int
	whole   int
	fail    error
}

func (r *recorder) Write(_ context.Context, b *ingester.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		return r.fail
	}
	r.batches++
	r.headers = append(r.headers, b.Headers)
	if b.Whole {
		r.whole++
	}
	for i := range b.Groups {
		g := &b.Groups[i]
		if !g.Admitted() {
			continue
		}
		s := stored{labels: labelMap(b.Labels(g)), item: string(b.Message(g)), items: g.Floats}
		for at := g.Parent; at >= 0; at = b.Containers[at].Parent {
			c := b.Containers[at]
			s.chain = append([]string{string(b.Body[c.Field.Start:c.Message])}, s.chain...)
		}
		r.items = append(r.items, s)
	}
	return nil
}

func labelMap(set []byte) map[string]string {
	var ts prompb.TimeSeries
	if err := ts.Unmarshal(set); err != nil {
		return map[string]string{"!": err.Error()}
	}
	out := map[string]string{}
	for i, l := range ts.Labels {
		if i > 0 && ts.Labels[i-1].Name >= l.Name {
			return map[string]string{"!": "labels are not sorted: " + ts.Labels[i-1].Name + ", " + l.Name}
		}
		out[l.Name] = l.Value
	}
	return out
}

// system is a receiver with everything behind it, but for the sink.
type system struct {
	t        testing.TB
	ingester *ingester.Ingester
	receiver *Receiver
	front    *receive.Front
	sink     *recorder
	settings ingester.Settings
	held     int64 // of memory, by others
}

// setup is what a test varies.
type setup struct {
	policy, relabel, keys string
	options               func(*Options)
	limits                receive.Limits
	memory                int64
	held                  int64 // of memory, by others
	silent                bool
}

func newSystem(t testing.TB, u setup) *system {
	t.Helper()
	s := &system{t: t, sink: &recorder{}}
	s.settings = ingester.Settings{
		Exempt:     ingester.ExemptLabel{Label: "kfuse", Value: "true"},
		Limits:     ingester.LabelLimits{Names: 128, NameBytes: 1024, ValueBytes: 16 << 10, SetBytes: 32 << 10},
		RouteBytes: 1 << 20,
	}
	if u.keys != "" {
		keys, err := ingester.ParseKeys([]byte(u.keys), "keys.yaml")
		require.NoError(t, err)
		s.settings.Keys = keys
	}
	set, err := policy.Load([]byte(u.policy), "policy.yaml", 1)
	require.NoError(t, err)
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(u.relabel), &doc))
	var node *yaml.Node
	if len(doc.Content) > 0 {
		node = doc.Content[0]
	}
	for _, stream := range ingester.Streams() {
		rules, err := relabel.Parse(node)
		require.NoError(t, err)
		s.settings.Streams[stream] = ingester.StreamSettings{
			Rules: rules, Policy: set.Stream(stream.String()), Sink: s.sink, SinkName: "recorder", Silent: u.silent,
		}
	}
	g, err := governor.New(governor.Defaults(), nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	if u.memory == 0 {
		u.memory = 256 << 20
	}
	s.ingester, err = ingester.New(s.settings, u.memory, g)
	require.NoError(t, err)
	s.held = u.held
	require.True(t, s.ingester.Memory().Grow(u.held))
	if u.limits == (receive.Limits{}) {
		u.limits = receive.Limits{BodyBytes: 4 << 20, DecodedBytes: 16 << 20}
	}
	s.front = &receive.Front{Ingester: s.ingester, Limits: u.limits, ForwardHeaders: []string{"x-scope-orgid"}}
	o := DefaultOptions()
	if u.options != nil {
		u.options(&o)
	}
	s.receiver = New(s.front, o)
	return s
}

// walk walks a message under the rules of a stream.
func (s *system) walk(stream ingester.Stream, format ingester.Format, message []byte, how Grouping) (*ingester.Batch, error) {
	b := &ingester.Batch{Stream: stream, Format: format, Body: append([]byte(nil), message...), Size: len(message), Received: time.Now()}
	memory := s.ingester.Memory()
	defer memory.Release()
	err := s.receiver.Walk(b, memory, how)
	return b, err
}

// counts reads the ingester's metrics of a stream, summed over classes, keyed by
// name without prefix and suffix, with the reason behind a slash.
func (s *system) counts(stream ingester.Stream) map[string]int64 {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(s.t, reg.Register(s.ingester))
	families, err := reg.Gather()
	require.NoError(s.t, err)
	counts := map[string]int64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name, of := f.GetName(), ""
			for _, l := range m.GetLabel() {
				switch l.GetName() {
				case "stream":
					of = l.GetValue()
				case "reason":
					name += "/" + l.GetValue()
				}
			}
			if of == stream.String() {
				counts[name] += int64(m.GetCounter().GetValue())
			}
			if name == "spillway_request_bytes" {
				counts[name] = int64(m.GetGauge().GetValue())
			}
		}
	}
	return counts
}

// requireConserved checks the conservation law of items.
func (s *system) requireConserved(stream ingester.Stream) map[string]int64 {
	s.t.Helper()
	c := s.counts(stream)
	sum := c["spillway_invalid_items_total"] + c["spillway_dropped_items_total/relabel"] + c["spillway_dropped_items_total/ratelimit"] +
		c["spillway_exempt_items_total"] + c["spillway_admitted_items_total"] + c["spillway_refused_items_total/sink"]
	require.Equal(s.t, c["spillway_received_items_total"], sum, "conservation of items: %v", c)
	require.Equal(s.t, s.held, c["spillway_request_bytes"], "bytes in memory are given back")
	return c
}

// servers serves OTLP over gRPC and over HTTP on ports of their own, as cmd does.
func (s *system) servers() (grpcAddress, httpAddress string) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	overGRPC := httptest.NewUnstartedServer(s.receiver.GRPC(func() bool { return false }))
	overGRPC.Config.Protocols = &protocols
	overGRPC.Start()
	s.t.Cleanup(overGRPC.Close)
	overHTTP := httptest.NewServer(s.mux())
	s.t.Cleanup(overHTTP.Close)
	return overGRPC.Listener.Addr().String(), overHTTP.Listener.Addr().String()
}

func (s *system) mux() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/v1/metrics", s.receiver.HTTP(ingester.Metrics, ingester.OTLPMetrics))
	mux.Handle("/v1/logs", s.receiver.HTTP(ingester.Logs, ingester.OTLPLogs))
	mux.Handle("/v1/traces", s.receiver.HTTP(ingester.Traces, ingester.OTLPTraces))
	mux.Handle("/ingester/otlp/k8s_events", s.receiver.HTTP(ingester.Events, ingester.OTLPLogs))
	return mux
}

func streamOf(format ingester.Format) ingester.Stream {
	switch format {
	case ingester.OTLPMetrics:
		return ingester.Metrics
	case ingester.OTLPTraces:
		return ingester.Traces
	case ingester.OTLPLogs:
		return ingester.Logs
	}
	panic(fmt.Sprint("no OTLP format: ", format))
}
