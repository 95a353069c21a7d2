package remotewrite

import (
	"fmt"
	"math"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// series is what both versions of the protocol can say about one series, in a
// form that can be compared: floats as their bits, histograms as bytes.
type series struct {
	Labels     []label
	Samples    []sample
	Histograms []string
	Exemplars  []exemplar
	Metadata   family
}

type label struct{ name, value string }

type sample struct {
	bits      uint64
	at, start int64
}

type exemplar struct {
	labels []label
	bits   uint64
	at     int64
}

type family struct {
	name, help, unit string
	typ              int32
}

// write is a request in that form.
type write struct {
	Series   []series
	Families []family
}

// decode reads a request with Prometheus's own code.
func decode(format ingester.Format, raw []byte) (w write, err error) {
	if format == ingester.RemoteWrite1 {
		var r prompb.WriteRequest
		if err = r.Unmarshal(raw); err != nil {
			return w, err
		}
		for _, ts := range r.Timeseries {
			w.Series = append(w.Series, series1(ts))
		}
		for _, m := range r.Metadata {
			w.Families = append(w.Families, family{m.MetricFamilyName, m.Help, m.Unit, int32(m.Type)})
		}
		return w, nil
	}
	var r writev2.Request
	if err = r.Unmarshal(raw); err != nil {
		return w, err
	}
	for i, ts := range r.Timeseries {
		s, err := series2(ts, r.Symbols)
		if err != nil {
			return w, fmt.Errorf("series %d: %w", i, err)
		}
		w.Series = append(w.Series, s)
	}
	return w, nil
}

func series1(ts prompb.TimeSeries) (s series) {
	s.Labels = plainLabels(ts.Labels)
	for _, v := range ts.Samples {
		s.Samples = append(s.Samples, sample{math.Float64bits(v.Value), v.Timestamp, 0})
	}
	for _, h := range ts.Histograms {
		h.XXX_unrecognized = nil
		raw, _ := h.Marshal()
		s.Histograms = append(s.Histograms, string(raw))
	}
	for _, e := range ts.Exemplars {
		s.Exemplars = append(s.Exemplars, exemplar{plainLabels(e.Labels), math.Float64bits(e.Value), e.Timestamp})
	}
	return s
}

func series2(ts writev2.TimeSeries, symbols []string) (s series, err error) {
	if s.Labels, err = refLabels(ts.LabelsRefs, symbols); err != nil {
		return s, err
	}
	for _, v := range ts.Samples {
		s.Samples = append(s.Samples, sample{math.Float64bits(v.Value), v.Timestamp, v.StartTimestamp})
	}
	for _, h := range ts.Histograms {
		h.XXX_unrecognized = nil
		raw, _ := h.Marshal()
		s.Histograms = append(s.Histograms, string(raw))
	}
	for _, e := range ts.Exemplars {
		labels, err := refLabels(e.LabelsRefs, symbols)
		if err != nil {
			return s, err
		}
		s.Exemplars = append(s.Exemplars, exemplar{labels, math.Float64bits(e.Value), e.Timestamp})
	}
	m := ts.Metadata
	if int(max(m.HelpRef, m.UnitRef)) >= len(symbols) && m.HelpRef+m.UnitRef > 0 {
		return s, fmt.Errorf("metadata refers to %d, %d of %d symbols", m.HelpRef, m.UnitRef, len(symbols))
	}
	if len(symbols) > 0 {
		s.Metadata = family{"", symbols[m.HelpRef], symbols[m.UnitRef], int32(m.Type)}
	}
	return s, nil
}

func plainLabels(from []prompb.Label) (labels []label) {
	for _, l := range from {
		labels = append(labels, label{l.Name, l.Value})
	}
	return labels
}

func refLabels(refs []uint32, symbols []string) (labels []label, err error) {
	if len(refs)%2 != 0 {
		return nil, fmt.Errorf("%d references", len(refs))
	}
	for i := 0; i < len(refs); i += 2 {
		if int(max(refs[i], refs[i+1])) >= len(symbols) {
			return nil, fmt.Errorf("references %v of %d symbols", refs, len(symbols))
		}
		labels = append(labels, label{symbols[refs[i]], symbols[refs[i+1]]})
	}
	return labels, nil
}

// plan is what the rules and buckets make of each series of a request.
type plan struct {
	verdict ingester.Verdict
	labels  []prompb.Label // nil: unchanged
}

func (p plan) apply(g *ingester.Group) {
	g.Verdict = p.verdict
	if p.labels != nil {
		setLabels(g, p.labels)
	}
}

// expected is the oracle: what a destination should get of a batch, worked out
// on decoded messages, one series at a time.
func expected(in write, plans []plan, from, to ingester.Format, refused map[int]bool) (out write, lost int) {
	for i, s := range in.Series {
		if p := plans[i]; p.verdict > ingester.Exempt || refused[i] {
			continue
		} else if p.labels != nil {
			sent := s.Labels
			s.Labels = plainLabels(p.labels)
			if from == ingester.RemoteWrite1 {
				s.Metadata = familyFor(sent, in.Families)
			}
		} else if from == ingester.RemoteWrite1 {
			s.Metadata = familyFor(s.Labels, in.Families)
		}
		switch {
		case to == ingester.RemoteWrite1 && from == to:
			s.Metadata = family{}
			out.Series = append(out.Series, s)
		case from == to:
			out.Series = append(out.Series, s)
		case to == ingester.RemoteWrite2:
			out.Series = append(out.Series, split(s)...)
		default:
			t, n := downgrade(s)
			lost += n
			out.Families = addFamily(out.Families, s)
			if n == 0 || len(t.Samples)+len(t.Histograms)+len(t.Exemplars) > 0 {
				out.Series = append(out.Series, t)
			}
		}
	}
	if from == ingester.RemoteWrite1 && to == from {
		out.Families = in.Families
	}
	if to == ingester.RemoteWrite2 && !slices.ContainsFunc(out.Series, func(s series) bool {
		return len(s.Samples)+len(s.Histograms)+len(s.Exemplars) > 0
	}) && (from == ingester.RemoteWrite1 || len(plans) > 0) {
		// A request in which nothing is stored is not sent.
		out.Series = nil
	}
	return out, lost
}

func split(s series) []series {
	if len(s.Samples) == 0 || len(s.Histograms) == 0 {
		return []series{s}
	}
	first, second := s, s
	first.Histograms, second.Samples, second.Exemplars = nil, nil, nil
	return []series{first, second}
}

func downgrade(s series) (series, int) {
	t := series{Labels: s.Labels, Exemplars: s.Exemplars}
	for _, v := range s.Samples {
		v.start = 0
		t.Samples = append(t.Samples, v)
	}
	lost := 0
	for _, raw := range s.Histograms {
		var h writev2.Histogram
		if err := h.Unmarshal([]byte(raw)); err != nil {
			panic(err)
		}
		if h.Schema == -53 {
			lost++
			continue
		}
		t.Histograms = append(t.Histograms, withoutStart(h))
	}
	return t, lost
}

func withoutStart(h writev2.Histogram) string {
	h.StartTimestamp = 0
	raw, _ := h.Marshal()
	return string(raw)
}

func nameOf(labels []label) string {
	for _, l := range labels {
		if l.name == "__name__" {
			return l.value
		}
	}
	return ""
}

var suffixes = map[int32][]string{1: {"_total"}, 3: {"_bucket", "_count", "_sum"}, 4: {"_bucket", "_gcount", "_gsum"}, 5: {"_count", "_sum"}, 6: {"_info"}}

func familyFor(labels []label, families []family) family {
	name := nameOf(labels)
	first := func(name string) *family {
		for i := range families {
			if families[i].name == name && name != "" {
				return &families[i]
			}
		}
		return nil
	}
	if f := first(name); f != nil {
		return family{"", f.help, f.unit, f.typ}
	}
	for i := range families {
		for _, suffix := range suffixes[families[i].typ] {
			if f := &families[i]; f.name+suffix == name && first(f.name) == f {
				return family{"", f.help, f.unit, f.typ}
			}
		}
	}
	return family{}
}

func addFamily(families []family, s series) []family {
	m, name := s.Metadata, nameOf(s.Labels)
	if m == (family{}) || name == "" {
		return families
	}
	if len(s.Histograms) == 0 && m.typ >= 3 && m.typ <= 5 {
		for _, suffix := range suffixes[m.typ] {
			if base, ok := strings.CutSuffix(name, suffix); ok && base != "" {
				name = base
				break
			}
		}
	}
	if slices.ContainsFunc(families, func(f family) bool { return f.name == name }) {
		return families
	}
	m.name = name
	return append(families, m)
}

// generator makes random requests that hold everything the protocols can say.
type generator struct{ *rand.Rand }

func (g generator) labels(i int) []prompb.Label {
	names := []string{"up", "http_requests_total", "latency_seconds_bucket", "latency_seconds_sum", "latency_seconds_count", "queue_gsum",
		"rpc_count", "latency_seconds", "target_info", "tempé.\u4e16\u754c", "_bucket"}
	labels := []prompb.Label{{Name: "__name__", Value: names[g.Intn(len(names))]}}
	if g.Intn(30) == 0 {
		labels = labels[:0]
	}
	for _, name := range []string{"cluster", "http.method", "instance", "job", "le", "ñ", "zone"} {
		switch g.Intn(4) {
		case 0:
			labels = append(labels, prompb.Label{Name: name, Value: fmt.Sprint("v", g.Intn(4))})
		case 1:
			labels = append(labels, prompb.Label{Name: name, Value: fmt.Sprint("10.0.0.", i)})
		}
	}
	if g.Intn(10) == 0 {
		labels = append(labels, prompb.Label{Name: "zz", Value: strings.Repeat("long", 20+g.Intn(100))})
	}
	return labels
}

func (g generator) float() float64 {
	switch g.Intn(8) {
	case 0:
		return math.Float64frombits(value.StaleNaN)
	case 1:
		return math.Float64frombits(0x7ff8000000000000 | g.Uint64()>>13)
	case 2:
		return math.Inf(1 - 2*g.Intn(2))
	case 3:
		return math.Copysign(0, -1)
	}
	return g.NormFloat64()
}

func (g generator) when() int64 { return 1_700_000_000_000 + g.Int63n(1e6) - 5*g.Int63n(2) }

func (g generator) histogram(start int64) writev2.Histogram {
	h := writev2.Histogram{
		Schema: int32(g.Intn(13) - 4), Sum: g.float(), ZeroThreshold: 1e-128, Timestamp: g.when(),
		ResetHint:      writev2.Histogram_ResetHint(g.Intn(4)),
		PositiveSpans:  []writev2.BucketSpan{{Offset: int32(g.Intn(20) - 10), Length: 2}, {Offset: 1, Length: 1}},
		StartTimestamp: start,
	}
	if g.Intn(3) == 0 {
		h.Schema, h.ZeroThreshold, h.CustomValues = -53, 0, []float64{0.5, 1, 2.5}
		h.PositiveSpans = []writev2.BucketSpan{{Offset: 0, Length: 3}}
	}
	if g.Intn(2) == 0 {
		h.Count = &writev2.Histogram_CountInt{CountInt: uint64(g.Intn(1000))}
		h.ZeroCount = &writev2.Histogram_ZeroCountInt{ZeroCountInt: uint64(g.Intn(3))}
		h.PositiveDeltas = []int64{3, -1, int64(g.Intn(1000))}
		h.NegativeSpans, h.NegativeDeltas = []writev2.BucketSpan{{Offset: -3, Length: 1}}, []int64{7}
	} else {
		h.Count = &writev2.Histogram_CountFloat{CountFloat: g.float()}
		h.ZeroCount = &writev2.Histogram_ZeroCountFloat{ZeroCountFloat: 0.25}
		h.PositiveCounts = []float64{1, g.float(), 3}
	}
	return h
}

// v2 makes a 2.0 request of n series.
func (g generator) v2(n int) *writev2.Request {
	table := writev2.NewSymbolTable()
	r := &writev2.Request{}
	symbolize := func(labels []prompb.Label) (refs []uint32) {
		for _, l := range labels {
			refs = append(refs, table.Symbolize(l.Name), table.Symbolize(l.Value))
		}
		return refs
	}
	for i := range n {
		ts := writev2.TimeSeries{LabelsRefs: symbolize(g.labels(i))}
		start := g.when() * int64(g.Intn(2))
		for range g.Intn(3) {
			ts.Samples = append(ts.Samples, writev2.Sample{Value: g.float(), Timestamp: g.when(), StartTimestamp: start})
		}
		for range g.Intn(3) * g.Intn(2) {
			ts.Histograms = append(ts.Histograms, g.histogram(start))
		}
		for range g.Intn(3) * g.Intn(2) {
			e := writev2.Exemplar{Value: g.float(), Timestamp: g.when()}
			if g.Intn(3) > 0 {
				e.LabelsRefs = symbolize([]prompb.Label{{Name: "trace_id", Value: fmt.Sprintf("%032x", g.Int63())}})
			}
			ts.Exemplars = append(ts.Exemplars, e)
		}
		if g.Intn(2) == 0 {
			ts.Metadata = writev2.Metadata{Type: writev2.Metadata_MetricType(g.Intn(8)), HelpRef: table.Symbolize("Help ∆"), UnitRef: table.Symbolize([]string{"", "seconds"}[g.Intn(2)])}
		}
		r.Timeseries = append(r.Timeseries, ts)
	}
	r.Symbols = table.Symbols()
	return r
}

// v1 makes a 1.0 request of n series and some families.
func (g generator) v1(n int) *prompb.WriteRequest {
	from := g.v2(n)
	r := &prompb.WriteRequest{}
	for _, ts := range from.Timeseries {
		var to prompb.TimeSeries
		for i := 0; i < len(ts.LabelsRefs); i += 2 {
			to.Labels = append(to.Labels, prompb.Label{Name: from.Symbols[ts.LabelsRefs[i]], Value: from.Symbols[ts.LabelsRefs[i+1]]})
		}
		for _, s := range ts.Samples {
			to.Samples = append(to.Samples, prompb.Sample{Value: s.Value, Timestamp: s.Timestamp})
		}
		for _, h := range ts.Histograms {
			h.StartTimestamp = 0
			raw, _ := h.Marshal()
			var old prompb.Histogram
			if err := old.Unmarshal(raw); err != nil {
				panic(err)
			}
			to.Histograms = append(to.Histograms, old)
		}
		for _, e := range ts.Exemplars {
			x := prompb.Exemplar{Value: e.Value, Timestamp: e.Timestamp}
			for i := 0; i < len(e.LabelsRefs); i += 2 {
				x.Labels = append(x.Labels, prompb.Label{Name: from.Symbols[e.LabelsRefs[i]], Value: from.Symbols[e.LabelsRefs[i+1]]})
			}
			to.Exemplars = append(to.Exemplars, x)
		}
		r.Timeseries = append(r.Timeseries, to)
	}
	for _, name := range []string{"up", "http_requests", "latency_seconds", "queue", "rpc", "target", "absent", "latency_seconds"} {
		if g.Intn(2) == 0 {
			r.Metadata = append(r.Metadata, prompb.MetricMetadata{MetricFamilyName: name, Help: "Help of " + name, Unit: []string{"", "s"}[g.Intn(2)], Type: prompb.MetricMetadata_MetricType(g.Intn(8))})
		}
	}
	return r
}

// request makes a request of the given format.
func (g generator) request(f ingester.Format, n int) interface{ Marshal() ([]byte, error) } {
	if f == ingester.RemoteWrite1 {
		return g.v1(n)
	}
	return g.v2(n)
}

// plans decides on n series: drop one with probability drop, change the labels of
// one with probability change.
func (g generator) plans(n int, drop, change float64) []plan {
	plans := make([]plan, n)
	for i := range plans {
		switch {
		case g.Float64() < drop:
			plans[i].verdict = ingester.DroppedRelabel + ingester.Verdict(g.Intn(3))
		case g.Intn(5) == 0:
			plans[i].verdict = ingester.Exempt
		}
		if g.Float64() < change {
			labels := append(g.labels(i), prompb.Label{Name: "zzz", Value: []string{"added", "v1", fmt.Sprint("team-", i)}[g.Intn(3)]})
			plans[i].labels = labels
		}
	}
	return plans
}

// requireEncoded encodes the batch and compares the result with the oracle.
func requireEncoded(t testing.TB, e *encoder, b *ingester.Batch, plans []plan, to ingester.Format) {
	t.Helper()
	in, err := decode(b.Format, b.Body[:b.Size])
	require.NoError(t, err)
	require.Len(t, in.Series, len(b.Groups))
	for i := range b.Groups {
		plans[i].apply(&b.Groups[i])
	}
	want, lost := expected(in, plans, b.Format, to, nil)
	got, err := decode(to, e.encode(b, to))
	require.NoError(t, err)
	require.Equal(t, want.Series, got.Series)
	require.Equal(t, want.Families, got.Families)

	var floats, histograms, exemplars, refused int64
	for _, s := range want.Series {
		floats, histograms, exemplars = floats+int64(len(s.Samples)), histograms+int64(len(s.Histograms)), exemplars+int64(len(s.Exemplars))
	}
	for _, r := range e.sent.refused {
		refused += int64(r.items)
	}
	require.Equal(t, [4]int64{floats, histograms, exemplars, int64(lost)}, [4]int64{e.sent.floats, e.sent.histograms, e.sent.exemplars, refused})
}
