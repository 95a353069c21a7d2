package governor

import (
	"math"
	"math/rand/v2"
	"slices"
	"time"
)

// simStep is the resolution of simulated time.
const simStep = 500 * time.Microsecond

// simMachine is a container with a CPU quota as the kernel enforces it: threads
// run until the period's quota is gone, then all stand still until the next.
type simMachine struct {
	limit   float64 // cores; 0 for no quota
	threads int     // that run at once
	period  time.Duration
	left    time.Duration // of this period's quota
	hit     bool          // the quota ran out in this period
	idleUse float64       // cores used by other work of the container
	spent   time.Duration // by that work, owed in whole steps
	cpu     reading
}

// simBatch is one batch: CPU work, then a wait, holding its slot for both.
type simBatch struct {
	key                                 string
	work                                time.Duration // CPU left
	wait                                time.Duration
	arrived, started, cpuDone, finished time.Duration
	waitLimit                           time.Duration
	lease                               lease
	waiter                              *waiter
	worker                              bool // its sender sends the next one when it is done
}

// sim runs the real dispatcher and controller against the machine.
type sim struct {
	rng        *rand.Rand
	machine    simMachine
	dispatcher *dispatcher
	controller *controller
	cfg        Config
	now        time.Duration
	work, wait time.Duration
	jitter     float64 // of work and wait, as a fraction

	runnable []*simBatch
	waiting  []*simBatch // for a slot
	sleeping []*simBatch
	done     []*simBatch
	shed     []*simBatch
	sheds    []*Shed
	trace    []simPoint

	turnsLeft  int // of the scheduler's time slice, in steps
	lastTotals totals
	lastSample time.Duration
	lastCPU    reading
	primed     bool
	// arrive is called at each step and may submit batches.
	arrive func(s *sim)
	// finish is called when a batch is done.
	finish func(s *sim, b *simBatch)
}

// simPoint is one sample of the controller.
type simPoint struct {
	at       time.Duration
	capacity float64
	inFlight float64 // mean
	cpu      float64 // cores
	wall     float64 // mean wall time of CPU parts that ended, s
	latency  float64 // p99 of arrival to end, s
	verdict  Verdict
}

func newSim(cfg Config, seed uint64, limit float64) *sim {
	c := newController(cfg)
	return &sim{
		rng: rand.New(rand.NewPCG(seed, 1)), cfg: cfg, controller: c, dispatcher: newDispatcher(c.plan, cfg.Wait),
		machine: simMachine{limit: limit, threads: 2, period: 100 * time.Millisecond},
		work:    21500 * time.Microsecond, wait: 400 * time.Millisecond, jitter: 0.1,
	}
}

func (s *sim) spread(d time.Duration) time.Duration {
	return time.Duration(float64(d) * (1 + s.jitter*(2*s.rng.Float64()-1)))
}

// submit asks for a slot for one batch.
func (s *sim) submit(key string, worker bool) *simBatch {
	b := &simBatch{key: key, arrived: s.now, work: s.spread(s.work), wait: s.spread(s.wait), worker: worker}
	s.ask(b)
	return b
}

func (s *sim) ask(b *simBatch) {
	w, limit, shed := s.dispatcher.admit(s.now, b.key, &b.lease, -1, s.rng.Float64())
	switch {
	case shed != nil:
		s.refuse(b, shed)
	case w == nil:
		s.start(b)
	default:
		b.waiter, b.waitLimit = w, limit
		s.waiting = append(s.waiting, b)
	}
}

func (s *sim) refuse(b *simBatch, shed *Shed) {
	s.shed = append(s.shed, b)
	s.sheds = append(s.sheds, shed)
}

func (s *sim) start(b *simBatch) {
	b.started = b.lease.start
	s.runnable = append(s.runnable, b)
}

// collect starts the batches whose wait is over.
func (s *sim) collect() {
	s.waiting = slices.DeleteFunc(s.waiting, func(b *simBatch) bool {
		switch {
		case b.waiter.state == stateGranted:
			s.start(b)
		case b.waiter.state == stateDisplaced:
			s.refuse(b, b.waiter.shed)
		case s.now-b.arrived >= b.waitLimit && s.dispatcher.leave(s.now, b.waiter):
			s.refuse(b, s.dispatcher.shed(b.waiter.flow, ReasonTimeout, b.waitLimit, s.rng.Float64()))
		default:
			return false
		}
		return true
	})
}

func (s *sim) run(until time.Duration) {
	for ; s.now < until; s.now += simStep {
		s.dispatcher.tick(s.now)
		s.collect()
		if s.now >= s.lastSample+s.cfg.SampleInterval || !s.primed {
			s.sample()
		}
		s.collect()
		s.endWaits()
		if s.arrive != nil {
			s.arrive(s)
		}
		s.collect()
		s.spend()
	}
}

// endWaits gives back the slots of batches that are done.
func (s *sim) endWaits() {
	var ended []*simBatch
	s.sleeping = slices.DeleteFunc(s.sleeping, func(b *simBatch) bool {
		if b.finished > s.now {
			return false
		}
		ended = append(ended, b)
		return true
	})
	for _, b := range ended {
		s.dispatcher.giveBack(s.now, &b.lease, completed)
		s.done = append(s.done, b)
		s.collect()
		if s.finish != nil {
			s.finish(s, b)
		}
		if b.worker {
			s.submit(b.key, true)
		}
	}
}

// spend gives the step's CPU to the first threads batches, in time slices of
// 10 ms as the Go scheduler does.
func (s *sim) spend() {
	m := &s.machine
	if s.now%m.period == 0 {
		m.newPeriod()
	}
	if m.spent += time.Duration(m.idleUse * float64(simStep)); m.spent >= simStep {
		m.use(simStep)
		m.spent -= simStep
	}
	n := min(m.threads, len(s.runnable))
	ran := 0
	for ; ran < n && (m.limit == 0 || m.left > 0); ran++ {
		m.use(simStep)
		s.runnable[ran].work -= simStep
	}
	if ran < n {
		m.hit = true
		m.cpu.Throttled += time.Duration(n-ran) * simStep
	}
	s.runnable = slices.DeleteFunc(s.runnable, func(b *simBatch) bool {
		if b.work > 0 {
			return false
		}
		b.cpuDone = s.now + simStep
		b.finished = b.cpuDone + b.wait
		s.sleeping = append(s.sleeping, b)
		return true
	})
	if s.turnsLeft--; s.turnsLeft <= 0 && len(s.runnable) > m.threads {
		s.turnsLeft = 20
		s.runnable = append(s.runnable[m.threads:], s.runnable[:m.threads]...)
	}
}

func (m *simMachine) newPeriod() {
	m.left = time.Duration(m.limit * float64(m.period))
	m.cpu.Periods++
	if m.hit {
		m.cpu.ThrottledPeriods++
		m.hit = false
	}
}

func (m *simMachine) use(d time.Duration) {
	m.left -= d
	m.cpu.Usage += d
}

// sample is what Governor.sample does.
func (s *sim) sample() {
	d, m := s.dispatcher, &s.machine
	d.advance(s.now)
	cpu := m.cpu
	cpu.At, cpu.Limit, cpu.UsageKnown, cpu.ThrottledKnown = s.now, m.limit, true, true
	if m.limit > 0 {
		cpu.Source = "sim"
	}
	t, last := d.totals, s.lastTotals
	slots := window{
		seconds: (s.now - s.lastSample).Seconds(), slotTime: t.slotTime - last.slotTime, capTime: t.capTime - last.capTime,
		waitTime: t.waitTime - last.waitTime, completions: t.completions - last.completions, arrivals: t.arrivals - last.arrivals,
	}
	s.controller.observe(sample{
		slots: slots, served: t.served - last.served, time: t.servedTime - last.servedTime,
		cpu: cpu, before: s.lastCPU, primed: s.primed, threads: m.threads,
	})
	d.setPlan(s.now, s.controller.plan)
	if s.primed {
		s.note(slots, (cpu.Usage - s.lastCPU.Usage).Seconds())
	}
	s.lastTotals, s.lastSample, s.lastCPU, s.primed = t, s.now, cpu, true
}

func (s *sim) note(w window, cpu float64) {
	s.trace = append(s.trace, simPoint{
		at: s.now, capacity: s.controller.plan.mean, inFlight: w.inFlight(), cpu: cpu / w.seconds,
		wall: s.wall(s.lastSample, s.now), latency: s.latency(s.lastSample, s.now, 0.99), verdict: s.controller.verdict,
	})
}

// between selects the batches that finished in [from, to).
func (s *sim) between(from, to time.Duration) []*simBatch {
	var in []*simBatch
	for i := len(s.done) - 1; i >= 0 && s.done[i].finished >= from; i-- {
		if s.done[i].finished < to {
			in = append(in, s.done[i])
		}
	}
	return in
}

// wall is the mean wall time of a CPU part, s.
func (s *sim) wall(from, to time.Duration) float64 {
	var sum float64
	in := s.between(from, to)
	for _, b := range in {
		sum += (b.cpuDone - b.started).Seconds()
	}
	return sum / math.Max(1, float64(len(in)))
}

// latency is a quantile of the time from arrival to end, s.
func (s *sim) latency(from, to time.Duration, q float64) float64 {
	var all []float64
	for _, b := range s.between(from, to) {
		all = append(all, (b.finished - b.arrived).Seconds())
	}
	if len(all) == 0 {
		return 0
	}
	slices.Sort(all)
	return all[int(q*float64(len(all)-1))]
}

func (s *sim) rate(from, to time.Duration) float64 {
	return float64(len(s.between(from, to))) / (to - from).Seconds()
}

// workers is a closed load: n senders, each of which always has a batch.
func workers(n int) func(*sim) {
	started := false
	return func(s *sim) {
		for ; !started && n > 0; n-- {
			s.submit("heavy", true)
		}
		started = true
	}
}

// poisson is an open load of rate(now) batches per second.
func poisson(rate func(time.Duration) float64) func(*sim) {
	return func(s *sim) {
		for s.rng.Float64() < rate(s.now)*simStep.Seconds() {
			s.submit("open", false)
		}
	}
}

// turns counts how often the capacity changes direction, moves below a slot's
// tenth apart.
func turns(points []simPoint) int {
	n, last := 0, 0.0
	for i := 1; i < len(points); i++ {
		move := points[i].capacity - points[i-1].capacity
		if math.Abs(move) < 0.1 {
			continue
		}
		if last*move < 0 {
			n++
		}
		last = move
	}
	return n
}
