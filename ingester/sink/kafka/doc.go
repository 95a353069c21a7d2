// Package kafka is the sink that produces to Apache Kafka and waits until all in-sync
// replicas have acknowledged.
//
// # Messages
//
// There is one topic for each stream. A message is an OTLP request in protobuf, what
// the Collector's kafka receiver calls otlp_proto: ExportMetricsServiceRequest,
// ExportTraceServiceRequest, and ExportLogsServiceRequest for logs, events and RUM.
// Metrics that came by remote write are translated to OTLP before they get here.
// Headers that are passed on with a batch are headers of its messages.
//
// # Order
//
//	partition = key mod partitions of the topic
//
// where the key is the same for whatever has to keep its order (see sink.Keys): a
// series, the logs of a resource, a trace. A batch becomes one message for each
// partition that it has something for, or several where one would be larger than
// max_message_bytes. The message's key is the partition's number, so that who copies
// a topic by key keeps together what belongs together. More partitions move series to
// others, as with every keyed topic.
//
// # Delivery
//
// Each message is a produce request of its own with acks=all. Errors that may pass (no
// leader, not enough replicas, a lost connection) are tried again until the timeout is
// over; then the batch is refused, and its sender keeps it. A cluster that failed is
// left alone for a while that doubles, then tried with one real batch. Nothing is
// queued here: what was acknowledged to a sender, the cluster has acknowledged.
//
// Delivery is at least once. The library has no idempotent producer, so an
// acknowledgement that is lost on its way leads to a second copy, and so does a batch
// of which some partitions took their part and one did not. The order within a
// partition holds for a sender that waits for its answers.
package kafka
