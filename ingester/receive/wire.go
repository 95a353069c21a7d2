package receive

import "encoding/binary"

// Wire types of protobuf (https://protobuf.dev/programming-guides/encoding).
const (
	VarintType  = 0
	Fixed64Type = 1
	BytesType   = 2
	Fixed32Type = 5
)

// Uvarint reads the varint at b[i]. next is the position behind it, or -1 if
// there is none.
func Uvarint(b []byte, i int) (v uint64, next int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	return longUvarint(b, i)
}

func longUvarint(b []byte, i int) (v uint64, next int) {
	if i+1 < len(b) && b[i+1] < 0x80 { // the length of nearly every series and record
		return uint64(b[i]&0x7f) | uint64(b[i+1])<<7, i + 2
	}
	if i >= len(b) {
		return 0, -1
	}
	v, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, -1
	}
	return v, i + n
}

// Span reads the length at b[i] and returns where its content starts and ends,
// or -1 for both if it does not lie in b.
func Span(b []byte, i int) (start, end int) {
	if i < len(b) && b[i] < 0x80 && int(b[i]) < len(b)-i {
		return i + 1, i + 1 + int(b[i])
	}
	n, start := Uvarint(b, i)
	if start < 0 || n > uint64(len(b)-start) {
		return -1, -1
	}
	return start, start + int(n)
}

// Skip passes over the value of a field whose tag has been read. next is -1 if
// the value is not there, or is a group, which protobuf 3 does not have.
func Skip(b []byte, i int, tag uint64) (next int) {
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return -1
	}
	switch tag & 7 {
	case VarintType:
		_, next = Uvarint(b, i)
	case Fixed64Type:
		next = i + 8
	case BytesType:
		_, next = Span(b, i)
	case Fixed32Type:
		next = i + 4
	default:
		return -1
	}
	if next > len(b) {
		return -1
	}
	return next
}
