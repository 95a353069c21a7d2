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

// Where every waiting flow has what it is owed, a slot is lent to the lowest tag,
// whoever was the first to wait.
func TestG6LentToTheLowestTag(t *testing.T) {
	d := newDispatcher(wholePlan(3), generous())
	var first, second, other lease
	d.admit(0, "a", &first, -1, 0)
	d.admit(0, "a", &second, -1, 0)
	d.admit(0, "b", &other, -1, 0)
	b, _, _ := d.admit(time.Millisecond, "b", &lease{}, -1, 0)
	a, _, _ := d.admit(2*time.Millisecond, "a", &lease{}, -1, 0)
	d.giveBack(time.Second, &first, completed)
	require.Equal(t, 1, d.guaranteed())
	require.Equal(t, stateGranted, b.state)
	require.Equal(t, stateWaiting, a.state)
}

// With more flows than slots every one of them is owed one.
func TestG6EveryFlowIsOwedASlot(t *testing.T) {
	d := newDispatcher(wholePlan(2), generous())
	for _, key := range []string{"a", "b", "c", "d", "e"} {
		d.admit(0, key, &lease{}, -1, 0)
	}
	require.Equal(t, 1, d.guaranteed())
}

// What a failed batch took says something of healthy work only if it was long, and
// a slot that came back unused says nothing at all.
func TestG5WhatSaysHowLongWorkTakes(t *testing.T) {
	for _, c := range []struct {
		how                 outcome
		took                time.Duration
		served, completions int
	}{
		{completed, 10 * time.Millisecond, 1, 1},
		{completed, 10 * time.Second, 1, 1},
		{failed, 10 * time.Millisecond, 0, 1},
		{failed, 10 * time.Second, 1, 1},
		{unused, 10 * time.Second, 0, 0},
	} {
		d := newTagged("a", 1, "a", 1) // a batch takes a second
		before := d.totals
		d.take("a")
		d.giveBack(d.now+c.took, &d.held, c.how)
		require.Equal(t, c.served, d.totals.served-before.served, "%+v", c)
		require.Equal(t, c.completions, d.totals.completions-before.completions, "%+v", c)
	}
}
