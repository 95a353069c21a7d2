package main

import (
	"context"
	"encoding/json"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spillway-telemetry/spillway/governor"
)

const workers = 32

// result is one run; the child prints it as one line of JSON.
type result struct {
	Rate     float64 // batches per second
	Settled  float64 // the same in the second half of the run
	CPU      float64 // cores
	Wall     float64 // mean wall time of a CPU part, s
	Unloaded float64 // the same, one batch at a time
	P99      float64 // of the time from asking for a slot to giving it back, s
	Capacity float64 // mean
	Cuts     int
	Points   []point
	Batches  [][2]float64 // when each ended and what it took, s; where there is a surge
	Shed     int
	others   float64 // cores used by the rest of the machine
}

// point is one second of a run.
type point struct {
	At, Capacity, InFlight, CPU, Wall, P99 float64
}

// config is the arm's configuration. Workers are a closed load, so none is ever
// turned away; a surge meets the governor as users get it.
func config(s scenario, arm string) governor.Config {
	cfg := governor.Defaults()
	if s.surge > 0 {
		return cfg
	}
	cfg.MaxInFlight = workers
	cfg.Wait.MaxWaiting, cfg.Wait.MaxWaitingPerFlow = 1<<20, 1<<20
	cfg.Wait.MaxWait, cfg.Wait.StandingAfter = time.Hour, 1000*time.Hour
	cfg.Model.Enabled = arm == "model"
	cfg.Latency.Enabled = arm == "model"
	cfg.Step.Enabled = arm != "off"
	return cfg
}

// recorder collects what batches took.
type recorder struct {
	mu    sync.Mutex
	walls []float64
	times []float64
	ends  []time.Time
	shed  int
}

func (r *recorder) note(wall, whole time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.walls = append(r.walls, wall.Seconds())
	r.times = append(r.times, whole.Seconds())
	r.ends = append(r.ends, time.Now())
}

func (r *recorder) noteShed() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.shed++
}

// batches lists the ends and times of all.
func (r *recorder) batches(begun time.Time) (all [][2]float64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i, end := range r.ends {
		all = append(all, [2]float64{end.Sub(begun).Seconds(), r.times[i]})
	}
	return all
}

// since returns the mean wall time and the p99 of the whole time of the batches
// after the first n, and how many there are in all.
func (r *recorder) since(n int) (wall, p99 float64, all int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	all = len(r.walls)
	if n >= all {
		return 0, 0, all
	}
	for _, w := range r.walls[n:] {
		wall += w / float64(all-n)
	}
	times := slices.Clone(r.times[n:])
	slices.Sort(times)
	return wall, times[int(0.99*float64(len(times)-1))], all
}

// child is the process in the cgroup.
func child(s scenario, arm string, seed uint64, length time.Duration) {
	unloaded := measureUnloaded(s)
	g, err := governor.New(config(s, arm), nil, slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn})))
	if err != nil {
		panic(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = g.Run(ctx) }()
	// The first reading of the limit comes before the first batch, as in a
	// program that starts its listeners last.
	for g.Snapshot().Regime == governor.RegimeUnknown {
		time.Sleep(time.Millisecond)
	}
	var rec recorder
	begun, used := time.Now(), processTime()
	if s.rate > 0 {
		go offer(ctx, g, &rec, s, seed)
	} else {
		for range workers {
			go func() {
				for ctx.Err() == nil {
					batch(ctx, g, &rec, s)
				}
			}()
		}
	}
	r := watch(g, &rec, begun, used, length)
	r.Unloaded, r.Shed = unloaded, rec.shed
	if s.surge > 0 {
		r.Batches = rec.batches(begun)
	}
	cancel()
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		panic(err)
	}
}

// batch is one batch of the load.
func batch(ctx context.Context, g *governor.Governor, rec *recorder, s scenario) {
	asked := time.Now()
	slot, err := g.Acquire(ctx, "key")
	if err != nil {
		rec.noteShed()
		return
	}
	defer slot.Release()
	wall := burn(s.cpu)
	time.Sleep(s.wait)
	rec.note(wall, time.Since(asked))
}

// offer is an open load with random arrivals, the same for every arm of a run.
func offer(ctx context.Context, g *governor.Governor, rec *recorder, s scenario, seed uint64) {
	rng, begun := rand.New(rand.NewPCG(seed, 0)), time.Now()
	for next := begun; ctx.Err() == nil; {
		next = next.Add(time.Duration(rng.ExpFloat64() / s.rateAt(next.Sub(begun)) * float64(time.Second)))
		time.Sleep(time.Until(next))
		go batch(ctx, g, rec, s)
	}
}

// rateAt is the offered load at a time, in batches per second. A surge is complete
// within a second.
func (s scenario) rateAt(at time.Duration) float64 {
	if s.surge == 0 {
		return s.rate
	}
	return s.rate * min(s.surge, max(1, 1+(s.surge-1)*(at.Seconds()-surgeAt)))
}

// burn uses d of CPU and returns how long that took.
func burn(d time.Duration) time.Duration {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begun, start := time.Now(), threadTime()
	x := uint64(1)
	for threadTime()-start < d {
		for range 2000 {
			x = x*6364136223846793005 + 1442695040888963407
		}
	}
	runtime.KeepAlive(x)
	return time.Since(begun)
}

func threadTime() time.Duration  { return cpuClock(unix.CLOCK_THREAD_CPUTIME_ID) }
func processTime() time.Duration { return cpuClock(unix.CLOCK_PROCESS_CPUTIME_ID) }

func cpuClock(id int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(id, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// measureUnloaded is the mean wall time of a CPU part, one at a time.
func measureUnloaded(s scenario) float64 {
	const n = 12
	var sum time.Duration
	for range n {
		sum += burn(s.cpu)
		time.Sleep(100 * time.Millisecond)
	}
	return sum.Seconds() / n
}

// watch takes a point each second and sums up.
func watch(g *governor.Governor, rec *recorder, begun time.Time, used time.Duration, length time.Duration) result {
	var r result
	seen, lastUsed, lastAt := 0, used, begun
	var half int
	var halfAt time.Duration
	for time.Since(begun) < length {
		time.Sleep(time.Second)
		s := g.Snapshot()
		now, u := time.Now(), processTime()
		wall, p99, all := rec.since(seen)
		r.Points = append(r.Points, point{
			At: now.Sub(begun).Seconds(), Capacity: s.Mean, InFlight: float64(s.InFlight),
			CPU: (u - lastUsed).Seconds() / now.Sub(lastAt).Seconds(), Wall: wall, P99: p99,
		})
		r.Capacity += s.Mean
		r.Cuts = int(s.Cuts)
		seen, lastUsed, lastAt = all, u, now
		if halfAt == 0 && now.Sub(begun) >= length/2 {
			half, halfAt = all, now.Sub(begun)
		}
	}
	elapsed := time.Since(begun).Seconds()
	r.Capacity /= float64(len(r.Points))
	r.CPU = (processTime() - used).Seconds() / elapsed
	var all int
	r.Wall, r.P99, all = rec.since(0)
	r.Rate = float64(all) / elapsed
	r.Settled = float64(all-half) / (elapsed - halfAt.Seconds())
	return r
}
