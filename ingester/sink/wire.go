package sink

import "google.golang.org/protobuf/encoding/protowire"

// Field numbers of opentelemetry-proto v1.11 (metrics.proto, logs.proto,
// trace.proto, resource.proto, common.proto).
const (
	ownerField        = 1 // ResourceMetrics.resource, ScopeMetrics.scope; the same for logs and traces
	attributeKey      = 1 // KeyValue.key
	attributeValue    = 2 // KeyValue.value
	stringValue       = 1 // AnyValue.string_value
	resourceAttribute = 1 // Resource.attributes
	scopeName         = 1 // InstrumentationScope.name
	scopeVersion      = 2
	scopeAttribute    = 3
	metricName        = 1 // Metric.name
	metricGauge       = 5 // the kinds of Metric.data
	metricSum         = 7
	metricHistogram   = 9
	metricExponential = 10
	metricSummary     = 11
	logSeverityNumber = 2 // LogRecord.severity_number
	logSeverityText   = 3
	logAttribute      = 6
	spanTraceID       = 1 // Span.trace_id
	spanName          = 5
	spanKind          = 6
	spanAttribute     = 9
)

// isChild says that a field of a container holds containers or
// groups: ResourceX.scope_x, ScopeX's items, the kinds of a Metric's data, the data
// points.
func isChild(depth int, num protowire.Number) bool {
	switch depth {
	case 0, 1:
		return num == 2
	case 2:
		switch num {
		case metricGauge, metricSum, metricHistogram, metricExponential, metricSummary:
			return true
		}
		return false
	}
	return num == 1
}

// pointAttribute is the number of the field of attributes in the data points of a
// kind of metric, which the number of the field in Metric names.
func pointAttribute(kind protowire.Number) protowire.Number {
	switch kind {
	case metricHistogram:
		return 9
	case metricExponential:
		return 1
	}
	return 7
}

// fields calls yield for each field of a message: its number and type, all its
// bytes, and the payload of a length-delimited one. It reports whether the message
// is well-formed.
func fields(message []byte, yield func(num protowire.Number, typ protowire.Type, whole, payload []byte)) bool {
	for len(message) > 0 {
		num, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return false
		}
		n := protowire.ConsumeFieldValue(num, typ, message[tag:])
		if n < 0 {
			return false
		}
		var payload []byte
		if typ == protowire.BytesType {
			payload, _ = protowire.ConsumeBytes(message[tag:])
		}
		yield(num, typ, message[:tag+n], payload)
		message = message[tag+n:]
	}
	return true
}

// appendMessage appends a length-delimited field whose content write appends.
func appendMessage(dst []byte, num protowire.Number, write func([]byte) []byte) []byte {
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	start := len(dst)
	dst = append(dst, 0) // most are shorter than 128 bytes
	dst = write(dst)
	size := len(dst) - start - 1
	if more := protowire.SizeVarint(uint64(size)) - 1; more > 0 {
		dst = append(dst, make([]byte, more)...)
		copy(dst[start+1+more:], dst[start+1:start+1+size])
	}
	protowire.AppendVarint(dst[:start], uint64(size))
	return dst
}

// appendString appends a string field; an empty one is left out, as proto3 does.
func appendString(dst []byte, num protowire.Number, value []byte) []byte {
	if len(value) == 0 {
		return dst
	}
	return protowire.AppendBytes(protowire.AppendTag(dst, num, protowire.BytesType), value)
}

// appendAttribute appends a KeyValue with a string.
func appendAttribute(dst []byte, num protowire.Number, key, value []byte) []byte {
	any := 1 + protowire.SizeBytes(len(value))
	size := 1 + protowire.SizeBytes(len(key)) + 1 + protowire.SizeBytes(any)
	dst = protowire.AppendTag(dst, num, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = protowire.AppendTag(dst, attributeKey, protowire.BytesType)
	dst = protowire.AppendBytes(dst, key)
	dst = protowire.AppendTag(dst, attributeValue, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(any))
	dst = protowire.AppendTag(dst, stringValue, protowire.BytesType)
	return protowire.AppendBytes(dst, value)
}

// keyOf returns the key of a KeyValue.
func keyOf(attribute []byte) (key []byte) {
	fields(attribute, func(num protowire.Number, typ protowire.Type, _, payload []byte) {
		if num == attributeKey && typ == protowire.BytesType {
			key = payload
		}
	})
	return key
}
