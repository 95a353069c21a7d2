package remotewrite

import (
	"encoding/binary"
	"errors"
)

// Wire types of protobuf (https://protobuf.dev/programming-guides/encoding).
const (
	varintType  = 0
	fixed64Type = 1
	bytesType   = 2
	fixed32Type = 5
)

// errMalformed is the cause of every decoding error: the bytes are not the
// message that they are said to be.
var errMalformed = errors.New("malformed protobuf")

// uvarint reads the varint at b[i]. next is the position behind it, or -1 if
// there is none.
func uvarint(b []byte, i int) (v uint64, next int) {
	if i < len(b) && b[i] < 0x80 {
		return uint64(b[i]), i + 1
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

// span reads the length at b[i] and returns where its content starts and ends,
// or -1 for both if it does not lie in b.
func span(b []byte, i int) (start, end int) {
	n, start := uvarint(b, i)
	if start < 0 || n > uint64(len(b)-start) {
		return -1, -1
	}
	return start, start + int(n)
}

// skip passes over the value of a field whose tag has been read. next is -1 if
// the value is not there, or is a group, which protobuf 3 does not have.
func skip(b []byte, i int, tag uint64) (next int) {
	if tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return -1
	}
	switch tag & 7 {
	case varintType:
		_, next = uvarint(b, i)
	case fixed64Type:
		next = i + 8
	case bytesType:
		_, next = span(b, i)
	case fixed32Type:
		next = i + 4
	default:
		return -1
	}
	if next > len(b) {
		return -1
	}
	return next
}
