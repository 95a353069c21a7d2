// Sends N spans over gRPC, N log records as protobuf and N data points as JSON, as an
// application with the OpenTelemetry SDK of JavaScript does.
//
//   node send.mjs HTTP-ADDRESS GRPC-ADDRESS N
import { resourceFromAttributes } from '@opentelemetry/resources'
import { BasicTracerProvider, BatchSpanProcessor } from '@opentelemetry/sdk-trace-base'
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-grpc'
import { LoggerProvider, BatchLogRecordProcessor } from '@opentelemetry/sdk-logs'
import { OTLPLogExporter } from '@opentelemetry/exporter-logs-otlp-proto'
import { MeterProvider, PeriodicExportingMetricReader } from '@opentelemetry/sdk-metrics'
import { OTLPMetricExporter } from '@opentelemetry/exporter-metrics-otlp-http'

const [http, grpc, count] = process.argv.slice(2)
const resource = resourceFromAttributes({ 'service.name': 'shop', team: 'web' })
const attributes = (n) => ({ n, text: `ü-${n}`, list: ['a', 'b'], good: n % 2 === 0 })

const traces = new BasicTracerProvider({
  resource,
  spanProcessors: [new BatchSpanProcessor(new OTLPTraceExporter({ url: `http://${grpc}` }), { maxQueueSize: 100000 })],
})
const logs = new LoggerProvider({
  resource,
  processors: [new BatchLogRecordProcessor({ exporter: new OTLPLogExporter({ url: `http://${http}/v1/logs`, compression: 'gzip' }), maxQueueSize: 100000 })],
})
const metrics = new MeterProvider({
  resource,
  readers: [new PeriodicExportingMetricReader({ exporter: new OTLPMetricExporter({ url: `http://${http}/v1/metrics` }), exportIntervalMillis: 3600000 })],
})

const tracer = traces.getTracer('checkout', '1.2.3')
const logger = logs.getLogger('checkout', '1.2.3')
const counter = metrics.getMeter('checkout', '1.2.3').createCounter('orders')
for (let n = 0; n < Number(count); n++) {
  tracer.startSpan(`span-${n}`, { attributes: attributes(n) }).end()
  logger.emit({ body: `log-${n}`, severityNumber: 9, severityText: 'INFO', attributes: attributes(n) })
  counter.add(n + 1, { n })
}
// Metrics are exported by the shutdown, once.
await Promise.all([traces.shutdown(), logs.shutdown(), metrics.shutdown()])
