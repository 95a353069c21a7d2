package sink

import (
	"context"
	"errors"
	"math/rand"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

var errDown = errors.New("is down")

func success() report { return report{verdict: tookIt} }
func failure() report { return report{verdict: failedIt, reason: errDown} }

// mustAcquire acquires without waiting.
func mustAcquire(t *testing.T, b *balancer, now time.Time, tried []bool) grant {
	t.Helper()
	g, err := b.acquire(t.Context(), now, time.Nanosecond, tried)
	require.NoError(t, err)
	return g
}

func TestBalancerPicksTheLeastInFlight(t *testing.T) {
	now := time.Unix(1000, 0)
	for seed := range int64(100) {
		r := rand.New(rand.NewSource(seed))
		n, limit := 1+r.Intn(5), 1+r.Intn(4)
		b := newBalancer(n, limit)
		inFlight := make([]int, n)
		var held []grant
		for range 400 {
			least, room := limit, 0
			for _, k := range inFlight {
				least = min(least, k)
				room += limit - k
			}
			if r.Intn(3) > 0 && room > 0 {
				g := mustAcquire(t, b, now, make([]bool, n))
				require.Zero(t, g.probe)
				require.Equal(t, least, inFlight[g.endpoint], "seed %d: %v, picked %d", seed, inFlight, g.endpoint)
				inFlight[g.endpoint]++
				held = append(held, g)
			} else if len(held) > 0 {
				i := r.Intn(len(held))
				b.release(held[i], now, success(), 0)
				inFlight[held[i].endpoint]--
				held = append(held[:i], held[i+1:]...)
			}
		}
	}
}

// One write at a time finds all endpoints equal: they take turns.
func TestBalancerEqualEndpointsTakeTurns(t *testing.T) {
	b := newBalancer(3, 8)
	now := time.Unix(1000, 0)
	counts := make([]int, 3)
	for range 300 {
		g := mustAcquire(t, b, now, make([]bool, 3))
		counts[g.endpoint]++
		b.release(g, now, success(), 0)
	}
	require.Equal(t, []int{100, 100, 100}, counts)
}

func TestBalancerLeavesOutAndProbesWithOneWrite(t *testing.T) {
	b := newBalancer(2, 32)
	now := time.Unix(1000, 0)
	first := mustAcquire(t, b, now, []bool{false, true})
	b.release(first, now, failure(), 1)
	for range 10 {
		g := mustAcquire(t, b, now, make([]bool, 2))
		require.Equal(t, 1, g.endpoint)
	}
	now = now.Add(FirstWait)
	probe := mustAcquire(t, b, now, make([]bool, 2))
	require.Equal(t, grant{endpoint: 0, probe: 1}, probe, "the endpoint that is due comes first")
	for range 5 {
		require.Equal(t, 1, mustAcquire(t, b, now, make([]bool, 2)).endpoint)
	}
	b.release(probe, now, success(), 0)
	require.Equal(t, grant{endpoint: 0}, mustAcquire(t, b, now, make([]bool, 2)), "healed, and the least loaded")
}

// However much an endpoint had in flight when it broke, the next write after its
// wait goes there.
func TestBalancerProbesBeforeItBalances(t *testing.T) {
	b := newBalancer(2, 8)
	now := time.Unix(1000, 0)
	var stuck []grant
	for range 4 {
		stuck = append(stuck, mustAcquire(t, b, now, []bool{false, true}))
	}
	b.release(stuck[0], now, failure(), 1)
	require.Equal(t, grant{endpoint: 0, probe: 1}, mustAcquire(t, b, now.Add(FirstWait), make([]bool, 2)))
}

// An endpoint whose wait is over belongs to the first in line, not to who comes by.
func TestBalancerLetsNobodyOvertakeTheLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalancer(2, 1)
		b.release(mustAcquire(t, b, time.Now(), []bool{false, true}), time.Now(), failure(), 1)
		held := mustAcquire(t, b, time.Now(), make([]bool, 2))
		require.Equal(t, 1, held.endpoint)
		order := make(chan string, 2)
		wait := func(name string) {
			go func() {
				g, err := b.acquire(t.Context(), time.Now(), time.Hour, make([]bool, 2))
				require.NoError(t, err)
				order <- name
				b.release(g, time.Now(), success(), 0)
			}()
			synctest.Wait()
		}
		wait("first")
		require.Empty(t, order)
		time.Sleep(FirstWait)
		wait("second")
		require.Equal(t, "first", <-order)
		require.Equal(t, "second", <-order)
		b.release(held, time.Now(), success(), 0)
	})
}

func TestBalancerDoesNotWaitWhereNothingIsReady(t *testing.T) {
	b := newBalancer(2, 1)
	now := time.Unix(1000, 0)
	for i := range 2 {
		tried := []bool{i == 1, i == 0}
		b.release(mustAcquire(t, b, now, tried), now, failure(), 1)
		require.Equal(t, []bool{true, true}, tried)
	}
	_, err := b.acquire(t.Context(), now, time.Hour, make([]bool, 2))
	require.ErrorIs(t, err, ErrNoEndpoint)
	require.Equal(t, State{Reason: errDown, Wait: FirstWait}, b.state(0, now))
	require.Equal(t, State{Reason: errDown, Wait: 0}, b.state(1, now.Add(time.Hour)))
}

// Writes that wait are served first come first, by whichever endpoint has room.
func TestBalancerServesTheLineInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalancer(2, 1)
		a := mustAcquire(t, b, time.Now(), make([]bool, 2))
		c := mustAcquire(t, b, time.Now(), make([]bool, 2))
		order := make(chan int, 3)
		grants := make(chan grant, 3)
		for i := range 3 {
			go func() {
				g, err := b.acquire(t.Context(), time.Now(), time.Hour, make([]bool, 2))
				require.NoError(t, err)
				order <- i
				grants <- g
			}()
			synctest.Wait()
		}
		require.Empty(t, order)
		b.release(c, time.Now(), success(), 0)
		require.Equal(t, 0, <-order)
		require.Equal(t, c.endpoint, (<-grants).endpoint)
		b.release(a, time.Now(), success(), 0)
		require.Equal(t, 1, <-order)
		b.release(<-grants, time.Now(), success(), 0)
		require.Equal(t, 2, <-order)
	})
}

// A write that waits for an endpoint which breaks is told at once.
func TestBalancerEndsTheWaitForABrokenEndpoint(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalancer(1, 1)
		g := mustAcquire(t, b, time.Now(), make([]bool, 1))
		done := make(chan error)
		go func() {
			_, err := b.acquire(t.Context(), time.Now(), time.Hour, make([]bool, 1))
			done <- err
		}()
		synctest.Wait()
		b.release(g, time.Now(), failure(), 0)
		require.ErrorIs(t, <-done, ErrNoEndpoint)
	})
}

func TestBalancerWaitsNoLongerThanAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBalancer(1, 1)
		held := mustAcquire(t, b, time.Now(), make([]bool, 1))
		began := time.Now()
		_, err := b.acquire(t.Context(), began, 3*time.Second, make([]bool, 1))
		require.ErrorIs(t, err, ErrFull)
		require.Equal(t, 3*time.Second, time.Since(began))

		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err = b.acquire(ctx, time.Now(), time.Hour, make([]bool, 1))
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = newBalancer(1, 1).acquire(ctx, time.Now(), time.Hour, make([]bool, 1))
		require.ErrorIs(t, err, context.DeadlineExceeded, "an ended request is given nothing")

		// Who left the line takes nothing from it.
		require.Empty(t, b.mu.line)
		b.release(held, time.Now(), success(), 0)
		require.Equal(t, 0, mustAcquire(t, b, time.Now(), make([]bool, 1)).endpoint)
	})
}

// Many writers, endpoints that come and go, senders that leave: never more than the
// limit at one endpoint, never two probes, and nothing stays behind.
func TestBalancerNeverExceedsTheLimit(t *testing.T) {
	for seed := range int64(20) {
		synctest.Test(t, func(t *testing.T) {
			const n, limit = 3, 4
			b := newBalancer(n, limit)
			var mu sync.Mutex
			inFlight, probes := make([]int, n), make([]int, n)
			count := func(g grant, d int) {
				mu.Lock()
				defer mu.Unlock()
				inFlight[g.endpoint] += d
				if g.probe != 0 {
					probes[g.endpoint] += d
				}
				require.LessOrEqual(t, inFlight[g.endpoint], limit)
				require.LessOrEqual(t, probes[g.endpoint], 1)
			}
			var wg sync.WaitGroup
			for w := range 40 {
				wg.Go(func() {
					r := rand.New(rand.NewSource(seed*1000 + int64(w)))
					for range 50 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.Intn(500)+1)*time.Millisecond)
						g, err := b.acquire(ctx, time.Now(), 300*time.Millisecond, make([]bool, n))
						cancel()
						if err != nil {
							time.Sleep(time.Duration(r.Intn(200)) * time.Millisecond)
							continue
						}
						count(g, 1)
						time.Sleep(time.Duration(r.Intn(30)) * time.Millisecond)
						count(g, -1)
						v := success()
						switch r.Intn(10) {
						case 0:
							v = failure()
						case 1:
							v = report{verdict: saysNothing}
						}
						b.release(g, time.Now(), v, r.Float64())
					}
				})
			}
			wg.Wait()
			require.Empty(t, b.mu.line)
			for i := range b.mu.endpoints {
				require.Zero(t, b.mu.endpoints[i].inFlight)
			}
		})
	}
}
