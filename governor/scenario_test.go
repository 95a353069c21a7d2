package governor

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// arm is the configuration of one arm of the published comparison. Without
// governor there is nothing but the 32 workers.
func arm(name string) Config {
	cfg := Defaults()
	cfg.MaxInFlight = 32
	// The workers are a closed load: they wait as long as it takes.
	cfg.Wait = generous()
	cfg.Model.Enabled = name == "step and model"
	cfg.Step.Enabled = name != "off"
	cfg.Latency.Enabled = name == "step and model"
	return cfg
}

func arms() []string { return []string{"off", "step", "step and model"} }

// plot draws a trace as text, a line per step: capacity, in flight, CPU, wall
// time of CPU parts, p99 of the whole time.
func plot(points []simPoint, every int, limit, capacityScale, latencyScale float64) string {
	var b strings.Builder
	bar := func(x, scale float64, width int) string {
		n := min(width, int(math.Round(x/scale*float64(width))))
		return strings.Repeat("#", n) + strings.Repeat(".", width-n)
	}
	fmt.Fprintf(&b, "%6s  %8s %-24s  %8s  %6s %-20s  %7s  %7s %-20s\n",
		"s", "capacity", fmt.Sprintf("0 to %.0f", capacityScale), "inflight", "CPU", "0 to the limit", "wall ms", "p99 s", fmt.Sprintf("0 to %.1f", latencyScale))
	for i := 0; i+every <= len(points); i += every {
		var p simPoint
		for _, q := range points[i : i+every] {
			p.capacity += q.capacity / float64(every)
			p.inFlight += q.inFlight / float64(every)
			p.cpu += q.cpu / float64(every)
			p.wall += q.wall / float64(every)
			p.latency = math.Max(p.latency, q.latency)
		}
		fmt.Fprintf(&b, "%6.0f  %8.2f %s  %8.2f  %5.1f%% %s  %7.1f  %7.2f %s\n",
			points[i+every-1].at.Seconds(), p.capacity, bar(p.capacity, capacityScale, 24), p.inFlight,
			100*p.cpu/limit, bar(p.cpu, limit, 20), 1000*p.wall, p.latency, bar(p.latency, latencyScale, 20))
	}
	return b.String()
}

// The published trade, beaten: 32 workers, 20 ms of CPU and 1.5 ms of overhead,
// then a wait of 400 ms, half a core. Bars: throughput at least 95% of the
// step's alone (here: also of no governor's), mean wall time of the CPU part at
// most 1.5 times an unloaded one, no cuts, over the whole run with its start.
func TestG4TradeBeaten(t *testing.T) {
	const run = 200 * time.Second
	unloaded := 0.0215
	var report strings.Builder
	for _, jitter := range []float64{0, 0.1} {
		rate := map[string]float64{}
		fmt.Fprintf(&report, "work and wait ±%.0f%%\n\n%-16s %10s %10s %10s %8s %6s\n", 100*jitter, "arm", "batches/s", "wall ms", "capacity", "CPU", "cuts")
		for _, name := range arms() {
			s := newSim(arm(name), 1, 0.5)
			s.jitter = jitter
			s.arrive = workers(32)
			s.run(run)
			rate[name] = s.rate(0, run)
			var capacity, cpu float64
			for _, p := range s.trace {
				capacity += p.capacity / float64(len(s.trace))
				cpu += p.cpu / 0.5 / float64(len(s.trace))
			}
			fmt.Fprintf(&report, "%-16s %10.2f %10.1f %10.2f %7.1f%% %6d\n", name, rate[name], 1000*s.wall(0, run), capacity, 100*cpu, s.controller.cuts)
			if name != "step and model" {
				continue
			}
			require.GreaterOrEqual(t, rate[name], 0.95*rate["step"], "throughput, ±%v", jitter)
			require.GreaterOrEqual(t, s.rate(30*time.Second, run), 0.95*rate["off"], "throughput once started, ±%v", jitter)
			require.LessOrEqual(t, s.wall(0, run), 1.5*unloaded, "wall, ±%v", jitter)
			require.Zero(t, s.controller.cuts, "cuts, ±%v", jitter)
			settled := s.trace[15:]
			require.LessOrEqual(t, turns(settled), 1, "capacity keeps still, ±%v", jitter)
			fmt.Fprintf(&report, "\nstep and model:\n%s\n", plot(s.trace, 5, 0.5, 32, 4))
		}
	}
	golden(t, "trade.txt", report.String())
}

// From the ceiling, where an in-place limit puts it, the model needs a few
// windows and no long descent.
func TestG4FallsQuicklyFromTheCeiling(t *testing.T) {
	cfg := arm("step and model")
	cfg.Model.StartPerCore = 32
	s := newSim(cfg, 1, 0.5)
	s.arrive = workers(32)
	s.run(180 * time.Second)
	golden(t, "from-the-ceiling.txt", plot(s.trace[:45], 3, 0.5, 32, 2))
	for _, p := range s.trace[30:] {
		require.InDelta(t, 9.4, p.capacity, 0.7, "at %v", p.at)
	}
}

// Ten times the load within a second: p99 of admitted batches is back under
// twice its earlier value within 30 s, and the capacity turns at most twice in
// the minute after.
func TestG2StepLoad(t *testing.T) {
	const step, run = 80 * time.Second, 180 * time.Second
	for _, base := range []float64{5, 10} {
		for seed := range uint64(3) {
			s := newSim(Defaults(), seed, 0.5)
			s.arrive = poisson(func(now time.Duration) float64 {
				return base * min(10, max(1, 1+9*(now-step).Seconds()))
			})
			s.run(run)
			before := s.latency(step-60*time.Second, step, 0.99)
			for at := step + 30*time.Second; at < run; at += 10 * time.Second {
				require.LessOrEqual(t, s.latency(at, at+10*time.Second, 0.99), 2*before, "%v/s, seed %d, at %v", base, seed, at)
			}
			for _, from := range []time.Duration{step, step + 30*time.Second} { // the minute after the surge, and after the recovery
				var minute []simPoint
				for _, p := range s.trace {
					if p.at >= from && p.at < from+time.Minute {
						minute = append(minute, p)
					}
				}
				require.LessOrEqual(t, turns(minute), 2, "%v/s, seed %d, minute from %v", base, seed, from)
			}
			require.GreaterOrEqual(t, s.rate(step+30*time.Second, run), 0.93*0.5/0.0215, "%v/s, seed %d: the limit is used", base, seed)
			require.Zero(t, s.controller.cuts)
			if base == 10 && seed == 0 {
				golden(t, "step-load.txt", plot(s.trace[30:75], 1, 0.5, 16, 6))
			}
		}
	}
}

// One core, not saturated: no arm loses throughput, and the model finds the
// knee in every run, from below and from above.
func TestG4OneCoreFindsTheKnee(t *testing.T) {
	const run = 160 * time.Second
	var report strings.Builder
	fmt.Fprintf(&report, "one core, 39 batches/s offered, three runs\n\n%-24s %10s %10s %10s\n", "arm", "batches/s", "wall ms", "capacity")
	for seed := range uint64(3) {
		var offered float64
		for _, name := range append(arms(), "model from the ceiling") {
			cfg := arm(strings.Replace(name, "model from the ceiling", "step and model", 1))
			if name == "model from the ceiling" {
				cfg.Model.StartPerCore = 32
			}
			s := newSim(cfg, seed, 1)
			s.machine.threads = 4
			s.arrive = poisson(func(time.Duration) float64 { return 39 })
			s.run(run)
			rate, wall, capacity := s.rate(0, run), s.wall(60*time.Second, run), s.controller.plan.mean
			fmt.Fprintf(&report, "%-24s %10.2f %10.1f %10.2f\n", name, rate, 1000*wall, capacity)
			if name == "off" {
				offered = rate
				continue
			}
			require.GreaterOrEqual(t, rate, 0.995*offered, "%s, seed %d", name, seed)
			if strings.Contains(name, "model") {
				require.LessOrEqual(t, wall, 1.5*0.0215, "%s, seed %d", name, seed)
				require.InDelta(t, 18.7, capacity, 2, "%s, seed %d", name, seed)
				require.Zero(t, s.controller.cuts)
			}
		}
	}
	golden(t, "one-core.txt", report.String())
}

// A limit that is halved and restored while running is followed.
func TestG3LimitMovesWhileRunning(t *testing.T) {
	s := newSim(arm("step and model"), 1, 1)
	s.arrive = workers(32)
	at := func(from time.Duration) float64 {
		var sum, n float64
		for _, p := range s.trace {
			if p.at > from && p.at <= from+20*time.Second {
				sum, n = sum+p.capacity, n+1
			}
		}
		return sum / n
	}
	s.run(80 * time.Second)
	require.InDelta(t, 18.7, at(60*time.Second), 1)
	s.machine.limit = 0.5
	s.run(180 * time.Second)
	require.InDelta(t, 9.4, at(160*time.Second), 0.7)
	s.machine.limit = 1
	s.run(260 * time.Second)
	require.InDelta(t, 18.7, at(240*time.Second), 1)
	golden(t, "limit-moves.txt", plot(s.trace, 5, 1, 32, 3))
}

// A sink that becomes slow is not pressed: A binds, falls, and recovers.
func TestG5SlowSink(t *testing.T) {
	cfg := Defaults()
	cfg.MaxInFlight = 64
	s := newSim(cfg, 1, 0) // no CPU limit: model and step stand aside
	s.work = time.Millisecond
	s.machine.threads = 4
	// The sink carries 32 writes at a time in 100 ms each; more of them slow
	// each other down, and during the incident it carries 4.
	s.arrive = func(s *sim) {
		parallel := 32.0
		if s.now > 60*time.Second && s.now < 180*time.Second {
			parallel = 4
		}
		s.wait = time.Duration(100 * float64(time.Millisecond) * math.Max(1, float64(s.dispatcher.inFlight)/parallel))
		poisson(func(time.Duration) float64 { return 200 })(s)
	}
	s.run(300 * time.Second)
	golden(t, "slow-sink.txt", plot(s.trace, 5, 4, 64, 6))
	during, after := s.trace[80], s.trace[len(s.trace)-1]
	require.Less(t, during.capacity, 16.0, "in the incident")
	require.Greater(t, after.capacity, 20.0, "afterwards")
	require.Greater(t, s.rate(240*time.Second, 300*time.Second), 170.0)
}
