package ingester

import (
	"bytes"
	"hash/maphash"
	"math/rand/v2"
	"sync"
	"sync/atomic"
)

// A remote write 2.0 series names its labels by references into its request's
// table of symbols, so the same series has other bytes in another request. But
// senders repeat themselves: the next request with the same table holds the same
// series in the same order. A sequence remembers one such request, and then a
// known series costs a comparison of its references. Anything else has its
// labels spelt out and is looked up like a series of 1.0.

// sequence is one remembered request. It never changes.
type sequence struct {
	scope    uint32
	count    int    // symbols
	first    uint32 // length of the first symbol, whose header is not in the table
	table    []byte // the symbols as they came, with the headers between them
	refs     []byte // of all series, one behind the other
	ends     []uint32
	locators []uint64
}

// sequences remembers requests in a bounded number of bytes, oldest out first.
type sequences struct {
	limit int64

	mu     sync.Mutex
	seed   maphash.Seed
	byHash map[uint64]*sequence // nil: seen once, so worth remembering next time
	order  []uint64
	bytes  atomic.Int64
	full   bool // something was evicted
}

// seenOnce is how many tables are waited for to come again.
const seenOnce = 16_384

func newSequences(limit int64) *sequences {
	return &sequences{limit: limit, seed: maphash.MakeSeed(), byHash: map[uint64]*sequence{}}
}

// table returns the bytes that a request's symbols lie in.
func (b *Batch) table() []byte {
	if len(b.Symbols) == 0 {
		return nil
	}
	return b.Body[b.Symbols[0].Start:b.Symbols[len(b.Symbols)-1].End]
}

// firstSymbol is the length of the first symbol. With it and the table's bytes,
// where each symbol starts and ends is settled.
func (b *Batch) firstSymbol() uint32 { return b.Symbols[0].End - b.Symbols[0].Start }

// find returns the sequence that was remembered of a request with the same
// table, nil if there is none, and the table's hash for remember.
func (s *sequences) find(b *Batch, scope uint32) (*sequence, uint64) {
	table := b.table()
	if table == nil {
		return nil, 0
	}
	hash := maphash.Bytes(s.seed, table)
	s.mu.Lock()
	q := s.byHash[hash]
	s.mu.Unlock()
	if q == nil || q.scope != scope || q.count != len(b.Symbols) || q.first != b.firstSymbol() || !bytes.Equal(q.table, table) {
		return nil, hash
	}
	return q, hash
}

// route returns the locator of the i-th series of the request, if that series
// has these references.
func (q *sequence) route(i int, refs []byte) (locator uint64, ok bool) {
	if q == nil || i >= len(q.ends) {
		return noLocator, false
	}
	start := uint32(0)
	if i > 0 {
		start = q.ends[i-1]
	}
	if !bytes.Equal(q.refs[start:q.ends[i]], refs) {
		return noLocator, false
	}
	return q.locators[i], true
}

// remember keeps a request whose groups have been routed, from the second time
// on that its table is seen, and says whether it did. Where more requests come in
// rotation than fit, only some are taken in, as with routes.
func (s *sequences) remember(b *Batch, scope uint32, hash uint64) bool {
	s.mu.Lock()
	old, seen := s.byHash[hash]
	if !seen {
		s.insert(hash, nil)
	}
	declined := s.full && old == nil && rand.Uint32()%admitOneOf != 0
	s.mu.Unlock()
	if !seen || declined {
		return false
	}
	q := newSequence(b, scope)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.byHash[hash] != old || q.size() > s.limit/4 {
		return false
	}
	s.insert(hash, q)
	return true
}

// insert runs with s.mu held.
func (s *sequences) insert(hash uint64, q *sequence) {
	if old, ok := s.byHash[hash]; ok {
		s.bytes.Add(-old.size())
	} else {
		s.order = append(s.order, hash)
	}
	s.byHash[hash] = q
	s.bytes.Add(q.size())
	for s.bytes.Load() > s.limit || len(s.order) > seenOnce {
		oldest := s.order[0]
		s.order = s.order[1:]
		gone := s.byHash[oldest]
		s.full = s.full || gone != nil
		s.bytes.Add(-gone.size())
		delete(s.byHash, oldest)
	}
}

func newSequence(b *Batch, scope uint32) *sequence {
	q := &sequence{scope: scope, count: len(b.Symbols), first: b.firstSymbol(), table: bytes.Clone(b.table())}
	q.ends = make([]uint32, 0, len(b.Groups))
	q.locators = make([]uint64, 0, len(b.Groups))
	for i := range b.Groups {
		g := &b.Groups[i]
		q.refs = append(q.refs, b.Bytes(g.Key)...)
		q.ends = append(q.ends, uint32(len(q.refs)))
		q.locators = append(q.locators, g.Route.locator())
	}
	return q
}

// size is about what a sequence takes in memory.
func (q *sequence) size() int64 {
	if q == nil {
		return 64
	}
	return int64(len(q.table) + cap(q.refs) + 12*len(q.ends) + 128)
}
