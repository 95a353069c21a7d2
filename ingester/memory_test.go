package ingester

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every size has the smallest class that holds it, and a class's own size leads
// back to it, or a buffer that came back would be handed out as larger than it is.
func TestBufferClasses(t *testing.T) {
	for class := range bufferClasses {
		require.Equal(t, class, bufferClass(bufferSize(class)), "class %d", class)
		require.Equal(t, class+1, bufferClass(bufferSize(class)+1), "class %d", class)
		require.LessOrEqual(t, bufferSize(class+1)*4, bufferSize(class)*5, "class %d wastes more than a quarter", class+1)
	}
	require.Zero(t, bufferClass(0))
	require.Equal(t, 4096, bufferSize(0))
	require.GreaterOrEqual(t, bufferSize(bufferClasses-1), 1<<31)
}

// Whatever requests do, the budget is the sum of what they hold, never above its
// limit, and no two of them hold the same buffer.
func TestMemoryIsAccountedFor(t *testing.T) {
	const limit = 1 << 20
	rng := rand.New(rand.NewPCG(1, 2))
	in := &Ingester{budget: budget{limit: limit}}
	type request struct {
		memory *Memory
		buffer []byte
		holds  int64
	}
	open := map[int]*request{}
	for i := range 20000 {
		place := rng.IntN(30)
		r := open[place]
		switch {
		case r == nil:
			m := in.Memory()
			buffer, ok := m.Buffer(1 + rng.IntN(60_000))
			if !ok {
				m.Release()
				break
			}
			require.Empty(t, buffer)
			open[place] = &request{memory: m, buffer: append(buffer, byte(i), byte(i>>8)), holds: int64(cap(buffer))}
		case rng.IntN(3) == 0:
			if n := int64(rng.IntN(20_000)); r.memory.Grow(n) {
				r.holds += n
			}
		case rng.IntN(2) == 0:
			before := int64(cap(r.buffer))
			if larger, ok := r.memory.Larger(r.buffer, len(r.buffer)+rng.IntN(80_000)); ok {
				require.Equal(t, r.buffer, larger, "the content moves along")
				r.holds += int64(cap(larger)) - before
				r.buffer = larger
			}
		default:
			r.memory.Release()
			r.memory.Release()
			delete(open, place)
		}
		var sum int64
		first := map[*byte]bool{}
		for _, r := range open {
			sum += r.holds
			require.False(t, first[&r.buffer[0]], "two requests hold the same buffer")
			first[&r.buffer[0]] = true
		}
		require.Equal(t, sum, in.budget.inUse(), "step %d", i)
		require.LessOrEqual(t, sum, int64(limit))
	}
}

// What the whole budget could not hold is told from what it cannot hold now.
func TestMemoryThatNeverFits(t *testing.T) {
	in := &Ingester{budget: budget{limit: 1000}}
	other, m := in.Memory(), in.Memory()
	require.True(t, other.Grow(600))
	require.True(t, m.Grow(300))
	require.False(t, m.Grow(700))
	require.False(t, m.Never(), "alone it would have fitted")
	require.False(t, m.Grow(701))
	require.True(t, m.Never(), "it holds 300 itself")
	require.False(t, other.Never())
}

// A buffer that came back is handed to the next request of its size.
func TestMemoryIsReused(t *testing.T) {
	in := &Ingester{budget: budget{limit: 1 << 30}}
	allocs := testing.AllocsPerRun(100, func() {
		m := in.Memory()
		defer m.Release()
		if b, ok := m.Buffer(1 << 20); !ok || cap(b) < 1<<20 {
			t.Fail()
		}
	})
	require.LessOrEqual(t, allocs, 2.0, "the account and at most a part of a lost buffer")
}
