package ingester

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// routeKey is a key of a realistic size, different for every i.
func routeKey(i int) []byte {
	return fmt.Appendf(nil, "series-%08d-%0200d", i, i*7)
}

// verdictOf is what the tests remember for key i, so that a wrong route shows.
func verdictOf(i int) verdict { return verdict{outcome: Admitted, class: int32(i % 1000)} }

// labelsOf is what the rules make of key i: nothing of it is left, one of its ends
// is, or a piece is put in.
func labelsOf(i int) string {
	key := string(routeKey(i))
	switch i % 8 {
	case 0:
		return fmt.Sprintf("labels-%d", i)
	case 2:
		return key[:9]
	case 4:
		return key[20:]
	}
	return key[:12] + key[10:15] + "put in" + key[15:]
}

func insertRoute(c *routes, i int) Route {
	key := routeKey(i)
	for {
		r := c.insert(c.hash(key), 0, key, verdictOf(i), i%2 == 0, []byte(labelsOf(i)))
		if r.locator() != noLocator { // a full cache does not take in everything
			return r
		}
	}
}

func findRoute(c *routes, i int) (Route, bool) {
	key := routeKey(i)
	return c.find(c.hash(key), 0, key)
}

func requireRoute(t *testing.T, r Route, i int) {
	t.Helper()
	require.Equal(t, verdictOf(i), r.entry().verdict)
	require.Equal(t, i%2 == 0, r.Changed())
	labels := string(routeKey(i))
	if i%2 == 0 {
		labels = labelsOf(i)
	}
	require.Equal(t, labels, string(r.Labels()))
	require.Equal(t, len(labels), r.LabelBytes())
	require.Equal(t, "x"+labels, string(r.AppendLabels([]byte("x"))))
}

// TestRoutesFindWhatTheyRemember inserts and looks up at random, with a map as
// oracle: a route that is found is the right one, and while nothing was evicted
// every one is found.
func TestRoutesFindWhatTheyRemember(t *testing.T) {
	for _, limit := range []int64{1, 1 << 20, 64 << 20} {
		var evicted atomic.Int64
		c := newRoutes(limit, &evicted)
		known := map[int]bool{}
		rng := rand.New(rand.NewPCG(1, uint64(limit)))
		for range 20_000 {
			i := rng.IntN(8_000)
			if r, ok := findRoute(c, i); ok {
				require.True(t, known[i])
				requireRoute(t, r, i)
				continue
			}
			if known[i] {
				require.Positive(t, evicted.Load(), "route %d is gone although nothing was evicted", i)
			}
			requireRoute(t, insertRoute(c, i), i)
			known[i] = true
			if c.bytes.Load() > max(c.limit, 1<<20)+1<<20 {
				t.Fatalf("%d bytes are in use, the limit is %d", c.bytes.Load(), c.limit)
			}
		}
		if limit == 64<<20 {
			require.Zero(t, evicted.Load())
			require.EqualValues(t, len(known), c.count.Load())
		}
	}
}

// TestRoutesBound floods the cache far past its bound.
func TestRoutesBound(t *testing.T) {
	var evicted atomic.Int64
	c := newRoutes(4<<20, &evicted)
	for i := range 60_000 {
		insertRoute(c, i)
		// A segment is made before the oldest one leaves.
		if c.bytes.Load() > c.limit+1<<20 {
			t.Fatalf("%d bytes are in use, the limit is %d", c.bytes.Load(), c.limit)
		}
	}
	require.EqualValues(t, 60_000, evicted.Load()+c.count.Load())
	require.Greater(t, c.count.Load(), int64(9_000), "the bound must be used")
}

// TestRoutesSurviveCollisions gives different keys the same hash.
func TestRoutesSurviveCollisions(t *testing.T) {
	c := newRoutes(1<<20, new(atomic.Int64))
	c.hash = func([]byte) uint64 { return 42 }
	for i := range 100 {
		c.insert(42, 0, routeKey(i), verdictOf(i), i%2 == 0, []byte(labelsOf(i)))
	}
	for i := range 100 {
		r, ok := c.find(42, 0, routeKey(i))
		require.True(t, ok)
		requireRoute(t, r, i)
	}
	_, ok := c.find(42, 0, routeKey(100))
	require.False(t, ok)
}

// TestRoutesScope keeps the same labels of two API keys apart.
func TestRoutesScope(t *testing.T) {
	c := newRoutes(1<<20, new(atomic.Int64))
	key := routeKey(1)
	c.insert(c.hash(key), 1, key, verdictOf(1), false, nil)
	_, ok := c.find(c.hash(key), 2, key)
	require.False(t, ok)
	first := insertRoute(c, 7)
	r := c.insert(c.hash(key), 2, key, verdictOf(2), false, nil)
	c.follow(first, r)
	_, ok = c.after(first, 1, key)
	require.False(t, ok, "the order of series must not lead to another key's route")
	for scope, want := range map[uint32]int{1: 0, 2: len(key)} {
		q := Guess{routes: c, scope: scope, next: r.locator()}
		require.Equal(t, want, q.Match(new(Group), key), "scope %d", scope)
	}
}

// TestRoutesKeepWhatIsUsed floods the cache while a few series go on being sent:
// these stay, and a sink's reference stays with them.
func TestRoutesKeepWhatIsUsed(t *testing.T) {
	c := newRoutes(4<<20, new(atomic.Int64))
	const hot = 200
	for i := range hot {
		insertRoute(c, i).SetRef(uint64(i) + 1)
	}
	lost := 0
	for i := hot; i < 60_000; i++ {
		insertRoute(c, i)
		if i%1000 != 0 {
			continue
		}
		for h := range hot {
			r, ok := findRoute(c, h)
			if !ok {
				lost++
				continue
			}
			r.entry().touch()
			requireRoute(t, r, h)
			require.EqualValues(t, h+1, r.Ref())
		}
	}
	require.Zero(t, lost)
}

// TestRoutesOfMoreSeriesThanFit sends twice as many series as fit, in the same
// order again and again. A cache that always takes in the newest would never find
// one.
func TestRoutesOfMoreSeriesThanFit(t *testing.T) {
	var evicted atomic.Int64
	c := newRoutes(2<<20, &evicted)
	n := 0
	for ; evicted.Load() == 0; n++ {
		insertRoute(c, n)
	}
	n *= 2
	const rounds = 16
	hits, guessed := 0, 0
	for round := range rounds {
		var last Route
		for i := range n {
			r, ok := c.after(last, 0, routeKey(i))
			if ok && round == rounds-1 {
				guessed++
			}
			if !ok {
				if r, ok = findRoute(c, i); !ok {
					key := routeKey(i)
					r = c.insert(c.hash(key), 0, key, verdictOf(i), i%2 == 0, []byte(labelsOf(i)))
				}
				c.follow(last, r)
			}
			if ok && round == rounds-1 {
				hits++
			}
			if round == rounds-1 {
				requireRoute(t, r, i)
			}
			r.entry().touch()
			last = r
		}
	}
	t.Logf("%d of %d were found, %d of them without their hash", hits, n, guessed)
	require.Greater(t, hits, n/5)
	require.Positive(t, guessed)
	require.Less(t, c.bytes.Load(), c.limit+1<<20)
}

// TestRoutesFollow remembers the order of series.
func TestRoutesFollow(t *testing.T) {
	c := newRoutes(1<<20, new(atomic.Int64))
	a, b := insertRoute(c, 1), insertRoute(c, 2)
	_, ok := c.after(a, 0, routeKey(2))
	require.False(t, ok)
	c.follow(a, b)
	r, ok := c.after(a, 0, routeKey(2))
	require.True(t, ok)
	require.Equal(t, b, r)
	_, ok = c.after(a, 0, routeKey(3))
	require.False(t, ok, "the guess must be compared")
	_, ok = c.after(Route{}, 0, routeKey(2))
	require.False(t, ok)
}

// TestRoutesLargeKey does not remember a label set that would fill the cache.
func TestRoutesLargeKey(t *testing.T) {
	c := newRoutes(1<<20, new(atomic.Int64))
	key := make([]byte, segmentData)
	r := c.insert(c.hash(key), 0, key, verdictOf(4), true, []byte("labels-4"))
	require.Equal(t, verdictOf(4), r.entry().verdict)
	require.Equal(t, "labels-4", string(r.Labels()))
	c.follow(r, r)
	_, ok := c.find(c.hash(key), 0, key)
	require.False(t, ok)
}

// TestRoutesLargeKeysAmongUsedOnes: what survives of a segment leaves room for the
// label set that a new one was opened for, however large.
func TestRoutesLargeKeysAmongUsedOnes(t *testing.T) {
	c := newRoutes(4<<20, new(atomic.Int64))
	insert := func(i, size int) {
		key := append(routeKey(i), make([]byte, size)...)
		for {
			if r := c.insert(c.hash(key), 0, key, verdictOf(i), false, nil); r.locator() != noLocator {
				r.entry().touch()
				require.Equal(t, string(key), string(r.Sent()))
				return
			}
		}
	}
	for i := range 30_000 {
		every := 7 // one of so many is as large as may be
		if i > 10_000 {
			every = 1500
		}
		insert(i, i%every/(every-1)*(segmentData/largestShare-300))
		if c.size() > c.limit+1<<20 {
			t.Fatalf("%d bytes are in use, the limit is %d", c.size(), c.limit)
		}
	}
}

// TestRescueLeavesRoom moves a full segment of which every entry was used.
func TestRescueLeavesRoom(t *testing.T) {
	c := newRoutes(4<<20, new(atomic.Int64))
	full := &segment{seq: 1, entries: make([]entry, segmentEntries), data: make([]byte, segmentData)}
	for i := range segmentEntries {
		full.add(0, routeKey(i), verdictOf(i), false, nil)
		full.entries[i].touch()
	}
	for _, size := range []int{0, 10_000, segmentData / largestShare} {
		refuge := &segment{seq: 2, entries: make([]entry, segmentEntries), data: make([]byte, full.filled)}
		require.Positive(t, c.rescue(full, refuge, size))
		require.True(t, refuge.fits(max(size, full.filled/8)), "%d bytes", size)
	}
}

// TestRoutesConcurrently uses one small cache from several goroutines; the race
// detector and the verdicts are the judges.
func TestRoutesConcurrently(t *testing.T) {
	c := newRoutes(1, new(atomic.Int64))
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 2))
			var last Route
			for range 8_000 {
				i := rng.IntN(4_000)
				r, ok := c.after(last, 0, routeKey(i))
				if !ok {
					if r, ok = findRoute(c, i); !ok {
						r = insertRoute(c, i)
					}
				}
				r.entry().touch()
				c.follow(last, r)
				last = r
				if r.entry().verdict != verdictOf(i) {
					t.Errorf("key %d got the route of class %d", i, r.entry().verdict.class)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestEntryBytes(t *testing.T) {
	require.EqualValues(t, entryBytes, unsafe.Sizeof(entry{}))
}
