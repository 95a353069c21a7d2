// Command experiment measures the governor in a real cgroup, with batches whose cost
// is known: each takes 20 ms of CPU and then waits for 400 ms.
//
//	trade  half a core, 32 workers that always have a batch; no governor, the
//	       pressure step alone, step and model
//	core   one core, 39 batches a second, which do not saturate it; the same arms
//	step   half a core, 10 batches a second, and from one second to the next 100
//	short  one core, 32 workers, 2 ms of CPU and 1 ms of waiting
//
// It prints the bars of a part before its first run, the figures after each, the verdict
// at the end, and draws capacity, batches in flight, CPU and latency over time. `make
// governor-experiment` runs it, and what needs the real binary after it.
//
// It needs root and a v1 cpu controller (a v2 one is used where there is none);
// elsewhere it says so and ends. The group gets the largest CPU share, so that the quota
// binds and not what else runs on the machine; how much else ran is printed.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// bars are what the arm with the model must reach.
const (
	throughputBar = 0.95 // of the step alone's
	wallBar       = 1.5  // times the unloaded wall time of a CPU part
	coreBar       = 0.98 // of no governor's throughput, at one core
)

// scenario is a load and a limit.
type scenario struct {
	name  string
	cores float64
	cpu   time.Duration // of each batch
	wait  time.Duration // after it, slot held
	rate  float64       // batches per second offered; 0 for 32 workers that always have one
	surge float64       // times rate from surgeAt on, within a second; 0 for none
	arms  []string
	runs  int // 0: as many as asked for
	// seconds of a run; 0: as many as asked for
	seconds int
}

// surgeAt is when a surge begins, in seconds.
const surgeAt = 40

func scenarios() []scenario {
	const cpu, wait = 20 * time.Millisecond, 400 * time.Millisecond
	all := []string{"off", "step", "model"}
	return []scenario{
		{name: "trade", cores: 0.5, cpu: cpu, wait: wait, arms: all},
		{name: "core", cores: 1, cpu: cpu, wait: wait, rate: 39, arms: all, runs: 3},
		{name: "step", cores: 0.5, cpu: cpu, wait: wait, rate: 10, surge: 10, arms: []string{"model"}, runs: 1, seconds: surgeAt + 90},
		// Batches that hardly wait, of which many fit into a period of the quota.
		{name: "short", cores: 1, cpu: 2 * time.Millisecond, wait: time.Millisecond, arms: all},
	}
}

// options are the command line's.
type options struct {
	runs, seconds int
	seed          uint64
	out           string
}

func main() {
	var o options
	flag.IntVar(&o.runs, "runs", 5, "runs of each arm of trade and short; core has 3, step 1")
	flag.IntVar(&o.seconds, "seconds", 30, "length of a run, but of step")
	flag.Uint64Var(&o.seed, "seed", 1, "of the random arrivals of the first run")
	flag.StringVar(&o.out, "out", "", "folder to draw the first run of each arm into; none where empty")
	parts := flag.String("parts", "trade,core,step", "parts to run, of trade, core, step and short")
	arm := flag.String("child", "", "internal: be the process in the cgroup, in this arm")
	flag.Parse()
	var chosen []scenario
	for name := range strings.SplitSeq(*parts, ",") {
		i := slices.IndexFunc(scenarios(), func(s scenario) bool { return s.name == name })
		if i < 0 {
			fmt.Fprintf(os.Stderr, "part %q is not known\n", name)
			os.Exit(2)
		}
		chosen = append(chosen, scenarios()[i])
	}
	if *arm != "" {
		child(chosen[0], *arm, o.seed, time.Duration(o.seconds)*time.Second)
		return
	}
	os.Exit(runAll(chosen, o))
}

// runAll runs the parts and returns the exit status: 1 where a bar was missed.
func runAll(chosen []scenario, o options) int {
	probe, err := makeGroup(0.5)
	if err != nil {
		fmt.Printf("skipped: %v\n", err)
		return 0
	}
	if err := probe.remove(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	missed := 0
	for _, s := range chosen {
		n, err := experiment(s, o)
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 2
		}
		missed += n
	}
	if missed > 0 {
		fmt.Printf("%d bars were missed\n", missed)
		return 1
	}
	return 0
}

// experiment runs one part and returns the number of bars that it missed.
func experiment(s scenario, o options) (missed int, err error) {
	if s.runs == 0 {
		s.runs = o.runs
	}
	if s.seconds == 0 {
		s.seconds = o.seconds
	}
	fmt.Printf("%s: %g cores, %d runs of %d s an arm\n%s\n\n", s.name, s.cores, s.runs, s.seconds, s.bars())
	fmt.Printf("%-6s %3s  %9s  %7s  %9s  %10s  %8s  %8s  %5s  %8s\n", "arm", "run", "batches/s", "CPU", "wall, ms", "unloaded", "p99, s", "capacity", "cuts", "others")
	results := map[string][]result{}
	for run := range s.runs {
		for _, arm := range s.arms {
			r, err := runOnce(s, arm, o.seed+uint64(run))
			if err != nil {
				return 0, fmt.Errorf("part %s, arm %s, run %d: %w", s.name, arm, run+1, err)
			}
			results[arm] = append(results[arm], r)
			fmt.Printf("%-6s %3d  %9.2f  %6.1f%%  %9.1f  %10.1f  %8.2f  %8.2f  %5d  %8.2f\n", arm, run+1, r.Rate, 100*r.CPU/s.cores, 1000*r.Wall, 1000*r.Unloaded, r.P99, r.Capacity, r.Cuts, r.others)
		}
	}
	fmt.Println()
	if s.runs > 1 {
		s.summary(results)
	}
	missed = judge(s, results)
	fmt.Println()
	if o.out == "" {
		return missed, nil
	}
	first := map[string][]point{}
	for arm, r := range results {
		first[arm] = r[0].Points
	}
	if err := os.MkdirAll(o.out, 0o755); err != nil {
		return missed, err
	}
	picture := filepath.Join(o.out, s.name+".svg")
	fmt.Printf("picture: %s\n\n", picture)
	return missed, os.WriteFile(picture, draw(s, first), 0o644)
}

// bars says what will be judged, before the first run.
func (s scenario) bars() string {
	switch {
	case s.surge > 0:
		return fmt.Sprintf("bars: p99 of admitted batches back under twice its earlier value within 30 s of %g times the load; the capacity turns at most twice in the minute after", s.surge)
	case s.rate > 0:
		return fmt.Sprintf("bars: throughput of each arm >= %.0f%% of no governor's; the model's mean wall time of the CPU part <= %.1f x unloaded in every run", 100*coreBar, wallBar)
	}
	return fmt.Sprintf("bars, over whole runs with their start: throughput of step and model >= %.0f%% of the step alone's; mean wall time of its CPU part <= %.1f x unloaded; no cuts (where batches wait)", 100*throughputBar, wallBar)
}

// summary prints each arm's means and the spread of its runs.
func (s scenario) summary(results map[string][]result) {
	for _, arm := range s.arms {
		rates, walls := spread(results[arm], rate), spread(results[arm], wall)
		fmt.Printf("%-6s mean %.2f batches/s (%.2f to %.2f), CPU %.1f%%, wall %.1f ms (%.1f to %.1f), unloaded %.1f ms\n", arm,
			mean(results[arm], rate), rates[0], rates[1], 100*mean(results[arm], func(r result) float64 { return r.CPU })/s.cores,
			1000*mean(results[arm], wall), 1000*walls[0], 1000*walls[1], 1000*mean(results[arm], unloaded))
	}
	fmt.Println()
}

func rate(r result) float64     { return r.Rate }
func wall(r result) float64     { return r.Wall }
func unloaded(r result) float64 { return r.Unloaded }

func spread(results []result, of func(result) float64) [2]float64 {
	low, high := of(results[0]), of(results[0])
	for _, r := range results {
		low, high = min(low, of(r)), max(high, of(r))
	}
	return [2]float64{low, high}
}

func mean(results []result, of func(result) float64) float64 {
	var sum float64
	for _, r := range results {
		sum += of(r)
	}
	return sum / float64(len(results))
}
