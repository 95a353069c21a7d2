package sink

import (
	"github.com/cespare/xxhash/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Keys appends for each group of an OTLP batch a number that says which groups have
// to keep their order among each other. It is the same in every process.
//
//	metrics             the resource's attributes and the metric's name, so a series
//	                    always has the same
//	logs, events, RUM   the resource's attributes
//	traces              the trace id
func Keys(dst []uint64, b *ingester.Batch) []uint64 {
	above := make([]uint64, len(b.Containers))
	depth := make([]uint8, len(b.Containers))
	for i := range b.Containers {
		c := &b.Containers[i]
		if c.Parent >= 0 {
			above[i], depth[i] = above[c.Parent], depth[c.Parent]+1
		}
		switch message := b.Body[c.Message:c.Field.End]; {
		case depth[i] == 0:
			above[i] = ownerHash(message)
		case depth[i] == 2:
			above[i] = mix(above[i], firstBytes(message, metricName))
		}
	}
	for i := range b.Groups {
		g := &b.Groups[i]
		switch {
		case b.Format == ingester.OTLPTraces:
			dst = append(dst, xxhash.Sum64(firstBytes(b.Message(g), spanTraceID)))
		case g.Parent >= 0:
			dst = append(dst, above[g.Parent])
		default:
			dst = append(dst, 0)
		}
	}
	return dst
}

// ownerHash is a hash of the attributes of a resource that does not depend on their
// order, which senders may change.
func ownerHash(message []byte) (sum uint64) {
	fields(message, func(num protowire.Number, typ protowire.Type, _, resource []byte) {
		if num != ownerField || typ != protowire.BytesType {
			return
		}
		fields(resource, func(num protowire.Number, _ protowire.Type, _, attribute []byte) {
			if num == resourceAttribute {
				sum += xxhash.Sum64(attribute)
			}
		})
	})
	return sum
}

func mix(sum uint64, more []byte) uint64 {
	// The multiplier of splitmix64, so that equal parts do not cancel out.
	return (sum ^ xxhash.Sum64(more)) * 0x9e3779b97f4a7c15
}

// firstBytes is the first field of a message with a number, if it is bytes.
func firstBytes(message []byte, want protowire.Number) []byte {
	for len(message) > 0 {
		num, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return nil
		}
		n := protowire.ConsumeFieldValue(num, typ, message[tag:])
		if n < 0 {
			return nil
		}
		if num == want && typ == protowire.BytesType {
			payload, _ := protowire.ConsumeBytes(message[tag:])
			return payload
		}
		message = message[tag+n:]
	}
	return nil
}
