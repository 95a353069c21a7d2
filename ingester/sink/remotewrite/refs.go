package remotewrite

import (
	"bytes"
	"encoding/binary"
	"math/bits"
)

// readRefs appends the numbers that the references in field num of a message
// stand for. It reports false where one of them stands for none. The fields of the
// message behind rest are the others, if the references came first and in one
// piece, as they mostly do; else rest is 0.
func (e *encoder) readRefs(numbers []uint32, message []byte, num uint32) (_ []uint32, rest int, ok bool) {
	own, runs := uint64(len(e.table.own)), 0
	for at := 0; at < len(message); {
		f, ok := nextField(message, at)
		if !ok {
			return numbers, 0, false
		}
		at = f.end
		if f.num != num {
			continue
		}
		if runs++; f.start == 0 {
			rest = f.end
		}
		if f.typ != wireBytes && f.typ != wireVarint {
			return numbers, 0, false
		}
		for p := f.body; p < f.end; {
			v := uint64(message[p])
			if v < 0x80 {
				p++
			} else if v, p = uvarint(message[:f.end], p); p < 0 {
				return numbers, 0, false
			}
			if v >= own {
				return numbers, 0, false
			}
			numbers = append(numbers, uint32(v))
		}
	}
	if runs > 1 {
		rest = 0
	}
	return numbers, rest, len(numbers)%2 == 0
}

// appendRefs appends e.numbers as a packed field of references.
func (e *encoder) appendRefs(out []byte, num int) []byte {
	if len(e.numbers) == 0 {
		return out
	}
	guess := len(e.numbers) * uvarintLen(uint64(e.table.len()))
	out, start := openMessage(out, num, guess)
	if !e.table.compact {
		for _, n := range e.numbers {
			out = binary.AppendUvarint(out, uint64(n))
		}
		return closeMessage(out, start, guess)
	}
	for _, n := range e.numbers {
		out = binary.AppendUvarint(out, uint64(e.table.ref(n)))
	}
	return closeMessage(out, start, guess)
}

// labelNumbers sets e.numbers to the numbers of the strings of a label set.
// resembling is another label set whose numbers are in e.previous; pairs that
// both have are taken from there, which spares most look-ups: a rule changes few
// labels of a series, and a series shares most labels with the one before it.
func (e *encoder) labelNumbers(labels, resembling []byte) bool {
	e.numbers = e.numbers[:0]
	known := e.previous
	for {
		same, n := commonPrefix(labels, resembling), 0
		for len(known) > 1 {
			end := n + labelLen(labels[n:])
			if end > same {
				break
			}
			e.numbers = append(e.numbers, known[0], known[1])
			n, known = end, known[2:]
		}
		labels, resembling = labels[n:], resembling[n:]
		if len(labels) == 0 {
			return true
		}
		name, value, n := nextLabel(labels)
		if n == 0 {
			return false
		}
		var other []byte
		m := 0
		if len(known) > 1 && len(resembling) > 0 {
			other, _, m = nextLabel(resembling)
		}
		var nameNumber uint32
		switch order := bytes.Compare(other, name); {
		case m == 0 || order > 0:
			nameNumber = e.table.number(name)
		case order < 0:
			resembling, known = resembling[m:], known[2:]
			continue
		default:
			nameNumber = known[0]
			resembling, known = resembling[m:], known[2:]
		}
		e.numbers = append(e.numbers, nameNumber, e.table.number(value))
		labels = labels[n:]
	}
}

// commonPrefix is the number of bytes at the start of a and b that are equal.
func commonPrefix(a, b []byte) int {
	n, i := min(len(a), len(b)), 0
	for ; i+8 <= n; i += 8 {
		if x := binary.LittleEndian.Uint64(a[i:]) ^ binary.LittleEndian.Uint64(b[i:]); x != 0 {
			return i + bits.TrailingZeros64(x)/8
		}
	}
	for i < n && a[i] == b[i] {
		i++
	}
	return i
}
