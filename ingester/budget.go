package ingester

import (
	"sync/atomic"
)

// budget bounds the bytes of requests in memory. It never waits: a request that
// does not fit is refused, and its sender comes back.
type budget struct {
	limit int64
	used  atomic.Int64
}

// reserve takes n bytes, all or none.
func (b *budget) reserve(n int64) bool {
	for {
		used := b.used.Load()
		if n > b.limit-used {
			return false
		}
		if b.used.CompareAndSwap(used, used+n) {
			return true
		}
	}
}

func (b *budget) inUse() int64 { return b.used.Load() }

// Memory is what one request holds of the budget of bytes in memory.
type Memory struct {
	budget *budget
	held   int64
}

// Memory opens an account for one request.
func (in *Ingester) Memory() *Memory { return &Memory{budget: &in.budget} }

// Grow takes n more bytes and reports whether they were there.
func (m *Memory) Grow(n int64) bool {
	if n <= 0 {
		return true
	}
	if !m.budget.reserve(n) {
		return false
	}
	m.held += n
	return true
}

// Release gives everything back. It may be called more than once.
func (m *Memory) Release() {
	m.budget.used.Add(-m.held)
	m.held = 0
}
