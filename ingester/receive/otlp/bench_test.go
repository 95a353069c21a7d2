package otlp

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/spillway-telemetry/spillway/ingester"
)

// A request as agents send them: 10 resources, 1000 items with six attributes each.
const (
	benchResources = 10
	benchItems     = 100 // of each resource
)

func benchResource(r pcommon.Resource, i int) {
	for _, key := range []string{"service.name", "service.namespace", "k8s.pod.name", "k8s.namespace.name", "k8s.node.name", "deployment.environment.name"} {
		r.Attributes().PutStr(key, fmt.Sprintf("%s-%d", key, i))
	}
}

func benchAttributes(m pcommon.Map, i int) {
	m.PutStr("http.request.method", []string{"GET", "POST", "PUT"}[i%3])
	m.PutStr("http.route", fmt.Sprintf("/api/v1/things/%d", i%7))
	m.PutInt("http.response.status_code", int64(200+i%5))
	m.PutStr("team", []string{"a", "b", "c", "d"}[i%4])
	m.PutStr("user.id", fmt.Sprintf("user-%08d", i*7919))
	m.PutStr("thread.name", "worker-17")
}

func benchBodies(t testing.TB) map[ingester.Format][]byte {
	logs, traces, metrics := plog.NewLogs(), ptrace.NewTraces(), pmetric.NewMetrics()
	now := pcommon.NewTimestampFromTime(time.Unix(1_800_000_000, 0))
	for i := range benchResources {
		rl, rs, rm := logs.ResourceLogs().AppendEmpty(), traces.ResourceSpans().AppendEmpty(), metrics.ResourceMetrics().AppendEmpty()
		benchResource(rl.Resource(), i)
		benchResource(rs.Resource(), i)
		benchResource(rm.Resource(), i)
		records, spans, points := rl.ScopeLogs().AppendEmpty().LogRecords(), rs.ScopeSpans().AppendEmpty().Spans(), rm.ScopeMetrics().AppendEmpty().Metrics()
		for j := range benchItems {
			lr := records.AppendEmpty()
			lr.SetTimestamp(now)
			lr.SetObservedTimestamp(now)
			lr.SetSeverityText("INFO")
			lr.SetSeverityNumber(9)
			lr.Body().SetStr(fmt.Sprintf("request %d was served from the cache in 12.5 ms, which is below the objective of the service", j))
			lr.SetTraceID(pcommon.TraceID{1, byte(j)})
			lr.SetSpanID(pcommon.SpanID{2, byte(j)})
			benchAttributes(lr.Attributes(), j)
			span := spans.AppendEmpty()
			span.SetTraceID(pcommon.TraceID{1, byte(j)})
			span.SetSpanID(pcommon.SpanID{2, byte(j)})
			span.SetParentSpanID(pcommon.SpanID{3, byte(j)})
			span.SetName("GET /api/v1/things")
			span.SetKind(ptrace.SpanKindServer)
			span.SetStartTimestamp(now)
			span.SetEndTimestamp(now)
			benchAttributes(span.Attributes(), j)
			if j%10 == 0 {
				m := points.AppendEmpty()
				m.SetName(fmt.Sprintf("http.server.requests.%d", j))
				m.SetUnit("{request}")
				m.SetEmptySum().SetIsMonotonic(true)
			}
			p := points.At(points.Len() - 1).Sum().DataPoints().AppendEmpty()
			p.SetTimestamp(now)
			p.SetStartTimestamp(now)
			p.SetIntValue(int64(j))
			benchAttributes(p.Attributes(), j)
		}
	}
	bodies := map[ingester.Format][]byte{}
	var err error
	bodies[ingester.OTLPLogs], err = (&plog.ProtoMarshaler{}).MarshalLogs(logs)
	require.NoError(t, err)
	bodies[ingester.OTLPTraces], err = (&ptrace.ProtoMarshaler{}).MarshalTraces(traces)
	require.NoError(t, err)
	bodies[ingester.OTLPMetrics], err = (&pmetric.ProtoMarshaler{}).MarshalMetrics(metrics)
	require.NoError(t, err)
	return bodies
}

const benchPolicy = `
streams:
  logs: {rate: 1000000000000, burst: 1000000000000, classes: [{name: a, percent: 10}, {name: b, percent: 10}],
    rules: [{class: a, matchers: ['team="a"']}, {class: b, matchers: ['k8s_namespace_name=~".*-3"', 'severity!="DEBUG"']}]}
  traces: {rate: 1000000000000, burst: 1000000000000, classes: [{name: a, percent: 10}],
    rules: [{class: a, matchers: ['team="a"', 'k8s_namespace_name=~".*-3"', 'span_name!=""']}]}
  metrics: {rate: 1000000000000, burst: 1000000000000, classes: [{name: a, percent: 10}],
    rules: [{class: a, matchers: ['team="a"', 'job=~".*-3"']}]}
`

var benchFormats = map[string]ingester.Format{"logs": ingester.OTLPLogs, "spans": ingester.OTLPTraces, "points": ingester.OTLPMetrics}

// nowhere answers requests of a benchmark.
type nowhere struct{ header http.Header }

func (n *nowhere) Header() http.Header       { return n.header }
func (*nowhere) Write(b []byte) (int, error) { return len(b), nil }
func (*nowhere) WriteHeader(int)             {}

// BenchmarkReceive measures one item from the receipt of its request, not compressed,
// to its answer, with a handful of labels in view and a sink that keeps nothing.
func BenchmarkReceive(b *testing.B) {
	for name, format := range benchFormats {
		b.Run(name, func(b *testing.B) {
			s := newSystem(b, setup{policy: benchPolicy})
			for _, stream := range ingester.Streams() {
				s.settings.Streams[stream].Sink = nothing{}
			}
			require.NoError(b, s.ingester.Reload(s.settings))
			body := benchBodies(b)[format]
			handler := s.receiver.HTTP(streamOf(format), format)
			reader := bytes.NewReader(body)
			req := httptest.NewRequest(http.MethodPost, "/", nil)
			req.Header.Set("Content-Type", protobufType)
			rw := &nowhere{http.Header{}}
			perItem(b, func() {
				reader.Reset(body)
				req.Body, req.ContentLength = readCloser{reader}, int64(len(body))
				handler.ServeHTTP(rw, req)
			})
			s.requireConserved(streamOf(format))
		})
	}
}

// BenchmarkPdata is the floor of whoever decodes with pdata and encodes again.
func BenchmarkPdata(b *testing.B) {
	bodies := benchBodies(b)
	b.Run("logs", func(b *testing.B) {
		perItem(b, func() {
			v, _ := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(bodies[ingester.OTLPLogs])
			_, _ = (&plog.ProtoMarshaler{}).MarshalLogs(v)
		})
	})
	b.Run("spans", func(b *testing.B) {
		perItem(b, func() {
			v, _ := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(bodies[ingester.OTLPTraces])
			_, _ = (&ptrace.ProtoMarshaler{}).MarshalTraces(v)
		})
	})
	b.Run("points", func(b *testing.B) {
		perItem(b, func() {
			v, _ := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(bodies[ingester.OTLPMetrics])
			_, _ = (&pmetric.ProtoMarshaler{}).MarshalMetrics(v)
		})
	})
}

// BenchmarkWalk measures the walk alone.
func BenchmarkWalk(b *testing.B) {
	for name, format := range benchFormats {
		b.Run(name, func(b *testing.B) {
			s := newSystem(b, setup{policy: benchPolicy})
			body := benchBodies(b)[format]
			batch := &ingester.Batch{}
			perItem(b, func() {
				batch.Reset()
				batch.Stream, batch.Format, batch.Size = streamOf(format), format, len(body)
				batch.Body = append(batch.Body[:0], body...)
				memory := s.ingester.Memory()
				if err := s.receiver.Walk(batch, memory, EachRecord); err != nil {
					b.Fatal(err)
				}
				memory.Release()
			})
		})
	}
}

func perItem(b *testing.B, request func()) {
	request()
	b.ReportAllocs()
	before := cpu()
	for b.Loop() {
		request()
	}
	b.ReportMetric(float64(cpu()-before)/float64(b.N)/(benchResources*benchItems), "cpu-ns/item")
}

type readCloser struct{ *bytes.Reader }

func (readCloser) Close() error { return nil }

// nothing is a sink that keeps nothing.
type nothing struct{}

func (nothing) Write(context.Context, *ingester.Batch) error { return nil }

// cpu is the time that this process has used on processors, in nanoseconds: what
// others do on the machine does not count.
func cpu() int64 {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return u.Utime.Nano() + u.Stime.Nano()
}
