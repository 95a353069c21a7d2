package ratecontrol

import (
	"math"
	"sync"
	"sync/atomic"
)

// moved stands in used when the bucket has a successor. No count reaches it:
// see mintMax.
const moved = math.MaxUint64

// bucket holds one class's tokens. A take touches its first 64 bytes only, and
// two buckets share no cache line.
type bucket struct {
	// used is the whole state: units that have left since birth, or moved.
	used atomic.Uint64
	// seen is the latest clock reading, never before birth. Whoever raises
	// used with a reading has raised seen to it before.
	seen atomic.Int64
	// brim is a reading at which a take found the bucket full, nearly always
	// the latest such. Whoever stores it has raised used before.
	brim  atomic.Int64
	birth int64
	terms

	// next is the successor, set before used becomes moved.
	next atomic.Pointer[bucket]
	// moving lets one reload at a time choose the successor. Takes ignore it.
	moving sync.Mutex
	_      [48]byte
}

// newBucket is a full bucket.
func newBucket(m terms, now int64) *bucket {
	b := &bucket{terms: m}
	b.bear(now, 0)
	return b
}

// bear sets the first state, before any other goroutine sees the bucket.
func (b *bucket) bear(now int64, used uint64) {
	b.birth = now
	b.seen.Store(now)
	b.brim.Store(now)
	b.used.Store(used)
}

// see notes a clock reading and returns the latest one seen.
func (b *bucket) see(now int64) int64 {
	for {
		seen := b.seen.Load()
		if now <= seen {
			return seen
		}
		if b.seen.CompareAndSwap(seen, now) {
			return now
		}
	}
}

// minted is what the bucket has minted at a reading that is not before its
// birth. The difference is right even where it does not fit into an int64.
func (b *bucket) minted(at int64) mint {
	return b.terms.minted(min(uint64(at)-uint64(b.birth), horizon))
}

// take spends n tokens, all or none.
func (b *bucket) take(n uint64, now int64) bool {
	for {
		at := b.see(now)
		minted := b.minted(at)
		used := b.used.Load()
		if used == moved {
			b = b.next.Load()
			continue
		}
		after, fits := b.terms.take(used, n, minted)
		if !fits {
			if b.seen.Load() != at {
				// used may count a take at a later reading: then what was
				// minted until that reading has to count as well.
				continue
			}
			if after, fits = b.terms.take(used, n, b.sharpen(minted, at)); !fits {
				return false
			}
		}
		if !b.used.CompareAndSwap(used, after) {
			continue
		}
		if used <= minted.floor && minted.floor != minted.ceil {
			b.brim.Store(at)
		}
		return true
	}
}

// sharpen takes the rounding out of minted where it is known to be in used as
// well: the bucket was last full at the very reading at, so used is a whole
// number of tokens above minted.ceil. The caller has loaded used, and after it
// seen, which was at: no take has found the bucket full at a later reading.
func (b *bucket) sharpen(minted mint, at int64) mint {
	if b.brim.Load() == at {
		minted.floor = minted.ceil
	}
	return minted
}

// giveBack puts n tokens back, up to the brim.
func (b *bucket) giveBack(n uint64) {
	for {
		minted := b.minted(b.seen.Load())
		used := b.used.Load()
		if used == moved {
			b = b.next.Load()
			continue
		}
		if b.used.CompareAndSwap(used, b.terms.giveBack(used, n, minted)) {
			return
		}
	}
}

// tokens is the level at now. A reading that is only displayed is not noted.
func (b *bucket) tokens(now int64) float64 {
	for {
		used := b.used.Load()
		if used == moved {
			b = b.next.Load()
			continue
		}
		minted := b.minted(max(now, b.seen.Load()))
		return float64(max(0, b.level(used, minted))) / float64(b.scale)
	}
}

// move makes the bucket, or its newest successor, go on under other terms, and
// returns the bucket that does so: itself where nothing changes.
func (b *bucket) move(to terms, now int64) *bucket {
	b.moving.Lock()
	for b.used.Load() == moved {
		next := b.next.Load()
		b.moving.Unlock()
		b = next
		b.moving.Lock()
	}
	defer b.moving.Unlock()
	if b.terms == to {
		return b
	}
	next := &bucket{terms: to}
	b.next.Store(next)
	for {
		at := b.see(now)
		used := b.used.Load()
		if b.seen.Load() != at {
			continue // used may count a take later than at
		}
		level := b.level(used, b.sharpen(b.minted(at), at))
		next.bear(at, to.usedAtBirth(&b.terms, level))
		if b.used.CompareAndSwap(used, moved) {
			return next
		}
	}
}
