package remotewrite

import (
	"bytes"
	"encoding/binary"
)

// readRefs appends the numbers that the references in field num of a message
// stand for. It reports false where one of them stands for none.
func (e *encoder) readRefs(numbers []uint32, message []byte, num uint32) ([]uint32, bool) {
	own := uint64(len(e.table.own))
	for at := 0; at < len(message); {
		f, ok := nextField(message, at)
		if !ok {
			return numbers, false
		}
		at = f.end
		if f.num != num {
			continue
		}
		if f.typ == wireVarint {
			if f.value >= own {
				return numbers, false
			}
			numbers = append(numbers, uint32(f.value))
			continue
		}
		if f.typ != wireBytes {
			return numbers, false
		}
		for p := f.body; p < f.end; {
			var v uint64
			if v, p = uvarint(message[:f.end], p); p < 0 || v >= own {
				return numbers, false
			}
			numbers = append(numbers, uint32(v))
		}
	}
	return numbers, len(numbers)%2 == 0
}

// appendRefs appends e.numbers as a packed field of references.
func (e *encoder) appendRefs(out []byte, num int) []byte {
	if len(e.numbers) == 0 {
		return out
	}
	guess := len(e.numbers) * uvarintLen(uint64(e.table.len()))
	out, start := openMessage(out, num, guess)
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
	for len(labels) > 0 {
		n := labelLen(labels)
		if len(known) > 1 && n <= min(len(labels), len(resembling)) && bytes.Equal(labels[:n], resembling[:n]) {
			e.numbers = append(e.numbers, known[0], known[1])
			labels, resembling, known = labels[n:], resembling[n:], known[2:]
			continue
		}
		name, value, n := nextLabel(labels)
		if n == 0 {
			return false
		}
		var nameNumber uint32
		other, _, m := nextLabel(resembling)
		switch order := bytes.Compare(other, name); {
		case m == 0 || len(known) < 2 || order > 0:
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
	return true
}

// labelLen is the length of the field at the start of labels if it is short
// enough for a length of one byte; else it is more than there is.
func labelLen(labels []byte) int {
	if len(labels) < 2 || labels[1] >= 0x80 {
		return len(labels) + 1
	}
	return 2 + int(labels[1])
}

// countLabels is the number of labels in a label set.
func countLabels(labels []byte) int {
	count := 0
	for at := 0; at < len(labels); count++ {
		f, ok := nextField(labels, at)
		if !ok {
			break
		}
		at = f.end
	}
	return count
}
