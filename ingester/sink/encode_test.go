package sink

import (
	"bytes"
	"fmt"
	"math/rand"
	"slices"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/spillway-telemetry/spillway/ingester"
)

func changed(sent, now labels.Labels) ingester.Route {
	return ingester.NewRoute(ingester.AppendLabels(nil, sent), ingester.AppendLabels([]byte{}, now))
}

// twoLogs is a request of two records under one resource and scope.
func twoLogs(t *testing.T) *ingester.Batch {
	ld := plog.NewLogs()
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("service.name", "api")
	rl.Resource().Attributes().PutStr("k8s.pod.name", "pod-1")
	records := rl.ScopeLogs().AppendEmpty().LogRecords()
	for _, text := range []string{"one", "two"} {
		record := records.AppendEmpty()
		record.Body().SetStr(text)
		record.Attributes().PutStr("http.route", "/")
		record.SetSeverityText("INFO")
		record.SetSeverityNumber(9)
	}
	raw, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(t, err)
	return walk(t, ingester.OTLPLogs, raw, nil)
}

func decodeLogs(t *testing.T, raw []byte) plog.Logs {
	ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(raw)
	require.NoError(t, err)
	return ld
}

// A label that is set keeps the attribute's key, one that has none gets its own name,
// and the neighbours stay as they came.
func TestSetLabelsAreItemAttributes(t *testing.T) {
	b := twoLogs(t)
	b.Groups[0].Route = changed(labels.FromStrings("http_route", "/", "severity", "INFO"), labels.FromStrings("http_route", "/root", "severity", "warn2", "team", "a"))
	rl := decodeLogs(t, new(Encoder).Encode(b, nil)).ResourceLogs()
	require.Equal(t, 1, rl.Len())
	records := rl.At(0).ScopeLogs().At(0).LogRecords()
	require.Equal(t, map[string]any{"http.route": "/root", "team": "a"}, records.At(0).Attributes().AsRaw())
	require.Equal(t, "warn2", records.At(0).SeverityText())
	require.Equal(t, plog.SeverityNumberWarn2, records.At(0).SeverityNumber())
	require.Equal(t, map[string]any{"http.route": "/"}, records.At(1).Attributes().AsRaw())
	require.Equal(t, "INFO", records.At(1).SeverityText())
}

// A label of the resource that one record loses is gone from a copy of the resource.
func TestRemovedResourceAttributesConcernOneItem(t *testing.T) {
	b := twoLogs(t)
	b.Groups[0].Route = changed(labels.FromStrings("k8s_pod_name", "pod-1", "service_name", "api"), labels.FromStrings("service_name", "web"))
	rl := decodeLogs(t, new(Encoder).Encode(b, nil)).ResourceLogs()
	require.Equal(t, 2, rl.Len())
	require.Equal(t, map[string]any{"service.name": "api", "k8s.pod.name": "pod-1"}, rl.At(0).Resource().Attributes().AsRaw())
	require.Equal(t, "two", rl.At(0).ScopeLogs().At(0).LogRecords().At(0).Body().Str())
	require.Equal(t, map[string]any{"service.name": "web"}, rl.At(1).Resource().Attributes().AsRaw())
	require.Equal(t, "one", rl.At(1).ScopeLogs().At(0).LogRecords().At(0).Body().Str())
}

// Records that lose the same share one copy.
func TestItemsThatLoseTheSameShareACopy(t *testing.T) {
	b := twoLogs(t)
	route := changed(labels.FromStrings("k8s_pod_name", "pod-1"), labels.FromStrings("x", "y"))
	b.Groups[0].Route, b.Groups[1].Route = route, route
	ld := decodeLogs(t, new(Encoder).Encode(b, nil))
	require.Equal(t, 1, ld.ResourceLogs().Len())
	require.Equal(t, 2, ld.LogRecordCount())
}

// A group of several records is a run of fields: all leave, all go, all change.
func TestRunsOfRecordsAreOneGroup(t *testing.T) {
	b := twoLogs(t)
	run := b.Groups[0]
	run.Field.End, run.Floats = b.Groups[1].Field.End, 2
	for _, c := range []struct {
		verdict ingester.Verdict
		route   ingester.Route
		want    []string
	}{
		{ingester.Admitted, ingester.Route{}, []string{"", ""}},
		{ingester.DroppedRatelimit, ingester.Route{}, nil},
		{ingester.Admitted, changed(labels.FromStrings("a", "b"), labels.FromStrings("a", "b", "team", "x")), []string{"x", "x"}},
		{ingester.Admitted, changed(labels.FromStrings("k8s_pod_name", "pod-1"), labels.FromStrings("team", "x")), []string{"x", "x"}},
	} {
		run.Verdict, run.Route = c.verdict, c.route
		b.Groups = []ingester.Group{run}
		var got []string
		ld := decodeLogs(t, new(Encoder).Encode(b, nil))
		for _, rl := range ld.ResourceLogs().All() {
			for _, lr := range rl.ScopeLogs().At(0).LogRecords().All() {
				team, ok := lr.Attributes().Get("team")
				if !ok {
					got = append(got, "")
					continue
				}
				got = append(got, team.Str())
			}
		}
		require.Equal(t, c.want, got)
	}
}

// A new name of a metric, and job and instance, concern one data point.
func TestMetricsAreRenamedUnderACopy(t *testing.T) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", "api")
	rm.Resource().Attributes().PutStr("service.namespace", "shop")
	m := rm.ScopeMetrics().AppendEmpty().Metrics().AppendEmpty()
	m.SetName("http.requests")
	m.SetUnit("1")
	sum := m.SetEmptySum()
	sum.SetIsMonotonic(true)
	for range 2 {
		sum.DataPoints().AppendEmpty().SetIntValue(1)
	}
	raw, err := (&pmetric.ProtoMarshaler{}).MarshalMetrics(md)
	require.NoError(t, err)
	b := walk(t, ingester.OTLPMetrics, raw, nil)
	b.Groups[1].Route = changed(labels.FromStrings("__name__", "http_requests_total", "job", "shop/api"), labels.FromStrings("__name__", "requests", "instance", "i", "job", "other"))
	got, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(new(Encoder).Encode(b, nil))
	require.NoError(t, err)
	require.Equal(t, 2, got.ResourceMetrics().Len())
	first, second := got.ResourceMetrics().At(0), got.ResourceMetrics().At(1)
	require.Equal(t, map[string]any{"service.name": "api", "service.namespace": "shop"}, first.Resource().Attributes().AsRaw())
	require.Equal(t, "http.requests", first.ScopeMetrics().At(0).Metrics().At(0).Name())
	require.Equal(t, 1, first.ScopeMetrics().At(0).Metrics().At(0).Sum().DataPoints().Len())
	require.Equal(t, map[string]any{"service.name": "other", "service.instance.id": "i"}, second.Resource().Attributes().AsRaw())
	renamed := second.ScopeMetrics().At(0).Metrics().At(0)
	require.Equal(t, "requests", renamed.Name())
	require.Equal(t, "1", renamed.Unit())
	require.True(t, renamed.Sum().IsMonotonic())
}

// Cut gives what was sent, whatever the rules made of it.
func TestCutIgnoresChanges(t *testing.T) {
	var e Encoder
	for seed := range int64(100) {
		rnd := rand.New(rand.NewSource(seed))
		b := walk(t, ingester.OTLPMetrics, randomRequest(t, rnd, ingester.OTLPMetrics), nil)
		decideAtRandom(rnd, b)
		got := slices.Clone(e.Cut(b, nil))
		for i := range b.Groups {
			b.Groups[i].Route = ingester.Route{}
		}
		require.True(t, bytes.Equal(e.Encode(b, nil), got))
	}
}

// Split loses nothing, keeps the order and the limit.
func TestSplit(t *testing.T) {
	var e Encoder
	for seed := range int64(100) {
		rnd := rand.New(rand.NewSource(seed))
		b := walk(t, ingester.OTLPLogs, randomRequest(t, rnd, ingester.OTLPLogs), nil)
		var want, got []string
		for i, r := range records(t, b.Format, b.Body[:b.Size]) {
			if b.Groups[i].Verdict = ingester.Verdict(2 * rnd.Intn(2)); b.Groups[i].Admitted() {
				want = append(want, r.text())
			}
		}
		limit := 50 + rnd.Intn(1000)
		require.NoError(t, e.Split(b, nil, limit, func(raw []byte, alone int) error {
			rs := records(t, b.Format, raw)
			if len(raw) > limit {
				require.Len(t, rs, 1)
				require.True(t, alone >= 0)
			} else {
				require.Equal(t, -1, alone)
			}
			for _, r := range rs {
				got = append(got, r.text())
			}
			return nil
		}))
		require.Equal(t, want, got)
	}
	failed := fmt.Errorf("stop")
	require.ErrorIs(t, e.Split(twoLogs(t), nil, 10, func([]byte, int) error { return failed }), failed)
}

// Whatever follows the seed, records leave as the oracle says.
func FuzzEncoder(f *testing.F) {
	for seed := range int64(6) {
		f.Add(seed, uint8(seed), []byte{1, 2, 3})
	}
	f.Fuzz(func(t *testing.T, seed int64, kind uint8, keep []byte) {
		format := []ingester.Format{ingester.OTLPMetrics, ingester.OTLPLogs, ingester.OTLPTraces}[kind%3]
		rnd := rand.New(rand.NewSource(seed))
		b := walk(t, format, randomRequest(t, rnd, format), nil)
		decideAtRandom(rnd, b)
		compare(t, b, new(Encoder), func(i int) bool { return len(keep) == 0 || keep[i%len(keep)]&1 == 0 })
	})
}

// Bytes that nobody made on purpose never make the encoder panic or write what cannot
// be read.
func FuzzEncoderBytes(f *testing.F) {
	for seed := range int64(6) {
		rnd := rand.New(rand.NewSource(seed))
		format := ingester.Format(3 + seed%3)
		f.Add(randomRequest(f, rnd, format), seed)
	}
	f.Fuzz(func(t *testing.T, raw []byte, seed int64) {
		b := &ingester.Batch{Format: ingester.Format(3 + uint64(seed)%3)}
		if !Describe(b, raw) {
			return
		}
		rnd := rand.New(rand.NewSource(seed))
		decideAtRandom(rnd, b)
		admitted := 0
		for i := range b.Groups {
			if b.Groups[i].Admitted() {
				admitted++
			}
		}
		again := &ingester.Batch{Format: b.Format}
		if !Describe(again, new(Encoder).Encode(b, nil)) {
			t.Fatal("what was written cannot be read")
		}
		if len(again.Groups) != admitted {
			t.Fatalf("%d groups were admitted, %d were written", admitted, len(again.Groups))
		}
		Keys(nil, b)
	})
}

func benchmark(b *testing.B, decide func(*ingester.Batch)) {
	ld := plog.NewLogs()
	for range 20 {
		rl := ld.ResourceLogs().AppendEmpty()
		for _, key := range []string{"service.name", "k8s.pod.name", "k8s.namespace.name", "host.name"} {
			rl.Resource().Attributes().PutStr(key, "some value of it")
		}
		records := rl.ScopeLogs().AppendEmpty().LogRecords()
		for range 100 {
			lr := records.AppendEmpty()
			lr.Body().SetStr("GET /api/v1/things/12345 200 in 15 ms from 10.1.2.3, which is a line of a usual length")
			lr.SetSeverityText("INFO")
			lr.Attributes().PutStr("http.route", "/api/v1/things")
			lr.Attributes().PutStr("http.status", "200")
		}
	}
	raw, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(b, err)
	batch := walk(b, ingester.OTLPLogs, raw, nil)
	decide(batch)
	var e Encoder
	b.SetBytes(int64(len(raw)))
	b.ReportAllocs()
	for b.Loop() {
		e.Encode(batch, nil)
	}
	b.ReportMetric(float64(len(batch.Groups))*float64(b.N)/b.Elapsed().Seconds(), "items/s")
}

func BenchmarkEncodeHalfDropped(b *testing.B) {
	benchmark(b, func(batch *ingester.Batch) {
		for i := range batch.Groups {
			if i%2 == 0 {
				batch.Groups[i].Verdict = ingester.DroppedRatelimit
			}
		}
	})
}

func BenchmarkEncodeLabelAdded(b *testing.B) {
	route := changed(labels.FromStrings("http_route", "/api/v1/things"), labels.FromStrings("http_route", "/api/v1/things", "team", "a"))
	benchmark(b, func(batch *ingester.Batch) {
		for i := range batch.Groups {
			batch.Groups[i].Route = route
		}
	})
}

func BenchmarkEncodeResourceLabelRemoved(b *testing.B) {
	route := changed(labels.FromStrings("k8s_pod_name", "some value of it"), labels.FromStrings("x", "y"))
	benchmark(b, func(batch *ingester.Batch) {
		for i := range batch.Groups {
			batch.Groups[i].Route = route
		}
	})
}

// RejectLast takes the last items, and none twice.
func TestRejectLast(t *testing.T) {
	b := &ingester.Batch{Groups: []ingester.Group{{Floats: 2}, {Floats: 3}, {Floats: 9, Verdict: ingester.DroppedRatelimit}, {Floats: 1}}}
	b.Reject(&b.Groups[1], 1, "earlier")
	RejectLast(b, 4)
	require.Equal(t, []uint32{1, 3, 0, 1}, []uint32{b.Groups[0].Rejected, b.Groups[1].Rejected, b.Groups[2].Rejected, b.Groups[3].Rejected})
	RejectLast(b, 100)
	require.Equal(t, map[string]int64{"earlier": 1, ReasonRejected: 5}, b.Rejections())
}
