package otlp

import (
	"bytes"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// seenAttribute is an attribute that was found to be valid, of the item before or of
// this one. Senders repeat themselves: mostly the attribute at the same place of the next
// item is the same bytes, or has the same key.
type seenAttribute struct {
	name       *attributeName
	start, end uint32 // of its field: tag, length and message
}

// walkItem checks a message that has attributes, and collects the labels in view that
// they make into w.item and what else labels come from into w.first and w.enum. It says
// what is wrong with the message.
//
// Where all of that is what it was for the item before, w.item stays as it is, with the
// labels that addOwn added, and w.changed is false.
func (w *walker) walkItem(msg []byte, s *shapes) ingester.Reason {
	w.changed = !w.itemKnown
	first, enum := w.first, w.enum
	w.first, w.enum = nil, 0
	if why := w.walkFields(msg, s); why != noReason {
		w.forget()
		return why
	}
	if w.names.fromFields && (w.enum != enum || !bytes.Equal(w.first, first)) {
		w.changed = true
	}
	if w.changed {
		w.collect(msg, s)
	}
	w.before, w.itemKnown = msg, true
	return noReason
}

// walkFields checks the fields of an item.
func (w *walker) walkFields(msg []byte, s *shapes) ingester.Reason {
	attributes := 0
	for i := 0; i < len(msg); {
		switch tag := msg[i]; s[tag] {
		case attribute:
			next, why := w.attribute(msg, i, attributes)
			if why != noReason {
				return why
			}
			attributes++
			i = next
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
	w.endAttributes(attributes)
	return noReason
}

// attribute checks the attribute at msg[i], which is number k of its item, keeps it in
// w.seen and returns the position behind it.
func (w *walker) attribute(msg []byte, i, k int) (next int, why ingester.Reason) {
	seen := w.place(k)
	// The field says how long it is, so what starts with it is it.
	if n := int(seen.end - seen.start); n > 0 && n <= len(msg)-i && string(msg[i:i+n]) == string(w.before[seen.start:seen.end]) {
		seen.start, seen.end = uint32(i), uint32(i+n)
		return i + n, noReason
	}
	start, end := receive.Span(msg, i+1)
	if start < 0 {
		return 0, ingester.ReasonMalformedItem
	}
	key, value, ok := splitPair(msg[start:end])
	if !ok {
		return 0, ingester.ReasonMalformedItem
	}
	if why := checkShort(value); why != noReason {
		return 0, why
	}
	seen.start, seen.end = uint32(i), uint32(end)
	if before := seen.name; before == nil || before.key != string(key) {
		seen.name = w.names.attribute(key)
		w.changed = w.changed || before != nil && before.label != nil
	}
	w.changed = w.changed || seen.name.label != nil
	return end, seen.name.wrong
}

// place is where attribute number k is kept. An item with too many is invalid, so those
// share one place.
func (w *walker) place(k int) *seenAttribute {
	if k >= w.options.Attributes {
		w.beyond = seenAttribute{}
		return &w.beyond
	}
	if k == len(w.seen) {
		w.seen = append(w.seen, seenAttribute{})
	}
	return &w.seen[k]
}

// endAttributes forgets the attributes that the item before had more than this one.
func (w *walker) endAttributes(n int) {
	for _, gone := range w.seen[n:] {
		w.changed = w.changed || gone.name.label != nil
	}
	w.seen = w.seen[:n]
}

// collect makes w.item the labels in view of the attributes in w.seen, which are those
// of msg.
func (w *walker) collect(msg []byte, s *shapes) {
	w.item, w.scratch = w.item[:0], w.scratch[:0]
	collides := false
	for i := range w.seen {
		seen := &w.seen[i]
		if seen.name.label == nil {
			continue
		}
		start, end := receive.Span(msg, int(seen.start)+1)
		_, value, _ := splitPair(msg[start:end])
		collides = w.item.add(labelled{label: seen.name.label, value: w.text(value)}) || collides
	}
	if collides {
		w.item = w.joined(w.item, msg, s)
	}
}

// forget makes the next item one without an item before it.
func (w *walker) forget() { w.seen, w.itemKnown = w.seen[:0], false }

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
