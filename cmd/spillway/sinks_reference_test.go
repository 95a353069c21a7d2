package main

// What CONFIG.md says of sinks before their options.

const otlpReference = "\n## sinks.NAME.otlp\n\n" + `Sends any stream as OTLP, over HTTP or gRPC. The sender's answer waits for the destination's. Metrics that
came by remote write are translated; OTLP metrics for ` + "`tsdb` and `remote_write`" + ` are translated as Prometheus does at its OTLP endpoint.

What relabel rules changed is written back: a label that was set becomes the item's attribute, one that was removed
goes from item, scope and resource. ` + "`service_name`" + ` is service.name of the resource, ` + "`severity`" + ` the severity text (and number, where the
text is a known one), ` + "`span_name` and `span_kind`" + ` the span's own fields, ` + "`__name__`" + ` the metric's name, ` + "`job` and `instance`" + ` service.name and
service.instance.id.

`

const kafkaReference = "\n## sinks.NAME.kafka\n\n" + `Produces any stream to Apache Kafka; stored means acknowledged by all in-sync replicas. A message is an OTLP
request in protobuf, which the Collector's kafka receiver reads as ` + "`otlp_proto`" + `; metrics that came by remote write are translated. A series, the
logs of a resource, and a trace each stay in one partition. Delivery is at least once: the client library has no idempotent producer.

`

const fileReference = "\n## sinks.NAME.file\n\n" + `Keeps any stream in files of OTLP JSON lines, PATH/STREAM/*.jsonl, closed ones compressed. They can be read while they are
written. After a kill the last line of the newest file may be torn; the next start cuts it off. The oldest files are deleted beyond
max_bytes. It is the default of logs, traces, events and RUM, in ./data/files.

`

// everySink is a configuration with a sink of every kind that has metrics. Nothing
// listens where they point to.
const everySink = `
sinks:
  local: {tsdb: {path: DIR/metrics}}
  rw: {remote_write: {endpoints: ["http://127.0.0.1:1"], timeout: 100ms}}
  ot: {otlp: {endpoints: ["http://127.0.0.1:1"], timeout: 100ms}}
  ka: {kafka: {brokers: ["127.0.0.1:1"], timeout: 100ms}}
  fi: {file: {path: DIR/files}}
streams: {metrics: {sink: local}, logs: {sink: fi}, traces: {sink: ot}, events: {sink: ka}, rum: {sink: fi}}
`
