package remotewrite

import "github.com/spillway-telemetry/spillway/ingester/receive"

// shape is what the value of a field has to look like.
type shape uint8

const (
	unknown    shape = iota // not a field of ours: anything
	oneVarint               // int, uint, sint, bool or enum
	oneFixed64              // double
	varints                 // repeated, packed or not
	fixed64s                // repeated double, packed or not
	text                    // string
	bucketSpan              // BucketSpan message
	label                   // Label message
)

// Shapes by field number.
var (
	histogramShapes = []shape{
		1: oneVarint, 2: oneFixed64, 3: oneFixed64, 4: oneVarint, 5: oneFixed64, 6: oneVarint, 7: oneFixed64,
		8: bucketSpan, 9: varints, 10: fixed64s, 11: bucketSpan, 12: varints, 13: fixed64s,
		14: oneVarint, 15: oneVarint, 16: fixed64s, 17: oneVarint,
	}
	bucketSpanShapes = []shape{1: oneVarint, 2: oneVarint}
	labelShapes      = []shape{1: text, 2: text}
	exemplarShapes   = [...][]shape{
		1: {1: label, 2: oneFixed64, 3: oneVarint},
		2: {1: varints, 2: oneFixed64, 3: oneVarint},
	}
	familyShapes   = []shape{1: oneVarint, 2: text, 4: text, 5: text}
	metadataShapes = []shape{1: oneVarint, 3: oneVarint, 4: oneVarint}
)

// wellFormed checks every field of a message against the shapes of the fields
// that it may have, so that a sink can copy or read it without surprise.
func wellFormed(msg []byte, shapes []shape) bool {
	for i := 0; i < len(msg); {
		tag, at := receive.Uvarint(msg, i)
		if at < 0 {
			return false
		}
		next := receive.Skip(msg, at, tag)
		if next < 0 {
			return false
		}
		if tag>>3 < uint64(len(shapes)) && !fits(msg[at:next], int(tag&7), shapes[tag>>3]) {
			return false
		}
		i = next
	}
	return true
}

// fits checks one value, which skip has passed over. A length-delimited value
// still has its length in front.
func fits(value []byte, wire int, s shape) bool {
	if s == unknown {
		return true
	}
	if s == oneVarint || s == varints && wire == receive.VarintType {
		return wire == receive.VarintType
	}
	if s == oneFixed64 || s == fixed64s && wire == receive.Fixed64Type {
		return wire == receive.Fixed64Type
	}
	if wire != receive.BytesType {
		return false
	}
	start, end := receive.Span(value, 0)
	content := value[start:end]
	switch s {
	case varints:
		return onlyVarints(content)
	case fixed64s:
		return len(content)%8 == 0
	case bucketSpan:
		return wellFormed(content, bucketSpanShapes)
	case label:
		return wellFormed(content, labelShapes)
	}
	return true
}

func onlyVarints(b []byte) bool {
	i := 0
	for i >= 0 && i < len(b) {
		_, i = receive.Uvarint(b, i)
	}
	return i == len(b)
}
