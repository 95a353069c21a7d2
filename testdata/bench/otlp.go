package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of OTLP, by the path that they are sent to.
const (
	otlpLogs    = "/v1/logs"
	otlpMetrics = "/v1/metrics"
	otlpTraces  = "/v1/traces"
)

func isOTLP(message string) bool { return strings.HasPrefix(message, "/v1/") }

// streamOf is the stream that a message belongs to.
func streamOf(message string) string {
	if isOTLP(message) {
		return strings.TrimPrefix(message, "/v1/")
	}
	return "metrics"
}

// otlpItems and otlpResources are what an OTLP request holds.
const (
	otlpItems     = 1000
	otlpResources = 20
	// otlpSeries is how many different items are sent in rotation. No two log records
	// or spans are alike but for what rules look at.
	otlpSeries = 100_000
)

// encodeOTLP makes request number part: items of 20 resources with 8 attributes each.
// Every item has four attributes of its own, one of which no other item has, as an id
// of a request or a trace would be.
func encodeOTLP(message string, part int, stamp time.Time) ([]byte, error) {
	at := pcommon.NewTimestampFromTime(stamp)
	number := func(resource, item int) int { return (part*otlpResources+resource)*otlpItems/otlpResources + item }
	switch message {
	case otlpLogs:
		d := plog.NewLogs()
		for i := range otlpResources {
			rl := d.ResourceLogs().AppendEmpty()
			resourceOf(rl.Resource(), part, i)
			records := rl.ScopeLogs().AppendEmpty()
			records.Scope().SetName("checkout")
			for j := range otlpItems / otlpResources {
				r := records.LogRecords().AppendEmpty()
				r.SetTimestamp(at)
				r.SetSeverityNumber(plog.SeverityNumberInfo)
				r.SetSeverityText("INFO")
				r.Body().SetStr("order placed, payment pending, 3 items in the basket")
				attributesOf(r.Attributes(), number(i, j))
			}
		}
		return (&plog.ProtoMarshaler{}).MarshalLogs(d)
	case otlpTraces:
		d := ptrace.NewTraces()
		for i := range otlpResources {
			rs := d.ResourceSpans().AppendEmpty()
			resourceOf(rs.Resource(), part, i)
			spans := rs.ScopeSpans().AppendEmpty()
			spans.Scope().SetName("checkout")
			for j := range otlpItems / otlpResources {
				s := spans.Spans().AppendEmpty()
				n := number(i, j)
				s.SetTraceID([16]byte{1, byte(n), byte(n >> 8), byte(n >> 16)})
				s.SetSpanID([8]byte{2, byte(n), byte(n >> 8), byte(n >> 16)})
				s.SetName("GET /api/v1/customers/orders")
				s.SetKind(ptrace.SpanKindServer)
				s.SetStartTimestamp(at)
				s.SetEndTimestamp(at + 1_000_000)
				attributesOf(s.Attributes(), n)
			}
		}
		return (&ptrace.ProtoMarshaler{}).MarshalTraces(d)
	}
	d := pmetric.NewMetrics()
	for i := range otlpResources {
		rm := d.ResourceMetrics().AppendEmpty()
		resourceOf(rm.Resource(), part, i)
		scope := rm.ScopeMetrics().AppendEmpty()
		scope.Scope().SetName("checkout")
		const points = 10 // of a metric
		for j := range otlpItems / otlpResources / points {
			m := scope.Metrics().AppendEmpty()
			m.SetName(fmt.Sprintf("http.server.requests.%d", j))
			m.SetUnit("s")
			sum := m.SetEmptySum()
			sum.SetIsMonotonic(true)
			sum.SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
			for k := range points {
				p := sum.DataPoints().AppendEmpty()
				p.SetTimestamp(at)
				p.SetDoubleValue(float64(k))
				attributesOf(p.Attributes(), number(i, j*points+k))
			}
		}
	}
	return (&pmetric.ProtoMarshaler{}).MarshalMetrics(d)
}

func resourceOf(r pcommon.Resource, part, i int) {
	a := r.Attributes()
	a.PutStr("service.name", "checkout-frontend")
	a.PutStr("service.namespace", "shop")
	a.PutStr("service.instance.id", fmt.Sprintf("checkout-frontend-7d9f8b6c5-%04d", part*otlpResources+i))
	a.PutStr("k8s.cluster.name", "eu-west-1-prod")
	a.PutStr("k8s.namespace.name", "shop")
	a.PutStr("deployment.environment.name", "prod")
	a.PutStr("host.name", fmt.Sprintf("node-%d", i))
	a.PutStr("team", fmt.Sprintf("team-%02d", i))
}

func attributesOf(a pcommon.Map, n int) {
	a.PutStr("http.request.method", "GET")
	a.PutStr("http.route", "/api/v1/customers/orders")
	a.PutInt("http.response.status_code", 200)
	a.PutStr("request.id", fmt.Sprintf("%016x", n))
}

// otlpRules are three conditions under which items are dropped, none of which is true
// of what is sent: two look at a resource and one at an item.
const otlpRules = `- {source_labels: [deployment_environment_name], regex: 'test', action: drop}
- {source_labels: [k8s_namespace_name], regex: 'kube-system', action: drop}
- {source_labels: [http_route], regex: '/healthz', action: drop}
`

// forwardingOTLP is Spillway with an OTLP sink, three rules and 20 classes.
func (p programs) forwardingOTLP(message string) *receiver {
	stream := streamOf(message)
	policy := strings.Replace(policyOf(20, false), "  metrics:", "  "+stream+":", 1)
	return &receiver{name: "Spillway", check: conserved(stream, 0, 0),
		start: func(ctx context.Context, dir, address, sink string) (*process, error) {
			config := fmt.Sprintf("server: {http_listen_address: %q, otlp_grpc_listen_address: '', otlp_http_listen_address: ''}\ntelemetry: {interval: 0s}\nlog: {level: warn}\npolicy_file: policy.yaml\n"+
				"otlp: {promote_resource_attributes: [team, deployment.environment.name, k8s.namespace.name]}\n"+
				"sinks: {out: {otlp: {endpoints: [%q], compression: none}}}\nstreams:\n  %s:\n    sink: out\n    relabel_configs:\n%s",
				address, sinkOf(sink), stream, indent(otlpRules, "      "))
			if err := writeFiles(dir, map[string]string{"spillway.yaml": config, "policy.yaml": policy}); err != nil {
				return nil, err
			}
			return launch(ctx, dir, address, "/-/ready", http.StatusOK, nil, p.spillway, "serve", "--config.file=spillway.yaml")
		}}
}

// sinkOf is the address of the sink without a path.
func sinkOf(url string) string { return strings.TrimSuffix(url, "/api/v1/write") }

// collector receives and sends OTLP over HTTP, waits for its destination before it
// answers as Spillway does, and compresses neither. It filters nothing, which favours
// it: not all modules that its filter processor is made of can be fetched by everybody.
func (p programs) collector(message string) *receiver {
	return &receiver{name: "the Collector", check: allAtSink, noMetrics: true,
		start: func(ctx context.Context, dir, address, sink string) (*process, error) {
			config := fmt.Sprintf(`receivers: {otlp: {protocols: {http: {endpoint: %q}}}}
exporters: {otlp_http: {endpoint: %q, compression: none, sending_queue: {enabled: false}, retry_on_failure: {enabled: false}}}
service:
  telemetry: {metrics: {level: none}, logs: {level: warn}}
  pipelines: {%s: {receivers: [otlp], exporters: [otlp_http]}}
`, address, sinkOf(sink), streamOf(message))
			if err := writeFiles(dir, map[string]string{"otelcol.yaml": config}); err != nil {
				return nil, err
			}
			return launch(ctx, dir, address, message, http.StatusMethodNotAllowed, nil, filepath.Join(p.peers, "otelcol"), "--config=file:otelcol.yaml")
		}}
}

func allAtSink(_ metrics, sent, atSink int64) (string, error) {
	if sent != atSink {
		return "", fmt.Errorf("%d items sent, %d at the sink", sent, atSink)
	}
	return "", nil
}

// readPlain reads a body that is not compressed into b.packed.
func (b *sinkBuffers) readPlain(r *http.Request) ([]byte, error) {
	b.packed = b.packed[:0]
	if encoding := r.Header.Get("Content-Encoding"); encoding != "" && encoding != "identity" {
		return nil, fmt.Errorf("compressed by %q, which is not what is compared", encoding)
	}
	for {
		if len(b.packed) == cap(b.packed) {
			b.packed = append(b.packed, 0)[:len(b.packed)]
		}
		n, err := r.Body.Read(b.packed[len(b.packed):cap(b.packed)])
		b.packed = b.packed[:len(b.packed)+n]
		if err == io.EOF {
			return b.packed, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// countOTLP counts the items of a request. All three messages have their scopes in
// field 2 of field 1, and in field 2 of these the log records, the spans, or the
// metrics, whose data points are field 1 of one of their other messages.
func countOTLP(message string, raw []byte) (n int64, err error) {
	below := func(field protowire.Number, f func([]byte) error) func(protowire.Number, []byte) error {
		return func(is protowire.Number, value []byte) error {
			if is != field {
				return nil
			}
			return f(value)
		}
	}
	item := func([]byte) error { n++; return nil }
	if message == otlpMetrics {
		item = func(metric []byte) error {
			return eachField(metric, func(field protowire.Number, data []byte) error {
				if field < 5 || field > 11 {
					return nil
				}
				return eachField(data, below(1, func([]byte) error { n++; return nil }))
			})
		}
	}
	scope := func(scope []byte) error { return eachField(scope, below(2, item)) }
	return n, eachField(raw, below(1, func(resource []byte) error { return eachField(resource, below(2, scope)) }))
}
