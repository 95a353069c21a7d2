package governor

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// saturated is a dispatcher of four slots whose batches take 100 ms, all busy.
func saturated(t *testing.T, bounds WaitConfig) (*dispatcher, []*lease) {
	t.Helper()
	d := newDispatcher(wholePlan(4), bounds)
	var now time.Duration
	for range 200 {
		var l lease
		d.admit(now, "a", &l, -1, 0)
		now += 100 * time.Millisecond
		d.giveBack(now, &l, completed)
	}
	require.InDelta(t, 0.1, d.meanSlot, 1e-9)
	var held []*lease
	for range 4 {
		l := &lease{}
		w, _, shed := d.admit(now, "a", l, -1, 0)
		require.Nil(t, w)
		require.Nil(t, shed)
		held = append(held, l)
	}
	return d, held
}

func TestG7WaitingIsBoundedPerFlowAndInAll(t *testing.T) {
	bounds := generous()
	bounds.MaxWaiting, bounds.MaxWaitingPerFlow = 10, 6
	d, _ := saturated(t, bounds)
	fill := func(flow string, n int) (waiters []*waiter, shed *Shed) {
		for range n {
			var w *waiter
			if w, _, shed = d.admit(d.at, flow, &lease{}, -1, 0); w != nil {
				waiters = append(waiters, w)
			}
		}
		return waiters, shed
	}
	a, shed := fill("a", 7)
	require.Len(t, a, 6)
	require.Equal(t, ReasonFlowFull, shed.Reason)
	require.Equal(t, 6, shed.Waiting)
	require.Equal(t, 4, shed.InFlight)

	_, shed = fill("b", 4)
	require.Nil(t, shed)
	require.Equal(t, 10, d.waiting)

	c, shed := fill("c", 1)
	require.Nil(t, shed)
	require.Len(t, c, 1, "a flow with fewer takes the place")
	require.Equal(t, 10, d.waiting)
	require.Equal(t, stateDisplaced, a[5].state, "of the newest batch of the flow with most")
	require.Equal(t, ReasonDisplaced, a[5].shed.Reason)
	require.Equal(t, stateWaiting, a[4].state)
	select {
	case <-a[5].ready:
	default:
		t.Fatal("nobody told the displaced batch")
	}

	_, shed = fill("a", 1)
	require.Equal(t, ReasonFull, shed.Reason, "the longest queue takes no one's place")
	_, shed = fill("c", 20)
	require.Equal(t, ReasonFull, shed.Reason)
	require.Equal(t, 10, d.waiting)
	for _, f := range d.flows {
		require.InDelta(t, 10.0/3, f.waiting, 1, "%s: places go round", f.key)
	}
}

func TestG7NobodyWaitsWhereNobodyMay(t *testing.T) {
	bounds := generous()
	bounds.MaxWaiting, bounds.MaxWaitingPerFlow = 0, 0
	d, _ := saturated(t, bounds)
	w, _, shed := d.admit(d.at, "a", &lease{}, -1, 0)
	require.Nil(t, w)
	require.Equal(t, ReasonFlowFull, shed.Reason)
}

// With four slots of 100 ms, a lone flow's n-th waiting batch waits n·25 ms.
func TestG7ShedAtOncePastTheDeadline(t *testing.T) {
	for _, c := range []struct {
		left    time.Duration
		waiting int // that are let wait
	}{
		{-1, 200},                      // none: max_wait of 5 s
		{4 * time.Second, 40},          // a quarter of it: 1 s
		{400 * time.Millisecond, 4},    //
		{99 * time.Millisecond, 0},     // 24.75 ms are less than the first turn
		{0, 0},                         // already over
		{time.Hour, 200},               // max_wait
		{100*time.Millisecond + 40, 1}, //
	} {
		bounds := generous()
		bounds.MaxWait = 5 * time.Second
		d, _ := saturated(t, bounds)
		n := 0
		for {
			w, limit, shed := d.admit(d.at, "a", &lease{}, c.left, 0)
			if shed != nil {
				require.Equal(t, ReasonDeadline, shed.Reason)
				break
			}
			require.NotNil(t, w)
			require.LessOrEqual(t, limit, 5*time.Second)
			n++
		}
		require.InDelta(t, c.waiting, n, 1e-9, "%v left", c.left)
	}
}

// The wait that is expected is the wait that comes.
func TestG7ExpectedWaitIsRight(t *testing.T) {
	for _, heavy := range []int{0, 1, 3} {
		bounds := generous()
		d, held := saturated(t, bounds)
		ends := map[*lease]time.Duration{}
		for i, l := range held {
			ends[l] = d.at + time.Duration(i+1)*25*time.Millisecond
		}
		pending := map[*waiter]*lease{}
		submit := func(flow string) (*waiter, float64) {
			l := &lease{}
			expected := d.expectedWait(d.find(flow))
			w, _, shed := d.admit(d.at, flow, l, -1, 0)
			require.Nil(t, shed)
			pending[w] = l
			return w, expected
		}
		for i := range heavy {
			for range 50 {
				submit(fmt.Sprint("heavy-", i))
			}
		}
		for range 30 {
			submit("a")
		}
		last, expected := submit("a")
		start := d.at
		for last.state == stateWaiting {
			now := time.Duration(math.MaxInt64)
			var first *lease
			for l, end := range ends {
				if end < now {
					now, first = end, l
				}
			}
			delete(ends, first)
			d.giveBack(now, first, completed)
			for w, l := range pending {
				if w.state == stateGranted {
					delete(pending, w)
					ends[l] = now + 100*time.Millisecond
				}
			}
		}
		require.InEpsilon(t, expected, (d.at - start).Seconds(), 0.15, "%d heavy flows beside it", heavy)
	}
}

// Overload is not a burst: when the queue has stood for long enough, batches wait
// for half a slot time, and again for long when it has not stood for a while.
func TestG7StandingQueue(t *testing.T) {
	bounds := generous()
	bounds.MaxWait, bounds.StandingAfter = 5*time.Second, 10*time.Second
	d, _ := saturated(t, bounds)
	f := d.find("a")
	w, limit, _ := d.admit(d.at, "a", &lease{}, -1, 0)
	require.Equal(t, 5*time.Second, limit)
	start := d.at
	d.advance(start + 9900*time.Millisecond)
	require.Equal(t, 5*time.Second, d.waitLimit(f, -1))
	d.advance(start + 10*time.Second)
	require.Equal(t, 50*time.Millisecond, d.waitLimit(f, -1))
	require.Equal(t, 5*time.Second, d.waitLimit(d.find("b"), -1), "the other flows' limit is their own")

	require.True(t, d.leave(d.at, w))
	d.advance(d.at + time.Second)
	require.Equal(t, 50*time.Millisecond, d.waitLimit(f, -1), "empty for a moment")
	d.advance(d.at + time.Second)
	require.Equal(t, 5*time.Second, d.waitLimit(f, -1), "empty for a while")
}

// A thousand batches that are shed in one moment and come back when they are
// told find the slots free, one after another, and keep them busy.
func TestG7RetryAfterIsHonest(t *testing.T) {
	for _, jitter := range []float64{0, 0.5, 1} {
		d, _ := saturated(t, generous())
		var last time.Duration
		gap := 25 * time.Millisecond // four slots of 100 ms
		for i := range 400 {
			shed := d.shed(d.flows["a"], ReasonFull, 0, jitter)
			require.Greater(t, shed.RetryAfter, last, "each gets a turn of its own")
			last = shed.RetryAfter
			turn := float64(i+2) * float64(gap)
			require.InEpsilon(t, turn*(0.9+0.2*jitter), float64(shed.RetryAfter), 0.01, "the %d-th", i)
		}
	}
	bounds := generous()
	bounds.MaxRetryAfter = 2 * time.Second
	d, _ := saturated(t, bounds)
	for range 1000 {
		require.LessOrEqual(t, d.shed(d.flows["a"], ReasonFull, 0, 0.999).RetryAfter, 2200*time.Millisecond)
	}
	d.advance(d.at + 10*time.Second)
	require.Less(t, d.shed(d.flows["a"], ReasonFull, 0, 0).RetryAfter, 100*time.Millisecond, "old bookings are over")
}

// The same in a closed loop: senders that obey keep the slots busy and get
// through in the time that the work takes.
func TestG7SendersThatObeyGetThrough(t *testing.T) {
	cfg := Defaults()
	cfg.MaxInFlight = 9
	cfg.Wait.MaxWait = 300 * time.Millisecond
	s := newSim(cfg, 1, 0)
	s.machine.threads = 4
	s.wait = 380 * time.Millisecond // 9 slots carry about 22 batches a second
	returns := map[*simBatch]time.Duration{}
	tries := 0
	s.arrive = func(s *sim) {
		if s.now == 10*time.Second {
			for range 400 {
				s.submit("burst", false)
			}
		}
		for i, b := range s.shed {
			returns[b] = s.now + s.sheds[i].RetryAfter
			tries++
		}
		s.shed, s.sheds = nil, nil
		for b, at := range returns {
			if at <= s.now {
				delete(returns, b)
				s.ask(b)
			}
		}
	}
	// A slot time is known before the burst.
	for range 9 {
		s.submit("burst", false)
	}
	s.run(60 * time.Second)
	require.Len(t, s.done, 409)
	ideal := 400 / s.rate(10*time.Second, s.done[len(s.done)-1].finished)
	end := (s.done[len(s.done)-1].finished - 10*time.Second).Seconds()
	t.Logf("burst through after %.1f s, %d tries turned away", end, tries)
	require.InDelta(t, ideal, end, 2)
	require.Less(t, end, 1.35*400*0.4/9, "slots were kept busy")
	require.Less(t, tries, 1200, "and senders were not sent away again and again")
}

func TestShedText(t *testing.T) {
	shed := &Shed{Flow: "key", Reason: ReasonFull, RetryAfter: 1500 * time.Millisecond, Waiting: 7, InFlight: 3}
	require.EqualError(t, shed, "at capacity (full): 3 batches of this sender in progress, 7 waiting; send again in 1.5s")
}

// A place goes to another flow only if that one still waits with fewer batches
// afterwards: two queues that differ by one do not take it from each other in turn.
func TestG7PlacesAreNotTakenInTurn(t *testing.T) {
	bounds := generous()
	bounds.MaxWaiting, bounds.MaxWaitingPerFlow = 11, 11
	d, _ := saturated(t, bounds)
	for range 6 {
		d.admit(d.at, "a", &lease{}, -1, 0)
	}
	for range 5 {
		d.admit(d.at, "b", &lease{}, -1, 0)
	}
	_, _, shed := d.admit(d.at, "b", &lease{}, -1, 0)
	require.NotNil(t, shed)
	require.Equal(t, ReasonFull, shed.Reason)
	require.Equal(t, 6, d.flows["a"].waiting)
}
