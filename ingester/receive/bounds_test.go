package receive

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestItemsAreCounted(t *testing.T) {
	var r Records
	r.Reset(nil, "test", now, Bounds{Bytes: 1 << 20, Items: 1000, Grow: func(int64) bool { return true }})
	for range 1000 {
		require.NoError(t, r.Item())
	}
	err := r.Item()
	require.ErrorIs(t, err, ErrTooMany)
	require.ErrorContains(t, err, "1000")
	require.True(t, EndsRequest(err))
}

// TestAppendPaysFirst takes all that a list occupies from the budget, and nothing where
// the budget has no more.
func TestAppendPaysFirst(t *testing.T) {
	var taken int64
	var r Records
	r.Reset(nil, "test", now, Bounds{Bytes: 1 << 20, Grow: func(n int64) bool {
		if taken+n > 1<<20 {
			return false
		}
		taken += n
		return true
	}})
	var list [][4]int64
	var err error
	for err == nil {
		require.LessOrEqual(t, int64(cap(list))*32, taken)
		list, err = Append(&r, list, [4]int64{int64(len(list))})
	}
	require.ErrorIs(t, err, ErrNoMemory)
	require.LessOrEqual(t, cap(list)*32, 1<<20)
	require.Greater(t, len(list)*32, 1<<18)
	for i := range list {
		require.EqualValues(t, i, list[i][0])
	}
}

func TestNobodyWaitsAnyMore(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var r Records
	r.Reset(nil, "test", now, Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }, Context: ctx})
	for range 3 * stepsToLook {
		require.NoError(t, r.Item())
	}
	cancel()
	var err error
	for n := 0; err == nil; n++ {
		require.LessOrEqual(t, n, stepsToLook)
		err = r.Wanted()
	}
	require.ErrorIs(t, err, ErrGone)
}

// TestResourcesThatAreSaidAnew bounds the work for a resource that is written once.
func TestResourcesThatAreSaidAnew(t *testing.T) {
	long := strings.Repeat("x", 1000)
	var r Records
	add := func() error { r.Resource.String("a", long); r.Body("b"); return r.Add() }
	r.Reset(nil, "test", now, Bounds{Bytes: 100_000, Grow: func(int64) bool { return true }})
	n := 0
	for add() == nil {
		n++
	}
	require.InDelta(t, repeats*100, n, 20)

	r.Reset(nil, "test", now, Bounds{Bytes: 100_000, Grow: func(int64) bool { return true }})
	r.Resource.String("a", long)
	r.Hold()
	for range 500 {
		r.Body("b")
		require.NoError(t, r.Add(), "what is held is encoded once")
	}
	r.Release()
	require.NoError(t, r.Add())
	logs := decode(t, &r)
	require.Equal(t, 2, logs.ResourceLogs().Len())
	require.Equal(t, 500, logs.ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().Len())
	require.Equal(t, map[string]any{"a": long}, logs.ResourceLogs().At(0).Resource().Attributes().AsRaw())
	require.Zero(t, logs.ResourceLogs().At(1).Resource().Attributes().Len())
}

func TestLongNamesAreBounded(t *testing.T) {
	var r Records
	var j JSON
	r.Reset(nil, "test", now, Bounds{Bytes: 64 << 20, Grow: func(int64) bool { return true }})
	v, err := j.Check([]byte(`{"` + strings.Repeat("n", 100_000) + `":{` + strings.Repeat(`"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,`, 100) + `"z":1}}`))
	require.NoError(t, err)
	j.Attribute(&r.Attributes, "v", v)
	require.True(t, r.Attributes.TooMany())
	require.LessOrEqual(t, len(r.Attributes.encoded), 2*maxNameBytes)
}
