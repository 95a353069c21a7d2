package otlp

import (
	"bytes"
	"slices"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// labelled is a label in view with its value.
type labelled struct {
	label *label
	value []byte
	// wins says that no item's label takes its place, nor does its absence.
	wins bool
}

// labelList is sorted by name, each name once.
type labelList []labelled

// place finds where a label stands or would stand.
func (ls labelList) place(l *label) (i int, found bool) {
	for i = len(ls); i > 0; i-- {
		if have := ls[i-1].label; !l.before(have) {
			if same(have, l) {
				return i - 1, true
			}
			return i, false
		}
	}
	return 0, false
}

// set gives a label a value, in place of the one that it had.
func (ls *labelList) set(l labelled) {
	i, found := ls.place(l.label)
	if found {
		(*ls)[i] = l
		return
	}
	*ls = slices.Insert(*ls, i, l)
}

// add is set for a label that should not be there yet, and reports whether it was.
func (ls *labelList) add(l labelled) (collides bool) {
	i, found := ls.place(l.label)
	if !found {
		*ls = slices.Insert(*ls, i, l)
	}
	return found
}

// merge appends to dst what an item has, over, above what is around it, under.
func merge(dst, under, over labelList) labelList {
	for len(under) > 0 && len(over) > 0 {
		u, o := under[0], over[0]
		switch {
		case same(u.label, o.label):
			if o.wins || !u.wins && len(o.value) > 0 {
				u = o
			}
			dst = append(dst, u)
			under, over = under[1:], over[1:]
		case u.label.before(o.label):
			dst = append(dst, u)
			under = under[1:]
		default:
			dst = append(dst, o)
			over = over[1:]
		}
	}
	return append(append(dst, under...), over...)
}

// appendLabel appends a label in the encoding of Group.Key; one without a value is none.
func appendLabel(out []byte, l *labelled) []byte {
	if len(l.value) == 0 {
		return out
	}
	size := len(l.label.field) + 1 + uvarintSize(len(l.value)) + len(l.value)
	out = append(out, 1<<3|receive.BytesType)
	out = appendUvarint(out, uint64(size))
	out = append(out, l.label.field...)
	out = append(out, 2<<3|receive.BytesType)
	out = appendUvarint(out, uint64(len(l.value)))
	return append(out, l.value...)
}

func uvarintSize(n int) int {
	size := 1
	for ; n >= 0x80; n >>= 7 {
		size++
	}
	return size
}

// keyOf writes the key of an item that has labels of its own above those of what is
// around it. Where it was written a moment ago, that one is used again.
func (w *walker) keyOf(item labelList) ingester.Span {
	if len(item) == 0 {
		return w.baseKey()
	}
	start := len(w.out)
	under := w.base
	for len(under) > 0 && len(item) > 0 {
		u, o := &under[0], &item[0]
		switch {
		case same(u.label, o.label):
			if !u.wins && len(o.value) > 0 {
				u = o
			}
			w.out = appendLabel(w.out, u)
			under, item = under[1:], item[1:]
		case u.label.before(o.label):
			w.out = appendLabel(w.out, u)
			under = under[1:]
		default:
			w.out = appendLabel(w.out, o)
			item = item[1:]
		}
	}
	for i := range under {
		w.out = appendLabel(w.out, &under[i])
	}
	for i := range item {
		w.out = appendLabel(w.out, &item[i])
	}
	recent := &w.recentKeys[quickSlot(w.out[start:])%recentKeys]
	if bytes.Equal(w.out[start:], w.out[recent.Start:recent.End]) {
		w.out = w.out[:start]
		return *recent
	}
	*recent = ingester.Span{Start: uint32(start), End: uint32(len(w.out))}
	return *recent
}

// recentKeys is how many keys a walker looks for before it keeps another copy.
const recentKeys = 32

// baseKey is the key of an item that has no label in view of its own. It is written
// when the first one asks for it.
func (w *walker) baseKey() ingester.Span {
	if w.baseKnown {
		return w.baseSpan
	}
	start := len(w.out)
	for i := range w.base {
		w.out = appendLabel(w.out, &w.base[i])
	}
	w.baseKnown = true
	w.baseSpan = ingester.Span{Start: uint32(start), End: uint32(len(w.out))}
	return w.baseSpan
}

// setBase says what is around the items that follow.
func (w *walker) setBase(ls labelList) { w.base, w.baseKnown, w.keyKnown = ls, false, false }

// pair is an attribute on the slow way.
type pair struct {
	key   []byte
	label *label
	value []byte
}

// joined collects the labels of a message of whose attributes some get the same
// name: sorted by key, their values become one, with a semicolon between them, as in
// the Prometheus translation.
func (w *walker) joined(dst labelList, msg []byte, s *shapes) labelList {
	var pairs []pair
	for i := 0; i < len(msg); {
		tag, at := receive.Uvarint(msg, i)
		next := receive.Skip(msg, at, tag)
		if tag < 128 && s[tag] == attribute {
			start, end := receive.Span(msg, at)
			key, value, _ := splitPair(msg[start:end])
			if name := w.names.attribute(key); name.label != nil {
				pairs = append(pairs, pair{key, name.label, w.text(value)})
			}
		}
		i = next
	}
	slices.SortStableFunc(pairs, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
	dst = dst[:0]
	for _, p := range pairs {
		i, found := dst.place(p.label)
		switch {
		case !found:
			dst = slices.Insert(dst, i, labelled{label: p.label, value: p.value})
		case len(dst[i].value) == 0:
			dst[i].value = p.value
		default:
			dst[i].value = slices.Concat(dst[i].value, []byte(";"), p.value)
		}
	}
	return dst
}

// text is a checked AnyValue as a label's value.
func (w *walker) text(value []byte) []byte {
	var text []byte
	text, w.scratch = valueText(value, w.scratch)
	return text
}
