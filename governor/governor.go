package governor

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Governor hands out slots. Its methods may be called from any goroutine.
type Governor struct {
	cfg     Config
	logger  *slog.Logger
	metrics *metrics
	cgroups *cgroups // used by Run alone
	begun   time.Time

	mu         sync.Mutex // guards all below; held for arithmetic only, never across I/O
	dispatcher *dispatcher
	controller *controller
	cpu        reading       // of the last sample
	cpuErr     error         // of the last sample
	wakeTimer  *time.Timer   // nil until a batch first waits for the pace
	wakeAt     time.Duration // for when wakeTimer is set, 0 if it is not
}

// Slot is the right to process one batch.
type Slot struct {
	governor *Governor
	lease    lease
	waited   time.Duration
	failed   bool
	released bool // guarded by governor.mu
}

// New makes a governor whose capacity is the ceiling until Run has sampled. It
// starts nothing and reads nothing. The metrics are registered with reg, which may be nil. It
// fails on an invalid configuration and on metrics that are registered already.
func New(cfg Config, reg prometheus.Registerer, logger *slog.Logger) (*Governor, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	c := newController(cfg)
	g := &Governor{
		cfg: cfg, logger: logger, begun: time.Now(), cgroups: newCgroups(os.DirFS("/")),
		controller: c, dispatcher: newDispatcher(c.plan, cfg.Wait),
	}
	g.metrics = newMetrics(g.Snapshot)
	if reg != nil {
		if err := reg.Register(g.metrics); err != nil {
			return nil, fmt.Errorf("governor metrics: %w", err)
		}
	}
	return g, nil
}

// now is the time that the dispatcher knows. It is read under mu, so that no
// slot time lies after the instant that a sample is judged at.
func (g *Governor) now() time.Duration { return time.Since(g.begun) }

// Acquire returns a slot for a batch of the flow, at once or after a fair wait.
// It fails with a *Shed when the batch must not wait (any longer), and with
// ctx's error when the client left. A quarter of the time to ctx's deadline may be spent
// waiting. The caller owns the slot and must release it on every way out.
func (g *Governor) Acquire(ctx context.Context, flow string) (*Slot, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	left := time.Duration(-1)
	if deadline, ok := ctx.Deadline(); ok {
		left = max(0, time.Until(deadline))
	}
	s := &Slot{governor: g}
	g.mu.Lock()
	w, limit, shed := g.dispatcher.admit(g.now(), flow, &s.lease, left, rand.Float64())
	g.armLocked()
	g.mu.Unlock()
	switch {
	case shed != nil:
		return nil, g.refuse(shed)
	case w == nil:
		return s, nil
	}
	return g.wait(ctx, s, w, limit)
}

// wait ends when the batch gets its slot, is displaced, has waited for limit,
// or its client leaves.
func (g *Governor) wait(ctx context.Context, s *Slot, w *waiter, limit time.Duration) (*Slot, error) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-w.ready:
	case <-timer.C:
		if shed := g.giveUp(w); shed != nil {
			return nil, g.refuse(shed)
		}
	case <-ctx.Done():
		g.abandon(s, w)
		return nil, ctx.Err()
	}
	if w.state == stateDisplaced {
		return nil, g.refuse(w.shed)
	}
	s.waited = s.lease.start - w.arrived
	g.metrics.waited.Observe(s.waited.Seconds())
	return s, nil
}

// giveUp ends a wait that has lasted as long as it may. It returns nil if the
// batch was granted or displaced in the same moment.
func (g *Governor) giveUp(w *waiter) *Shed {
	g.mu.Lock()
	defer g.mu.Unlock()
	left := g.dispatcher.leave(g.now(), w)
	g.armLocked()
	if !left {
		return nil
	}
	return g.dispatcher.shed(w.flow, ReasonTimeout, g.dispatcher.at-w.arrived, rand.Float64())
}

// abandon ends a wait whose client left. A slot granted in the same moment
// goes back.
func (g *Governor) abandon(s *Slot, w *waiter) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.dispatcher.leave(g.now(), w) && w.state == stateGranted {
		g.dispatcher.giveBack(g.now(), &s.lease, unused)
	}
	g.armLocked()
}

func (g *Governor) refuse(shed *Shed) error {
	g.metrics.shed[shed.Reason].Inc()
	return shed
}

// Failed marks the batch as one that did not end well, so that a sink which
// refuses quickly is not taken for a fast one. It must not be called after Release.
func (s *Slot) Failed() { s.failed = true }

// Waited is how long the batch waited for the slot.
func (s *Slot) Waited() time.Duration { return s.waited }

// Release gives the slot back. It does not block; calls after the first do
// nothing, so that it can be deferred and called early.
func (s *Slot) Release() {
	g := s.governor
	g.mu.Lock()
	defer g.mu.Unlock()
	if s.released {
		return
	}
	s.released = true
	how := completed
	if s.failed {
		how = failed
	}
	g.dispatcher.giveBack(g.now(), &s.lease, how)
	g.armLocked()
}

// armLocked sets the timer for the next start of the pace, if a batch waits
// for it. The caller holds mu.
func (g *Governor) armLocked() {
	at, ok := g.dispatcher.wake()
	if !ok || at == g.wakeAt {
		return
	}
	g.wakeAt = at
	delay := at - g.dispatcher.at
	if g.wakeTimer == nil {
		g.wakeTimer = time.AfterFunc(delay, g.wake)
		return
	}
	g.wakeTimer.Reset(delay)
}

// wake grants what has become free by the passing of time. A wake that comes
// too early or for nothing sets the timer again or does nothing.
func (g *Governor) wake() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.wakeAt = 0
	g.dispatcher.tick(g.now())
	g.armLocked()
}

// Run samples the CPU and moves the capacity until ctx is done, whose error it
// returns. Without it the capacity stays at the ceiling. It must be called once.
func (g *Governor) Run(ctx context.Context) error {
	ticker := time.NewTicker(g.cfg.SampleInterval)
	defer ticker.Stop()
	var last totals
	var lastAt time.Duration
	for first := true; ; first = false {
		cpu, err := g.cgroups.read(g.now)
		threads := g.cgroups.parallel()
		last, lastAt = g.sample(cpu, err, threads, last, lastAt, first)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// sample folds one reading and the slots' totals since the last one in, under
// one lock with one clock reading.
func (g *Governor) sample(cpu reading, err error, threads int, last totals, lastAt time.Duration, first bool) (totals, time.Duration) {
	g.mu.Lock()
	d, c := g.dispatcher, g.controller
	now := g.now()
	d.advance(now)
	t := d.totals
	regime, before := c.regime, c.plan
	c.observe(sample{
		slots: window{
			seconds: (now - lastAt).Seconds(), slotTime: t.slotTime - last.slotTime, capTime: t.capTime - last.capTime,
			waitTime: t.waitTime - last.waitTime, completions: t.completions - last.completions, arrivals: t.arrivals - last.arrivals,
		},
		served: t.served - last.served, time: t.servedTime - last.servedTime,
		cpu: cpu, before: g.cpu, primed: !first, failed: err != nil && cpu.Limit == 0, threads: threads,
	})
	g.cpu, g.cpuErr = cpu, err
	d.setPlan(now, c.plan)
	d.forget(now)
	g.armLocked()
	decision := g.decisionLocked(regime, before)
	g.mu.Unlock()
	decision.log(g.logger)
	g.metrics.verdicts[decision.verdict].Inc()
	return t, now
}
