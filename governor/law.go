package governor

import (
	"math"
	"time"
)

// The constants of the six rules; doc.go tells where each comes from.
const (
	usedShare      = 0.9  // rule 2: of the capacity's integral
	waitedShare    = 0.5  // rule 2: of the window's time
	pinnedShare    = 0.98 // rule 3: of the limit
	riseFactor     = 2.0  // rule 4
	barelyUsed     = 0.05 // rule 4: of the limit
	fallFactor     = 0.5  // rule 5
	throttledShare = 0.1  // rule 5: of the quota's periods
	kneeShare      = 0.9  // rule 5: N·r below this part of M is a fall
	maxIntervals   = 30   // after which a window is judged whatever it holds
	decisiveMove   = 0.5  // a move that needs the least completions and no full window
	unhurried      = 1.1  // r above which d is taken for d₀
	unhurriedShare = 0.3  // weight of the newest window in d₀
)

// Verdict says what the model did with a sample, and why.
type Verdict string

// The verdicts, each a value of spillway_governor_model_verdicts_total.
const (
	VerdictOff          Verdict = "off"           // switched off: M is the ceiling
	VerdictNoLimit      Verdict = "no_limit"      // no CPU limit: M is the ceiling
	VerdictSmallLimit   Verdict = "small_limit"   // the limit is below min_cpu_limit: M is the ceiling
	VerdictUnreadable   Verdict = "unreadable"    // CPU use cannot be read: M is held, then the ceiling
	VerdictReset        Verdict = "reset"         // the limit, the cgroup or the counter changed: window dropped
	VerdictIdle         Verdict = "idle"          // nothing in flight: feeds the background only
	VerdictGrowing      Verdict = "growing"       // the window holds too little to be judged
	VerdictRose         Verdict = "rose"          // slots used, CPU below the target
	VerdictBarelyUsed   Verdict = "barely_used"   // slots used, CPU hardly: doubled
	VerdictUnused       Verdict = "unused"        // below the target, slots not used
	VerdictSettled      Verdict = "settled"       // within the tolerance
	VerdictFell         Verdict = "fell"          // CPU above the target
	VerdictPinned       Verdict = "pinned"        // CPU at its limit: fell by the time that batches lost
	VerdictBackground   Verdict = "background"    // the background alone is at the target: halved
	VerdictKnee         Verdict = "knee"          // below the target but throttled: fell to what the target needs
	VerdictCut          Verdict = "cut"           // the step cut, M follows
	VerdictInitialLimit Verdict = "initial_limit" // a limit was found: M starts small
)

func verdicts() []Verdict {
	return []Verdict{
		VerdictOff, VerdictNoLimit, VerdictSmallLimit, VerdictUnreadable, VerdictReset, VerdictIdle,
		VerdictGrowing, VerdictRose, VerdictBarelyUsed, VerdictUnused, VerdictSettled, VerdictFell,
		VerdictPinned, VerdictBackground, VerdictKnee, VerdictCut, VerdictInitialLimit,
	}
}

// window is a sum of samples in which something ran.
type window struct {
	seconds     float64
	slotTime    float64 // slot-seconds
	capTime     float64 // slot-seconds
	waitTime    float64 // seconds during which some batch waited
	cpuTime     float64 // core-seconds
	completions int
	arrivals    int
	periods     uint64  // quota periods, 0 if unknown
	throttled   uint64  // of them, those in which the quota ran out
	stalled     float64 // seconds for which the container stood still for CPU
}

func (w *window) add(o window) {
	w.seconds += o.seconds
	w.slotTime += o.slotTime
	w.capTime += o.capTime
	w.waitTime += o.waitTime
	w.cpuTime += o.cpuTime
	w.completions += o.completions
	w.arrivals += o.arrivals
	w.periods += o.periods
	w.throttled += o.throttled
	w.stalled += o.stalled
}

// N, U and d.
func (w window) inFlight() float64 { return w.slotTime / w.seconds }
func (w window) cores() float64    { return w.cpuTime / w.seconds }
func (w window) meanSlot() float64 { return w.slotTime / float64(max(1, w.completions)) }

// slotsUsed is rule 2's proof that more slots would have been used.
func (w window) slotsUsed() bool {
	return w.slotTime >= usedShare*w.capTime || w.waitTime >= waitedShare*w.seconds
}

func (w window) throttledOften() bool {
	return w.periods > 0 && float64(w.throttled) >= throttledShare*float64(w.periods)
}

// lawInput is all that the law knows.
type lawInput struct {
	window     window
	m          float64 // M, slots
	ceiling    float64 // slots
	limit      float64 // L, cores
	background float64 // B, cores
	unhurried  float64 // d₀, s; 0 if not yet known
	target     float64
	tolerance  float64
}

// judgement is what the law makes of a window.
type judgement struct {
	m       float64
	verdict Verdict
	ratio   float64 // r; +Inf where the CPU was barely used
	wanted  float64 // N·r, after what saturation hides; slots
}

// law is the model: a pure function of one window with slot time in it.
func law(in lawInput) judgement {
	w := in.window
	used := w.cores()
	// B at or above U would turn the ratio around.
	background := math.Min(in.background, 0.9*used)
	work := used - background
	rise := math.Min(riseFactor*in.m, in.ceiling)
	fall := math.Max(1, fallFactor*in.m)

	if work < barelyUsed*in.limit {
		j := judgement{m: in.m, verdict: VerdictUnused, ratio: math.Inf(1), wanted: riseFactor * in.m}
		if w.slotsUsed() {
			j.m, j.verdict = rise, VerdictBarelyUsed
		}
		return j
	}
	goal := in.target*in.limit - background
	if goal <= 0 {
		return judgement{m: fall, verdict: VerdictBackground, wanted: 1}
	}
	j := judgement{m: in.m, ratio: goal / work}
	j.wanted = w.inFlight() * j.ratio
	switch pinned := used >= pinnedShare*in.limit; {
	case pinned:
		j.wanted *= in.hidden()
		j.verdict = VerdictPinned
		j.m = clamp(math.Min(in.m, j.wanted), fall, in.m)
	case math.Abs(j.ratio-1) <= in.tolerance+epsilon:
		j.verdict = VerdictSettled
	case j.ratio < 1:
		j.verdict = VerdictFell
		j.m = clamp(math.Min(in.m, j.wanted), fall, in.m)
	case w.slotsUsed() && j.wanted > in.m:
		j.verdict = VerdictRose
		j.m = math.Min(j.wanted, math.Max(in.m, rise))
	case w.slotsUsed():
		j.verdict = VerdictUnused // what would be wanted is there already
	case w.throttledOften() && j.wanted < kneeShare*in.m:
		j.verdict = VerdictKnee
		j.m = clamp(j.wanted, fall, in.m)
	default:
		j.verdict = VerdictUnused
	}
	return j
}

// hidden is the factor by which the batches in flight at saturation exceed what
// their throughput needs: Little's law with the time that a batch takes when
// nothing queues, or else the part of the time that was not lost to throttling.
func (in lawInput) hidden() float64 {
	if in.unhurried > 0 {
		return math.Min(1, in.unhurried/in.window.meanSlot())
	}
	return 1 - math.Min(1, in.window.stalled/in.window.seconds)
}

func clamp(x, low, high float64) float64 { return math.Max(low, math.Min(x, high)) }

// model holds M and what the law needs from one window to the next.
type model struct {
	m          float64 // M, slots; kept while the model stands aside
	started    bool    // a limit was known once
	governs    bool    // M counts
	limit      float64 // L of the window, cores
	window     window
	unhurried  float64 // d₀, s
	background background
	misses     int // samples in a row in which use could not be read
	// judged is the last judgement, last the window that it was about, and
	// cores its U.
	judged judgement
	last   window
	cores  float64
}

// heldMisses is for how many samples M is held when the CPU cannot be read: one
// failed read must not release everything.
const heldMisses = 3

// observation is what one sample tells the model.
type observation struct {
	window
	limit     float64 // cores, 0 for none
	readable  bool    // the usage counter could be read
	unchanged bool    // cpuTime is known: the same cgroup, limit and counter as at the last sample
}

// capacity is M where the model governs, else the ceiling.
func (m *model) capacity(ceiling float64) float64 {
	if m.governs {
		return math.Min(m.m, ceiling)
	}
	return ceiling
}

// observe folds one sample in and moves M.
func (m *model) observe(cfg Config, o observation) Verdict {
	if v := standsAside(cfg.Model, o); v != "" {
		m.governs, m.window = false, window{}
		return v
	}
	if !o.readable {
		m.window = window{}
		if m.misses++; m.misses > heldMisses {
			m.governs = false
		}
		return VerdictUnreadable
	}
	m.misses, m.governs = 0, true
	if !m.started {
		perCore := float64(cfg.Model.StartPerCore)
		m.started, m.limit = true, o.limit
		m.m = math.Min(float64(cfg.MaxInFlight), math.Max(perCore, perCore*o.limit))
		return VerdictInitialLimit
	}
	if !o.unchanged || o.limit != m.limit {
		m.limit, m.window = o.limit, window{}
		return VerdictReset
	}
	m.background.age(o.seconds)
	if o.slotTime == 0 {
		m.background.idle(o.cores(), cfg.Model.Target*o.limit)
		return VerdictIdle
	}
	m.window.add(o.window)
	return m.judge(cfg)
}

// standsAside is rule 1 as far as it concerns the limit.
func standsAside(cfg ModelConfig, o observation) Verdict {
	switch {
	case !cfg.Enabled:
		return VerdictOff
	case o.limit <= 0:
		return VerdictNoLimit
	case o.limit < cfg.MinCPULimit-epsilon:
		return VerdictSmallLimit
	}
	return ""
}

// judge applies the law when the window is due or its message is clear.
func (m *model) judge(cfg Config) Verdict {
	w := m.window
	interval := cfg.Model.Interval.Seconds()
	due := w.seconds >= interval-epsilon && w.completions >= cfg.Model.Completions ||
		w.seconds >= maxIntervals*interval-epsilon
	if w.completions < cfg.Model.Completions && !due {
		return VerdictGrowing
	}
	j := law(lawInput{
		window: w, m: m.m, ceiling: float64(cfg.MaxInFlight), limit: m.limit,
		background: m.background.cores, unhurried: m.unhurried,
		target: cfg.Model.Target, tolerance: cfg.Model.Tolerance,
	})
	if !due && !decisive(math.Abs(j.m-m.m)/m.m, w.completions, cfg.Model.Completions) {
		return VerdictGrowing
	}
	m.background.busy(w.cores())
	if j.ratio >= unhurried && w.completions > 0 {
		m.unhurried = smooth(m.unhurried, w.meanSlot(), unhurriedShare)
	}
	m.m, m.judged, m.last, m.cores = j.m, j, w, w.cores()
	m.window = window{}
	return j.verdict
}

// decisive reports whether a relative move is so large that the noise of a
// short window cannot have made it: noise falls with the square root of the count.
func decisive(move float64, completions, minimum int) bool {
	return move >= decisiveMove*math.Sqrt(float64(minimum)/float64(completions))-epsilon
}

// cut is rule 6: M follows a cut by the step.
func (m *model) cut(left float64) {
	m.m = math.Max(1, math.Min(m.m, left))
	m.window = window{}
}

// perBatch is the CPU that one batch took in the last window, core-seconds.
func (m *model) perBatch() float64 {
	if m.last.completions == 0 {
		return 0
	}
	return math.Max(0, m.last.cpuTime-m.background.cores*m.last.seconds) / float64(m.last.completions)
}

// required is the CPU limit, in cores, at which the batches that arrived in the
// last window would have used the target: a lower bound while batches are shed or wait.
func (m *model) required(target float64) float64 {
	if m.last.seconds == 0 {
		return 0
	}
	return (m.background.cores + m.perBatch()*float64(m.last.arrivals)/m.last.seconds) / target
}

// background estimates B from samples with nothing in flight. It starts at 0,
// the safe side: that understates how fast work raises CPU use.
type background struct {
	cores   float64
	mean    float64
	samples int
	busyFor float64 // seconds since the last idle sample
	lowest  float64 // lowest windowed U since then
}

const (
	backgroundWeight  = 0.3
	backgroundSamples = 3   // before the estimate counts
	backgroundShare   = 0.5 // of target·L, its bound
)

// backgroundMemory is for how long an estimate is believed without a new sample.
const backgroundMemory = 30 * time.Minute

func (b *background) age(seconds float64) { b.busyFor += seconds }

// idle folds in a sample; goal is target·L.
func (b *background) idle(cores, goal float64) {
	b.busyFor, b.lowest = 0, 0
	if b.samples++; b.samples == 1 {
		b.mean = cores
	} else {
		b.mean += backgroundWeight * (cores - b.mean)
	}
	if b.samples >= backgroundSamples {
		b.cores = math.Min(b.mean, backgroundShare*goal)
	}
}

// busy notes the use of a window. Background is part of every use, so an old
// estimate above the lowest use is wrong and gives way to it.
func (b *background) busy(cores float64) {
	if b.lowest == 0 || cores < b.lowest {
		b.lowest = cores
	}
	if b.busyFor > backgroundMemory.Seconds() && b.lowest < b.cores {
		b.cores += backgroundWeight * (b.lowest - b.cores)
		b.mean = b.cores
	}
}
