package otlp

import (
	"strconv"
	"unicode/utf8"

	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Tags of AnyValue, KeyValue and what they hold.
const (
	stringTag = 1<<3 | receive.BytesType
	boolTag   = 2<<3 | receive.VarintType
	intTag    = 3<<3 | receive.VarintType
	doubleTag = 4<<3 | receive.Fixed64Type
	arrayTag  = 5<<3 | receive.BytesType
	listTag   = 6<<3 | receive.BytesType
	bytesTag  = 7<<3 | receive.BytesType
	textIndex = 8<<3 | receive.VarintType // profiles only

	keyTag   = 1<<3 | receive.BytesType
	valueTag = 2<<3 | receive.BytesType
	keyIndex = 3<<3 | receive.VarintType // profiles only
)

// deepest is how many lists and maps a value may have inside each other. Each is
// three messages on the wire, and protobuf decoders of other languages stop at 100.
const deepest = 32

// noReason says that nothing is wrong.
const noReason ingester.Reason = 0

// checkValue says what is wrong with an AnyValue.
func checkValue(msg []byte, depth int) ingester.Reason {
	for i := 0; i < len(msg); {
		tag := msg[i]
		switch tag {
		case stringTag, bytesTag, arrayTag, listTag:
			start, end := receive.Span(msg, i+1)
			if start < 0 {
				return ingester.ReasonMalformedItem
			}
			if why := checkContent(tag, msg[start:end], depth); why != noReason {
				return why
			}
			i = end
		case boolTag, intTag, textIndex:
			if _, i = receive.Uvarint(msg, i+1); i < 0 {
				return ingester.ReasonMalformedItem
			}
		case doubleTag:
			if i += 9; i > len(msg) {
				return ingester.ReasonMalformedItem
			}
		default:
			if i = skipUnknown(msg, i, 8); i < 0 {
				return ingester.ReasonMalformedItem
			}
		}
	}
	return noReason
}

// checkContent checks what a length-delimited field of an AnyValue holds.
func checkContent(tag byte, msg []byte, depth int) ingester.Reason {
	switch tag {
	case stringTag:
		return checkText(msg)
	case bytesTag:
		return noReason
	}
	if depth == deepest {
		return ingester.ReasonTooDeep
	}
	for i := 0; i < len(msg); {
		if msg[i] != 1<<3|receive.BytesType { // ArrayValue.values, KeyValueList.values
			if i = skipUnknown(msg, i, 1); i < 0 {
				return ingester.ReasonMalformedItem
			}
			continue
		}
		start, end := receive.Span(msg, i+1)
		if start < 0 {
			return ingester.ReasonMalformedItem
		}
		var why ingester.Reason
		if tag == arrayTag {
			why = checkValue(msg[start:end], depth+1)
		} else {
			why = checkPair(msg[start:end], depth+1)
		}
		if why != noReason {
			return why
		}
		i = end
	}
	return noReason
}

// checkText says what is wrong with a string.
func checkText(b []byte) ingester.Reason {
	if !validUTF8(b) {
		return ingester.ReasonInvalidUTF8
	}
	return noReason
}

// validUTF8 is utf8.Valid for texts that are mostly short and plain.
func validUTF8(b []byte) bool {
	const high = 0x8080808080808080
	n := len(b)
	if n < 8 {
		var bits byte
		for _, c := range b {
			bits |= c
		}
		return bits < 0x80 || utf8.Valid(b)
	}
	bits := load64(b, n-8)
	for i := 0; i < n-8; i += 8 {
		bits |= load64(b, i)
	}
	return bits&high == 0 || utf8.Valid(b)
}

// checkPair says what is wrong with a KeyValue that is no label.
func checkPair(msg []byte, depth int) ingester.Reason {
	key, value, ok := splitPair(msg)
	switch {
	case !ok:
		return ingester.ReasonMalformedItem
	case !validUTF8(key):
		return ingester.ReasonInvalidUTF8
	}
	return checkValue(value, depth)
}

// splitPair reads a KeyValue. ok is false if it is malformed.
func splitPair(msg []byte) (key, value []byte, ok bool) {
	// Two short fields, in the order in which protobuf libraries write them, or turned
	// round, as the Collector does.
	if len(msg) > 3 && msg[1] < 0x80 {
		k := 2 + int(msg[1])
		if k+1 < len(msg) && msg[k+1] < 0x80 && k+2+int(msg[k+1]) == len(msg) {
			switch {
			case msg[0] == keyTag && msg[k] == valueTag:
				return msg[2:k], msg[k+2:], true
			case msg[0] == valueTag && msg[k] == keyTag:
				return msg[k+2:], msg[2:k], true
			}
		}
	}
	return splitOddPair(msg)
}

// splitOddPair is splitPair for every other order and length. A value that stands
// twice is malformed: decoders merge it or do not.
func splitOddPair(msg []byte) (key, value []byte, ok bool) {
	values := 0
	for i := 0; i < len(msg); {
		tag := msg[i]
		if tag == keyIndex {
			if _, i = receive.Uvarint(msg, i+1); i < 0 {
				return nil, nil, false
			}
			continue
		}
		if tag != keyTag && tag != valueTag {
			if i = skipUnknown(msg, i, 3); i < 0 {
				return nil, nil, false
			}
			continue
		}
		start, end := receive.Span(msg, i+1)
		if start < 0 {
			return nil, nil, false
		}
		if tag == keyTag {
			key = msg[start:end]
		} else {
			value = msg[start:end]
			values++
		}
		i = end
	}
	return key, value, values <= 1
}

// skipUnknown passes over the field at msg[i], whose number is above known. A known
// field that comes here has the wrong type, which is malformed: -1.
func skipUnknown(msg []byte, i int, known uint64) (next int) {
	tag, at := receive.Uvarint(msg, i)
	if at < 0 || tag>>3 <= known {
		return -1
	}
	return receive.Skip(msg, at, tag)
}

// text writes a checked AnyValue as label values are written: as pdata's AsString
// does, which the Prometheus translation uses. The result lies in value or in
// scratch, or is new; scratch may have grown.
func valueText(value, scratch []byte) (text, grown []byte) {
	if len(value) == 0 {
		return nil, scratch
	}
	switch value[0] {
	case stringTag:
		if start, end := receive.Span(value, 1); end == len(value) {
			return value[start:end], scratch
		}
	case boolTag:
		if v, next := receive.Uvarint(value, 1); next == len(value) {
			return strconv.AppendBool(nil, v != 0), scratch
		}
	case intTag:
		if v, next := receive.Uvarint(value, 1); next == len(value) {
			start := len(scratch)
			scratch = strconv.AppendInt(scratch, int64(v), 10)
			return scratch[start:], scratch
		}
	}
	return []byte(oddValueText(value)), scratch
}

// oddValueText lets pdata write a value, as the body of a lone log record.
func oddValueText(value []byte) string {
	wrap := func(number int, msg []byte) []byte {
		out := appendUvarint(nil, uint64(number<<3|receive.BytesType))
		return append(appendUvarint(out, uint64(len(msg))), msg...)
	}
	request := wrap(1, wrap(2, wrap(2, wrap(5, value))))
	logs, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(request)
	if err != nil {
		return ""
	}
	return logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Body().AsString()
}

func appendUvarint(b []byte, v uint64) []byte {
	for v >= 0x80 {
		b = append(b, byte(v)|0x80)
		v >>= 7
	}
	return append(b, byte(v))
}
