// Package loki receives logs by Loki's push API: protobuf in a snappy block, or
// JSON, with structured metadata.
//
// An entry becomes an OTLP log record:
//
//	stream labels          resource attributes, names as they are
//	structured metadata    record attributes
//	line                   body
//	timestamp              time
//	level, severity        severity, from the metadata, else from the stream labels
//	                       (detected_level comes last)
//
// As with Loki, entries that cannot be read are left out, the others are stored, and
// the answer is 400 with the reason; without such entries it is 204, whatever the
// rate limit dropped.
package loki
