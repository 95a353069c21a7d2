package ingester

import (
	"bytes"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

const (
	segmentEntries = 1024
	// segmentData is the first guess at what the labels of segmentEntries
	// routes take; later segments are sized after the one before.
	segmentData  = 256 << 10
	minimumData  = 32 << 10
	largestData  = 1 << 20
	entryBytes   = 56
	indexShards  = 256
	firstSlots   = 16
	noLocator    = 0
	largestShare = 4 // a label set above this part of a segment is not remembered
	// sequencesShare is the part of the bound that sequences may take from routes:
	// about what the series of 2.0 requests need of both.
	sequencesShare = 5
	// admitOneOf is how many unknown label sets a full cache sees for each that
	// it remembers. Where more series are active than fit, and come round in the
	// same order, a cache that takes in all of them always has just lost the next
	// one; this one keeps most of what it has. A series that stays is taken in
	// after 8 requests on average.
	admitOneOf = 8
)

// routes remembers routes in a bounded number of bytes.
//
// A label set is found in one of two ways. Senders repeat their series in the
// same order, so each entry knows which one followed it last time, and that one
// is compared first. Otherwise the bytes are hashed and looked up in an open
// addressing table. Either way the whole key is compared, so a hash collision
// costs time and never gives the wrong route.
//
// When the bound is reached the oldest segment leaves. Its entries that were used
// since they were written move to the new segment, as long as an eighth of that
// stays free, so a flood of new series pushes out what nobody sends any more.
type routes struct {
	hash  func(key []byte) uint64
	limit int64 // bytes

	ring   []atomic.Pointer[segment] // by seq; nil or another seq: gone
	shards [indexShards]atomic.Pointer[slots]
	full   atomic.Bool // something was evicted

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
	const least = 4 * (segmentEntries*entryBytes + minimumData)
	limit = max(limit, least)
	ring := 1
	for int64(ring) < limit/(segmentEntries*entryBytes)+2 {
		ring *= 2
	}
	seed := maphash.MakeSeed()
	return &routes{
		hash:   func(key []byte) uint64 { return maphash.Bytes(seed, key) },
		limit:  limit,
		ring:   make([]atomic.Pointer[segment], ring),
		oldest: 1,

		evicted:   evicted,
		sequences: newSequences(limit / sequencesShare),
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
		if e.scope == scope && bytes.Equal(r.seg.bytes(e.key), key) {
			return r, true
		}
	}
}

// insert remembers a route. key and labels are copied. A label set that is too
// large to be remembered, or that a full cache does not take in this time, gets a
// route of its own that nobody finds again.
func (c *routes) insert(hash uint64, scope uint32, key []byte, v verdict, changed bool, labels []byte) Route {
	size := len(key) + len(labels)
	if size > segmentData/largestShare || c.full.Load() && rand.Uint32()%admitOneOf != 0 {
		return loneRoute(v, key, changed, labels)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if r, ok := c.find(hash, scope, key); ok {
		return r // another request was faster
	}
	if !c.current.fits(size) {
		c.openSegment(size)
	}
	c.count.Add(1)
	r := Route{seg: c.current, idx: c.current.add(scope, key, v, changed, labels)}
	c.publish(hash, r.locator(), noLocator)
	return r
}

// fits says whether the segment, which may be none, has room for another entry.
func (s *segment) fits(size int) bool {
	return s != nil && s.used < len(s.entries) && len(s.data)-s.filled >= size
}

// openSegment starts a new segment and evicts the oldest ones until the bound
// holds again. It runs with c.mu held.
func (c *routes) openSegment(size int) {
	seq, data := uint32(1), segmentData
	if last := c.current; last != nil {
		seq = last.seq + 1
		// An eighth more than the last one needed, so that entries and
		// bytes run out at about the same time; within limits, as a few large
		// label sets say little of the next ones.
		data = min(largestData, max(minimumData, last.filled*segmentEntries/max(1, last.used)*9/8))
	}
	seg := &segment{seq: seq, entries: make([]entry, segmentEntries), data: make([]byte, max(data, size))}
	c.bytes.Add(seg.size())
	for seq-c.oldest >= uint32(len(c.ring)) {
		c.evictOldest(nil, 0)
	}
	c.ring[seq&uint32(len(c.ring)-1)].Store(seg)
	c.current = seg
	c.keepBound(size)
}

// keepBound evicts the oldest segments until routes and sequences together are
// within the bound. What survives leaves size bytes of the newest segment free. It
// runs with c.mu held.
func (c *routes) keepBound(size int) {
	for c.current != nil && c.oldest < c.current.seq && c.size() > c.limit {
		c.evictOldest(c.current, size)
	}
}

// size is the number of bytes that all that is remembered takes.
func (c *routes) size() int64 { return c.bytes.Load() + c.sequences.bytes.Load() }

// remember keeps a request of 2.0 whose groups have been routed.
func (c *routes) remember(b *Batch, scope uint32, table uint64) {
	if !c.sequences.remember(b, scope, table) {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.keepBound(0)
}

// evictOldest takes the oldest segment out. What was used of it moves to refuge
// until only an eighth of that is free, or size bytes if that is more.
func (c *routes) evictOldest(refuge *segment, size int) {
	slot := &c.ring[c.oldest&uint32(len(c.ring)-1)]
	c.oldest++
	seg := slot.Load()
	if seg == nil || seg.seq != c.oldest-1 {
		return
	}
	saved := 0
	if refuge != nil {
		saved = c.rescue(seg, refuge, size)
	}
	slot.Store(nil)
	c.full.Store(true)
	c.bytes.Add(-seg.size())
	c.count.Add(int64(saved - seg.used))
	c.evicted.Add(int64(seg.used - saved))
}

// rescue moves the entries of seg that were used to refuge and says how many.
func (c *routes) rescue(seg, refuge *segment, size int) (saved int) {
	var moved [segmentEntries]uint64 // where each entry is now
	entries, data := len(refuge.entries)*7/8, min(len(refuge.data)*7/8, len(refuge.data)-size)
	for i := range seg.used {
		e := &seg.entries[i]
		if e.used.Load() == 0 || refuge.used >= entries || refuge.filled+int(e.end-e.key.Start) > data {
			continue
		}
		moved[i] = locator(refuge.seq, refuge.copyOf(seg, i))
		c.publish(c.hash(seg.bytes(e.key)), moved[i], locator(seg.seq, uint16(i)))
		saved++
	}
	for i := refuge.used - saved; i < refuge.used; i++ {
		e := &refuge.entries[i]
		if next := e.next.Load(); uint32(next>>16) == seg.seq {
			e.next.Store(moved[uint16(next)])
		}
	}
	return saved
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
		i := c.hash(r.Sent()) & mask
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
