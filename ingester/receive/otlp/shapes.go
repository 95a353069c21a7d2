package otlp

import "github.com/spillway-telemetry/spillway/ingester/receive"

// shape is what a field of a message has to look like.
type shape uint8

const (
	unknown    shape = iota // no field of ours: anything
	wrong                   // a field of ours with another wire type
	oneVarint               // int, uint, sint, bool or enum
	oneFixed64              // double, fixed64 or sfixed64
	oneFixed32              // fixed32
	packed64                // repeated double or fixed64, packed
	packedVars              // repeated varints, packed
	text                    // string
	content                 // bytes
	traceID                 // bytes: 16 or none
	spanID                  // bytes: 8 or none
	attribute               // KeyValue
	anyValue                // AnyValue
	firstText               // a string that labels come from: severity_text, a span's name
	firstEnum               // an enum that labels come from: severity_number, a span's kind
	eventMsg
	linkMsg
	statusMsg
	exemplarMsg
	bucketsMsg
	quantileMsg
	entityMsg
)

// shapes says for each one-byte tag what follows it. Fields above 15 are looked at
// one by one; the only one that is known is the flags of a span.
type shapes [256]shape

// field is a field of a message: its number, and the wire types that it may have.
type field struct {
	number int
	shape  shape
}

// wireTypes of shapes. A repeated number may be packed or not.
func (s shape) wireType() int {
	switch s {
	case oneVarint, firstEnum:
		return receive.VarintType
	case oneFixed64:
		return receive.Fixed64Type
	case oneFixed32:
		return receive.Fixed32Type
	}
	return receive.BytesType
}

func newShapes(fields ...field) *shapes {
	var s shapes
	for _, f := range fields {
		for wire := range 8 {
			s[f.number<<3|wire] = wrong
		}
		s[f.number<<3|f.shape.wireType()] = f.shape
		switch f.shape {
		case packed64:
			s[f.number<<3|receive.Fixed64Type] = oneFixed64
		case packedVars:
			s[f.number<<3|receive.VarintType] = oneVarint
		}
	}
	return &s
}

// messages are the shapes of every message in which there is no item. See
// opentelemetry/proto/{common,resource,logs,trace,metrics}/v1 of the OpenTelemetry
// protocol, 1.9.
type messages struct {
	resource, scope                         *shapes
	logRecord, span, event, link, status    *shapes
	number, histogram, exponential, summary *shapes
	exemplar, buckets, quantile, entity     *shapes
	metric                                  [lastMetricField + 1]bool // numbers of Metric's fields

}

func newMessages() *messages {
	return &messages{
		metric:    metricFields(),
		resource:  newShapes(field{1, attribute}, field{2, oneVarint}, field{3, entityMsg}),
		scope:     newShapes(field{1, text}, field{2, text}, field{3, attribute}, field{4, oneVarint}),
		logRecord: newShapes(field{1, oneFixed64}, field{2, firstEnum}, field{3, firstText}, field{5, anyValue}, field{6, attribute}, field{7, oneVarint}, field{8, oneFixed32}, field{9, traceID}, field{10, spanID}, field{11, oneFixed64}, field{12, text}),
		span: newShapes(field{1, traceID}, field{2, spanID}, field{3, text}, field{4, spanID}, field{5, firstText}, field{6, firstEnum}, field{7, oneFixed64}, field{8, oneFixed64}, field{9, attribute}, field{10, oneVarint},
			field{11, eventMsg}, field{12, oneVarint}, field{13, linkMsg}, field{14, oneVarint}, field{15, statusMsg}),
		event:       newShapes(field{1, oneFixed64}, field{2, text}, field{3, attribute}, field{4, oneVarint}),
		link:        newShapes(field{1, traceID}, field{2, spanID}, field{3, text}, field{4, attribute}, field{5, oneVarint}, field{6, oneFixed32}),
		status:      newShapes(field{2, text}, field{3, oneVarint}),
		number:      newShapes(field{2, oneFixed64}, field{3, oneFixed64}, field{4, oneFixed64}, field{5, exemplarMsg}, field{6, oneFixed64}, field{7, attribute}, field{8, oneVarint}),
		histogram:   newShapes(field{2, oneFixed64}, field{3, oneFixed64}, field{4, oneFixed64}, field{5, oneFixed64}, field{6, packed64}, field{7, packed64}, field{8, exemplarMsg}, field{9, attribute}, field{10, oneVarint}, field{11, oneFixed64}, field{12, oneFixed64}),
		exponential: newShapes(field{1, attribute}, field{2, oneFixed64}, field{3, oneFixed64}, field{4, oneFixed64}, field{5, oneFixed64}, field{6, oneVarint}, field{7, oneFixed64}, field{8, bucketsMsg}, field{9, bucketsMsg}, field{10, oneVarint}, field{11, exemplarMsg}, field{12, oneFixed64}, field{13, oneFixed64}, field{14, oneFixed64}),
		summary:     newShapes(field{2, oneFixed64}, field{3, oneFixed64}, field{4, oneFixed64}, field{5, oneFixed64}, field{6, quantileMsg}, field{7, attribute}, field{8, oneVarint}),
		exemplar:    newShapes(field{2, oneFixed64}, field{3, oneFixed64}, field{4, spanID}, field{5, traceID}, field{6, oneFixed64}, field{7, attribute}),
		entity:      newShapes(field{1, text}, field{2, text}, field{3, text}, field{4, text}),
		buckets:     newShapes(field{1, oneVarint}, field{2, packedVars}),
		quantile:    newShapes(field{1, oneFixed64}, field{2, oneFixed64}),
	}
}

// part returns the shapes of a message inside an item.
func (m *messages) part(s shape) *shapes {
	switch s {
	case eventMsg:
		return m.event
	case linkMsg:
		return m.link
	case statusMsg:
		return m.status
	case exemplarMsg:
		return m.exemplar
	case bucketsMsg:
		return m.buckets
	case quantileMsg:
		return m.quantile
	case entityMsg:
		return m.entity
	}
	return nil
}
