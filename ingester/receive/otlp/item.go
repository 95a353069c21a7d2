package otlp

import (
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// walkItem checks a message that has attributes, and collects the labels in view that
// it has into w.item and what else labels come from into w.first and w.enum. It says
// what is wrong with the message.
func (w *walker) walkItem(msg []byte, s *shapes) ingester.Reason {
	w.item = w.item[:0]
	w.first, w.enum, w.scratch = nil, 0, w.scratch[:0]
	collides, attributes := false, 0
	for i := 0; i < len(msg); {
		tag := msg[i]
		what := s[tag]
		switch what {
		case attribute:
			start, end := receive.Span(msg, i+1)
			if start < 0 {
				return ingester.ReasonMalformedItem
			}
			key, value, ok := splitPair(msg[start:end])
			if !ok {
				return ingester.ReasonMalformedItem
			}
			if why := checkShort(value); why != noReason {
				return why
			}
			attributes++
			name := w.names.attribute(key)
			if name.wrong != noReason {
				return name.wrong
			}
			if name.label != nil {
				collides = w.item.add(labelled{label: name.label, value: w.text(value)}) || collides
			}
			i = end
		case oneFixed64:
			i += 9
		case oneFixed32:
			i += 5
		case oneVarint:
			if _, i = receive.Uvarint(msg, i+1); i < 0 {
				return ingester.ReasonMalformedItem
			}
		case firstEnum:
			if w.enum, i = receive.Uvarint(msg, i+1); i < 0 {
				return ingester.ReasonMalformedItem
			}
		default:
			next, why := w.part(msg, i, s)
			if why != noReason {
				return why
			}
			i = next
		}
		if i > len(msg) {
			return ingester.ReasonMalformedItem
		}
	}
	if attributes > w.options.Attributes {
		return ingester.ReasonTooManyAttributes
	}
	if collides {
		w.item = w.joined(w.item, msg, s)
	}
	return noReason
}

// checkShort is checkValue for what is mostly a short text.
func checkShort(value []byte) ingester.Reason {
	if len(value) > 1 && value[0] == stringTag && int(value[1]) == len(value)-2 && value[1] < 0x80 {
		return checkText(value[2:])
	}
	return checkValue(value, 0)
}

// part checks the field at msg[i], which no label but a first text comes from, and
// returns the position behind it.
func (w *walker) part(msg []byte, i int, s *shapes) (next int, why ingester.Reason) {
	what := s[msg[i]]
	if what == unknown {
		tag, at := receive.Uvarint(msg, i)
		if at > i+1 && tag < 0x80 {
			// A tag in more bytes than it needs is one that was not looked up.
			return 0, ingester.ReasonMalformedItem
		}
		if at > 0 {
			at = receive.Skip(msg, at, tag)
		}
		if at < 0 || s == w.messages.span && tag>>3 == spanFlagsTag>>3 && tag != spanFlagsTag {
			return 0, ingester.ReasonMalformedItem
		}
		return at, noReason
	}
	start, end := receive.Span(msg, i+1)
	if what == wrong || start < 0 {
		return 0, ingester.ReasonMalformedItem
	}
	in := msg[start:end]
	switch what {
	case text, firstText:
		why = checkText(in)
		if what == firstText {
			w.first = in
		}
	case traceID, spanID:
		if n := len(in); n != 0 && n != 16-8*int(what-traceID) {
			return 0, ingester.ReasonMalformedItem
		}
	case anyValue:
		why = checkValue(in, 0)
	case packed64:
		if len(in)%8 != 0 {
			why = ingester.ReasonMalformedItem
		}
	case packedVars:
		why = checkVarints(in)
	case content:
	default:
		why = w.checkPart(in, w.messages.part(what))
	}
	return end, why
}

// spanFlagsTag is the tag of a span's flags, the one known field whose number is
// above 15.
const spanFlagsTag = 16<<3 | receive.Fixed32Type

// checkPart checks a message inside an item: a span's event or link, an exemplar.
func (w *walker) checkPart(msg []byte, s *shapes) ingester.Reason {
	attributes := 0
	for i := 0; i < len(msg); {
		switch what := s[msg[i]]; what {
		case attribute:
			start, end := receive.Span(msg, i+1)
			if start < 0 {
				return ingester.ReasonMalformedItem
			}
			if why := checkPair(msg[start:end], 0); why != noReason {
				return why
			}
			attributes++
			i = end
		case oneFixed64:
			i += 9
		case oneFixed32:
			i += 5
		case oneVarint:
			if _, i = receive.Uvarint(msg, i+1); i < 0 {
				return ingester.ReasonMalformedItem
			}
		default:
			next, why := w.part(msg, i, s)
			if why != noReason {
				return why
			}
			i = next
		}
		if i > len(msg) {
			return ingester.ReasonMalformedItem
		}
	}
	if attributes > w.options.Attributes {
		return ingester.ReasonTooManyAttributes
	}
	return noReason
}

func checkVarints(b []byte) ingester.Reason {
	for i := 0; i < len(b); {
		if _, i = receive.Uvarint(b, i); i < 0 {
			return ingester.ReasonMalformedItem
		}
	}
	return noReason
}
