package sink

import (
	"fmt"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/spillway-telemetry/spillway/ingester"
)

// record is one item with all that is around it, as OpenTelemetry's own code reads
// it. The oracle changes it with that code's own methods.
type record struct {
	resource, scope, attributes pcommon.Map
	scopeName, scopeVersion     func(string)
	service                     bool // has derived labels of logs and traces
	severity                    func(string)
	spanName                    func(string)
	spanKind                    func(string)
	metricName                  func(string)
	bytes                       func() string
}

// logRecords splits a request into requests of one record each.
func logRecords(tb testing.TB, raw []byte) (rs []record) {
	ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(raw)
	require.NoError(tb, err)
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				one := plog.NewLogs()
				r := one.ResourceLogs().AppendEmpty()
				rl.Resource().CopyTo(r.Resource())
				r.SetSchemaUrl(rl.SchemaUrl())
				s := r.ScopeLogs().AppendEmpty()
				sl.Scope().CopyTo(s.Scope())
				s.SetSchemaUrl(sl.SchemaUrl())
				item := s.LogRecords().AppendEmpty()
				lr.CopyTo(item)
				rs = append(rs, record{
					resource: r.Resource().Attributes(), scope: s.Scope().Attributes(), attributes: item.Attributes(),
					service: true,
					severity: func(v string) {
						item.SetSeverityText(v)
						item.SetSeverityNumber(plog.SeverityNumber(severityOf([]byte(v))))
					},
					bytes: func() string { return marshal(tb)((&plog.ProtoMarshaler{}).MarshalLogs(one)) },
				})
			}
		}
	}
	return rs
}

func spanRecords(tb testing.TB, raw []byte) (rs []record) {
	td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(raw)
	require.NoError(tb, err)
	for _, rt := range td.ResourceSpans().All() {
		for _, st := range rt.ScopeSpans().All() {
			for _, span := range st.Spans().All() {
				one := ptrace.NewTraces()
				r := one.ResourceSpans().AppendEmpty()
				rt.Resource().CopyTo(r.Resource())
				r.SetSchemaUrl(rt.SchemaUrl())
				s := r.ScopeSpans().AppendEmpty()
				st.Scope().CopyTo(s.Scope())
				s.SetSchemaUrl(st.SchemaUrl())
				item := s.Spans().AppendEmpty()
				span.CopyTo(item)
				rs = append(rs, record{
					resource: r.Resource().Attributes(), scope: s.Scope().Attributes(), attributes: item.Attributes(),
					service: true, spanName: item.SetName,
					spanKind: func(v string) {
						kind, _ := kindOf([]byte(v))
						item.SetKind(ptrace.SpanKind(kind))
					},
					bytes: func() string { return marshal(tb)((&ptrace.ProtoMarshaler{}).MarshalTraces(one)) },
				})
			}
		}
	}
	return rs
}

func pointRecords(tb testing.TB, raw []byte) (rs []record) {
	md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(raw)
	require.NoError(tb, err)
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				for i := range points(m) {
					one := pmetric.NewMetrics()
					r := one.ResourceMetrics().AppendEmpty()
					rm.Resource().CopyTo(r.Resource())
					r.SetSchemaUrl(rm.SchemaUrl())
					s := r.ScopeMetrics().AppendEmpty()
					sm.Scope().CopyTo(s.Scope())
					s.SetSchemaUrl(sm.SchemaUrl())
					item := s.Metrics().AppendEmpty()
					m.CopyTo(item)
					rs = append(rs, record{
						resource: r.Resource().Attributes(), scope: s.Scope().Attributes(), attributes: onlyPoint(item, i),
						scopeName: s.Scope().SetName, scopeVersion: s.Scope().SetVersion,
						metricName: item.SetName,
						bytes:      func() string { return marshal(tb)((&pmetric.ProtoMarshaler{}).MarshalMetrics(one)) },
					})
				}
			}
		}
	}
	return rs
}

func points(m pmetric.Metric) int {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		return m.Gauge().DataPoints().Len()
	case pmetric.MetricTypeSum:
		return m.Sum().DataPoints().Len()
	case pmetric.MetricTypeHistogram:
		return m.Histogram().DataPoints().Len()
	case pmetric.MetricTypeExponentialHistogram:
		return m.ExponentialHistogram().DataPoints().Len()
	case pmetric.MetricTypeSummary:
		return m.Summary().DataPoints().Len()
	}
	return 0
}

// onlyPoint removes all data points but the i-th and returns its attributes.
func onlyPoint(m pmetric.Metric, i int) pcommon.Map {
	n := -1
	others := func() bool { n++; return n != i }
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		m.Gauge().DataPoints().RemoveIf(func(pmetric.NumberDataPoint) bool { return others() })
		return m.Gauge().DataPoints().At(0).Attributes()
	case pmetric.MetricTypeSum:
		m.Sum().DataPoints().RemoveIf(func(pmetric.NumberDataPoint) bool { return others() })
		return m.Sum().DataPoints().At(0).Attributes()
	case pmetric.MetricTypeHistogram:
		m.Histogram().DataPoints().RemoveIf(func(pmetric.HistogramDataPoint) bool { return others() })
		return m.Histogram().DataPoints().At(0).Attributes()
	case pmetric.MetricTypeExponentialHistogram:
		m.ExponentialHistogram().DataPoints().RemoveIf(func(pmetric.ExponentialHistogramDataPoint) bool { return others() })
		return m.ExponentialHistogram().DataPoints().At(0).Attributes()
	}
	m.Summary().DataPoints().RemoveIf(func(pmetric.SummaryDataPoint) bool { return others() })
	return m.Summary().DataPoints().At(0).Attributes()
}

func marshal(tb testing.TB) func([]byte, error) string {
	return func(raw []byte, err error) string {
		require.NoError(tb, err)
		return string(raw)
	}
}

// belongs is the rule of writeback.go in other words.
func belongs(key, label string) bool {
	var n names
	return n.belongs([]byte(key), []byte(label))
}

func drop(m pcommon.Map, label string) {
	m.RemoveIf(func(key string, _ pcommon.Value) bool { return belongs(key, label) })
}

// apply does to a record what the difference between two label sets asks for. An
// attribute that is set moves behind the others, as order means nothing.
func (r *record) apply(sent, now labels.Labels) {
	sent.Range(func(l labels.Label) {
		if !now.Has(l.Name) {
			r.remove(l.Name)
		}
	})
	now.Range(func(l labels.Label) {
		if sent.Has(l.Name) && sent.Get(l.Name) == l.Value {
			return
		}
		r.set(l.Name, l.Value)
	})
}

func (r *record) set(name, value string) {
	switch {
	case name == "service_name" && r.service:
		drop(r.resource, name)
		drop(r.attributes, name)
		r.resource.PutStr("service.name", value)
	case name == "job" && r.metricName != nil:
		drop(r.resource, name)
		drop(r.attributes, name)
		r.resource.Remove("service.namespace")
		r.resource.Remove("service.name")
		r.resource.PutStr("service.name", value)
	case name == "instance" && r.metricName != nil:
		drop(r.resource, name)
		drop(r.attributes, name)
		r.resource.Remove("service.instance.id")
		r.resource.PutStr("service.instance.id", value)
	case name == "__name__" && r.metricName != nil:
		r.metricName(value)
		drop(r.attributes, name)
	case name == "severity" && r.severity != nil:
		r.severity(value)
		drop(r.attributes, name)
	case name == "span_name" && r.spanName != nil:
		r.spanName(value)
		drop(r.attributes, name)
	case name == "span_kind" && r.spanKind != nil && value == "server":
		r.spanKind(value)
		drop(r.attributes, name)
	default:
		key := name
		for k := range r.attributes.All() {
			if belongs(k, name) {
				key = k
				break
			}
		}
		drop(r.attributes, name)
		r.attributes.PutStr(key, value)
	}
}

func (r *record) remove(name string) {
	drop(r.attributes, name)
	drop(r.resource, name)
	drop(r.scope, name)
	switch {
	case name == "job" && r.metricName != nil:
		r.resource.Remove("service.namespace")
		r.resource.Remove("service.name")
	case name == "instance" && r.metricName != nil:
		r.resource.Remove("service.instance.id")
	case name == "__name__" && r.metricName != nil:
		r.metricName("")
	case name == "severity" && r.severity != nil:
		r.severity("")
	case name == "span_name" && r.spanName != nil:
		r.spanName("")
	case name == "span_kind" && r.spanKind != nil:
		r.spanKind("unspecified")
	case name == "otel_scope_name" && r.scopeName != nil:
		r.scopeName("")
	case name == "otel_scope_version" && r.scopeVersion != nil:
		r.scopeVersion("")
	}
	if in, ok := strings.CutPrefix(name, "otel_scope_"); ok && r.metricName != nil {
		drop(r.scope, in)
	}
}

// text is a record in a form that can be compared: attributes sorted by key.
func (r *record) text() string {
	for _, m := range []pcommon.Map{r.resource, r.scope, r.attributes} {
		sorted := pcommon.NewMap()
		var keys []string
		for k := range m.All() {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range slices.Compact(keys) {
			v, _ := m.Get(k)
			v.CopyTo(sorted.PutEmpty(k))
		}
		sorted.CopyTo(m)
	}
	return r.bytes()
}

func records(tb testing.TB, format ingester.Format, raw []byte) []record {
	switch format {
	case ingester.OTLPLogs:
		return logRecords(tb, raw)
	case ingester.OTLPTraces:
		return spanRecords(tb, raw)
	}
	return pointRecords(tb, raw)
}

// compare encodes the batch and holds every record of it against what the oracle
// makes of the request.
func compare(tb testing.TB, b *ingester.Batch, e *Encoder, keep func(int) bool) {
	tb.Helper()
	before := records(tb, b.Format, b.Body[:b.Size])
	require.Len(tb, before, len(b.Groups))
	var want []string
	for i := range before {
		g := &b.Groups[i]
		if !g.Admitted() || keep != nil && !keep(i) {
			continue
		}
		if g.Route.Changed() {
			before[i].apply(labelSet(g.Route.Sent()), labelSet(g.Route.Labels()))
		}
		want = append(want, before[i].text())
	}
	got := e.Encode(b, keep)
	var have []string
	for _, r := range records(tb, b.Format, got) {
		have = append(have, r.text())
	}
	slices.Sort(want)
	slices.Sort(have)
	require.Equal(tb, want, have)
	if len(want) == 0 {
		require.Empty(tb, got, "what holds no record is left out")
	}
	again := walk(tb, b.Format, got, nil)
	parents := make(map[int32]bool)
	for _, g := range again.Groups {
		for c := g.Parent; c >= 0; c = again.Containers[c].Parent {
			parents[c] = true
		}
	}
	if !b.Whole {
		require.Len(tb, parents, len(again.Containers), "every message holds a record")
	}
}

func labelSet(raw []byte) labels.Labels {
	m := make(map[string]string)
	for len(raw) > 0 {
		name, value, rest := CutLabel(raw)
		if name == nil {
			break
		}
		m[string(name)] = string(value)
		raw = rest
	}
	return labels.FromMap(m)
}

// randomRequest makes a request with every shape of message.
func randomRequest(tb testing.TB, rnd *rand.Rand, format ingester.Format) []byte {
	attributes := func(m pcommon.Map) {
		for range rnd.Intn(4) {
			key := []string{"team", "k8s.pod.name", "k8s_pod_name", "env", "service.name", "service.namespace", "service.instance.id", "job", "a", "9lives"}[rnd.Intn(10)]
			switch rnd.Intn(4) {
			case 0:
				m.PutInt(key, rnd.Int63())
			case 1:
				m.PutEmptySlice(key).AppendEmpty().SetStr("x")
			default:
				m.PutStr(key, strings.Repeat("v", rnd.Intn(200)))
			}
		}
	}
	scope := func(s pcommon.InstrumentationScope) {
		if rnd.Intn(2) == 0 {
			s.SetName("lib")
			s.SetVersion("1")
		}
		attributes(s.Attributes())
	}
	switch format {
	case ingester.OTLPLogs:
		ld := plog.NewLogs()
		for range rnd.Intn(4) {
			rl := ld.ResourceLogs().AppendEmpty()
			attributes(rl.Resource().Attributes())
			rl.SetSchemaUrl("url")
			for range rnd.Intn(3) {
				sl := rl.ScopeLogs().AppendEmpty()
				scope(sl.Scope())
				for range rnd.Intn(5) {
					lr := sl.LogRecords().AppendEmpty()
					lr.Body().SetStr(strings.Repeat("b", rnd.Intn(300)))
					lr.SetTimestamp(pcommon.Timestamp(rnd.Uint32()))
					lr.SetSeverityText("INFO")
					lr.SetSeverityNumber(9)
					attributes(lr.Attributes())
				}
			}
		}
		return []byte(marshal(tb)((&plog.ProtoMarshaler{}).MarshalLogs(ld)))
	case ingester.OTLPTraces:
		td := ptrace.NewTraces()
		for range rnd.Intn(4) {
			rs := td.ResourceSpans().AppendEmpty()
			attributes(rs.Resource().Attributes())
			for range rnd.Intn(3) {
				ss := rs.ScopeSpans().AppendEmpty()
				scope(ss.Scope())
				for range rnd.Intn(5) {
					span := ss.Spans().AppendEmpty()
					span.SetTraceID([16]byte{byte(rnd.Intn(256)), 1})
					span.SetName(fmt.Sprint("op", rnd.Intn(3)))
					span.SetKind(ptrace.SpanKind(rnd.Intn(6)))
					span.Events().AppendEmpty().SetName("e")
					attributes(span.Attributes())
				}
			}
		}
		return []byte(marshal(tb)((&ptrace.ProtoMarshaler{}).MarshalTraces(td)))
	}
	md := pmetric.NewMetrics()
	for range rnd.Intn(4) {
		rm := md.ResourceMetrics().AppendEmpty()
		attributes(rm.Resource().Attributes())
		for range rnd.Intn(3) {
			sm := rm.ScopeMetrics().AppendEmpty()
			scope(sm.Scope())
			for range rnd.Intn(4) {
				randomMetric(rnd, sm.Metrics().AppendEmpty(), attributes)
			}
		}
	}
	return []byte(marshal(tb)((&pmetric.ProtoMarshaler{}).MarshalMetrics(md)))
}

func randomMetric(rnd *rand.Rand, m pmetric.Metric, attributes func(pcommon.Map)) {
	m.SetName("requests")
	m.SetUnit("1")
	n := rnd.Intn(5)
	switch rnd.Intn(5) {
	case 0:
		m.SetEmptyGauge()
		for range n {
			dp := m.Gauge().DataPoints().AppendEmpty()
			dp.SetIntValue(rnd.Int63())
			attributes(dp.Attributes())
		}
	case 1:
		m.SetEmptySum().SetIsMonotonic(true)
		m.Sum().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
		for range n {
			dp := m.Sum().DataPoints().AppendEmpty()
			dp.SetDoubleValue(rnd.Float64())
			dp.Exemplars().AppendEmpty().SetIntValue(1)
			attributes(dp.Attributes())
		}
	case 2:
		m.SetEmptyHistogram()
		for range n {
			dp := m.Histogram().DataPoints().AppendEmpty()
			dp.BucketCounts().FromRaw([]uint64{1, 2, 3})
			dp.ExplicitBounds().FromRaw([]float64{1, 2})
			attributes(dp.Attributes())
		}
	case 3:
		m.SetEmptyExponentialHistogram()
		for range n {
			dp := m.ExponentialHistogram().DataPoints().AppendEmpty()
			dp.Positive().BucketCounts().FromRaw([]uint64{1, 2})
			attributes(dp.Attributes())
		}
	default:
		m.SetEmptySummary()
		for range n {
			dp := m.Summary().DataPoints().AppendEmpty()
			dp.QuantileValues().AppendEmpty().SetQuantile(0.5)
			attributes(dp.Attributes())
		}
	}
}

// decideAtRandom drops and changes groups. The label sets need not come from the
// records: the difference is all that counts.
func decideAtRandom(rnd *rand.Rand, b *ingester.Batch) {
	all := []string{"team", "k8s_pod_name", "env", "a", "service_name", "job", "instance", "__name__", "severity", "span_name", "span_kind", "key_9lives", "otel_scope_name", "otel_scope_team", "new"}
	values := []string{"x", "warn", "server", "odd", "Error2"}
	routes := make([]ingester.Route, 4)
	for i := range routes {
		var sent, now []labels.Label
		for _, name := range all {
			if rnd.Intn(3) == 0 {
				sent = append(sent, labels.Label{Name: name, Value: values[rnd.Intn(len(values))]})
			}
			if rnd.Intn(3) == 0 {
				now = append(now, labels.Label{Name: name, Value: values[rnd.Intn(len(values))]})
			}
		}
		relabelled := ingester.AppendLabels([]byte{}, labels.New(now...))
		routes[i] = ingester.NewRoute(ingester.AppendLabels(nil, labels.New(sent...)), relabelled)
	}
	for i := range b.Groups {
		switch rnd.Intn(3) {
		case 0:
			b.Groups[i].Verdict = ingester.DroppedRatelimit
		case 1:
			b.Groups[i].Route = routes[rnd.Intn(len(routes))]
		}
	}
}

func TestEncoderAgainstTheOracle(t *testing.T) {
	var e Encoder
	for _, format := range []ingester.Format{ingester.OTLPMetrics, ingester.OTLPLogs, ingester.OTLPTraces} {
		for seed := range int64(500) {
			rnd := rand.New(rand.NewSource(seed))
			b := walk(t, format, randomRequest(t, rnd, format), nil)
			decideAtRandom(rnd, b)
			compare(t, b, &e, nil)
			compare(t, b, &e, func(i int) bool { return i%3 != 1 })
			if t.Failed() {
				t.Fatalf("format %d, seed %d", format, seed)
			}
		}
	}
}
