package governor

import (
	"cmp"
	"context"
	"log/slog"
	"math"
	"slices"
)

// Snapshot is the governor's state at one instant, as /api/v1/governor shows it.
type Snapshot struct {
	// Regime says which signals can govern, Problem why not more of them can.
	Regime  Regime `json:"regime"`
	Problem string `json:"problem,omitempty"`
	// Capacity is max(1, min(step, ⌊model⌋, ⌊latency⌋)); Mean is the real number
	// that it is on average, Peak how many slots may be in use at one instant.
	Capacity int     `json:"capacity"`
	Mean     float64 `json:"mean_capacity"`
	Peak     int     `json:"peak"`
	Ceiling  int     `json:"max_in_flight"`
	// Model, Step and Latency are M, P and A; one that is switched off or
	// stands aside shows the ceiling.
	Model   float64 `json:"model"`
	Step    float64 `json:"step"`
	Latency float64 `json:"latency"`
	// InFlight and Waiting count batches, Guaranteed is what each flow with
	// work is owed.
	InFlight   int `json:"in_flight"`
	Waiting    int `json:"waiting"`
	Guaranteed int `json:"guaranteed"`
	// Arrivals, Completions and Cuts count since start.
	Arrivals    int    `json:"arrivals"`
	Completions int    `json:"completions"`
	Cuts        uint64 `json:"step_cuts"`

	CPU      CPUSnapshot      `json:"cpu"`
	Decision DecisionSnapshot `json:"model_decision"`
	Batch    BatchSnapshot    `json:"batch_time"`
	// Flows lists the flows with work, those with most waiting first, at most 100.
	Flows []FlowSnapshot `json:"flows"`
}

// CPUSnapshot is in cores and seconds. Used, PerBatch and Required are as old as
// the last window that the model judged, up to five minutes.
type CPUSnapshot struct {
	Source     string  `json:"source,omitempty"` // the cgroup that owns the limit
	Limit      float64 `json:"limit_cores"`      // 0 for none
	Used       float64 `json:"used_cores"`
	Background float64 `json:"background_cores"`
	PerBatch   float64 `json:"per_batch_seconds"`
	// Required is the limit at which the arrivals would use the target: a lower
	// bound while batches wait or are shed.
	Required  float64 `json:"required_cores"`
	Throttled float64 `json:"throttled_seconds"` // of the cgroup, since it was made, over all processors
	Stall     float64 `json:"stall_ratio"`       // share of the last sample's time
	Stalled   float64 `json:"stalled_seconds"`   // since start
}

// DecisionSnapshot is why the model last moved, or did not.
type DecisionSnapshot struct {
	// Verdict is about the last sample, Judged about the last whole window.
	Verdict Verdict `json:"verdict"`
	Judged  Verdict `json:"judged,omitempty"`
	// Ratio is r = (target·L - B)/(U - B), 0 where there was none; Wanted is N·r.
	Ratio  float64 `json:"ratio"`
	Wanted float64 `json:"wanted"`
	Window float64 `json:"window_seconds"`
}

// BatchSnapshot is in seconds of slot time.
type BatchSnapshot struct {
	Mean     float64 `json:"mean_seconds"`
	Best     float64 `json:"best_seconds"`
	Gradient float64 `json:"gradient"`
}

// FlowSnapshot is one flow with work.
type FlowSnapshot struct {
	Flow     string  `json:"flow"`
	InFlight int     `json:"in_flight"`
	Waiting  int     `json:"waiting"`
	Arrivals uint64  `json:"arrivals"`
	Shed     uint64  `json:"shed"`
	Mean     float64 `json:"mean_batch_seconds"`
}

const snapshotFlows = 100

// Snapshot returns a copy of the state; it does not block for longer than an
// Acquire does.
func (g *Governor) Snapshot() Snapshot {
	g.mu.Lock()
	defer g.mu.Unlock()
	d, c := g.dispatcher, g.controller
	d.advance(g.now())
	ceiling := float64(g.cfg.MaxInFlight)
	s := Snapshot{
		Regime: c.regime, Capacity: int(d.mean + epsilon), Mean: d.mean, Peak: d.peak, Ceiling: g.cfg.MaxInFlight,
		Model: c.model.capacity(ceiling), Step: c.step.p, Latency: c.latency.a,
		InFlight: d.inFlight, Waiting: d.waiting, Guaranteed: d.guaranteed(),
		Arrivals: d.totals.arrivals, Completions: d.totals.completions, Cuts: c.cuts,
		CPU: CPUSnapshot{
			Source: g.cpu.Source, Limit: c.limit, Used: c.model.cores, Background: c.model.background.cores,
			PerBatch: c.model.perBatch(), Required: c.model.required(g.cfg.Model.Target),
			Throttled: g.cpu.Throttled.Seconds(), Stall: c.stall, Stalled: c.stalled,
		},
		Decision: DecisionSnapshot{
			Verdict: c.verdict, Judged: c.model.judged.verdict, Ratio: finite(c.model.judged.ratio),
			Wanted: c.model.judged.wanted, Window: c.model.last.seconds,
		},
		Batch: BatchSnapshot{Mean: d.meanSlot, Best: c.latency.best, Gradient: c.latency.gradient()},
		Flows: []FlowSnapshot{},
	}
	if g.cpuErr != nil {
		s.Problem = g.cpuErr.Error()
	}
	for _, f := range d.flows {
		if !f.idle() {
			s.Flows = append(s.Flows, FlowSnapshot{
				Flow: f.key, InFlight: f.inFlight, Waiting: f.waiting, Arrivals: f.arrivals, Shed: f.shed, Mean: f.guess,
			})
		}
	}
	slices.SortFunc(s.Flows, func(a, b FlowSnapshot) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), cmp.Compare(b.InFlight, a.InFlight), cmp.Compare(a.Flow, b.Flow))
	})
	s.Flows = s.Flows[:min(len(s.Flows), snapshotFlows)]
	return s
}

// finite shows an infinite ratio as 0: JSON has no word for it.
func finite(x float64) float64 {
	if math.IsInf(x, 0) {
		return 0
	}
	return x
}

// decision is one line of the log, taken under the lock and written outside of it.
type decision struct {
	verdict          Verdict
	regime, previous Regime
	problem          error
	attrs            []slog.Attr
}

func (g *Governor) decisionLocked(previous Regime, before plan) decision {
	c, d := g.controller, g.dispatcher
	return decision{
		verdict: c.verdict, regime: c.regime, previous: previous, problem: g.cpuErr,
		attrs: []slog.Attr{
			slog.String("verdict", string(c.verdict)), slog.Float64("capacity", c.plan.mean), slog.Float64("before", before.mean),
			slog.Float64("model", c.model.m), slog.Float64("step", c.step.p), slog.Float64("latency", c.latency.a),
			slog.Float64("ratio", finite(c.model.judged.ratio)), slog.Float64("cpu_limit", c.limit), slog.Float64("cpu_used", c.model.cores),
			slog.Float64("background", c.model.background.cores), slog.Float64("stall", c.stall),
			slog.Int("in_flight", d.inFlight), slog.Int("waiting", d.waiting),
		},
	}
}

// log writes a line per decision at debug level and one per change of regime
// at info level.
func (d decision) log(logger *slog.Logger) {
	if d.regime != d.previous {
		attrs := []slog.Attr{slog.String("regime", string(d.regime))}
		if d.previous != RegimeUnknown { // else the program has just begun
			attrs = append(append(attrs, slog.String("previous", string(d.previous))), d.attrs...)
		}
		if d.problem != nil {
			attrs = append(attrs, slog.String("problem", d.problem.Error()))
		}
		logger.LogAttrs(context.Background(), slog.LevelInfo, "governor: "+d.regime.sentence(), attrs...)
		return
	}
	logger.LogAttrs(context.Background(), slog.LevelDebug, "governor: sample", d.attrs...)
}
