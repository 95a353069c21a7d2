package remotewrite

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"github.com/spillway-telemetry/spillway/ingester"
)

// symbols is the table of strings of one 2.0 request.
//
// Strings have numbers: first the batch's own, as its sender numbered them, then
// those that were added. In a kept table a string's number is its reference. In
// a compacted one only strings that are referred to get a reference, in the order
// in which they are met, so that the strings of dropped series stay behind.
//
//	number   0  1  2  3 | 4        batch: "", __name__, up, job; added: team
//	kept     0  1  2  3 | 4
//	compact  0  1  -  3 | 2        up was dropped, team met before job
//
// A symbols value is reused from batch to batch and is not safe for concurrent
// use.
type symbols struct {
	seed maphash.Seed
	// body and own are the batch's strings; nothing is copied from them until
	// appendTo.
	body []byte
	own  []ingester.Span
	// added are the strings that the batch does not have: text holds each as a
	// field of the request, spans where in text its bytes are.
	text  []byte
	spans []ingester.Span
	// slots is an open-addressing hash index: the low half of the hash above the
	// number plus one, 0 for free. Its length is a power of two. It is empty until
	// a string is looked for: a batch whose labels did not change needs none.
	slots []uint64
	// expect is how many strings the request before had, for the size of slots.
	expect int
	// compact says that refs and order are in use. refs[number] is the reference
	// plus one, 0 for none yet; order[reference] is the number.
	compact     bool
	refs, order []uint32
}

// reset starts the table of a request with the strings own of body.
func (t *symbols) reset(body []byte, own []ingester.Span, compact bool) {
	t.body, t.own, t.compact = body, own, compact
	t.text, t.spans, t.slots = t.text[:0], t.spans[:0], t.slots[:0]
	t.order = t.order[:0]
	if !compact {
		return
	}
	if cap(t.refs) < len(own) {
		t.refs = make([]uint32, len(own))
	}
	t.refs = t.refs[:len(own)]
	clear(t.refs)
	if len(own) > 0 {
		// 2.0 reserves reference 0 for "not given".
		t.ref(0)
	}
}

// release forgets the batch, whose memory goes back to its owner.
func (t *symbols) release() {
	t.expect = t.len()
	t.body, t.own, t.spans = nil, nil, t.spans[:0]
}

// len is the number of strings that have a number.
func (t *symbols) len() int { return len(t.own) + len(t.spans) }

// string returns the string of a number, valid until the next is added.
func (t *symbols) string(number uint32) []byte {
	if int(number) < len(t.own) {
		s := t.own[number]
		return t.body[s.Start:s.End]
	}
	s := t.spans[int(number)-len(t.own)]
	return t.text[s.Start:s.End]
}

// number returns the number of s, which is added if it has none.
func (t *symbols) number(s []byte) uint32 {
	if len(t.slots) == 0 {
		t.index()
	}
	hash := uint32(maphash.Bytes(t.seed, s))
	n, slot := t.lookup(hash, s)
	if slot < 0 {
		return n
	}
	n = uint32(t.len())
	t.text = appendTag(t.text, v2RequestSymbols, wireBytes)
	t.text = binary.AppendUvarint(t.text, uint64(len(s)))
	start := len(t.text)
	t.text = append(t.text, s...)
	t.spans = append(t.spans, ingester.Span{Start: uint32(start), End: uint32(len(t.text))})
	if t.compact {
		t.refs = append(t.refs, 0)
	}
	t.slots[slot] = uint64(hash)<<32 | uint64(n+1)
	if t.len()*2 > len(t.slots) {
		t.grow()
	}
	return n
}

// find returns the number of s if it has one.
func (t *symbols) find(s []byte) (uint32, bool) {
	if len(t.slots) == 0 {
		t.index()
	}
	n, slot := t.lookup(uint32(maphash.Bytes(t.seed, s)), s)
	return n, slot < 0
}

// lookup returns the number of s and -1, or the free slot where s belongs.
func (t *symbols) lookup(hash uint32, s []byte) (number uint32, slot int) {
	mask := len(t.slots) - 1
	for i := int(hash) & mask; ; i = (i + 1) & mask {
		e := t.slots[i]
		if e == 0 {
			return 0, i
		}
		if uint32(e>>32) == hash && bytes.Equal(t.string(uint32(e)-1), s) {
			return uint32(e) - 1, -1
		}
	}
}

// index builds the hash index over the batch's own strings.
func (t *symbols) index() {
	size := 64
	for size < 2*max(len(t.own)+16, t.expect) {
		size *= 2
	}
	if cap(t.slots) < size {
		t.slots = make([]uint64, size)
	}
	t.slots = t.slots[:size]
	clear(t.slots)
	for i, s := range t.own {
		hash := uint32(maphash.Bytes(t.seed, t.body[s.Start:s.End]))
		t.insert(uint64(hash)<<32 | uint64(i+1))
	}
}

func (t *symbols) insert(entry uint64) {
	mask := len(t.slots) - 1
	i := int(entry>>32) & mask
	for t.slots[i] != 0 {
		i = (i + 1) & mask
	}
	t.slots[i] = entry
}

func (t *symbols) grow() {
	old := t.slots
	t.slots = make([]uint64, 2*len(old))
	for _, e := range old {
		if e != 0 {
			t.insert(e)
		}
	}
}

// ref returns the reference of a number, which must be below len.
func (t *symbols) ref(number uint32) uint32 {
	if !t.compact {
		return number
	}
	if r := t.refs[number]; r != 0 {
		return r - 1
	}
	t.order = append(t.order, number)
	t.refs[number] = uint32(len(t.order))
	return uint32(len(t.order)) - 1
}

// appendTo appends the table as fields of a request.
func (t *symbols) appendTo(out []byte) []byte {
	if t.compact {
		for _, number := range t.order {
			out = appendBytesField(out, v2RequestSymbols, t.string(number))
		}
		return out
	}
	return append(t.appendOwn(out), t.text...)
}

// appendOwn appends the batch's own strings. Neighbours in the body leave in one
// copy with the field headers between them.
func (t *symbols) appendOwn(out []byte) []byte {
	start, end := 0, 0
	for i := range t.own {
		s := t.own[i]
		from := int(s.Start) - 1 - uvarintLen(uint64(s.End-s.Start))
		if from == end && end > 0 {
			// Between the two strings there is room for this field's header
			// alone, so that is what stands there.
			end = int(s.End)
			continue
		}
		out = append(out, t.body[start:end]...)
		start, end = from, int(s.End)
		if !t.headerAt(from, s) {
			out = appendBytesField(out, v2RequestSymbols, t.body[s.Start:s.End])
			start, end = 0, 0
		}
	}
	return append(out, t.body[start:end]...)
}

// headerAt reports whether the header of the field that holds s starts at from.
// It does not where a sender wrote a length in more bytes than it needs.
func (t *symbols) headerAt(from int, s ingester.Span) bool {
	if from < 0 || t.body[from] != v2RequestSymbols<<3|wireBytes {
		return false
	}
	n, at := uvarint(t.body, from+1)
	return at == int(s.Start) && n == uint64(s.End-s.Start)
}
