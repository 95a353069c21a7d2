package otlp

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/storage"
	prom "github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/spillway-telemetry/spillway/ingester"
)

// everything makes a view of all labels: a rule that keeps every one.
const everything = `[{action: labelkeep, regex: '.*'}]`

// some makes a view of a few labels.
const some = `[{source_labels: [k8s_pod_name, a_b, job, otel_scope_name, severity, service_name, span_name, le], regex: nothing, action: drop}]`

// random makes telemetry that holds a bit of everything.
type random struct{ *rand.Rand }

func (r random) oneOf(values ...string) string { return values[r.IntN(len(values))] }

func (r random) key() string {
	return r.oneOf("a.b", "a_b", "a-b", "k8s.pod.name", "service.name", "service.namespace", "service.instance.id", "http.route", "1x", "_x", "__x", "éa",
		"severity", "span_name", "job", "instance", "otel_scope_name", "otel_scope_version", "le", "__name__", "x", strings.Repeat("long.", 40))
}

func (r random) text() string {
	return r.oneOf("", "v", "Grüße", "a longer value with spaces", strings.Repeat("x", 200), "true")
}

func (r random) value(v pcommon.Value, depth int) {
	switch n := r.IntN(12); {
	case n < 5:
		v.SetStr(r.text())
	case n == 5:
		v.SetBool(r.IntN(2) == 0)
	case n == 6:
		v.SetInt(r.Int64() - r.Int64())
	case n == 7:
		v.SetDouble(r.NormFloat64())
	case n == 8:
		v.SetEmptyBytes().FromRaw([]byte(r.text()))
	case n == 9 && depth < 3:
		list := v.SetEmptySlice()
		for range r.IntN(3) {
			r.value(list.AppendEmpty(), depth+1)
		}
	case n == 10 && depth < 3:
		r.attributes(v.SetEmptyMap(), depth+1)
	}
}

func (r random) attributes(m pcommon.Map, depth int) {
	for range r.IntN(6) {
		r.value(m.PutEmpty(r.key()), depth)
	}
}

func (r random) scope(s pcommon.InstrumentationScope) {
	s.SetName(r.oneOf("", "scope", "x"))
	s.SetVersion(r.oneOf("", "1.0"))
	r.attributes(s.Attributes(), 0)
}

func (r random) logs() plog.Logs {
	logs := plog.NewLogs()
	for range r.IntN(4) {
		rl := logs.ResourceLogs().AppendEmpty()
		r.attributes(rl.Resource().Attributes(), 0)
		rl.SetSchemaUrl(r.text())
		for range r.IntN(3) {
			sl := rl.ScopeLogs().AppendEmpty()
			r.scope(sl.Scope())
			for range r.IntN(5) {
				lr := sl.LogRecords().AppendEmpty()
				lr.SetTimestamp(pcommon.Timestamp(r.Uint64()))
				lr.SetObservedTimestamp(pcommon.Timestamp(r.Uint64()))
				lr.SetSeverityNumber(plog.SeverityNumber(r.IntN(27)))
				lr.SetSeverityText(r.oneOf("", "", "warn", "Info"))
				r.value(lr.Body(), 0)
				r.attributes(lr.Attributes(), 0)
				lr.SetEventName(r.text())
				lr.SetFlags(plog.LogRecordFlags(r.Uint32()))
				lr.SetTraceID(pcommon.TraceID{1, byte(r.IntN(9))})
				lr.SetSpanID(pcommon.SpanID{2})
				lr.SetDroppedAttributesCount(r.Uint32())
			}
		}
	}
	return logs
}

func (r random) traces() ptrace.Traces {
	traces := ptrace.NewTraces()
	for range r.IntN(4) {
		rs := traces.ResourceSpans().AppendEmpty()
		r.attributes(rs.Resource().Attributes(), 0)
		for range r.IntN(3) {
			ss := rs.ScopeSpans().AppendEmpty()
			r.scope(ss.Scope())
			for range r.IntN(5) {
				r.span(ss.Spans().AppendEmpty())
			}
		}
	}
	return traces
}

func (r random) span(s ptrace.Span) {
	s.SetTraceID(pcommon.TraceID{1})
	s.SetSpanID(pcommon.SpanID{2})
	s.SetName(r.text())
	s.SetKind(ptrace.SpanKind(r.IntN(7)))
	s.SetFlags(r.Uint32())
	s.SetStartTimestamp(pcommon.Timestamp(r.Uint64()))
	s.TraceState().FromRaw(r.text())
	s.Status().SetMessage(r.text())
	s.Status().SetCode(ptrace.StatusCode(r.IntN(3)))
	r.attributes(s.Attributes(), 0)
	for range r.IntN(3) {
		e := s.Events().AppendEmpty()
		e.SetName(r.text())
		r.attributes(e.Attributes(), 0)
		l := s.Links().AppendEmpty()
		l.SetSpanID(pcommon.SpanID{3})
		r.attributes(l.Attributes(), 0)
	}
}

func (r random) metrics() pmetric.Metrics {
	metrics := pmetric.NewMetrics()
	for range r.IntN(4) {
		rm := metrics.ResourceMetrics().AppendEmpty()
		r.attributes(rm.Resource().Attributes(), 0)
		for range r.IntN(3) {
			sm := rm.ScopeMetrics().AppendEmpty()
			r.scope(sm.Scope())
			sm.SetSchemaUrl(r.oneOf("", "https://schema"))
			for range r.IntN(5) {
				r.metric(sm.Metrics().AppendEmpty())
			}
		}
	}
	return metrics
}

func (r random) metric(m pmetric.Metric) {
	m.SetName(r.oneOf("requests", "http.server.duration", "1st", "queue-length", "mem_total", "x:y"))
	m.SetUnit(r.oneOf("", "s", "By", "1", "{packet}", "By/s", "m/m"))
	m.SetDescription(r.text())
	points := 1 + r.IntN(4)
	switch r.IntN(5) {
	case 0:
		m.SetEmptyGauge()
		r.numbers(m.Gauge().DataPoints(), points)
	case 1:
		m.SetEmptySum().SetIsMonotonic(r.IntN(2) == 0)
		m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		r.numbers(m.Sum().DataPoints(), points)
	case 2:
		m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range points {
			p := m.Histogram().DataPoints().AppendEmpty()
			r.attributes(p.Attributes(), 0)
			p.SetCount(r.Uint64N(100))
			p.SetSum(r.Float64())
			p.ExplicitBounds().FromRaw([]float64{1, 2, math.Inf(1)})
			p.BucketCounts().FromRaw([]uint64{1, 2, 3, r.Uint64()})
			r.exemplar(p.Exemplars())
		}
	case 3:
		m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range points {
			p := m.ExponentialHistogram().DataPoints().AppendEmpty()
			r.attributes(p.Attributes(), 0)
			p.SetScale(int32(r.IntN(5)))
			p.SetZeroCount(1)
			p.Positive().SetOffset(int32(r.IntN(9)) - 4)
			p.Positive().BucketCounts().FromRaw([]uint64{1, 300, 2})
			p.SetCount(304)
			r.exemplar(p.Exemplars())
		}
	default:
		m.SetEmptySummary()
		for range points {
			p := m.Summary().DataPoints().AppendEmpty()
			r.attributes(p.Attributes(), 0)
			p.SetCount(r.Uint64N(100))
			p.QuantileValues().AppendEmpty().SetQuantile(0.5)
		}
	}
}

func (r random) numbers(points pmetric.NumberDataPointSlice, n int) {
	for range n {
		p := points.AppendEmpty()
		p.SetTimestamp(pcommon.Timestamp(r.Int64()))
		if r.IntN(2) == 0 {
			p.SetIntValue(r.Int64())
		} else {
			p.SetDoubleValue(r.Float64())
		}
		r.attributes(p.Attributes(), 0)
		r.exemplar(p.Exemplars())
	}
}

func (r random) exemplar(list pmetric.ExemplarSlice) {
	if r.IntN(3) > 0 {
		return
	}
	e := list.AppendEmpty()
	e.SetTraceID(pcommon.TraceID{9})
	e.SetIntValue(r.Int64())
	r.attributes(e.FilteredAttributes(), 0)
}

// slowly is the simple way to what the walker finds: decode everything, build maps.
type slowly struct {
	options Options
	namer   otlptranslator.LabelNamer
}

func newSlowly(o Options) *slowly {
	return &slowly{o, otlptranslator.LabelNamer{
		UTF8Allowed:                 o.UTF8Names,
		UnderscoreLabelSanitization: o.Translation.LabelNameUnderscoreSanitization, //nolint:staticcheck
		PreserveMultipleUnderscores: o.Translation.LabelNamePreserveMultipleUnderscores,
	}}
}

// attributes adds an attribute map to the labels: collisions are joined in the order
// of keys, and what is there already gives way.
func (s *slowly) attributes(out map[string]string, m pcommon.Map) {
	type attr struct{ key, text string }
	var list []attr
	for k, v := range m.All() {
		list = append(list, attr{k, v.AsString()})
	}
	slices.SortStableFunc(list, func(a, b attr) int { return strings.Compare(a.key, b.key) })
	own := map[string]string{}
	for _, a := range list {
		name := a.key
		if !s.namer.UTF8Allowed {
			var err error
			if name, err = s.namer.Build(a.key); err != nil {
				continue
			}
		}
		if name == "" {
			continue
		}
		if own[name] != "" {
			own[name] += ";" + a.text
		} else {
			own[name] = a.text
		}
	}
	for name, value := range own {
		if value != "" {
			out[name] = value
		}
	}
}

func (s *slowly) around(resource pcommon.Resource, scope pcommon.InstrumentationScope) map[string]string {
	out := map[string]string{}
	s.attributes(out, resource.Attributes())
	if v, ok := resource.Attributes().Get("service.name"); ok {
		delete(out, "service_name")
		if v.AsString() != "" {
			out["service_name"] = v.AsString()
		}
	}
	s.attributes(out, scope.Attributes())
	return out
}

func (s *slowly) logs(logs plog.Logs) (sets []map[string]string) {
	names := []string{"TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL"}
	for _, rl := range logs.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				out := s.around(rl.Resource(), sl.Scope())
				s.attributes(out, lr.Attributes())
				if n := int(lr.SeverityNumber()); lr.SeverityText() != "" {
					out["severity"] = lr.SeverityText()
				} else if n >= 1 && n <= 24 {
					out["severity"] = names[(n-1)/4]
				}
				sets = append(sets, out)
			}
		}
	}
	return sets
}

func (s *slowly) traces(traces ptrace.Traces) (sets []map[string]string) {
	for _, rs := range traces.ResourceSpans().All() {
		for _, ss := range rs.ScopeSpans().All() {
			for _, span := range ss.Spans().All() {
				out := s.around(rs.Resource(), ss.Scope())
				s.attributes(out, span.Attributes())
				if span.Name() != "" {
					out["span_name"] = span.Name()
				}
				if kind := span.Kind(); kind >= 1 && kind <= 5 {
					out["span_kind"] = strings.ToLower(kind.String())
				}
				sets = append(sets, out)
			}
		}
	}
	return sets
}

// collector takes one series for each data point from the Prometheus translation.
type collector struct{ sets []map[string]string }

func (c *collector) Append(_ storage.SeriesRef, ls labels.Labels, _, _ int64, _ float64, _ *histogram.Histogram, _ *histogram.FloatHistogram, o storage.AOptions) (storage.SeriesRef, error) {
	set := ls.Map()
	name := set["__name__"]
	parts := o.Metadata.Type == "histogram" && name != o.MetricFamilyName || o.Metadata.Type == "summary"
	if parts && name != o.MetricFamilyName+"_count" || name == "target_info" {
		return 0, nil
	}
	set["__name__"] = o.MetricFamilyName
	c.sets = append(c.sets, set)
	return 0, nil
}

func (c *collector) Commit() error   { return nil }
func (c *collector) Rollback() error { return nil }

func (s *slowly) metrics(t testing.TB, metrics pmetric.Metrics) []map[string]string {
	o := s.options.Translation
	c := &collector{}
	_, err := prom.NewPrometheusConverter(c).FromMetrics(context.Background(), metrics, prom.Settings{
		AddMetricSuffixes:                    o.TranslationStrategy.ShouldAddSuffixes(),
		AllowUTF8:                            !o.TranslationStrategy.ShouldEscape(),
		PromoteResourceAttributes:            prom.NewPromoteResourceAttributes(o),
		PromoteScopeMetadata:                 o.PromoteScopeMetadata,
		DisableTargetInfo:                    true,
		LabelNameUnderscoreSanitization:      o.LabelNameUnderscoreSanitization,
		LabelNamePreserveMultipleUnderscores: o.LabelNamePreserveMultipleUnderscores,
	})
	require.NoError(t, err)
	return c.sets
}

// variants are the ways to name labels.
var variants = map[string]func(*Options){
	"defaults":    func(*Options) {},
	"no suffixes": func(o *Options) { o.Translation.TranslationStrategy = otlptranslator.UnderscoreEscapingWithoutSuffixes },
	"UTF-8":       func(o *Options) { o.Translation.TranslationStrategy, o.UTF8Names = otlptranslator.NoTranslation, true },
	"UTF-8, suffix": func(o *Options) {
		o.Translation.TranslationStrategy, o.UTF8Names = otlptranslator.NoUTF8EscapingWithSuffixes, true
	},
	"promote all": func(o *Options) {
		o.Translation.PromoteAllResourceAttributes, o.Translation.IgnoreResourceAttributes = true, []string{"a.b", "__name__"}
		o.Translation.PromoteScopeMetadata = true
	},
	"promote some": func(o *Options) {
		o.Translation.PromoteResourceAttributes = []string{"a.b", "k8s.pod.name", "job", "otel_scope_version"}
		o.Translation.LabelNameUnderscoreSanitization, o.Translation.LabelNamePreserveMultipleUnderscores = false, false
		o.Translation.PromoteScopeMetadata = true
	},
}

// TestLabelsAreTheOracles compares the labels of random telemetry with what the
// Prometheus library makes of metrics and the simple way of logs and spans, for views
// of all labels and of some.
func TestLabelsAreTheOracles(t *testing.T) {
	for name, options := range variants {
		for viewName, rules := range map[string]string{"everything": everything, "some": some} {
			t.Run(name+"/"+viewName, func(t *testing.T) {
				s := newSystem(t, setup{relabel: rules, options: options})
				slow := newSlowly(s.receiver.options)
				r := random{rand.New(rand.NewPCG(1, 2))}
				for range 100 {
					logs, traces, metrics := r.logs(), r.traces(), r.metrics()
					body, err := (&plog.ProtoMarshaler{}).MarshalLogs(logs)
					require.NoError(t, err)
					s.compare(ingester.OTLPLogs, body, slow.logs(logs))
					body, err = (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
					require.NoError(t, err)
					s.compare(ingester.OTLPTraces, body, slow.traces(traces))
					body, err = (&pmetric.ProtoMarshaler{}).MarshalMetrics(metrics)
					require.NoError(t, err)
					s.compare(ingester.OTLPMetrics, body, slow.metrics(t, metrics))
				}
			})
		}
	}
}

// compare walks a request and holds the labels of its groups against those wanted, as
// far as the rules can see them.
func (s *system) compare(format ingester.Format, body []byte, want []map[string]string) {
	s.t.Helper()
	stream := streamOf(format)
	b, err := s.walk(stream, format, body, EachRecord)
	require.NoError(s.t, err)
	view := s.ingester.View(b.Origin, stream)
	require.Len(s.t, b.Groups, len(want))
	for i := range b.Groups {
		require.True(s.t, b.Groups[i].Admitted(), "item %d", i)
		for name := range want[i] {
			if !view.Sees(name) && name != "__name__" || want[i][name] == "" || format != ingester.OTLPMetrics && name == "__name__" && !view.Sees(name) {
				delete(want[i], name)
			}
		}
		require.Equal(s.t, want[i], labelMap(b.Bytes(b.Groups[i].Key)), "item %d", i)
	}
}
