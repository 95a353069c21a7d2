package sink

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Describe makes raw, a well-formed OTLP request of the batch's Format, the batch's
// body and describes it, each record as a group of its own without a key. It is for
// requests that this process made, and reports whether raw is well-formed.
func Describe(b *ingester.Batch, raw []byte) bool {
	b.Body, b.Size = raw, len(raw)
	b.Containers, b.Groups = b.Containers[:0], b.Groups[:0]
	deepest := 2
	if b.Format == ingester.OTLPMetrics {
		deepest = 4
	}
	return describe(b, 0, deepest, 0, uint32(len(raw)), -1)
}

func describe(b *ingester.Batch, depth, deepest int, at, end uint32, parent int32) bool {
	for at < end {
		num, typ, tag := protowire.ConsumeTag(b.Body[at:end])
		if tag < 0 {
			return false
		}
		n := protowire.ConsumeFieldValue(num, typ, b.Body[at+uint32(tag):end])
		if n < 0 {
			return false
		}
		field := ingester.Span{Start: at, End: at + uint32(tag+n)}
		at = field.End
		if typ != protowire.BytesType || !(depth == 0 && num == 1 || depth > 0 && isChild(depth-1, num)) {
			continue
		}
		payload, _ := protowire.ConsumeBytes(b.Body[field.Start+uint32(tag) : field.End])
		message := field.End - uint32(len(payload))
		if depth == deepest {
			b.Groups = append(b.Groups, ingester.Group{Field: field, Message: message, Parent: parent, Floats: 1})
			continue
		}
		b.Containers = append(b.Containers, ingester.Container{Parent: parent, Field: field, Message: message})
		if !describe(b, depth+1, deepest, message, field.End, int32(len(b.Containers)-1)) {
			return false
		}
	}
	return true
}
