package governor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tagged is one slot and what the flows did before: each of before was served
// once for so many seconds, one after another.
type tagged struct {
	*dispatcher
	now  time.Duration
	held lease
}

func newTagged(before ...any) *tagged {
	d := &tagged{dispatcher: newDispatcher(wholePlan(1), generous())}
	for i := 0; i < len(before); i += 2 {
		d.take(before[i].(string))
		d.release(before[i+1].(int))
	}
	return d
}

func (d *tagged) take(key string) { d.admit(d.now, key, &d.held, -1, 0) }

func (d *tagged) release(seconds int) {
	d.now = d.held.start + time.Duration(seconds)*time.Second
	d.giveBack(d.now, &d.held, completed)
}

// race lets the flows wait in this order and returns who gets the slot first.
func (d *tagged) race(seconds int, keys ...string) string {
	var waiters []*waiter
	for _, key := range keys {
		w, _, _ := d.admit(d.now, key, &lease{}, -1, 0)
		waiters = append(waiters, w)
		d.now += time.Millisecond
	}
	d.release(seconds)
	for i, w := range waiters {
		if w.state == stateGranted {
			return keys[i]
		}
	}
	return ""
}

func TestG6Tags(t *testing.T) {
	t.Run("a batch is charged the time that it took", func(t *testing.T) {
		d := newTagged("a", 1, "a", 1)
		start := d.virtual
		d.take("a")
		require.InDelta(t, start+1, d.flows["a"].tag, 1e-9, "what its batches usually take, at first")
		d.release(7)
		require.InDelta(t, start+7, d.flows["a"].tag, 1e-9)
	})
	t.Run("a flow that comes back does not overtake those who wait", func(t *testing.T) {
		d := newTagged("a", 1, "x", 1, "x", 1, "x", 1)
		d.take("x")
		require.Equal(t, "new", d.race(1, "new", "a"))
	})
	t.Run("a flow that takes a free slot is charged from now on", func(t *testing.T) {
		d := newTagged("a", 1, "b", 1, "x", 1, "x", 1, "x", 1)
		d.take("a")
		require.Equal(t, "b", d.race(1, "a", "b"), "a has just had its turn")
	})
	t.Run("what nobody waited for is forgiven", func(t *testing.T) {
		d := newTagged("y", 1, "x", 1, "x", 10)
		d.take("z")
		require.Equal(t, "x", d.race(1, "x", "y"))
	})
	t.Run("a flow that waited while it was charged too much has that back", func(t *testing.T) {
		d := newTagged("a", 4, "b", 4)
		d.take("a") // charged 4 s, takes 1 s
		require.Equal(t, "b", d.race(1, "a", "b"))
		require.InDelta(t, d.virtual+1, d.flows["a"].tag, 1e-9)
	})
}
