package ingester

import (
	"bytes"
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// Route is what the rules make of a label set: dropped by relabel, exempt, or
// relabelled labels and a class. The zero Route belongs to a group that was not
// routed yet.
type Route struct {
	seg *segment
	idx uint16
}

// NewRoute makes a route that no cache remembers, of the label set that was sent
// and the one that the rules made of it; nil if they changed nothing. It keeps
// copies. A sink can be tried with it, without an ingester.
func NewRoute(sent, relabelled []byte) Route {
	r := Route{seg: &segment{entries: make([]entry, 1), data: make([]byte, len(sent)+len(relabelled))}}
	r.seg.add(0, 0, sent, verdict{}, relabelled != nil, relabelled)
	return r
}

// Changed says that a rule, the API key or tidying altered the labels.
func (r Route) Changed() bool { return r.seg != nil && r.entry().changed }

// Labels returns the label set after relabelling, encoded as remote write 1.0
// does. The bytes are shared: they must not be written to.
func (r Route) Labels() []byte {
	e := r.entry()
	if !e.changed {
		return r.seg.bytes(e.key)
	}
	return r.seg.bytes(e.labels)
}

// Sent returns the label set as the sender sent it, encoded likewise.
func (r Route) Sent() []byte { return r.seg.bytes(r.entry().key) }

// locator names the route; noLocator if nobody finds it again.
func (r Route) locator() uint64 {
	if r.seg == nil || r.seg.seq == 0 {
		return noLocator
	}
	return locator(r.seg.seq, r.idx)
}

// Ref is a number that the sink remembered with the route, 0 if none.
func (r Route) Ref() uint64 {
	if r.seg == nil {
		return 0
	}
	return r.entry().ref.Load()
}

// SetRef remembers a number of the sink's with the route, so that the next
// write of the series need not look it up.
func (r Route) SetRef(ref uint64) {
	if r.seg != nil {
		r.entry().ref.Store(ref)
	}
}

func (r Route) entry() *entry { return &r.seg.entries[r.idx] }

// verdict is what is known of the route before any token is taken.
type verdict struct {
	outcome Verdict
	reason  Reason // why it is Invalid
	class   int32
}

// entry is one remembered route. It holds no pointer, so the garbage collector
// does not walk the cache however many series there are.
type entry struct {
	verdict verdict
	changed bool
	scope   uint32 // whose series: the same labels can mean something else to another API key
	hash    uint64
	key     Span // into the segment's data
	labels  Span
	ref     atomic.Uint64
	next    atomic.Uint64 // locator of the route that followed this one in a request
}

// segment holds the routes that were made at about the same time. Segments are
// filled one after the other and leave as a whole, oldest first. Once an entry
// has been published it never changes but for ref and next, so readers need no
// lock, and a reader that still holds a segment keeps it alive.
type segment struct {
	seq     uint32
	entries []entry
	data    []byte
	// How many entries and bytes are in use; only the writer looks.
	used, filled int
}

func (s *segment) bytes(r Span) []byte { return s.data[r.Start:r.End] }

const (
	segmentEntries = 1024
	// segmentData is the first guess at what the labels of segmentEntries
	// routes take; later segments are sized after the one before.
	segmentData  = 256 << 10
	minimumData  = 32 << 10
	entryBytes   = 56
	indexShards  = 256
	firstSlots   = 16
	noLocator    = 0
	largestShare = 4 // a label set above this part of a segment is not remembered
)

// routes remembers routes in a bounded number of bytes.
//
// A label set is found in one of two ways. Senders repeat their series in the
// same order, so each entry knows which one followed it last time, and that one
// is compared first. Otherwise the bytes are hashed and looked up in an open
// addressing table. Either way the whole key is compared, so a hash collision
// costs time and never gives the wrong route.
//
// When the bound is reached the oldest segment leaves. Entries that are still
// asked for while their segment is among the oldest quarter are copied to the
// newest one, so a flood of new series pushes out what nobody sends any more.
type routes struct {
	seed  maphash.Seed
	limit int64 // bytes

	ring   []atomic.Pointer[segment] // by seq; nil or another seq: gone
	shards [indexShards]atomic.Pointer[slots]
	// promoteBelow is the seq below which a hit is copied forward; 0 while
	// there is room.
	promoteBelow atomic.Uint32

	bytes, count atomic.Int64
	evicted      *atomic.Int64 // outlives the cache
	sequences    *sequences

	mu      sync.Mutex // for all that follows, and for writing to ring and shards
	current *segment
	oldest  uint32
	filled  [indexShards]int // slots in use, stale ones included
}

// slots is one shard of the index: a power of two of words, each 0 or
// tag<<48 | locator, probed linearly.
type slots []atomic.Uint64

// locator names an entry: seq<<16 | index. 0 is none, as seq starts at 1.
func locator(seq uint32, idx uint16) uint64 { return uint64(seq)<<16 | uint64(idx) }

const locatorMask = 1<<48 - 1

// tag is the part of the hash that a slot keeps, to compare few entries in vain.
func tag(hash uint64) uint64 { return (hash >> 32 & 0xffff) << 48 }

func shardOf(hash uint64) uint64 { return hash >> 56 }

// newRoutes makes an empty cache of at most limit bytes. Below the size of a
// few segments nothing would stay, so that is the least.
func newRoutes(limit int64, evicted *atomic.Int64) *routes {
	limit -= limit / 8 // for the sequences
	const least = 4 * (segmentEntries*entryBytes + minimumData)
	limit = max(limit, least)
	ring := 1
	for int64(ring) < limit/(segmentEntries*entryBytes)+2 {
		ring *= 2
	}
	return &routes{
		seed:   maphash.MakeSeed(),
		limit:  limit,
		ring:   make([]atomic.Pointer[segment], ring),
		oldest: 1,

		evicted:   evicted,
		sequences: newSequences(limit / 7),
	}
}

// at returns the route that a locator names, if it is still there.
func (c *routes) at(loc uint64) (Route, bool) {
	seq := uint32(loc >> 16)
	seg := c.ring[seq&uint32(len(c.ring)-1)].Load()
	if seg == nil || seg.seq != seq || loc == noLocator {
		return Route{}, false
	}
	return Route{seg: seg, idx: uint16(loc)}, true
}

// after returns the route that followed prev the last time, if its key is key.
func (c *routes) after(prev Route, scope uint32, key []byte) (Route, bool) {
	if prev.seg == nil {
		return Route{}, false
	}
	r, ok := c.at(prev.entry().next.Load())
	if !ok {
		return Route{}, false
	}
	e := r.entry()
	if e.scope != scope || !bytes.Equal(r.seg.bytes(e.key), key) {
		return Route{}, false
	}
	return r, true
}

// follow remembers that r came after prev.
func (c *routes) follow(prev, r Route) {
	loc := r.locator()
	if prev.seg == nil || loc == noLocator {
		return
	}
	if prev.entry().next.Load() != loc {
		prev.entry().next.Store(loc)
	}
}

// find looks a label set up by its hash.
func (c *routes) find(hash uint64, scope uint32, key []byte) (Route, bool) {
	table := c.shards[shardOf(hash)].Load()
	if table == nil {
		return Route{}, false
	}
	mask := uint64(len(*table) - 1)
	for i := hash & mask; ; i = (i + 1) & mask {
		word := (*table)[i].Load()
		if word == 0 {
			return Route{}, false
		}
		if word&^locatorMask != tag(hash) {
			continue
		}
		r, ok := c.at(word & locatorMask)
		if !ok {
			continue
		}
		e := r.entry()
		if e.hash == hash && e.scope == scope && bytes.Equal(r.seg.bytes(e.key), key) {
			return r, true
		}
	}
}

func (c *routes) hash(key []byte) uint64 { return maphash.Bytes(c.seed, key) }

// aging says that r will leave soon unless it is copied forward.
func (c *routes) aging(r Route) bool { return r.seg.seq != 0 && r.seg.seq < c.promoteBelow.Load() }

// promote copies a route that is still in use to the newest segment.
func (c *routes) promote(r Route) Route {
	e := r.entry()
	c.mu.Lock()
	defer c.mu.Unlock()
	if now, ok := c.find(e.hash, e.scope, r.seg.bytes(e.key)); ok && !c.aging(now) {
		return now // another request was faster
	}
	fresh := c.append(e.hash, e.scope, r.seg.bytes(e.key), e.verdict, e.changed, r.seg.bytes(e.labels))
	fresh.SetRef(e.ref.Load())
	fresh.entry().next.Store(e.next.Load())
	c.publish(e.hash, fresh.locator(), r.locator())
	return fresh
}

// insert remembers a route. key and labels are copied. A label set that is too
// large to be remembered gets a route of its own that nobody finds again.
func (c *routes) insert(hash uint64, scope uint32, key []byte, v verdict, changed bool, labels []byte) Route {
	size := len(key) + len(labels)
	if size > segmentData/largestShare {
		lone := NewRoute(key, labels)
		lone.entry().verdict, lone.entry().changed = v, changed
		return lone
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.find(hash, scope, key); ok {
		return r // another request was faster
	}
	r := c.append(hash, scope, key, v, changed, labels)
	c.publish(hash, r.locator(), noLocator)
	return r
}

// loneRoute is a route that nobody finds again.
func loneRoute(v verdict) Route {
	return Route{seg: &segment{entries: []entry{{verdict: v}}}}
}

// append adds an entry to the newest segment. It runs with c.mu held.
func (c *routes) append(hash uint64, scope uint32, key []byte, v verdict, changed bool, labels []byte) Route {
	size := len(key) + len(labels)
	if c.current == nil || c.current.used == len(c.current.entries) || len(c.current.data)-c.current.filled < size {
		c.openSegment(size)
	}
	c.count.Add(1)
	return Route{seg: c.current, idx: c.current.add(hash, scope, key, v, changed, labels)}
}

// add appends an entry. The caller has made sure that there is room.
func (s *segment) add(hash uint64, scope uint32, key []byte, v verdict, changed bool, labels []byte) uint16 {
	e := &s.entries[s.used]
	e.hash, e.scope, e.verdict, e.changed = hash, scope, v, changed
	e.key = s.keep(key)
	e.labels = s.keep(labels)
	s.used++
	return uint16(s.used - 1)
}

func (s *segment) keep(b []byte) Span {
	start := s.filled
	s.filled += copy(s.data[start:], b)
	return Span{uint32(start), uint32(s.filled)}
}

// openSegment starts a new segment and evicts the oldest ones until the bound
// holds again. It runs with c.mu held.
func (c *routes) openSegment(size int) {
	seq, data := uint32(1), segmentData
	if last := c.current; last != nil {
		seq = last.seq + 1
		// An eighth more than the last one needed, so that entries and
		// bytes run out at about the same time.
		data = max(minimumData, last.filled*segmentEntries/max(1, last.used)*9/8)
	}
	seg := &segment{seq: seq, entries: make([]entry, segmentEntries), data: make([]byte, max(data, size))}
	c.bytes.Add(seg.size())
	for c.oldest < seq && (c.bytes.Load() > c.limit || seq-c.oldest >= uint32(len(c.ring))) {
		c.evictOldest()
	}
	if c.bytes.Load() > c.limit-c.limit/4 {
		c.promoteBelow.Store(c.oldest + (seq-c.oldest)/4)
	}
	c.ring[seq&uint32(len(c.ring)-1)].Store(seg)
	c.current = seg
}

func (s *segment) size() int64 { return int64(len(s.entries)*entryBytes + len(s.data)) }

func (c *routes) evictOldest() {
	slot := &c.ring[c.oldest&uint32(len(c.ring)-1)]
	if seg := slot.Load(); seg != nil && seg.seq == c.oldest {
		slot.Store(nil)
		c.bytes.Add(-seg.size())
		c.count.Add(-int64(seg.used))
		c.evicted.Add(int64(seg.used))
	}
	c.oldest++
}

// publish makes an entry findable, in place of the one that it replaces, if
// any. It runs with c.mu held.
func (c *routes) publish(hash, loc, replaced uint64) {
	shard := shardOf(hash)
	table := c.shards[shard].Load()
	if table == nil || c.filled[shard]*4 >= len(*table)*3 {
		table = c.rebuild(shard, table)
	}
	mask := uint64(len(*table) - 1)
	i := hash & mask
	for word := (*table)[i].Load(); word != 0; word = (*table)[i].Load() {
		if replaced != noLocator && word&locatorMask == replaced {
			(*table)[i].Store(tag(hash) | loc)
			return
		}
		i = (i + 1) & mask
	}
	(*table)[i].Store(tag(hash) | loc)
	c.filled[shard]++
}

// rebuild makes a shard anew without what was evicted, at most half full. It
// copies one shard of 256, so nobody waits long.
func (c *routes) rebuild(shard uint64, old *slots) *slots {
	var live []uint64
	was := 0
	if old != nil {
		was = len(*old)
		for i := range *old {
			word := (*old)[i].Load()
			if _, ok := c.at(word & locatorMask); ok {
				live = append(live, word)
			}
		}
	}
	size := firstSlots
	for size < 2*(len(live)+1) {
		size *= 2
	}
	table := make(slots, size)
	mask := uint64(size - 1)
	for _, word := range live {
		r, _ := c.at(word & locatorMask)
		i := r.entry().hash & mask
		for table[i].Load() != 0 {
			i = (i + 1) & mask
		}
		table[i].Store(word)
	}
	c.bytes.Add(int64(8 * (size - was)))
	c.filled[shard] = len(live)
	c.shards[shard].Store(&table)
	return &table
}
