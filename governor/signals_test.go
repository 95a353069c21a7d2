package governor

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// newRand is a seeded source; the seed is in the log of a failing test.
func newRand(t *testing.T, seed uint64) *rand.Rand {
	t.Helper()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// TestG2Step is a trace: two seconds, a stall, what P is afterwards.
func TestG2Step(t *testing.T) {
	cfg := Defaults().Step
	s := newStep(32, cfg)
	for i, c := range []struct {
		stall     float64
		known     bool
		published float64
		cut       bool
		p         float64
	}{
		{0.5, true, 32, false, 32},  // one sample is not enough
		{0.1, true, 32, false, 32},  // and the row is broken
		{0.5, true, 32, false, 32},  //
		{0.21, true, 32, true, 16},  // two in a row
		{0.5, true, 16, false, 16},  // 2 s after the cut
		{0.5, true, 16, false, 16},  // 4 s
		{0.5, true, 16, false, 16},  // 6 s
		{0.5, true, 16, false, 16},  // 8 s
		{0.5, true, 16, true, 8},    // 10 s
		{0.15, true, 8, false, 8},   // neither calm nor above: holds
		{0.09, true, 8, false, 9},   // calm: +1 per 2 s
		{0.2, true, 9, false, 9},    // exactly the threshold is not above it
		{0.9, false, 9, false, 10},  // unreadable is no stall
		{0.9, false, 10, false, 11}, //
		{0.9, true, 7.5, false, 11}, //
		{0.9, true, 7.5, true, 3},   // half of what was published, whole
	} {
		require.Equal(t, c.cut, s.observe(cfg, 32, 2, c.stall, c.known, c.published), "sample %d", i)
		require.Equal(t, c.p, s.p, "sample %d", i)
	}
	for range 100 {
		s.observe(cfg, 32, 2, 0, true, 32)
	}
	require.Equal(t, 32.0, s.p, "not above the ceiling")
	s.p = 1
	s.observe(cfg, 32, 10, 1, true, 1)
	require.True(t, s.observe(cfg, 32, 2, 1, true, 1))
	require.Equal(t, 1.0, s.p, "not below 1")
}

// latencyRun feeds A windows of 2 s.
type latencyRun struct {
	cfg Config
	l   latency
}

func newLatencyRun(a float64) *latencyRun {
	cfg := Defaults()
	r := &latencyRun{cfg: cfg, l: latency{a: a}}
	r.see(1.0, 0.1, 20, true) // a first window at rest: the best time is 0.1 s
	return r
}

// see is one sample: slots in use, mean time of n batches, and whether A binds.
func (r *latencyRun) see(inUse, mean float64, n int, binding bool) {
	w := window{seconds: 2, slotTime: 2 * inUse, capTime: 2 * r.l.a}
	r.l.observe(r.cfg.Latency, 256, w, n, mean*float64(n), binding)
}

func TestG5LatencyMovesOnlyWhenItBinds(t *testing.T) {
	for _, mean := range []float64{0.1, 0.5} {
		r := newLatencyRun(16)
		r.see(16, mean, 20, false)
		require.Equal(t, 16.0, r.l.a, "another limit is lower")
		r.see(14.3, mean, 20, true)
		require.Equal(t, 16.0, r.l.a, "slots stood free")
		r.see(14.4, mean, 20, true)
		require.NotEqual(t, 16.0, r.l.a)
	}
}

func TestG5LatencyLaw(t *testing.T) {
	for _, c := range []struct {
		name string
		mean float64
		want float64
	}{
		{"healthy", 0.1, 20},
		{"at the threshold", 0.2, 20},
		{"a little slow", 0.21, 16 * 0.9},
		{"slow", 0.25, 16 * 0.8},
		{"very slow", 2, 16 * 0.5},
	} {
		r := newLatencyRun(16)
		r.see(16, c.mean, 20, true)
		require.InDelta(t, c.want, r.l.a, 1e-9, c.name)
	}
	r := newLatencyRun(16)
	r.see(16, 2, 9, true)
	require.Equal(t, 16.0, r.l.a, "nine batches are too few")
	for range 15 {
		r.see(16, 2, 0, true)
	}
	require.Equal(t, 8.0, r.l.a, "but half a minute is long enough")

	r = newLatencyRun(4)
	r.see(4, 2, 20, true)
	require.Equal(t, 4.0, r.l.a, "not below the floor")
	r = newLatencyRun(250)
	r.see(250, 0.1, 20, true)
	require.Equal(t, 256.0, r.l.a, "not above the ceiling")
}

func TestG5BestTimeDoesNotDriftInOverload(t *testing.T) {
	r := newLatencyRun(64)
	for range 100 {
		r.see(r.l.a, 0.18, 20, true)
	}
	require.InDelta(t, 0.1, r.l.best, 1e-9, "busy and slower than ever: no new best")
	for range 50 {
		r.see(1, 0.18, 20, false)
	}
	require.InDelta(t, 0.18, r.l.best, 0.01, "at rest: the work has become slower")
	r.see(1, 0.08, 20, false)
	require.InDelta(t, 0.15, r.l.best, 0.005, "a better time counts quickly, but one window is not all")
}

func TestG5StuckAtTheFloorIsMeasuredAgain(t *testing.T) {
	r := newLatencyRun(8)
	for range 3 {
		r.see(r.l.a, 1, 20, true)
	}
	require.Equal(t, 4.0, r.l.a)
	for range 10 {
		r.see(4, 1, 20, true)
	}
	require.InDelta(t, 1, r.l.best, 1e-9)
	r.see(4, 1, 20, true)
	require.Equal(t, 6.0, r.l.a, "it grows again")

	r = newLatencyRun(8)
	for range 50 {
		r.see(r.l.a, 31, 20, true)
	}
	require.Equal(t, 4.0, r.l.a, "what is never healthy does not become the baseline")

	// Not even where it is all that was ever seen.
	r = &latencyRun{cfg: Defaults(), l: latency{a: 64}}
	r.see(64, 31, 20, true)
	require.Equal(t, 1.0, r.l.gradient())
	require.Less(t, r.l.a, 64.0)
}

// inputs for the controller: a container of one core that used cores.
func cpuSample(seconds, inUse, capacity, cores float64, completions int) sample {
	d := time.Duration(seconds * float64(time.Second))
	return sample{
		slots:   window{seconds: seconds, slotTime: inUse * seconds, capTime: capacity * seconds, completions: completions},
		primed:  true,
		threads: 2,
		before:  reading{Source: "c", Limit: 1, UsageKnown: true, ThrottledKnown: true},
		cpu:     reading{At: d, Source: "c", Limit: 1, Usage: time.Duration(cores * float64(d)), UsageKnown: true, ThrottledKnown: true},
	}
}

func startedController(t *testing.T, change func(*Config)) *controller {
	cfg := Defaults()
	if change != nil {
		change(&cfg)
	}
	require.NoError(t, cfg.Validate())
	c := newController(cfg)
	require.Equal(t, wholePlan(256), c.plan)
	s := cpuSample(2, 0, 256, 0, 0)
	s.primed = false
	c.observe(s)
	return c
}

func TestG2LowestSignalWins(t *testing.T) {
	for _, c := range []struct {
		name         string
		m, p, a      float64
		model        bool
		mean         float64
		peak         int
		paced        bool
		change       func(*Config)
		limitUnknown bool
	}{
		{name: "model", m: 9.4, p: 40, a: 30, mean: 9.4, peak: 11, paced: true},
		{name: "model, a whole number", m: 9, p: 40, a: 30, mean: 9, peak: 10, paced: true},
		{name: "step", m: 20, p: 7, a: 30, mean: 7, peak: 8, paced: true},
		{name: "latency", m: 20, p: 12, a: 6.9, mean: 6, peak: 6},
		{name: "latency just above the model", m: 9.4, p: 12, a: 10.2, mean: 9.4, peak: 10, paced: true},
		{name: "never below one", m: 1, p: 1, a: 4, mean: 1, peak: 1, paced: true},
		{name: "a small fraction", m: 1.4, p: 9, a: 9, mean: 1.4, peak: 2, paced: true},
		{name: "model off", m: 3, p: 12, a: 30, mean: 12, peak: 12, change: func(c *Config) { c.Model.Enabled = false }},
		{name: "step off", m: 300, p: 12, a: 30, mean: 30, peak: 30, change: func(c *Config) { c.Step.Enabled = false }},
		{name: "latency off", m: 300, p: 256, a: 30, mean: 256, peak: 256, change: func(c *Config) { c.Latency.Enabled = false }},
		{name: "no limit: model and step stand aside", m: 3, p: 3, a: 30, mean: 30, peak: 30, limitUnknown: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctl := startedController(t, c.change)
			ctl.model.m, ctl.step.p = c.m, c.p
			if ctl.cfg.Latency.Enabled {
				ctl.latency.a = c.a
			}
			s := cpuSample(2, 0, 1, 1, 0)
			if c.limitUnknown {
				s.cpu = reading{At: s.cpu.At}
			} else {
				s.cpu.Throttled = time.Duration(0.15 * 2 * float64(s.cpu.At)) // P neither rises nor cuts
			}
			ctl.observe(s)
			require.Equal(t, plan{mean: c.mean, peak: c.peak, paced: c.paced}, ctl.plan)
		})
	}
}

// A moves only while it is the lowest signal, however slow batches are and however
// full the slots.
func TestG5OtherSignalsThatBindHoldAStill(t *testing.T) {
	for name, c := range map[string]struct {
		m, p, a float64
		moves   bool
	}{
		"model": {m: 8, p: 256, a: 64},
		"step":  {m: 250, p: 8, a: 64},
		"A":     {m: 250, p: 256, a: 64, moves: true},
	} {
		ctl := startedController(t, func(cfg *Config) { cfg.Latency.Unhealthy = time.Millisecond })
		ctl.model.m, ctl.step.p, ctl.latency = c.m, c.p, latency{a: c.a}
		s := cpuSample(2, 64, 64, 0.96, 20)
		s.cpu.Throttled = time.Duration(0.15 * 2 * float64(s.cpu.At)) // P neither rises nor cuts
		s.served, s.time = 20, 100
		ctl.observe(s)
		require.Equal(t, c.moves, ctl.latency.a != c.a, "%s is the lowest, A is %v", name, ctl.latency.a)
	}
}

func TestG2StepCutHalvesAndTakesTheModelAlong(t *testing.T) {
	c := startedController(t, nil)
	c.model.m, c.step.p = 40, 256
	c.observe(cpuSample(2, 0, 4, 0, 0))
	require.Equal(t, 40.0, c.plan.mean)
	stalled := cpuSample(2, 40, 40, 1, 5)
	stalled.cpu.Throttled = 2 * time.Second // half of the time on both threads
	c.observe(stalled)
	require.Equal(t, 0.5, c.stall)
	require.Zero(t, c.cuts)
	c.observe(stalled)
	require.EqualValues(t, 1, c.cuts)
	require.Equal(t, VerdictCut, c.verdict)
	require.Equal(t, 20.0, c.step.p)
	require.Equal(t, 20.0, c.model.m)
	require.Equal(t, 20.0, c.plan.mean)
}

func TestG2StallBelowTheLimitDoesNotCut(t *testing.T) {
	c := startedController(t, nil)
	s := cpuSample(2, 4, 4, 0.97, 5)
	s.cpu.Throttled = 2 * time.Second
	for range 10 {
		c.observe(s)
	}
	require.Zero(t, c.cuts, "the limit was not used up")

	s.cpu.UsageKnown = false
	for range 3 {
		c.observe(s)
	}
	require.NotZero(t, c.cuts, "the step works where use cannot be read")
}

func TestG3ReadingsThatMakeNoSenseAreDropped(t *testing.T) {
	cfg := Defaults()
	good := func() sample {
		s := cpuSample(2, 4, 4, 0.8, 10)
		s.before.PressureKnown, s.cpu.PressureKnown = true, true
		s.cpu.Pressure, s.cpu.Throttled = time.Second, 800*time.Millisecond
		s.cpu.Periods, s.cpu.ThrottledPeriods = 20, 5
		return s
	}
	o, stall, known := good().interpret(cfg)
	require.True(t, o.unchanged && known)
	require.InDelta(t, 1.6, o.cpuTime, 1e-9)
	require.Equal(t, 0.5, stall, "pressure comes before throttled time")
	require.EqualValues(t, 5, o.throttled)
	require.EqualValues(t, 20, o.periods)
	late := good()
	late.cpu.At += 500 * time.Millisecond // read that much later than the slots were counted
	o, _, _ = late.interpret(cfg)
	require.InDelta(t, 1.6/2.5*2, o.cpuTime, 1e-9, "use is divided by the time between its readings")

	for name, c := range map[string]struct {
		change  func(*sample)
		usage   bool
		stall   float64
		periods uint64
	}{
		"no pressure":            {func(s *sample) { s.cpu.PressureKnown = false }, true, 0.2, 20},
		"pressure is new":        {func(s *sample) { s.before.PressureKnown = false }, true, 0.2, 20},
		"pressure was reset":     {func(s *sample) { s.before.Pressure = time.Hour }, true, 0.2, 20},
		"usage was reset":        {func(s *sample) { s.before.Usage = time.Hour }, false, 0.5, 20},
		"usage is new":           {func(s *sample) { s.before.UsageKnown = false }, false, 0.5, 20},
		"another limit":          {func(s *sample) { s.before.Limit = 2 }, false, 0.5, 20},
		"another cgroup":         {func(s *sample) { s.before.Source = "d" }, false, 0.5, 0},
		"first sample":           {func(s *sample) { s.primed = false }, false, 0, 0},
		"no time passed":         {func(s *sample) { s.before.At = s.cpu.At }, false, 0, 0},
		"the machine was away":   {func(s *sample) { s.cpu.At = 7 * time.Second }, false, 0, 0},
		"throttling was reset":   {func(s *sample) { s.before.Periods = 100 }, true, 0.5, 0},
		"neither stall is known": {func(s *sample) { s.cpu.PressureKnown, s.cpu.ThrottledKnown = false, false }, true, 0, 20},
	} {
		s := good()
		c.change(&s)
		o, stall, _ := s.interpret(cfg)
		require.Equal(t, c.usage, o.unchanged, name)
		require.InDelta(t, c.stall, stall, 1e-9, name)
		require.Equal(t, c.periods, o.periods, name)
	}
}

func TestG3FailedReadIsHeldForThreeSamples(t *testing.T) {
	c := startedController(t, nil)
	c.model.m = 9.5
	failing := cpuSample(2, 4, 4, 0, 5)
	failing.cpu, failing.failed = reading{At: failing.cpu.At}, true
	for range 3 {
		c.observe(failing)
		require.Equal(t, 9.5, c.plan.mean)
		require.Equal(t, RegimeModel, c.regime)
	}
	c.observe(failing)
	require.Equal(t, RegimeUnlimited, c.regime)
	require.Equal(t, 256.0, c.plan.mean)
	c.observe(cpuSample(2, 4, 4, 0.5, 5))
	require.Equal(t, 9.5, c.plan.mean, "and taken up again where it was")

	vanished := failing
	vanished.failed = false
	c.observe(vanished)
	require.Equal(t, RegimeUnlimited, c.regime, "a limit that is gone is no failure")
}
