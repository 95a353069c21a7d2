package ingester

import (
	"math/bits"
	"sync"
	"sync/atomic"
)

// budget bounds the bytes of requests in memory. It never waits: a request that
// does not fit is refused, and its sender comes back.
type budget struct {
	limit int64
	used  atomic.Int64
	// idle are buffers that no request holds, by size class. They are not
	// counted: the garbage collector takes them when memory is short.
	idle [bufferClasses]sync.Pool
}

// Buffers come in classes, four to each power of two from 4 KiB on: a buffer fits
// the next request as well, at most a fifth of it lies idle, and a few large
// requests do not leave each small one with a large buffer.
const (
	leastBits     = 12
	bufferClasses = 4 * (32 - leastBits) // up to 4 GiB, more than a request may have
)

// bufferSize is the room of a class's buffers.
func bufferSize(class int) int { return (4 + class%4) << (class/4 + leastBits - 2) }

// bufferClass is the first class whose buffers have room for n bytes.
func bufferClass(n int) int {
	if n <= 1<<leastBits {
		return 0
	}
	// Of n-1 the highest bit names the power of two, the two below it the quarter.
	shift := bits.Len(uint(n-1)) - 3
	return 4*(shift+2-leastBits) + (n-1)>>shift - 4 + 1
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
	budget  *budget
	held    int64
	buffers []*[]byte
	room    [2]*[]byte // for buffers: most requests need no more
	never   bool
}

// Memory opens an account for one request.
func (in *Ingester) Memory() *Memory { return &Memory{budget: &in.budget} }

// Grow takes n more bytes and reports whether they were there. If they were not,
// Never says whether they can ever be.
func (m *Memory) Grow(n int64) bool {
	if n <= 0 {
		return true
	}
	if !m.budget.reserve(n) {
		m.never = m.never || n > m.budget.limit-m.held
		return false
	}
	m.held += n
	return true
}

// Never reports whether bytes were refused that the whole budget does not have beside
// what the request holds itself: to send it again cannot help, however idle the
// ingester is then.
func (m *Memory) Never() bool { return m.never }

// Limit is the whole budget, in bytes.
func (m *Memory) Limit() int64 { return m.budget.limit }

// Buffer returns an empty buffer with room for at least n bytes, all of which is
// taken from the budget; ok is false if that was not there. The buffer belongs to
// the request until Release, which hands it to another one.
func (m *Memory) Buffer(n int) (buffer []byte, ok bool) {
	class := bufferClass(n)
	if !m.Grow(int64(bufferSize(class))) {
		return nil, false
	}
	b, _ := m.budget.idle[class].Get().(*[]byte)
	if b == nil {
		fresh := make([]byte, 0, bufferSize(class))
		b = &fresh
	}
	if m.buffers == nil {
		m.buffers = m.room[:0]
	}
	m.buffers = append(m.buffers, b)
	return *b, true
}

// Larger moves the content of the newest buffer to one with room for at least n
// bytes; the old one must not be used any more.
func (m *Memory) Larger(content []byte, n int) (buffer []byte, ok bool) {
	if buffer, ok = m.Buffer(n); !ok {
		return nil, false
	}
	buffer = append(buffer, content...)
	last := len(m.buffers) - 1
	old := m.buffers[last-1]
	m.buffers[last-1] = m.buffers[last]
	m.buffers = m.buffers[:last]
	m.drop(old)
	m.budget.used.Add(-int64(cap(*old)))
	m.held -= int64(cap(*old))
	return buffer, true
}

// drop hands a buffer to whoever needs one of its size next.
func (m *Memory) drop(b *[]byte) { m.budget.idle[bufferClass(cap(*b))].Put(b) }

// Release gives everything back, buffers included. It may be called more than once.
func (m *Memory) Release() {
	for i, b := range m.buffers {
		m.drop(b)
		m.buffers[i] = nil
	}
	m.buffers = nil
	m.budget.used.Add(-m.held)
	m.held = 0
}
