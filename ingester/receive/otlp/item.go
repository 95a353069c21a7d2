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
	field []byte // tag, length and message
	name  *attributeName
	value []byte
}

// walkItem checks a message that has attributes, and collects the labels in view that
// they make into w.item and what else labels come from into w.first and w.enum. It says
// what is wrong with the message.
//
// Where all of that is what it was for the item before, w.item stays as it is, with the
// labels that addOwn added, and w.changed is false.
func (w *walker) walkItem(msg []byte, s *shapes) ingester.Reason {
	w.changed, w.itemKnown = !w.itemKnown, false // until the item is found to be valid
	first, enum := w.first, w.enum
	w.first, w.enum = nil, 0
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
	if w.names.fromFields && (w.enum != enum || !bytes.Equal(w.first, first)) {
		w.changed = true
	}
	if w.changed {
		w.collect(msg, s)
	}
	w.itemKnown = true
	return noReason
}

// attribute checks the attribute at msg[i], which is number k of its item, keeps it in
// w.seen and returns the position behind it.
func (w *walker) attribute(msg []byte, i, k int) (next int, why ingester.Reason) {
	var before *attributeName
	if k < len(w.seen) {
		seen := &w.seen[k]
		// The field says how long it is, so what starts with it is it.
		if n := len(seen.field); n <= len(msg)-i && string(msg[i:i+n]) == string(seen.field) {
			return i + n, noReason
		}
		before = seen.name
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
	name := before
	if name == nil || name.key != string(key) {
		name = w.names.attribute(key)
	}
	if name.wrong != noReason {
		return 0, name.wrong
	}
	if name.label != nil || before != nil && before.label != nil {
		w.changed = true
	}
	now := seenAttribute{field: msg[i:end], name: name, value: value}
	switch {
	case k < len(w.seen):
		w.seen[k] = now
	case k < w.options.Attributes: // the item is invalid if there are more
		w.seen = append(w.seen, now)
	}
	return end, noReason
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
		if l := w.seen[i].name.label; l != nil {
			collides = w.item.add(labelled{label: l, value: w.text(w.seen[i].value)}) || collides
		}
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
