// Command experiment runs the published trade in a real cgroup: 32 workers,
// each batch 20 ms of CPU and then a wait of 400 ms, a CPU limit of half a core,
// in three arms: no governor, the pressure step alone, step and model. It prints the
// bars before the first run, the figures after each, the verdict at the end, and
// draws capacity, batches in flight, CPU and wall time over time as an SVG.
//
//	go build -o bin/experiment ./testdata/governor/experiment
//	bin/experiment -runs=5 -seconds=60 -svg=trade.svg
//
// It needs root and a v1 cpu controller (a v2 one is used where there is none);
// elsewhere it says so and ends. The group gets the largest CPU share, so that the quota
// binds and not what else runs on the machine; how much else ran is printed.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
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
}

func scenarios() map[string]scenario {
	return map[string]scenario{
		"trade": {name: "trade", cores: 0.5, cpu: 20 * time.Millisecond, wait: 400 * time.Millisecond},
		"core":  {name: "core", cores: 1, cpu: 20 * time.Millisecond, wait: 400 * time.Millisecond, rate: 39},
		// Batches that hardly wait, of which many fit into a period of the quota.
		"short": {name: "short", cores: 1, cpu: 2 * time.Millisecond, wait: time.Millisecond},
	}
}

func arms() []string { return []string{"off", "step", "model"} }

func main() {
	var (
		runs    = flag.Int("runs", 5, "runs of each arm")
		seconds = flag.Int("seconds", 60, "length of a run")
		name    = flag.String("scenario", "trade", "trade (half a core, 32 workers), core (one core, 39 batches a second) or short (one core, 32 workers, 2 ms of CPU)")
		svg     = flag.String("svg", "", "file to draw the first run of each arm into")
		seed    = flag.Uint64("seed", 1, "of the random arrivals of the first run")
		arm     = flag.String("child", "", "internal: be the process in the cgroup, in this arm")
	)
	flag.Parse()
	s, ok := scenarios()[*name]
	if !ok {
		fmt.Fprintf(os.Stderr, "scenario %q is not known\n", *name)
		os.Exit(2)
	}
	if *arm != "" {
		child(s, *arm, *seed, time.Duration(*seconds)*time.Second)
		return
	}
	if err := experiment(s, *runs, *seconds, *seed, *svg); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func experiment(s scenario, runs, seconds int, seed uint64, svg string) error {
	fmt.Printf("scenario %s: %g cores, %d runs of %d s an arm\n", s.name, s.cores, runs, seconds)
	if s.rate == 0 {
		fmt.Printf("bars, over whole runs with their start: throughput of step and model >= %.0f%% of the step alone's; mean wall time of its CPU part <= %.1f x unloaded; no cuts (where batches wait)\n\n", 100*throughputBar, wallBar)
	} else {
		fmt.Printf("bars: throughput of each arm >= %.0f%% of no governor's; the model's mean wall time of the CPU part <= %.1f x unloaded in every run\n\n", 100*coreBar, wallBar)
	}
	fmt.Printf("%-6s %3s  %9s  %7s  %9s  %10s  %8s  %8s  %5s  %8s\n", "arm", "run", "batches/s", "CPU", "wall, ms", "unloaded", "p99, s", "capacity", "cuts", "others")
	results := map[string][]result{}
	for run := range runs {
		for _, arm := range arms() {
			r, err := runOnce(s, arm, seed+uint64(run), seconds)
			if err != nil {
				return fmt.Errorf("arm %s, run %d: %w", arm, run+1, err)
			}
			results[arm] = append(results[arm], r)
			fmt.Printf("%-6s %3d  %9.2f  %6.1f%%  %9.1f  %10.1f  %8.2f  %8.2f  %5d  %8.2f\n", arm, run+1, r.Rate, 100*r.CPU/s.cores, 1000*r.Wall, 1000*r.Unloaded, r.P99, r.Capacity, r.Cuts, r.others)
		}
	}
	fmt.Println()
	for _, arm := range arms() {
		fmt.Printf("%-6s mean  %8.2f  %6.1f%%  %9.1f  %10.1f\n", arm, mean(results[arm], rate), 100*mean(results[arm], func(r result) float64 { return r.CPU })/s.cores,
			1000*mean(results[arm], wall), 1000*mean(results[arm], func(r result) float64 { return r.Unloaded }))
	}
	fmt.Println()
	judge(s, results)
	if svg == "" {
		return nil
	}
	first := map[string][]point{}
	for arm, r := range results {
		first[arm] = r[0].Points
	}
	return os.WriteFile(svg, draw(s, first), 0o644)
}

func rate(r result) float64 { return r.Rate }
func wall(r result) float64 { return r.Wall }

func mean(results []result, of func(result) float64) float64 {
	var sum float64
	for _, r := range results {
		sum += of(r)
	}
	return sum / float64(len(results))
}

// judge prints each bar with what was reached.
func judge(s scenario, results map[string][]result) {
	bar := func(ok bool, format string, args ...any) {
		word := "MISSED"
		if ok {
			word = "met"
		}
		fmt.Printf("%-7s %s\n", word, fmt.Sprintf(format, args...))
	}
	model := results["model"]
	if s.rate > 0 {
		off := mean(results["off"], rate)
		for _, arm := range []string{"step", "model"} {
			share := mean(results[arm], rate) / off
			bar(share >= coreBar, "throughput of %s is %.1f%% of no governor's", arm, 100*share)
		}
		worst := slices.MaxFunc(model, func(a, b result) int { return compare(a.Wall/a.Unloaded, b.Wall/b.Unloaded) })
		bar(worst.Wall <= wallBar*worst.Unloaded, "wall time of the CPU part is %.2f x unloaded in the worst run of step and model", worst.Wall/worst.Unloaded)
		return
	}
	share := mean(model, rate) / mean(results["step"], rate)
	bar(share >= throughputBar, "throughput of step and model is %.1f%% of the step alone's (%.1f%% of no governor's)", 100*share, 100*mean(model, rate)/mean(results["off"], rate))
	ratio := mean(model, wall) / mean(model, func(r result) float64 { return r.Unloaded })
	bar(ratio <= wallBar, "wall time of the CPU part is %.2f x unloaded (step alone %.1f x, no governor %.1f x)", ratio,
		mean(results["step"], wall)/mean(results["step"], func(r result) float64 { return r.Unloaded }), mean(results["off"], wall)/mean(results["off"], func(r result) float64 { return r.Unloaded }))
	cuts := 0
	for _, r := range model {
		cuts += r.Cuts
	}
	if s.wait < s.cpu {
		// Work that does not wait saturates the limit before the model has seen a
		// window: the step is there for that.
		fmt.Printf("        %d cuts by the step in %d runs\n", cuts, len(model))
		return
	}
	bar(cuts == 0, "%d cuts by the step in %d runs", cuts, len(model))
}

func compare(a, b float64) int {
	if a < b {
		return -1
	}
	return 1
}

// runOnce runs one arm in a cgroup of its own.
func runOnce(s scenario, arm string, seed uint64, seconds int) (r result, err error) {
	g, err := makeGroup(s.cores)
	if err != nil {
		return r, err
	}
	defer func() {
		if e := g.remove(); err == nil {
			err = e
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	// The shell joins the group before the program begins, as a container does.
	script := "for d in " + strings.Join(g.dirs, " ") + `; do echo $$ > $d/cgroup.procs; done; exec "$0" "$@"`
	cmd := exec.Command("sh", "-c", script, self, "-child="+arm, "-scenario="+s.name, fmt.Sprint("-seed=", seed), fmt.Sprint("-seconds=", seconds))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	before := machineBusy()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return r, fmt.Errorf("the child said %q: %w", lines.Text(), err)
		}
	}
	if err := cmd.Wait(); err != nil {
		return r, err
	}
	after := machineBusy()
	if after.at.Sub(before.at) > 0 {
		r.others = (after.busy-before.busy)/after.at.Sub(before.at).Seconds() - r.CPU
	}
	return r, nil
}
