package sink

import (
	"encoding/binary"
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// moves are the groups of a batch that leave under copies of what is around them,
// those with the same neighbours and the same changes together.
type moves struct {
	byReason map[string]int
	buckets  []bucket
	key      []byte
	chain    []int32
}

// bucket is one copy of a container with all that is around it, and the records in
// it.
type bucket struct {
	parent  int32
	above   []change
	records []byte
}

func (m *moves) reset() {
	clear(m.byReason)
	m.buckets = m.buckets[:0]
}

// release forgets the changes, which lie in the memory of the batch's routes.
func (m *moves) release() {
	for i := range m.buckets {
		clear(m.buckets[i].above)
	}
}

// add takes a group in and reports whether its bytes are what its format says.
func (m *moves) add(e *Encoder, g *ingester.Group) bool {
	m.key = binary.AppendUvarint(m.key[:0], uint64(g.Parent))
	m.key = appendSignature(m.key, e.plan.above)
	i, known := m.byReason[string(m.key)]
	if !known {
		i = len(m.buckets)
		if i < cap(m.buckets) {
			m.buckets = m.buckets[:i+1]
		} else {
			m.buckets = append(m.buckets, bucket{})
		}
		b := &m.buckets[i]
		b.parent, b.records = g.Parent, b.records[:0]
		b.above = append(b.above[:0], e.plan.above...)
		if m.byReason == nil {
			m.byReason = make(map[string]int)
		}
		m.byReason[string(m.key)] = i
	}
	b := &m.buckets[i]
	start := len(b.records)
	var ok bool
	if b.records, ok = e.appendRecords(b.records, g); !ok {
		b.records = b.records[:start]
	}
	return ok
}

// appendTo appends the copies to the request.
func (m *moves) appendTo(e *Encoder) {
	for i := range m.buckets {
		b := &m.buckets[i]
		if len(b.records) == 0 {
			continue
		}
		m.chain = m.chain[:0]
		for c := b.parent; c >= 0; c = e.batch.Containers[c].Parent {
			m.chain = append(m.chain, c)
		}
		slices.Reverse(m.chain)
		e.out = e.appendChain(e.out, m.chain, b)
	}
}

// appendChain appends copies of containers, each in the one before, and in the last
// the records.
func (e *Encoder) appendChain(dst []byte, chain []int32, b *bucket) []byte {
	if len(chain) == 0 {
		return append(dst, b.records...)
	}
	c := &e.batch.Containers[chain[0]]
	num, _, _ := protowire.ConsumeTag(e.tag(int(chain[0])))
	depth := int(e.containers[chain[0]].depth)
	return appendMessage(dst, num, func(dst []byte) []byte {
		dst = e.appendOwn(dst, depth, e.batch.Body[c.Message:c.Field.End], b.above)
		return e.appendChain(dst, chain[1:], b)
	})
}

// appendOwn appends the fields of a container that do not hold its children, with
// the changes that concern them.
func (e *Encoder) appendOwn(dst []byte, depth int, message []byte, above []change) []byte {
	hadOwner := false
	fields(message, func(num protowire.Number, typ protowire.Type, whole, payload []byte) {
		switch {
		case isChild(depth, num):
		case num == ownerField && typ == protowire.BytesType && depth < 2:
			// Only the first of several, which a reader merges, gets what is set.
			first := !hadOwner
			hadOwner = true
			dst = appendMessage(dst, num, func(dst []byte) []byte { return e.appendOwner(dst, depth, payload, above, first) })
		case num == metricName && depth == 2 && e.newName(above) != nil:
		default:
			dst = append(dst, whole...)
		}
	})
	if !hadOwner && depth == 0 {
		if owner := e.appendOwner(nil, depth, nil, above, true); len(owner) > 0 {
			dst = protowire.AppendBytes(protowire.AppendTag(dst, ownerField, protowire.BytesType), owner)
		}
	}
	if c := e.newName(above); c != nil && depth == 2 {
		dst = appendString(dst, metricName, c.value)
	}
	return dst
}

// newName is the change of the metric's name, nil if there is none.
func (e *Encoder) newName(above []change) *change {
	if e.batch.Format != ingester.OTLPMetrics {
		return nil
	}
	for i := range above {
		if string(above[i].name) == "__name__" {
			return &above[i]
		}
	}
	return nil
}

// appendOwner appends the fields of a resource (depth 0) or scope (depth 1) as the
// changes leave them.
func (e *Encoder) appendOwner(dst []byte, depth int, owner []byte, above []change, set bool) []byte {
	fields(owner, func(num protowire.Number, _ protowire.Type, whole, payload []byte) {
		for i := range above {
			c := &above[i]
			if c.removed && e.ownerFieldBelongs(depth, num, payload, c.name) {
				return
			}
			if depth == 0 && num == resourceAttribute && e.replacesResource(keyOf(payload), c) {
				return
			}
		}
		dst = append(dst, whole...)
	})
	if depth > 0 || !set {
		return dst
	}
	for i := range above {
		c := &above[i]
		if key, _ := resourceKeys(e.batch.Format, c.name); key != "" && !c.removed {
			dst = appendAttribute(dst, resourceAttribute, []byte(key), c.value)
		}
	}
	return dst
}

// replacesResource says that an attribute of a resource is what a label was made
// of that is not named like it.
func (e *Encoder) replacesResource(key []byte, c *change) bool {
	set, cleared := resourceKeys(e.batch.Format, c.name)
	return set != "" && (string(key) == set || string(key) == cleared || e.names.belongs(key, c.name))
}

// resourceKeys are the attributes of a resource that a label is made of: the one
// that takes a new value, and one that goes.
func resourceKeys(f ingester.Format, label []byte) (set, cleared string) {
	if !aboveOnly(f, label) {
		return "", ""
	}
	switch string(label) {
	case "service_name":
		return "service.name", ""
	case "job":
		return "service.name", "service.namespace"
	case "instance":
		return "service.instance.id", ""
	}
	return "", ""
}
