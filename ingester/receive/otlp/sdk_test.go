package otlp

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	attr "go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploggrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlplog/otlploghttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetricgrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/log"
	"go.opentelemetry.io/otel/metric"
	sdklog "go.opentelemetry.io/otel/sdk/log"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/spillway-telemetry/spillway/ingester"
)

// sdk is the OpenTelemetry SDK for Go with its exporters.
type sdk struct {
	logs    *sdklog.LoggerProvider
	traces  *sdktrace.TracerProvider
	metrics *sdkmetric.MeterProvider
}

func newSDK(logs sdklog.Exporter, traces sdktrace.SpanExporter, metrics sdkmetric.Exporter) sdk {
	r := resource.NewSchemaless(attr.String("service.name", "shop"), attr.String("service.namespace", "eu"))
	s := sdk{
		logs:    sdklog.NewLoggerProvider(sdklog.WithResource(r), sdklog.WithProcessor(sdklog.NewBatchProcessor(logs))),
		traces:  sdktrace.NewTracerProvider(sdktrace.WithResource(r), sdktrace.WithBatcher(traces)),
		metrics: sdkmetric.NewMeterProvider(sdkmetric.WithResource(r), sdkmetric.WithReader(sdkmetric.NewPeriodicReader(metrics, sdkmetric.WithInterval(time.Hour)))),
	}
	return s
}

// send emits n log records and spans of each of two teams, and a counter, a gauge and
// a histogram with a data point for each team.
func (s sdk) send(t *testing.T, n int) {
	ctx := context.Background()
	logger, tracer, meter := s.logs.Logger("shop/cart"), s.traces.Tracer("shop/cart"), s.metrics.Meter("shop/cart")
	counter, err := meter.Int64Counter("orders", metric.WithUnit("{order}"))
	require.NoError(t, err)
	gauge, err := meter.Float64Gauge("stock.level", metric.WithUnit("1"))
	require.NoError(t, err)
	duration, err := meter.Float64Histogram("checkout", metric.WithUnit("s"))
	require.NoError(t, err)
	for _, team := range []string{"a", "b"} {
		for i := range n {
			var r log.Record
			r.SetBody(attr.StringValue(fmt.Sprintf("order %d", i)))
			r.SetSeverity(log.SeverityWarn)
			r.AddAttributes(attr.String("team", team), attr.Int("order.id", i))
			logger.Emit(ctx, r)
			_, span := tracer.Start(ctx, "checkout", trace.WithSpanKind(trace.SpanKindServer), trace.WithAttributes(attr.String("team", team)))
			span.AddEvent("paid", trace.WithAttributes(attr.Float64("amount", 1.5)))
			span.End()
		}
		labels := metric.WithAttributes(attr.String("team", team))
		counter.Add(ctx, 3, labels)
		gauge.Record(ctx, 0.5, labels)
		duration.Record(ctx, 0.25, labels)
	}
	require.NoError(t, s.logs.Shutdown(ctx))
	require.NoError(t, s.traces.Shutdown(ctx))
	require.NoError(t, s.metrics.Shutdown(ctx))
}

// twoTeams sees the team, the severity, the span's name and kind, and the job.
const twoTeams = `
streams:
  logs: {rate: 1000, burst: 1000, classes: [{name: a, percent: 50}, {name: b, percent: 50}], default: {rate: 0},
    rules: [{class: a, matchers: ['team="a"', 'severity="WARN"', 'service_name="shop"']}, {class: b, matchers: ['team="b"']}]}
  traces: {rate: 1000, burst: 1000, classes: [{name: a, percent: 50}, {name: b, percent: 50}], default: {rate: 0},
    rules: [{class: a, matchers: ['team="a"', 'span_name="checkout"', 'span_kind="server"', 'service_name="shop"']}, {class: b, matchers: ['team="b"']}]}
  metrics: {rate: 1000, burst: 1000, classes: [{name: a, percent: 50}, {name: b, percent: 50}], default: {rate: 0},
    rules: [{class: a, matchers: ['team="a"', 'job="eu/shop"']}, {class: b, matchers: ['team="b"']}]}
`

// TestRealSDK sends with the OpenTelemetry SDK for Go, over gRPC and HTTP, compressed
// and not: every item arrives with its labels.
func TestRealSDK(t *testing.T) {
	ctx := context.Background()
	senders := map[string]func(grpc, http string) (sdklog.Exporter, sdktrace.SpanExporter, sdkmetric.Exporter){
		"grpc": func(address, _ string) (sdklog.Exporter, sdktrace.SpanExporter, sdkmetric.Exporter) {
			return must(otlploggrpc.New(ctx, otlploggrpc.WithEndpoint(address), otlploggrpc.WithInsecure())),
				must(otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(address), otlptracegrpc.WithInsecure())),
				must(otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpoint(address), otlpmetricgrpc.WithInsecure()))
		},
		"grpc, gzip": func(address, _ string) (sdklog.Exporter, sdktrace.SpanExporter, sdkmetric.Exporter) {
			return must(otlploggrpc.New(ctx, otlploggrpc.WithEndpoint(address), otlploggrpc.WithInsecure(), otlploggrpc.WithCompressor("gzip"))),
				must(otlptracegrpc.New(ctx, otlptracegrpc.WithEndpoint(address), otlptracegrpc.WithInsecure(), otlptracegrpc.WithCompressor("gzip"))),
				must(otlpmetricgrpc.New(ctx, otlpmetricgrpc.WithEndpoint(address), otlpmetricgrpc.WithInsecure(), otlpmetricgrpc.WithCompressor("gzip")))
		},
		"http": func(_, address string) (sdklog.Exporter, sdktrace.SpanExporter, sdkmetric.Exporter) {
			return must(otlploghttp.New(ctx, otlploghttp.WithEndpoint(address), otlploghttp.WithInsecure())),
				must(otlptracehttp.New(ctx, otlptracehttp.WithEndpoint(address), otlptracehttp.WithInsecure())),
				must(otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpoint(address), otlpmetrichttp.WithInsecure()))
		},
		"http, gzip": func(_, address string) (sdklog.Exporter, sdktrace.SpanExporter, sdkmetric.Exporter) {
			return must(otlploghttp.New(ctx, otlploghttp.WithEndpoint(address), otlploghttp.WithInsecure(), otlploghttp.WithCompression(otlploghttp.GzipCompression))),
				must(otlptracehttp.New(ctx, otlptracehttp.WithEndpoint(address), otlptracehttp.WithInsecure(), otlptracehttp.WithCompression(otlptracehttp.GzipCompression))),
				must(otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpoint(address), otlpmetrichttp.WithInsecure(), otlpmetrichttp.WithCompression(otlpmetrichttp.GzipCompression)))
		},
	}
	for name, exporters := range senders {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, setup{policy: twoTeams})
			logs, traces, metrics := exporters(s.servers())
			newSDK(logs, traces, metrics).send(t, 10)
			for _, stream := range []ingester.Stream{ingester.Logs, ingester.Traces, ingester.Metrics} {
				c := s.requireConserved(stream)
				want := map[ingester.Stream]int64{ingester.Logs: 20, ingester.Traces: 20, ingester.Metrics: 6}[stream]
				require.Equal(t, want, c["spillway_admitted_items_total"], "%s: %v", stream, c)
			}
			names := map[string]int{}
			for _, item := range s.sink.items {
				names[item.labels["__name__"]]++
			}
			require.Equal(t, map[string]int{"": 40, "orders_total": 2, "stock_level_ratio": 2, "checkout_seconds": 2}, names)
			require.Equal(t, s.sink.batches, s.sink.whole, "nothing was dropped or changed")
		})
	}
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
