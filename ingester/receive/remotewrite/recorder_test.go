package remotewrite

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/relabel"
)

// stored is one series as a sink got it.
type stored struct {
	labels  string
	message string // what the series holds beside its labels, printed
}

// recorder is a sink that decodes what it gets with the Prometheus library.
type recorder struct {
	mu     sync.Mutex
	series []stored
	whole  int
	fail   func() error // asked before each write; nil error stores
	reject func(b *ingester.Batch)
}

func (r *recorder) Write(_ context.Context, b *ingester.Batch) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(); err != nil {
			return err
		}
	}
	if b.Whole {
		r.whole++
		body, err := snappy.Decode(nil, b.Packed)
		if err != nil || string(body) != string(b.Body[:b.Size]) {
			return errors.New("a whole batch must still be what was received")
		}
	}
	if r.reject != nil {
		r.reject(b)
	}
	for i := range b.Groups {
		g := &b.Groups[i]
		if !g.Admitted() {
			continue
		}
		if b.Whole && g.Route.Changed() {
			return errors.New("a batch with changed labels is not whole")
		}
		s, err := decodeStored(b, g)
		if err != nil {
			return err
		}
		r.series = append(r.series, s)
	}
	return nil
}

func decodeStored(b *ingester.Batch, g *ingester.Group) (stored, error) {
	var set prompb.TimeSeries
	if err := set.Unmarshal(b.Labels(g)); err != nil {
		return stored{}, err
	}
	s := stored{labels: labelString(set.Labels)}
	if b.Format == ingester.RemoteWrite1 {
		var ts prompb.TimeSeries
		if err := ts.Unmarshal(b.Message(g)); err != nil {
			return stored{}, err
		}
		s.message = contentV1(ts)
		return s, nil
	}
	var ts writev2.TimeSeries
	if err := ts.Unmarshal(b.Message(g)); err != nil {
		return stored{}, err
	}
	s.message = contentV2(ts)
	return s, nil
}

func labelString(ls []prompb.Label) string {
	var sb strings.Builder
	for _, l := range ls {
		fmt.Fprintf(&sb, "%q=%q,", l.Name, l.Value)
	}
	return sb.String()
}

func contentV1(ts prompb.TimeSeries) string {
	ts.Labels = nil
	return marshalled(&ts)
}

func contentV2(ts writev2.TimeSeries) string {
	ts.LabelsRefs = nil
	return marshalled(&ts)
}

func marshalled(m interface{ Marshal() ([]byte, error) }) string {
	b, err := m.Marshal()
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%x", b)
}

// system is a handler with everything behind it, but for the sink.
type system struct {
	t        *testing.T
	ingester *ingester.Ingester
	handler  *Handler
	sink     *recorder
	settings ingester.Settings
}

var testLimits = Limits{BodyBytes: 1 << 20, DecodedBytes: 4 << 20, Series: 10_000, Items: 50_000}

func newSystem(t *testing.T, policyYAML, relabelYAML string) *system {
	t.Helper()
	s := &system{t: t, sink: &recorder{}}
	s.settings = ingester.Settings{
		Exempt:     ingester.ExemptLabel{Label: "kfuse", Value: "true"},
		Limits:     ingester.LabelLimits{Names: 64, NameBytes: 256, ValueBytes: 2048, SetBytes: 8 << 10},
		RouteBytes: 1 << 20,
	}
	s.configure(policyYAML, relabelYAML)
	g, err := governor.New(governor.Defaults(), nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	s.ingester, err = ingester.New(s.settings, 64<<20, g)
	require.NoError(t, err)
	s.handler = NewHandler(s.ingester, testLimits, http.StatusServiceUnavailable)
	return s
}

func (s *system) configure(policyYAML, relabelYAML string) {
	set, err := policy.Load([]byte(policyYAML), "policy.yaml", 1)
	require.NoError(s.t, err)
	var doc yaml.Node
	require.NoError(s.t, yaml.Unmarshal([]byte(relabelYAML), &doc))
	var node *yaml.Node
	if len(doc.Content) > 0 {
		node = doc.Content[0]
	}
	for _, stream := range ingester.Streams() {
		rules, err := relabel.Parse(node)
		require.NoError(s.t, err)
		s.settings.Streams[stream] = ingester.StreamSettings{
			Rules: rules, Policy: set.Stream(stream.String()), Sink: s.sink, SinkName: "recorder", Silent: s.settings.Streams[stream].Silent,
		}
	}
}

const (
	contentTypeV1 = "application/x-protobuf"
	contentTypeV2 = "application/x-protobuf;proto=io.prometheus.write.v2.Request"
)

// post sends a compressed body as a Prometheus would.
func (s *system) post(contentType string, packed []byte, change ...func(*http.Request)) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, "/api/v1/write", strings.NewReader(string(packed)))
	req.Header.Set("Content-Type", contentType)
	req.Header.Set("Content-Encoding", "snappy")
	for _, c := range change {
		c(req)
	}
	rec := httptest.NewRecorder()
	s.handler.ServeHTTP(rec, req)
	return rec
}

func (s *system) postV1(req *prompb.WriteRequest) *httptest.ResponseRecorder {
	body, err := req.Marshal()
	require.NoError(s.t, err)
	return s.post(contentTypeV1, snappy.Encode(nil, body))
}

func (s *system) postV2(req *writev2.Request) *httptest.ResponseRecorder {
	body, err := req.Marshal()
	require.NoError(s.t, err)
	return s.post(contentTypeV2, snappy.Encode(nil, body))
}

// counts reads the ingester's metrics of a stream, summed over classes, keyed by
// name without prefix and suffix, with the reason behind a slash.
func (s *system) counts() map[string]int64 {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(s.t, reg.Register(s.ingester))
	families, err := reg.Gather()
	require.NoError(s.t, err)
	counts := map[string]int64{}
	for _, f := range families {
		name := strings.TrimSuffix(strings.TrimPrefix(f.GetName(), "spillway_"), "_total")
		for _, m := range f.GetMetric() {
			counts[name+reasonOf(m)] += int64(m.GetCounter().GetValue())
		}
	}
	return counts
}

func reasonOf(m *dto.Metric) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == "reason" {
			return "/" + l.GetValue()
		}
	}
	return ""
}

// requireConserved checks the conservation law of items.
func (s *system) requireConserved() map[string]int64 {
	s.t.Helper()
	c := s.counts()
	sum := c["invalid_items"] + c["dropped_items/relabel"] + c["dropped_items/ratelimit"] +
		c["exempt_items"] + c["admitted_items"] + c["refused_items/sink"]
	require.Equal(s.t, c["received_items"], sum, "conservation of items: %v", c)
	require.Zero(s.t, int64(s.gauge("spillway_request_bytes")), "bytes in memory are given back")
	return c
}

func (s *system) gauge(name string) float64 {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(s.t, reg.Register(s.ingester))
	families, err := reg.Gather()
	require.NoError(s.t, err)
	for _, f := range families {
		if f.GetName() == name {
			return f.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// series builds a 1.0 series with one sample, from name and value in turn.
func series(value float64, ms int64, pairs ...string) prompb.TimeSeries {
	ts := prompb.TimeSeries{Samples: []prompb.Sample{{Value: value, Timestamp: ms}}}
	for i := 0; i+1 < len(pairs); i += 2 {
		ts.Labels = append(ts.Labels, prompb.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return ts
}

// toV2 makes the 2.0 request of the same series.
func toV2(req *prompb.WriteRequest) *writev2.Request {
	table := writev2.NewSymbolTable()
	out := &writev2.Request{}
	for _, ts := range req.Timeseries {
		v2 := writev2.TimeSeries{}
		for _, l := range ts.Labels {
			v2.LabelsRefs = append(v2.LabelsRefs, table.Symbolize(l.Name), table.Symbolize(l.Value))
		}
		for _, smp := range ts.Samples {
			v2.Samples = append(v2.Samples, writev2.Sample{Value: smp.Value, Timestamp: smp.Timestamp})
		}
		out.Timeseries = append(out.Timeseries, v2)
	}
	out.Symbols = table.Symbols()
	return out
}
