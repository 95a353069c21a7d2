package governor

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lawCase builds the law's input from figures that a reader can check by
// hand: a window of 10 s with all slots used and 200 completions.
func lawCase(m, inFlight, cores float64, change ...func(*lawInput)) lawInput {
	in := lawInput{
		m: m, ceiling: 256, limit: 1, target: 0.9, tolerance: 0.05,
		window: window{seconds: 10, slotTime: 10 * inFlight, capTime: 10 * m, cpuTime: 10 * cores, completions: 200},
	}
	for _, c := range change {
		c(&in)
	}
	return in
}

func TestG4LawRules(t *testing.T) {
	background := func(b float64) func(*lawInput) { return func(in *lawInput) { in.background = b } }
	ceiling := func(c float64) func(*lawInput) { return func(in *lawInput) { in.ceiling = c } }
	target := func(v float64) func(*lawInput) { return func(in *lawInput) { in.target = v } }
	waited := func(share float64) func(*lawInput) {
		return func(in *lawInput) { in.window.waitTime = share * in.window.seconds }
	}
	throttled := func(share float64) func(*lawInput) {
		return func(in *lawInput) { in.window.periods, in.window.throttled = 1000, uint64(1000*share) }
	}
	unhurried := func(ratio float64) func(*lawInput) {
		return func(in *lawInput) { in.unhurried = ratio * in.window.meanSlot() }
	}
	stalled := func(share float64) func(*lawInput) {
		return func(in *lawInput) { in.window.stalled = share * in.window.seconds }
	}
	for _, c := range []struct {
		name    string
		in      lawInput
		want    float64
		verdict Verdict
	}{
		// Rule 2: r = 0.9/0.6 = 1.5.
		{"rises by what was in flight, not by M", lawCase(10, 9.5, 0.6), 14.25, VerdictRose},
		{"slots used just enough", lawCase(10, 9, 0.6), 13.5, VerdictRose},
		{"slots used just too little", lawCase(10, 8.99, 0.6), 10, VerdictUnused},
		{"batches waited for half of the window", lawCase(10, 8.99, 0.6, waited(0.5)), 13.485, VerdictRose},
		{"batches waited for less", lawCase(10, 8.99, 0.6, waited(0.49)), 10, VerdictUnused},
		{"waiting proves use but N·r is below M", lawCase(10, 5, 0.6, waited(1)), 10, VerdictUnused},
		// Rule 3, on both sides of both edges: 0.9/0.9474 = 0.94997, 0.9/0.8571 = 1.05005.
		{"within the tolerance below", lawCase(10, 10, 0.9/0.9501), 10, VerdictSettled},
		{"outside the tolerance below", lawCase(10, 10, 0.9/0.9499), 9.499, VerdictFell},
		{"within the tolerance above", lawCase(10, 10, 0.9/1.0499), 10, VerdictSettled},
		{"outside the tolerance above", lawCase(10, 10, 0.9/1.0501), 10.501, VerdictRose},
		{"exactly on the edge counts as within", lawCase(10, 10, 0.9/0.95), 10, VerdictSettled},
		// Rule 3: pinned at 0.95 the ratio is inside of the tolerance, and falls all the same.
		{"pinned inside of the tolerance", lawCase(10, 10, 1, target(0.95)), 9.5, VerdictPinned},
		{"just not pinned", lawCase(10, 10, 0.979, target(0.95)), 10, VerdictSettled},
		{"pinned at 0.9", lawCase(32, 32, 1), 28.8, VerdictPinned},
		// Rule 4.
		{"at most doubles", lawCase(10, 10, 0.3), 20, VerdictRose},
		{"barely used doubles", lawCase(10, 10, 0.049), 20, VerdictBarelyUsed},
		{"just not barely used", lawCase(10, 1, 0.051, waited(1)), 17.647, VerdictRose},
		{"barely used without use", lawCase(10, 8, 0.049), 10, VerdictUnused},
		{"no CPU at all doubles", lawCase(10, 10, 0), 20, VerdictBarelyUsed},
		{"a background as large as the use doubles", lawCase(10, 10, 0.05, background(0.05)), 20, VerdictBarelyUsed},
		// Rule 5: r = (0.9-B)/(U-B).
		{"falls to N·r", lawCase(10, 10, 0.96), 9.375, VerdictFell},
		{"falls from N, not from M", lawCase(10, 8, 0.96), 7.5, VerdictFell},
		{"falls to half at most", lawCase(100, 10, 0.96), 50, VerdictFell},
		{"never falls below the target", lawCase(100, 10, 0.7), 100, VerdictUnused},
		{"the background is set apart", lawCase(10, 10, 0.97, background(0.4)), 8.7719, VerdictFell},
		{"the background is never believed to be all of it", lawCase(10, 10, 0.97, background(2)), 5, VerdictFell},
		// Rule 5, what saturation hides.
		{"pinned falls by the time that was lost", lawCase(20, 20, 1, unhurried(0.7)), 12.6, VerdictPinned},
		{"pinned falls to half at most", lawCase(32, 32, 1, unhurried(0.3)), 16, VerdictPinned},
		{"pinned is not helped by batches that were quicker than ever", lawCase(20, 20, 1, unhurried(1.5)), 18, VerdictPinned},
		{"pinned without a time to compare falls by the stall", lawCase(20, 20, 1, stalled(0.4)), 10.8, VerdictPinned},
		{"the stall counts only without a time", lawCase(20, 20, 1, unhurried(1), stalled(0.4)), 18, VerdictPinned},
		// Rule 5, below the target but throttled.
		{"throttled bursts bring M to the knee", lawCase(32, 18, 0.84, throttled(0.1)), 19.2857, VerdictKnee},
		{"throttled too seldom", lawCase(32, 18, 0.84, throttled(0.099)), 32, VerdictUnused},
		{"throttled but the slots were used", lawCase(32, 18, 0.84, throttled(0.5), waited(0.6)), 32, VerdictUnused},
		{"throttled but near the knee", lawCase(21, 18, 0.84, throttled(0.5)), 21, VerdictUnused},
		{"the knee is not reached by more than half at once", lawCase(100, 18, 0.84, throttled(0.5)), 50, VerdictKnee},
		// Rule 6.
		{"not above the ceiling", lawCase(10, 10, 0.5, ceiling(12)), 12, VerdictRose},
		{"barely used, not above the ceiling", lawCase(10, 10, 0.01, ceiling(12)), 12, VerdictBarelyUsed},
		{"not below 1", lawCase(1, 1, 0.99), 1, VerdictPinned},
		{"not below 1 from just above", lawCase(1.2, 1.2, 1, unhurried(0.5)), 1, VerdictPinned},
		// The background alone.
		{"the background alone is at the target", lawCase(10, 10, 1.5, background(0.95)), 5, VerdictBackground},
	} {
		t.Run(c.name, func(t *testing.T) {
			j := law(c.in)
			require.InDelta(t, c.want, j.m, 1e-3)
			require.Equal(t, c.verdict, j.verdict)
		})
	}
}

// Exactly on the tolerance's edge counts as within, whatever rounding does.
func TestG4Rule3EdgeIsWithin(t *testing.T) {
	for target := 0.5; target < 0.95; target += 0.013 {
		for _, tolerance := range []float64{0.01, 0.02, 0.025, -0.01, -0.02, -0.025} {
			in := lawCase(10, 10, target/(1+tolerance))
			in.target, in.tolerance = target, math.Abs(tolerance)
			require.Equal(t, VerdictSettled, law(in).verdict, "target %v, r = 1%+v", target, tolerance)
		}
	}
}

// The pure law keeps its bounds whatever it is fed.
func TestG4LawBounds(t *testing.T) {
	rng := newRand(t, 1)
	for range 20000 {
		m := 1 + rng.Float64()*300
		in := lawInput{
			m: m, ceiling: m + rng.Float64()*300, limit: 0.1 + rng.Float64()*8, background: rng.Float64() * 4,
			unhurried: rng.Float64() * 2, target: 0.1 + rng.Float64()*0.87, tolerance: rng.Float64() * 0.01,
			window: window{
				seconds: 0.1 + rng.Float64()*300, slotTime: rng.Float64() * 3000, capTime: rng.Float64() * 3000, waitTime: rng.Float64() * 300,
				cpuTime: rng.Float64() * 3000, completions: rng.IntN(5000), periods: 100, throttled: rng.Uint64N(100), stalled: rng.Float64() * 400,
			},
		}
		j := law(in)
		require.False(t, math.IsNaN(j.m))
		require.GreaterOrEqual(t, j.m, 1.0)
		require.LessOrEqual(t, j.m, math.Min(in.ceiling, 2*m)+epsilon)
		require.GreaterOrEqual(t, j.m, math.Min(m, math.Max(1, m/2))-epsilon)
		if j.m > m {
			require.True(t, in.window.slotsUsed(), "rule 2")
		}
	}
}

// modelRun feeds a model one observation after another.
type modelRun struct {
	t   *testing.T
	cfg Config
	m   model
}

func newModelRun(t *testing.T) *modelRun {
	cfg := Defaults()
	cfg.Model.Target, cfg.Model.Tolerance, cfg.Model.StartPerCore = 0.9, 0.05, 4
	r := &modelRun{t: t, cfg: cfg}
	require.Equal(t, VerdictInitialLimit, r.see(observation{limit: 1, readable: true}))
	require.Equal(t, 4.0, r.m.m, "start_per_core")
	return r
}

func (r *modelRun) see(o observation) Verdict { return r.m.observe(r.cfg, o) }

// busy is one sample of 2 s with M slots in use.
func (r *modelRun) busy(cores float64, completions int) observation {
	return observation{
		limit: 1, readable: true, unchanged: true,
		window: window{seconds: 2, slotTime: 2 * r.m.m, capTime: 2 * r.m.m, cpuTime: 2 * cores, completions: completions},
	}
}

func TestG4WindowIsWholeIntervalsWithTwentyCompletions(t *testing.T) {
	r := newModelRun(t)
	// r = 0.9/0.75 = 1.2: not decisive, so the window must be full.
	for range 4 {
		require.Equal(t, VerdictGrowing, r.see(r.busy(0.75, 8)), "10 s are not over")
	}
	require.Equal(t, VerdictRose, r.see(r.busy(0.75, 8)))
	require.InDelta(t, 4.8, r.m.m, epsilon)

	r = newModelRun(t)
	for i := range 5 {
		require.Equal(t, VerdictGrowing, r.see(r.busy(0.75, 0)), "sample %d", i)
	}
	require.Equal(t, VerdictGrowing, r.see(r.busy(0.75, 19)), "19 completions")
	require.Equal(t, VerdictRose, r.see(r.busy(0.75, 1)), "20 completions")
}

func TestG4WindowIsJudgedAfterThirtyIntervals(t *testing.T) {
	r := newModelRun(t)
	for range 30*5 - 1 {
		require.Equal(t, VerdictGrowing, r.see(r.busy(0.75, 0)))
	}
	require.Equal(t, VerdictRose, r.see(r.busy(0.75, 0)), "completions choose the window's length and veto nothing")
}

func TestG4DecisiveMovesNeedNoFullWindow(t *testing.T) {
	for _, c := range []struct {
		cores       float64
		completions int
		want        Verdict
	}{
		{0.9 / 1.5, 20, VerdictRose},
		{0.9 / 1.5, 19, VerdictGrowing},
		{0.9 / 1.49, 20, VerdictGrowing},
		{0.9 / 1.25, 80, VerdictRose},
		{0.9 / 1.25, 79, VerdictGrowing},
		{0.9 / 1.21, 100, VerdictGrowing},
	} {
		r := newModelRun(t)
		require.Equal(t, c.want, r.see(r.busy(c.cores, c.completions)), "%+v", c)
	}
}

func TestG4Rule1NoEvidence(t *testing.T) {
	ceiling := 256.0
	t.Run("no limit", func(t *testing.T) {
		r := newModelRun(t)
		require.Equal(t, VerdictNoLimit, r.see(observation{readable: true}))
		require.Equal(t, ceiling, r.m.capacity(ceiling))
		o := r.busy(0.5, 50)
		o.unchanged = false
		require.Equal(t, VerdictReset, r.see(o))
		require.Equal(t, 4.0, r.m.capacity(ceiling), "M is where it was when a limit comes back")
	})
	t.Run("small limit", func(t *testing.T) {
		r := newModelRun(t)
		require.Equal(t, VerdictSmallLimit, r.see(observation{limit: 0.499, readable: true}))
		require.Equal(t, ceiling, r.m.capacity(ceiling))
		require.NotEqual(t, VerdictSmallLimit, r.see(observation{limit: 0.5, readable: true}))
	})
	t.Run("switched off", func(t *testing.T) {
		r := newModelRun(t)
		r.cfg.Model.Enabled = false
		require.Equal(t, VerdictOff, r.see(r.busy(0.5, 50)))
		require.Equal(t, ceiling, r.m.capacity(ceiling))
	})
	t.Run("unreadable use is held for three samples", func(t *testing.T) {
		r := newModelRun(t)
		for range 3 {
			require.Equal(t, VerdictUnreadable, r.see(observation{limit: 1}))
			require.Equal(t, 4.0, r.m.capacity(ceiling))
		}
		require.Equal(t, VerdictUnreadable, r.see(observation{limit: 1}))
		require.Equal(t, ceiling, r.m.capacity(ceiling))
	})
	t.Run("only failures in a row release M", func(t *testing.T) {
		r := newModelRun(t)
		for range 5 {
			r.see(observation{limit: 1})
			require.Equal(t, 4.0, r.m.capacity(ceiling))
			r.see(r.busy(0.75, 1))
		}
	})
	t.Run("a window that saw unreadable use is dropped", func(t *testing.T) {
		r := newModelRun(t)
		r.see(r.busy(0.75, 8))
		r.see(observation{limit: 1})
		require.Zero(t, r.m.window)
	})
}

func TestG4Rule1LimitChangeMovesNothing(t *testing.T) {
	for at := range 5 {
		r := newModelRun(t)
		for i := range 5 {
			o := r.busy(0.75, 8)
			if i >= at {
				o = r.busy(1.5, 8)
				o.limit = 2
			}
			want := VerdictGrowing
			if i == at {
				want = VerdictReset
			}
			require.Equal(t, want, r.see(o), "sample %d, limit changed in %d", i, at)
		}
		for range at {
			require.Equal(t, VerdictGrowing, r.see(func() observation { o := r.busy(1.5, 8); o.limit = 2; return o }()))
		}
		o := r.busy(1.5, 8)
		o.limit = 2
		require.Equal(t, VerdictRose, r.see(o), "a whole window after the change")
	}
}

// An idle sample neither starts nor joins a window, whether it comes first or
// in the middle: it would dilute the use of the others.
func TestG4IdleSamplesFeedTheBackgroundOnly(t *testing.T) {
	r := newModelRun(t)
	idle := observation{limit: 1, readable: true, unchanged: true, window: window{seconds: 2, capTime: 8, cpuTime: 0.2}}
	for range 20 {
		require.Equal(t, VerdictIdle, r.see(idle))
	}
	require.InDelta(t, 0.1, r.m.background.cores, epsilon)
	for i := range 4 {
		require.Equal(t, VerdictGrowing, r.see(r.busy(0.75, 8)), "sample %d", i)
		require.Equal(t, VerdictIdle, r.see(idle))
	}
	require.Equal(t, VerdictRose, r.see(r.busy(0.75, 8)))
	require.InDelta(t, 4*(0.9-0.1)/(0.75-0.1), r.m.m, 1e-6)
}

func TestG4Background(t *testing.T) {
	var b background
	b.idle(0.2, 0.9)
	b.idle(0.2, 0.9)
	require.Zero(t, b.cores, "two samples are not enough")
	b.idle(0.2, 0.9)
	require.InDelta(t, 0.2, b.cores, epsilon)
	b.idle(0.4, 0.9)
	require.InDelta(t, 0.2+0.3*0.2, b.cores, epsilon)
	for range 50 {
		b.idle(0.8, 0.9)
	}
	require.InDelta(t, 0.45, b.cores, epsilon, "at most half of the goal")

	b.age(29 * 60)
	b.busy(0.1)
	require.InDelta(t, 0.45, b.cores, epsilon, "a recent estimate is believed")
	b.age(2 * 60)
	b.busy(0.3)
	require.InDelta(t, 0.45-0.3*0.35, b.cores, epsilon, "an old one moves towards the lowest use")
}

func TestG4UnhurriedTimeIsLearntFarFromTheTargetOnly(t *testing.T) {
	r := newModelRun(t)
	for range 5 {
		r.see(r.busy(0.9/1.2, 8)) // d = 40 slot-seconds / 40 batches
	}
	require.InDelta(t, 1, r.m.unhurried, 1e-9)
	for range 5 {
		r.see(r.busy(0.9/1.09, 80))
	}
	require.InDelta(t, 1, r.m.unhurried, 1e-9, "too close to the target")
}

func TestG2CutPullsTheModelDown(t *testing.T) {
	r := newModelRun(t)
	r.m.m = 40
	r.see(r.busy(0.75, 10))
	r.m.cut(16)
	require.Equal(t, 16.0, r.m.m)
	require.Zero(t, r.m.window, "the window before the cut says nothing about the time after")
	r.m.cut(20)
	require.Equal(t, 16.0, r.m.m, "a cut never raises")
}

func TestModelFigures(t *testing.T) {
	r := newModelRun(t)
	for range 5 {
		o := r.busy(0.75, 8)
		o.arrivals = 16
		r.see(o)
	}
	require.InDelta(t, 7.5/40, r.m.perBatch(), 1e-9)
	require.InDelta(t, (7.5/40)*8/0.9, r.m.required(0.9), 1e-9)
}

// Time constants that the law takes from elsewhere stay what doc.go says.
func TestLawConstants(t *testing.T) {
	require.Equal(t, 30*time.Minute, backgroundMemory)
	require.Equal(t, 30, maxIntervals)
}
