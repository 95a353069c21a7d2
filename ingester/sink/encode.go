package sink

import (
	"slices"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Encoder makes OTLP requests of what was admitted of OTLP batches. It keeps its
// buffers from one batch to the next and is not safe for concurrent use. It never
// changes the batch. The zero value is ready.
//
// A request is the bytes that were received without those of the groups that do not
// leave, so most of it is copied as it came, in as few pieces as there are gaps.
// Only the lengths of the messages around a gap are written anew; they are known
// before anything is written (size), so it is one pass over the bytes.
//
// A group whose labels a rule changed is written anew with other attributes
// (writeback.go). Where the change lies in what the group shares with others, its
// resource, say, it moves: it leaves under a copy of its resource, scope and metric
// behind the others, together with those that moved for the same reason (move.go).
type Encoder struct {
	batch  *ingester.Batch
	out    []byte
	asSent bool // see Cut
	// containers and fates say what becomes of the batch's Containers and Groups.
	containers []container
	fates      []fate
	// rewritten are the groups that are written anew in their place, in order;
	// their fields lie in scratch.
	rewritten []piece
	scratch   []byte
	moves     moves
	plan      plan
	names     names
}

// container is what becomes of a Container.
type container struct {
	grown int  // bytes that its message gains, mostly below 0
	kept  bool // something in it leaves
	dirty bool // something in it changes or does not leave
	depth uint8
}

// fate is what becomes of a group.
type fate uint8

const (
	leaves fate = iota
	isGone
	isRewritten
)

// piece is a range of bytes of a scratch buffer.
type piece struct{ start, end int }

// Encode returns a request with the admitted groups for which keep, if it is not
// nil, reports true. The bytes are valid until the next call; those of a batch that
// is Whole are the batch's. It is empty if nothing is left.
func (e *Encoder) Encode(b *ingester.Batch, keep func(group int) bool) []byte {
	if b.Whole && keep == nil {
		return b.Body[:b.Size]
	}
	e.asSent = false
	return e.encode(b, keep)
}

// Cut is Encode without what the rules changed: the groups as they were sent, in their
// order.
func (e *Encoder) Cut(b *ingester.Batch, keep func(group int) bool) []byte {
	e.asSent = true
	return e.encode(b, keep)
}

func (e *Encoder) encode(b *ingester.Batch, keep func(int) bool) []byte {
	e.reset(b)
	defer e.release()
	for i := range b.Groups {
		e.decide(i, keep)
	}
	e.size()
	e.write()
	e.moves.appendTo(e)
	return e.out
}

func (e *Encoder) reset(b *ingester.Batch) {
	e.batch = b
	e.out = slices.Grow(e.out[:0], b.Size)
	e.scratch, e.rewritten = e.scratch[:0], e.rewritten[:0]
	e.moves.reset()
	e.plan.reset()
	e.fates = slices.Grow(e.fates[:0], len(b.Groups))[:len(b.Groups)]
	e.containers = slices.Grow(e.containers[:0], len(b.Containers))[:len(b.Containers)]
	for i := range b.Containers {
		e.containers[i] = container{}
		if p := b.Containers[i].Parent; p >= 0 {
			e.containers[i].depth = e.containers[p].depth + 1
		}
	}
}

// release forgets the batch, whose memory goes back to its owner.
func (e *Encoder) release() {
	e.batch = nil
	e.plan.reset()
	e.moves.release()
}

// decide finds the fate of a group and tells its container.
func (e *Encoder) decide(i int, keep func(int) bool) {
	g := &e.batch.Groups[i]
	fate := leaves
	gained := 0
	switch {
	case !g.Admitted() || keep != nil && !keep(i):
		fate = isGone
	case !e.asSent && g.Route.Changed():
		fate = e.rewrite(g)
	}
	e.fates[i] = fate
	c := e.parent(g.Parent)
	if fate == isRewritten {
		last := e.rewritten[len(e.rewritten)-1]
		gained = last.end - last.start
	}
	if c == nil {
		return
	}
	c.kept = c.kept || fate != isGone
	if fate != leaves {
		c.dirty = true
		c.grown += gained - int(g.Field.End-g.Field.Start)
	}
}

func (e *Encoder) parent(i int32) *container {
	if i < 0 {
		return nil
	}
	return &e.containers[i]
}

// size finds out how much each message grows, from the innermost outwards.
func (e *Encoder) size() {
	for i := len(e.containers) - 1; i >= 0; i-- {
		c, from := &e.containers[i], &e.batch.Containers[i]
		p := e.parent(from.Parent)
		if p == nil {
			continue
		}
		was := int(from.Field.End - from.Field.Start)
		switch {
		case !c.kept:
			p.dirty = true
			p.grown -= was
		case c.dirty:
			p.kept, p.dirty = true, true
			p.grown += e.header(i) + e.length(i) - was
		default:
			p.kept = true
		}
	}
}

// length is the new length of the message of a container.
func (e *Encoder) length(i int) int {
	c := &e.batch.Containers[i]
	return int(c.Field.End-c.Message) + e.containers[i].grown
}

// header is the size of the new tag and length of a container.
func (e *Encoder) header(i int) int {
	return len(e.tag(i)) + protowire.SizeVarint(uint64(e.length(i)))
}

// tag returns the tag of a container as it came.
func (e *Encoder) tag(i int) []byte {
	field := e.batch.Bytes(e.batch.Containers[i].Field)
	_, n := protowire.ConsumeVarint(field)
	return field[:max(n, 0)]
}

// write copies the request but for what does not leave in place.
func (e *Encoder) write() {
	b := e.batch
	from, next := uint32(0), 0 // where copying goes on, and the next rewritten piece
	until := uint32(0)         // everything that starts before this is dealt with
	containers, groups := b.Containers, b.Groups
	for ci, gi := 0, 0; ci < len(containers) || gi < len(groups); {
		if gi == len(groups) || ci < len(containers) && containers[ci].Field.Start < groups[gi].Field.Start {
			c := &containers[ci]
			ci++
			switch to := &e.containers[ci-1]; {
			case c.Field.Start < until:
			case !to.kept:
				e.out = append(e.out, b.Body[from:c.Field.Start]...)
				from, until = c.Field.End, c.Field.End
			case !to.dirty:
				until = c.Field.End
			default:
				e.out = append(e.out, b.Body[from:c.Field.Start]...)
				e.out = append(e.out, e.tag(ci-1)...)
				e.out = protowire.AppendVarint(e.out, uint64(e.length(ci-1)))
				from = c.Message
			}
			continue
		}
		g, fate := &groups[gi], e.fates[gi]
		gi++
		switch {
		case fate == leaves:
		case g.Field.Start < until: // in a container that does not leave
			continue
		default:
			e.out = append(e.out, b.Body[from:g.Field.Start]...)
			from = g.Field.End
		}
		if fate == isRewritten {
			e.out = append(e.out, e.scratch[e.rewritten[next].start:e.rewritten[next].end]...)
			next++
		}
	}
	e.out = append(e.out, b.Body[from:b.Size]...)
}

// rewrite writes a group with the attributes that the rules made, or gives it to
// moves. A group whose bytes are not what its format says leaves as it came.
func (e *Encoder) rewrite(g *ingester.Group) fate {
	e.plan.read(e, g)
	switch {
	case e.plan.nothing():
		return leaves
	case len(e.plan.above) > 0:
		if e.moves.add(e, g) {
			return isGone
		}
		return leaves
	}
	start := len(e.scratch)
	var ok bool
	if e.scratch, ok = e.appendRecords(e.scratch, g); !ok {
		e.scratch = e.scratch[:start]
		return leaves
	}
	e.rewritten = append(e.rewritten, piece{start, len(e.scratch)})
	return isRewritten
}
