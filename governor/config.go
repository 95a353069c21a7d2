package governor

import (
	"errors"
	"fmt"
	"time"
)

// Config is what users write under `governor:`.
type Config struct {
	// MaxInFlight is the ceiling: batches, >= 1. No signal raises the capacity
	// above it. Lower: less memory and fewer connections to the sink at once;
	// higher: more waiting for the sink can overlap. Default 256.
	MaxInFlight int `yaml:"max_in_flight"`
	// SampleInterval is how often CPU use is read and the capacity may move.
	// Shorter reacts faster and measures less exactly. Default 2s, the averaging
	// period of the kernel's pressure figures.
	SampleInterval time.Duration `yaml:"sample_interval"`

	Model   ModelConfig   `yaml:"model"`
	Step    StepConfig    `yaml:"step"`
	Latency LatencyConfig `yaml:"latency"`
	Wait    WaitConfig    `yaml:"wait"`
}

// ModelConfig is about M, the capacity computed from CPU use.
type ModelConfig struct {
	// Enabled switches the model. Default true.
	Enabled bool `yaml:"enabled"`
	// Target is the fraction of the CPU limit to aim for, 0.1 to 0.97. Higher:
	// more throughput at saturation; lower: shorter batches. Default 0.96.
	Target float64 `yaml:"target"`
	// Tolerance is how far target / use may be from 1 without a move, at most
	// (1 - target) / 2. Default 0.01.
	Tolerance float64 `yaml:"tolerance"`
	// Interval is the unit of a window, at least SampleInterval. Default 10s.
	Interval time.Duration `yaml:"interval"`
	// Completions is how many batches a window must hold before it is judged;
	// after 30 intervals it is judged anyway. Default 20.
	Completions int `yaml:"completions"`
	// MinCPULimit is the smallest limit, in cores, that the model works with:
	// below it one batch is too large a part of the limit for the ratio to mean
	// anything, and the step alone governs. Default 0.5.
	MinCPULimit float64 `yaml:"min_cpu_limit"`
	// StartPerCore is M at start, in slots per core of the limit; never fewer
	// than this number in all. It doubles as long as the slots are used. Default 8.
	StartPerCore int `yaml:"start_per_core"`
}

// StepConfig is about P, the capacity that stalls cut.
type StepConfig struct {
	// Enabled switches the step. Default true.
	Enabled bool `yaml:"enabled"`
	// Threshold is the fraction of time for which the container was stalled
	// for CPU (pressure, else throttled time) above which the capacity is halved,
	// 0 to 1. Two samples in a row must be above it. Default 0.2.
	Threshold float64 `yaml:"threshold"`
	// Cooldown is the least time between two cuts. Default 10s.
	Cooldown time.Duration `yaml:"cooldown"`
}

// LatencyConfig is about A, the capacity that follows how long batches take.
type LatencyConfig struct {
	// Enabled switches the latency limit. Default true.
	Enabled bool `yaml:"enabled"`
	// MinInFlight is A's floor: batches, >= 1 and <= MaxInFlight. Default 4.
	MinInFlight int `yaml:"min_in_flight"`
	// Threshold is the ratio of the best to the current mean time of a batch,
	// 0 to 1, below which A falls. 0.5 means twice the best time. Default 0.5.
	Threshold float64 `yaml:"threshold"`
	// Unhealthy is a mean time of a batch that is never healthy, whatever the
	// best time has drifted to; 0 is none. Default 30s.
	Unhealthy time.Duration `yaml:"unhealthy"`
}

// WaitConfig is about waiting for a slot.
type WaitConfig struct {
	// MaxWaiting bounds the batches that wait, >= 0; 0 lets none wait. Each
	// holds its body in memory. Default 1024.
	MaxWaiting int `yaml:"max_waiting"`
	// MaxWaitingPerFlow bounds those of one flow. Default 256.
	MaxWaitingPerFlow int `yaml:"max_waiting_per_flow"`
	// MaxWait is the longest that a batch waits, and a quarter of what is left
	// of its deadline if that is less. Default 5s.
	MaxWait time.Duration `yaml:"max_wait"`
	// StandingAfter is for how long a flow's queue may stand before its batches
	// wait for half a mean batch time only. Default 10s.
	StandingAfter time.Duration `yaml:"standing_after"`
	// MaxRetryAfter is the longest wait that a shed batch is told, give or take
	// a tenth of jitter. Default 30s.
	MaxRetryAfter time.Duration `yaml:"max_retry_after"`
	// FlowMemory is for how long an idle flow's place in the fair order is
	// remembered. Default 10m.
	FlowMemory time.Duration `yaml:"flow_memory"`
	// MaxFlows bounds the flows remembered while idle: keys, about 200 bytes
	// each. Default 10000.
	MaxFlows int `yaml:"max_flows"`
}

// Defaults returns the configuration that applies where nothing is written.
func Defaults() Config {
	return Config{
		MaxInFlight:    256,
		SampleInterval: 2 * time.Second,
		Model: ModelConfig{
			Enabled: true, Target: 0.96, Tolerance: 0.01, Interval: 10 * time.Second,
			Completions: 20, MinCPULimit: 0.5, StartPerCore: 8,
		},
		Step:    StepConfig{Enabled: true, Threshold: 0.2, Cooldown: 10 * time.Second},
		Latency: LatencyConfig{Enabled: true, MinInFlight: 4, Threshold: 0.5, Unhealthy: 30 * time.Second},
		Wait: WaitConfig{
			MaxWaiting: 1024, MaxWaitingPerFlow: 256, MaxWait: 5 * time.Second,
			StandingAfter: 10 * time.Second, MaxRetryAfter: 30 * time.Second,
			FlowMemory: 10 * time.Minute, MaxFlows: 10000,
		},
	}
}

// Validate reports every problem at once, each with the option's name below
// `governor:` and the value found. It changes nothing.
func (c Config) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("governor."+format, args...))
		}
	}
	check(c.MaxInFlight >= 1, "max_in_flight is %d, must be at least 1", c.MaxInFlight)
	check(c.SampleInterval >= 100*time.Millisecond, "sample_interval is %v, must be at least 100ms: shorter samples hold too few of the kernel's quota periods", c.SampleInterval)

	m := c.Model
	check(m.Target >= 0.1 && m.Target <= 0.97, "model.target is %v, must be from 0.1 to 0.97: closer to the limit, use no longer tells a full container from an overloaded one", m.Target)
	// (1 - 0.9)/2 is just under 0.05 in binary, hence the epsilon.
	check(m.Tolerance >= 0 && m.Tolerance <= (1-m.Target)/2+epsilon, "model.tolerance is %v, must be from 0 to (1 - target)/2 = %.3g: a wider one never sees that the container is at its limit", m.Tolerance, (1-m.Target)/2)
	check(m.Interval >= c.SampleInterval, "model.interval is %v, must be at least sample_interval (%v)", m.Interval, c.SampleInterval)
	check(m.Completions >= 1, "model.completions is %d, must be at least 1", m.Completions)
	check(m.MinCPULimit > 0, "model.min_cpu_limit is %v cores, must be above 0", m.MinCPULimit)
	check(m.StartPerCore >= 1, "model.start_per_core is %d, must be at least 1", m.StartPerCore)

	check(c.Step.Threshold > 0 && c.Step.Threshold <= 1, "step.threshold is %v, must be above 0 and at most 1", c.Step.Threshold)
	check(c.Step.Cooldown >= c.SampleInterval, "step.cooldown is %v, must be at least sample_interval (%v): the effect of a cut must be seen before the next", c.Step.Cooldown, c.SampleInterval)

	check(c.Latency.MinInFlight >= 1 && c.Latency.MinInFlight <= c.MaxInFlight, "latency.min_in_flight is %d, must be from 1 to max_in_flight (%d)", c.Latency.MinInFlight, c.MaxInFlight)
	check(c.Latency.Threshold > 0 && c.Latency.Threshold < 1, "latency.threshold is %v, must be above 0 and below 1", c.Latency.Threshold)
	check(c.Latency.Unhealthy >= 0, "latency.unhealthy is %v, must not be negative", c.Latency.Unhealthy)

	w := c.Wait
	check(w.MaxWaiting >= 0, "wait.max_waiting is %d, must not be negative", w.MaxWaiting)
	check(w.MaxWaitingPerFlow >= 0 && w.MaxWaitingPerFlow <= w.MaxWaiting, "wait.max_waiting_per_flow is %d, must be from 0 to max_waiting (%d)", w.MaxWaitingPerFlow, w.MaxWaiting)
	check(w.MaxWait >= 0, "wait.max_wait is %v, must not be negative", w.MaxWait)
	check(w.StandingAfter > 0, "wait.standing_after is %v, must be above 0", w.StandingAfter)
	check(w.MaxRetryAfter >= time.Second, "wait.max_retry_after is %v, must be at least 1s", w.MaxRetryAfter)
	check(w.FlowMemory > 0, "wait.flow_memory is %v, must be above 0", w.FlowMemory)
	check(w.MaxFlows >= 1, "wait.max_flows is %d, must be at least 1", w.MaxFlows)
	return errors.Join(errs...)
}
