package governor

import (
	"math"
	"time"
)

// Regime says which signals can govern.
type Regime string

// The regimes.
const (
	// RegimeUnknown: nothing was sampled yet; the ceiling holds.
	RegimeUnknown Regime = "unknown"
	// RegimeUnlimited: no CPU limit is known, model and step stand aside.
	RegimeUnlimited Regime = "unlimited"
	// RegimeStep: there is a limit, but it is too small for the model, or CPU
	// use cannot be read.
	RegimeStep Regime = "step"
	// RegimeModel: limit and use are known.
	RegimeModel Regime = "model"
)

// sentence says what a regime means for capacity.
func (r Regime) sentence() string {
	switch r {
	case RegimeUnlimited:
		return "no CPU limit is known, so capacity follows latency, up to max_in_flight"
	case RegimeStep:
		return "the CPU limit is small or CPU use cannot be read, so capacity follows stalls and latency"
	case RegimeModel:
		return "the CPU limit is known, so capacity follows CPU use, stalls and latency"
	}
	return "nothing was sampled yet, so capacity is max_in_flight"
}

// sample is what happened since the one before.
type sample struct {
	slots   window // all but the CPU figures
	served  int
	time    float64 // slot time of served, s
	cpu     reading
	before  reading // of the last sample
	primed  bool    // before is set
	failed  bool    // the limit could not be read
	threads int     // that can run at once: bounds how much throttled time fits into a second
}

// controller combines the three signals (G2). It is pure: no clock, lock or log.
type controller struct {
	cfg     Config
	model   model
	step    step
	latency latency
	plan    plan
	regime  Regime
	verdict Verdict
	cuts    uint64
	stall   float64 // share of the last sample's time, 0 if unknown
	stalled float64 // seconds in all
	limit   float64 // cores, 0 if none
	misses  int     // samples in a row in which the limit could not be read
}

func newController(cfg Config) *controller {
	ceiling := float64(cfg.MaxInFlight)
	return &controller{
		cfg: cfg, model: model{m: ceiling}, step: newStep(ceiling, cfg.Step),
		latency: latency{a: ceiling}, plan: wholePlan(ceiling), regime: RegimeUnknown,
		verdict: VerdictGrowing,
	}
}

// maxStretch is how many times its nominal length a sample may have before it
// is dropped: the machine was suspended.
const maxStretch = 3

// observe folds one sample in and publishes a new plan.
func (c *controller) observe(s sample) {
	ceiling := float64(c.cfg.MaxInFlight)
	if c.misses++; !s.failed {
		c.misses = 0
	}
	if s.failed && c.misses <= heldMisses {
		s.cpu.Limit = c.limit
	}
	c.limit = s.cpu.Limit
	o, stall, stallKnown := s.interpret(c.cfg)
	c.stall = stall
	c.stalled += stall * s.slots.seconds
	binding := c.cfg.Latency.Enabled && c.latency.a <= math.Min(c.step.p, c.model.capacity(ceiling))+epsilon

	c.verdict = c.model.observe(c.cfg, o)
	switch {
	case !c.cfg.Step.Enabled || s.cpu.Limit <= 0:
		c.step = newStep(ceiling, c.cfg.Step)
	case c.step.observe(c.cfg.Step, ceiling, s.slots.seconds, stall, stallKnown && o.exhausted(), c.plan.mean):
		c.cuts++
		if c.model.governs {
			c.model.cut(c.step.p)
			c.verdict = VerdictCut
		}
	}
	if c.cfg.Latency.Enabled {
		c.latency.observe(c.cfg.Latency, ceiling, s.slots, s.served, s.time, binding)
	}
	c.publish(s)
}

// exhausted reports whether the limit was used up in the sample, as far as is
// known. Below it a stall is a burst that met the end of a quota period: fewer slots
// would waste what the quota has left.
func (o observation) exhausted() bool {
	return !o.unchanged || o.cores() >= pinnedShare*o.limit
}

// publish is G2 and G4. Where a CPU limit binds, the capacity is honoured as a
// mean by even starts; where the latency limit or the ceiling does, it is a whole number.
func (c *controller) publish(s sample) {
	whole := math.Floor(math.Min(c.latency.a, float64(c.cfg.MaxInFlight)) + epsilon)
	byCPU := math.Min(c.model.capacity(whole), c.step.p)
	if c.model.governs && byCPU < whole {
		c.plan = pacedPlan(byCPU)
		c.plan.peak = min(c.plan.peak, int(whole))
	} else {
		c.plan = wholePlan(math.Min(whole, byCPU))
	}
	switch {
	case s.cpu.Limit <= 0:
		c.regime = RegimeUnlimited
	case c.model.governs:
		c.regime = RegimeModel
	default:
		c.regime = RegimeStep
	}
}

// interpret turns two readings into differences. Whatever does not make sense
// is dropped rather than believed.
func (s sample) interpret(cfg Config) (o observation, stall float64, stallKnown bool) {
	o = observation{window: s.slots, limit: s.cpu.Limit}
	a, b := s.before, s.cpu
	elapsed := b.At - a.At
	sane := s.primed && elapsed > 0 && elapsed <= maxStretch*cfg.SampleInterval
	same := sane && a.Source == b.Source
	o.readable = b.UsageKnown
	o.unchanged = same && a.UsageKnown && b.UsageKnown && a.Limit == b.Limit && b.Usage >= a.Usage && s.slots.seconds > 0
	if o.unchanged {
		// Divided by the time between the readings, not between the samples.
		o.cpuTime = (b.Usage - a.Usage).Seconds() / elapsed.Seconds() * s.slots.seconds
	}
	if same && b.Periods >= a.Periods && b.ThrottledPeriods >= a.ThrottledPeriods {
		o.periods, o.throttled = b.Periods-a.Periods, b.ThrottledPeriods-a.ThrottledPeriods
	}
	stall, stallKnown = s.stall(elapsed, sane, same)
	o.stalled = stall * s.slots.seconds
	return o, stall, stallKnown
}

// stall is the share of the time for which the container stood still for CPU:
// by the kernel's pressure figure, else by throttled time, which is counted once
// per processor.
func (s sample) stall(elapsed time.Duration, sane, same bool) (float64, bool) {
	a, b := s.before, s.cpu
	switch {
	case sane && a.PressureKnown && b.PressureKnown && b.Pressure >= a.Pressure:
		return math.Min(1, (b.Pressure-a.Pressure).Seconds()/elapsed.Seconds()), true
	case same && a.ThrottledKnown && b.ThrottledKnown && b.Throttled >= a.Throttled:
		share := (b.Throttled - a.Throttled).Seconds() / elapsed.Seconds() / float64(max(1, s.threads))
		return math.Min(1, share), true
	}
	return 0, false
}
