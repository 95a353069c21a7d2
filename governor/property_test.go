package governor

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// check asserts the dispatcher's invariants.
func (d *dispatcher) check(t *testing.T, held int) {
	t.Helper()
	inFlight, waiting, active, queuedInFlight := 0, 0, 0, 0
	for _, f := range d.flows {
		inFlight += f.inFlight
		waiting += f.waiting
		if !f.idle() {
			active++
		}
		n := 0
		for w := f.first; w != nil; w = w.next {
			n++
			require.Equal(t, stateWaiting, w.state)
			require.LessOrEqual(t, w.arrived, d.at)
			require.True(t, w.next == nil || w.next.prev == w && w.next.arrived >= w.arrived)
		}
		require.Equal(t, f.waiting, n)
		require.Equal(t, n > 0, f.position >= 0, "queued lists the flows with work that waits")
		if n > 0 {
			require.Same(t, f, d.queued[f.position])
			queuedInFlight += f.inFlight
			require.GreaterOrEqual(t, f.waiting, 1)
			require.LessOrEqual(t, f.waiting, d.bounds.MaxWaitingPerFlow)
		}
	}
	require.Equal(t, held, d.inFlight, "a slot was lost or minted")
	require.Equal(t, inFlight, d.inFlight)
	require.Equal(t, waiting, d.waiting)
	require.Equal(t, active, d.active)
	require.Equal(t, queuedInFlight, d.queuedInFlight)
	require.LessOrEqual(t, d.waiting, d.bounds.MaxWaiting)
	if d.waiting > 0 {
		// No batch waits while a slot idles: every slot is in use, or the pace
		// holds back some of the last quarter, for no longer than one spacing.
		require.False(t, d.free(), "%d wait, %d of %v in flight", d.waiting, d.inFlight, d.plan)
		if d.inFlight < d.peak {
			require.GreaterOrEqual(t, d.inFlight, d.open())
			at, ok := d.wake()
			require.True(t, ok, "nobody would wake")
			require.Greater(t, at, d.at)
			require.LessOrEqual(t, at, d.at+d.maxSpacing())
		}
	}
}

// maxSpacing bounds how long the pace may hold a slot back in these tests,
// whose batches take 100 ms at most.
func (d *dispatcher) maxSpacing() time.Duration { return 101 * time.Millisecond }

func randomPlan(rng *rand.Rand) plan {
	if rng.IntN(2) == 0 {
		return wholePlan(1 + rng.Float64()*12)
	}
	return pacedPlan(1 + rng.Float64()*12)
}

// Random arrivals, returns, departures, capacities and times.
func TestG6DispatcherProperties(t *testing.T) {
	for seed := range uint64(10) {
		rng := rand.New(rand.NewPCG(seed, 3))
		bounds := Defaults().Wait
		bounds.MaxWaiting, bounds.MaxWaitingPerFlow = 1+rng.IntN(40), 1
		bounds.MaxWaitingPerFlow += rng.IntN(bounds.MaxWaiting)
		bounds.FlowMemory, bounds.MaxFlows = time.Second, 4
		d := newDispatcher(randomPlan(rng), bounds)
		var held []*lease
		waiting := map[*waiter]*lease{}
		now := time.Duration(0)
		virtual, before := 0.0, totals{}
		for range 3000 {
			now += time.Duration(rng.Int64N(int64(20 * time.Millisecond)))
			switch op := rng.IntN(10); {
			case op < 5:
				l := &lease{}
				w, limit, shed := d.admit(now, fmt.Sprint("flow-", rng.IntN(6)), l, -1, rng.Float64())
				switch {
				case shed != nil:
					require.Positive(t, shed.RetryAfter)
					require.Contains(t, reasons(), shed.Reason)
				case w != nil:
					require.Positive(t, limit)
					waiting[w] = l
				default:
					held = append(held, l)
				}
			case op < 8 && len(held) > 0:
				i := rng.IntN(len(held))
				l := held[i]
				held = append(held[:i], held[i+1:]...)
				if now-l.start > 100*time.Millisecond {
					l.start = now - 100*time.Millisecond // keeps maxSpacing true
				}
				d.giveBack(now, l, outcome(rng.IntN(3)))
			case op == 8:
				for w := range waiting {
					if d.leave(now, w) {
						delete(waiting, w)
					}
					break
				}
			default:
				d.setPlan(now, randomPlan(rng))
				d.forget(now)
			}
			for w, l := range waiting {
				switch w.state {
				case stateGranted:
					held = append(held, l)
					delete(waiting, w)
				case stateDisplaced:
					require.NotNil(t, w.shed)
					delete(waiting, w)
				}
			}
			d.check(t, len(held))
			require.Equal(t, d.waiting, len(waiting))
			require.GreaterOrEqual(t, d.virtual, virtual)
			require.GreaterOrEqual(t, d.totals.slotTime, before.slotTime)
			virtual, before = d.virtual, d.totals
		}
		d.setPlan(now, wholePlan(1000))
		for w, l := range waiting {
			require.Equal(t, stateGranted, w.state)
			held = append(held, l)
		}
		for _, l := range held {
			d.giveBack(now, l, completed)
		}
		d.check(t, 0)
		require.Zero(t, d.active)
	}
}

// A capacity cut below what is in flight grants nothing until enough is back,
// and takes nothing away.
func TestG2CutBelowInFlight(t *testing.T) {
	d := newDispatcher(wholePlan(8), generous())
	leases := make([]lease, 12)
	for i := range leases {
		d.admit(0, "a", &leases[i], -1, 0)
	}
	require.Equal(t, 8, d.inFlight)
	d.setPlan(time.Millisecond, wholePlan(2))
	for i := range 6 {
		d.giveBack(2*time.Millisecond, &leases[i], completed)
		require.Equal(t, 7-i, d.inFlight)
	}
	d.giveBack(2*time.Millisecond, &leases[6], completed)
	require.Equal(t, 2, d.inFlight, "one went, one came")
}

// G4: over time, the mean in flight is the real number that the plan says.
func TestG4FractionIsHonouredOverTime(t *testing.T) {
	for _, capacity := range []float64{1, 1.3, 1.5, 2.7, 4, 9.4, 9.97, 33.3} {
		rng := newRand(t, 5)
		d := newDispatcher(pacedPlan(capacity), generous())
		type running struct {
			l   *lease
			end time.Duration
		}
		var all []running
		pending := map[*waiter]*lease{}
		takes := func() time.Duration { return time.Duration((0.3 + 0.2*rng.Float64()) * float64(time.Second)) }
		peak := 0
		const until = 120 * time.Second
		for now := time.Duration(0); now < until; now += time.Millisecond {
			d.tick(now)
			for i := 0; i < len(all); i++ {
				if all[i].end <= now {
					d.giveBack(now, all[i].l, completed)
					all[i] = all[len(all)-1]
					all = all[:len(all)-1]
					i--
				}
			}
			for len(pending) < 5 {
				l := &lease{}
				if w, _, _ := d.admit(now, "a", l, -1, 0); w != nil {
					pending[w] = l
				} else {
					all = append(all, running{l, now + takes()})
				}
			}
			for w, l := range pending {
				if w.state == stateGranted {
					all = append(all, running{l, now + takes()})
					delete(pending, w)
				}
			}
			peak = max(peak, d.inFlight)
			require.LessOrEqual(t, d.inFlight, d.peak)
		}
		mean := d.totals.slotTime / until.Seconds()
		t.Logf("capacity %.2f: mean %.3f, peak %d", capacity, mean, peak)
		require.LessOrEqual(t, mean, capacity*1.03)
		require.GreaterOrEqual(t, mean, capacity*0.93)
	}
}

// Starts that come late, because timers do, are made up for: batches so short
// that several of them fit into a timer's delay lose no throughput.
func TestG4LateStartsAreMadeUpFor(t *testing.T) {
	const slot, tick = time.Millisecond, 2 * time.Millisecond
	d := newDispatcher(pacedPlan(9.4), generous())
	ends := map[*lease]time.Duration{}
	pending := map[*waiter]*lease{}
	started := 0
	for now := time.Duration(0); now < 4*time.Second; now += tick {
		d.tick(now) // all that came due since the last tick comes late
		for l, end := range ends {
			if end <= now {
				delete(ends, l)
				d.giveBack(now, l, completed)
			}
		}
		for len(pending) < 20 {
			l := &lease{}
			if w, _, _ := d.admit(now, "a", l, -1, 0); w != nil {
				pending[w] = l
			} else {
				ends[l], started = now+slot, started+1
			}
		}
		for w, l := range pending {
			if w.state == stateGranted {
				delete(pending, w)
				ends[l], started = now+slot, started+1
			}
		}
	}
	// Every slot comes back at the next tick, so a slot's time is a tick.
	require.InEpsilon(t, 9.4*4*float64(time.Second)/float64(tick), float64(started), 0.05)
}

// testGovernor is a governor on a machine without cgroups whose capacity the
// test moves.
func testGovernor(t *testing.T, cfg Config) *Governor {
	t.Helper()
	g, err := New(cfg, nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	g.cgroups = newCgroups(fstest.MapFS{})
	return g
}

func (g *Governor) setPlan(p plan) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dispatcher.setPlan(g.now(), p)
	g.armLocked()
}

// Batches arrive, wait, are cancelled, panic, and the capacity moves; in the end
// every slot is back and nobody waits. Time is the bubble's.
func TestG6NothingIsLostOrMinted(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { churn(t, seed) })
		})
	}
}

func churn(t *testing.T, seed uint64) {
	cfg := Defaults()
	cfg.Wait.MaxWaiting, cfg.Wait.MaxWaitingPerFlow = 30, 12
	g := testGovernor(t, cfg)
	var mu sync.Mutex
	held, ended := 0, map[string]int{}
	// hold counts under the governor's lock, so that the check sees both at once.
	batch := func(rng *rand.Rand, flow string) (result string) {
		defer func() {
			if recover() != nil {
				result = "panic"
			}
		}()
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		switch rng.IntN(4) {
		case 0:
			stop := time.AfterFunc(time.Duration(rng.Int64N(int64(200*time.Millisecond))), cancel)
			defer stop.Stop()
		case 1:
			var done context.CancelFunc
			ctx, done = context.WithTimeout(ctx, time.Duration(rng.Int64N(int64(2*time.Second))))
			defer done()
		}
		slot, err := g.Acquire(ctx, flow)
		var shed *Shed
		switch {
		case errors.As(err, &shed):
			time.Sleep(min(shed.RetryAfter, 50*time.Millisecond))
			return shed.Reason
		case err != nil:
			require.ErrorIs(t, err, ctx.Err())
			return "left"
		}
		mu.Lock()
		held++
		mu.Unlock()
		defer slot.Release()
		defer func() { mu.Lock(); held--; mu.Unlock() }()
		time.Sleep(time.Duration(rng.Int64N(int64(60 * time.Millisecond))))
		switch rng.IntN(8) {
		case 0:
			panic("batch")
		case 1:
			slot.Failed()
		case 2:
			slot.Release()
			return "released twice"
		}
		return "done"
	}
	var senders sync.WaitGroup
	for i := range 40 {
		senders.Go(func() {
			rng := rand.New(rand.NewPCG(seed, uint64(i)))
			for range 60 {
				result := batch(rng, fmt.Sprint("flow-", i%7))
				mu.Lock()
				ended[result]++
				mu.Unlock()
				time.Sleep(time.Duration(rng.Int64N(int64(20 * time.Millisecond))))
			}
		})
	}
	rng := rand.New(rand.NewPCG(seed, 1000))
	for range 300 {
		time.Sleep(10 * time.Millisecond)
		g.setPlan(randomPlan(rng))
		synctest.Wait()
		g.mu.Lock()
		mu.Lock()
		// All goroutines rest, so what they hold is what was handed out.
		g.dispatcher.advance(g.now())
		require.Equal(t, held, g.dispatcher.inFlight)
		g.dispatcher.checkQuiet(t)
		mu.Unlock()
		g.mu.Unlock()
	}
	senders.Wait()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dispatcher.check(t, 0)
	require.Zero(t, g.dispatcher.waiting)
	t.Logf("%v", ended)
	for _, want := range []string{"done", "panic", "left", "released twice", ReasonDeadline} {
		require.NotZero(t, ended[want], "the test never saw %q", want)
	}
}

// checkQuiet asserts what must hold while nobody acts: no batch waits while a
// slot idles.
func (d *dispatcher) checkQuiet(t *testing.T) {
	t.Helper()
	if d.waiting > 0 && d.inFlight < d.peak {
		require.GreaterOrEqual(t, d.inFlight, d.open())
		require.Greater(t, d.due, d.at)
	}
	require.LessOrEqual(t, d.waiting, d.bounds.MaxWaiting)
}
