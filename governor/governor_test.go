package governor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"sync"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestConfigDefaultsAreValid(t *testing.T) {
	require.NoError(t, Defaults().Validate())
	_, err := New(Config{}, nil, slog.New(slog.DiscardHandler))
	require.Error(t, err)
}

func TestConfigNamesEachProblem(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"max_in_flight is 0":                func(c *Config) { c.MaxInFlight = 0 },
		"sample_interval is 1ms":            func(c *Config) { c.SampleInterval = time.Millisecond },
		"model.target is 0.98":              func(c *Config) { c.Model.Target = 0.98 },
		"model.target is 0.05":              func(c *Config) { c.Model.Target = 0.05 },
		"model.tolerance is 0.05":           func(c *Config) { c.Model.Tolerance = 0.05 },
		"model.tolerance is -1":             func(c *Config) { c.Model.Tolerance = -1 },
		"model.interval is 1s":              func(c *Config) { c.Model.Interval = time.Second },
		"model.completions is 0":            func(c *Config) { c.Model.Completions = 0 },
		"model.min_cpu_limit is 0":          func(c *Config) { c.Model.MinCPULimit = 0 },
		"model.start_per_core is 0":         func(c *Config) { c.Model.StartPerCore = 0 },
		"step.threshold is 0":               func(c *Config) { c.Step.Threshold = 0 },
		"step.cooldown is 1s":               func(c *Config) { c.Step.Cooldown = time.Second },
		"latency.min_in_flight is 257":      func(c *Config) { c.Latency.MinInFlight = 257 },
		"latency.threshold is 1":            func(c *Config) { c.Latency.Threshold = 1 },
		"latency.unhealthy is -1s":          func(c *Config) { c.Latency.Unhealthy = -time.Second },
		"wait.max_waiting is -1":            func(c *Config) { c.Wait.MaxWaiting = -1 },
		"wait.max_waiting_per_flow is 2000": func(c *Config) { c.Wait.MaxWaitingPerFlow = 2000 },
		"wait.max_wait is -1s":              func(c *Config) { c.Wait.MaxWait = -time.Second },
		"wait.standing_after is 0s":         func(c *Config) { c.Wait.StandingAfter = 0 },
		"wait.max_retry_after is 1ms":       func(c *Config) { c.Wait.MaxRetryAfter = time.Millisecond },
		"wait.flow_memory is 0s":            func(c *Config) { c.Wait.FlowMemory = 0 },
		"wait.max_flows is 0":               func(c *Config) { c.Wait.MaxFlows = 0 },
	} {
		cfg := Defaults()
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), "governor."+want)
	}
	cfg := Defaults()
	cfg.Model.Target, cfg.Model.Tolerance = 0.9, 0.05
	require.NoError(t, cfg.Validate(), "the published pair is on the edge")
	cfg.MaxInFlight, cfg.Model.Completions = 0, 0
	require.ErrorContains(t, cfg.Validate(), "completions")
	require.ErrorContains(t, cfg.Validate(), "max_in_flight")
}

func TestAcquireAtOnceAndInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGovernor(t, Defaults())
		g.setPlan(wholePlan(1))
		first, err := g.Acquire(t.Context(), "a")
		require.NoError(t, err)
		require.Zero(t, first.Waited())
		got := make(chan *Slot)
		go func() {
			s, err := g.Acquire(t.Context(), "a")
			require.NoError(t, err)
			got <- s
		}()
		time.Sleep(time.Second)
		synctest.Wait()
		require.Equal(t, 1, g.Snapshot().Waiting)
		first.Release()
		first.Release()
		second := <-got
		require.Equal(t, time.Second, second.Waited())
		require.Equal(t, 1, g.Snapshot().InFlight, "a second release gives nothing back")
		second.Release()
		require.Zero(t, g.Snapshot().InFlight)
	})
}

func TestG1ClientThatLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGovernor(t, Defaults())
		g.setPlan(wholePlan(1))
		gone, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := g.Acquire(gone, "a")
		require.ErrorIs(t, err, context.Canceled)
		require.Zero(t, g.Snapshot().Arrivals)

		slot, err := g.Acquire(t.Context(), "a")
		require.NoError(t, err)
		leaving, leave := context.WithCancel(t.Context())
		result := make(chan error)
		go func() {
			_, err := g.Acquire(leaving, "a")
			result <- err
		}()
		synctest.Wait()
		leave()
		require.ErrorIs(t, <-result, context.Canceled)
		require.Zero(t, g.Snapshot().Waiting)
		slot.Release()
		require.Zero(t, g.Snapshot().InFlight)
	})
}

// The client leaves in the moment in which its batch is granted: the slot is
// not lost, and the batch that did not begin counts for nothing.
func TestG1SlotGrantedToOneWhoLeft(t *testing.T) {
	g := testGovernor(t, Defaults())
	g.setPlan(wholePlan(1))
	first, err := g.Acquire(t.Context(), "a")
	require.NoError(t, err)
	s := &Slot{governor: g}
	g.mu.Lock()
	w, _, shed := g.dispatcher.admit(g.now(), "b", &s.lease, -1, 0)
	g.mu.Unlock()
	require.Nil(t, shed)
	first.Release()
	require.Equal(t, stateGranted, w.state)
	completions := g.Snapshot().Completions
	g.abandon(s, w)
	require.Zero(t, g.Snapshot().InFlight)
	require.Equal(t, completions, g.Snapshot().Completions)
}

// A wait that ends in the moment in which the batch is granted has its slot: told
// that it was shed, it would never give it back.
func TestG7SlotGrantedAtTheLimit(t *testing.T) {
	g := testGovernor(t, Defaults())
	g.setPlan(wholePlan(1))
	first, err := g.Acquire(t.Context(), "a")
	require.NoError(t, err)
	var l lease
	g.mu.Lock()
	w, _, _ := g.dispatcher.admit(g.now(), "b", &l, -1, 0)
	g.mu.Unlock()
	first.Release()
	require.Equal(t, stateGranted, w.state)
	require.Nil(t, g.giveUp(w))
	require.Equal(t, 1, g.Snapshot().InFlight)
}

func TestG7WaitEndsAtItsLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := testGovernor(t, Defaults())
		g.setPlan(wholePlan(1))
		slot, err := g.Acquire(t.Context(), "a")
		require.NoError(t, err)
		defer slot.Release()
		begun := time.Now()
		_, err = g.Acquire(t.Context(), "a")
		var shed *Shed
		require.ErrorAs(t, err, &shed)
		require.Equal(t, ReasonTimeout, shed.Reason)
		require.Equal(t, 5*time.Second, time.Since(begun))
		require.Equal(t, 5*time.Second, shed.Waited)
		require.Positive(t, shed.RetryAfter)

		begun = time.Now()
		hurried, cancel := context.WithTimeout(t.Context(), 4*time.Second)
		defer cancel()
		_, err = g.Acquire(hurried, "b")
		require.ErrorAs(t, err, &shed)
		require.Equal(t, time.Second, time.Since(begun), "a quarter of the deadline")
	})
}

func TestG7DisplacedBatchIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := Defaults()
		cfg.Wait.MaxWaiting, cfg.Wait.MaxWaitingPerFlow = 2, 2
		g := testGovernor(t, cfg)
		g.setPlan(wholePlan(1))
		slot, err := g.Acquire(t.Context(), "a")
		require.NoError(t, err)
		reasons := make(chan string, 3)
		var senders sync.WaitGroup
		for _, flow := range []string{"a", "a", "b"} {
			senders.Go(func() {
				s, err := g.Acquire(t.Context(), flow)
				var shed *Shed
				if errors.As(err, &shed) {
					reasons <- shed.Flow + " " + shed.Reason
					return
				}
				require.NoError(t, err)
				s.Release()
			})
			synctest.Wait()
		}
		require.Equal(t, "a displaced", <-reasons)
		slot.Release()
		senders.Wait()
		require.Empty(t, reasons)
		require.Zero(t, g.Snapshot().InFlight)
	})
}

// liveFS is a file system that changes while it is read.
type liveFS struct {
	mu    sync.Mutex
	files fstest.MapFS
}

func (f *liveFS) Open(name string) (fs.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.files.Open(name)
}

func newLiveFS(quota string) *liveFS {
	f := &liveFS{files: fstest.MapFS{}}
	f.set("proc/self/cgroup", "0::/app\n")
	f.set("proc/self/mountinfo", "30 22 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
	f.set("sys/fs/cgroup/app/cpu.max", quota)
	f.set("sys/fs/cgroup/app/cpu.stat", "usage_usec 0\n")
	return f
}

func (f *liveFS) set(name, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.files[name] = &fstest.MapFile{Data: []byte(text), Mode: 0o444}
}

// TestRunFollowsTheContainer drives the actor: readings come from files, time
// is the bubble's, batches hold slots in goroutines.
func TestRunFollowsTheContainer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		g, err := New(Defaults(), nil, slog.New(slog.NewTextHandler(&log, nil)))
		require.NoError(t, err)
		files := newLiveFS("100000 100000")
		g.cgroups = newCgroups(files)
		require.Equal(t, RegimeUnknown, g.Snapshot().Regime)
		require.Equal(t, 256, g.Snapshot().Capacity)

		ctx, cancel := context.WithCancel(t.Context())
		ran := make(chan error)
		go func() { ran <- g.Run(ctx) }()
		var senders sync.WaitGroup
		for range 30 {
			senders.Go(func() {
				for ctx.Err() == nil {
					s, err := g.Acquire(ctx, "a")
					if err != nil {
						time.Sleep(100 * time.Millisecond)
						continue
					}
					time.Sleep(100 * time.Millisecond)
					s.Release()
				}
			})
		}
		synctest.Wait()
		require.Equal(t, RegimeModel, g.Snapshot().Regime)
		require.Equal(t, 8, g.Snapshot().Capacity)
		var usage time.Duration
		// Each batch in flight uses 0.1 cores. The sampler reads every 2 s, this
		// loop writes a millisecond before.
		time.Sleep(1999 * time.Millisecond)
		for range 40 {
			s := g.Snapshot()
			usage += time.Duration(min(1, 0.1*s.Mean) * float64(2*time.Second))
			files.set("sys/fs/cgroup/app/cpu.stat", fmt.Sprintf("usage_usec %d\nnr_periods 1\nnr_throttled 0\nthrottled_usec 0\n", usage.Microseconds()))
			time.Sleep(2 * time.Second)
		}
		s := g.Snapshot()
		require.InDelta(t, 9.6, s.Mean, 0.3)
		require.InDelta(t, 0.96, s.CPU.Used, 0.02)
		require.InDelta(t, 0.01, s.CPU.PerBatch, 0.001)
		require.Equal(t, 1.0, s.CPU.Limit)
		require.Equal(t, "/sys/fs/cgroup/app", s.CPU.Source)
		require.Equal(t, VerdictSettled, s.Decision.Judged)
		require.LessOrEqual(t, s.InFlight, s.Peak)

		files.set("sys/fs/cgroup/app/cpu.max", "max 100000")
		time.Sleep(2 * time.Second)
		require.Equal(t, RegimeUnlimited, g.Snapshot().Regime)
		require.Equal(t, 256, g.Snapshot().Capacity, "no limit: model and step stand aside")
		cancel()
		require.ErrorIs(t, <-ran, context.Canceled)
		senders.Wait()
		require.Zero(t, g.Snapshot().InFlight)
		require.Equal(t, 2, bytes.Count(log.Bytes(), []byte("level=INFO")), "one line per change of regime:\n%s", log.String())
	})
}

func TestSnapshotIsJSON(t *testing.T) {
	g := testGovernor(t, Defaults())
	slot, err := g.Acquire(t.Context(), "key")
	require.NoError(t, err)
	defer slot.Release()
	g.controller.model.judged.ratio = law(lawCase(4, 4, 0)).ratio // infinite
	text, err := json.Marshal(g.Snapshot())
	require.NoError(t, err)
	for _, want := range []string{`"regime":"unknown"`, `"capacity":256`, `"in_flight":1`, `"flows":[{"flow":"key","in_flight":1`} {
		require.Contains(t, string(text), want)
	}
	for i := range 150 {
		_, err := g.Acquire(t.Context(), fmt.Sprint("flow-", i))
		require.NoError(t, err)
	}
	require.Len(t, g.Snapshot().Flows, 100)
}

func TestMetricsAreOneListWithPrefix(t *testing.T) {
	reg := prometheus.NewPedanticRegistry()
	g, err := New(Defaults(), reg, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	_, err = New(Defaults(), reg, slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "governor metrics")
	g.setPlan(wholePlan(1))
	slot, err := g.Acquire(t.Context(), "a")
	require.NoError(t, err)
	hurried, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err = g.Acquire(hurried, "a")
	require.Error(t, err)
	slot.Release()
	families, err := reg.Gather()
	require.NoError(t, err)
	var list bytes.Buffer
	for _, f := range families {
		fmt.Fprintf(&list, "%s %s %s\n", f.GetName(), f.GetType(), f.GetHelp())
	}
	golden(t, "metrics.txt", list.String())
}

func BenchmarkAcquireRelease(b *testing.B) {
	g, err := New(Defaults(), nil, slog.New(slog.DiscardHandler))
	require.NoError(b, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	b.Run("alone", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			s, _ := g.Acquire(ctx, "key")
			s.Release()
		}
	})
	b.Run("parallel", func(b *testing.B) {
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				s, _ := g.Acquire(ctx, "key")
				s.Release()
			}
		})
	})
	b.Run("deadline", func(b *testing.B) {
		ctx, cancel := context.WithTimeout(ctx, time.Hour)
		defer cancel()
		b.ReportAllocs()
		for b.Loop() {
			s, _ := g.Acquire(ctx, "key")
			s.Release()
		}
	})
}

// The choice of the next flow while a thousand flows wait.
func BenchmarkPickAmongThousandFlows(b *testing.B) {
	d := newDispatcher(wholePlan(1), generous())
	for i := range 1001 {
		d.admit(0, fmt.Sprint(i), &lease{}, -1, 0)
	}
	require.Len(b, d.queued, 1000)
	b.ReportAllocs()
	for b.Loop() {
		d.pick()
	}
}
