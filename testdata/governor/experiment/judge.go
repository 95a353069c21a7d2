package main

import (
	"fmt"
	"math"
	"slices"
)

// verdicts prints bars with what was reached.
type verdicts struct{ missed int }

func (v *verdicts) bar(ok bool, format string, args ...any) {
	word := "met"
	if !ok {
		word = "MISSED"
		v.missed++
	}
	fmt.Printf("%-7s %s\n", word, fmt.Sprintf(format, args...))
}

// judge prints each bar and returns how many were missed.
func judge(s scenario, results map[string][]result) int {
	var v verdicts
	switch {
	case s.surge > 0:
		v.surge(results["model"][0])
	case s.rate > 0:
		v.unsaturated(results)
	default:
		v.saturated(s, results)
	}
	return v.missed
}

func (v *verdicts) saturated(s scenario, results map[string][]result) {
	model := results["model"]
	share := mean(model, rate) / mean(results["step"], rate)
	v.bar(share >= throughputBar, "throughput of step and model is %.1f%% of the step alone's (%.1f%% of no governor's)", 100*share, 100*mean(model, rate)/mean(results["off"], rate))
	settled := func(r result) float64 { return r.Settled }
	fmt.Printf("        in the second halves of the runs it is %.1f%% of the step alone's and %.1f%% of no governor's\n",
		100*mean(model, settled)/mean(results["step"], settled), 100*mean(model, settled)/mean(results["off"], settled))
	ratio := func(arm string) float64 { return mean(results[arm], wall) / mean(results[arm], unloaded) }
	v.bar(ratio("model") <= wallBar, "wall time of the CPU part is %.2f x unloaded (step alone %.1f x, no governor %.1f x)", ratio("model"), ratio("step"), ratio("off"))
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
	v.bar(cuts == 0, "%d cuts by the step in %d runs", cuts, len(model))
}

func (v *verdicts) unsaturated(results map[string][]result) {
	off := mean(results["off"], rate)
	for _, arm := range []string{"step", "model"} {
		share := mean(results[arm], rate) / off
		v.bar(share >= coreBar, "throughput of %s is %.1f%% of no governor's", arm, 100*share)
	}
	worst := 0.0
	for _, r := range results["model"] {
		worst = max(worst, r.Wall/r.Unloaded)
	}
	v.bar(worst <= wallBar, "wall time of the CPU part is %.2f x unloaded in the worst run of step and model", worst)
}

func (v *verdicts) surge(r result) {
	before := quantile(r.Batches, surgeAt-30, surgeAt, 0.99)
	var worst float64
	for from := surgeAt + 30.0; from+10 <= surgeAt+90; from += 10 {
		worst = max(worst, quantile(r.Batches, from, from+10, 0.99))
	}
	peak := quantile(r.Batches, surgeAt, surgeAt+30, 0.99)
	v.bar(worst <= 2*before, "p99 of admitted batches was %.2f s, %.2f s in the 30 s after the surge, and at most %.2f s in any 10 s of the minute after those", before, peak, worst)
	n := turns(r.Points, surgeAt, surgeAt+60)
	v.bar(n <= 2, "the capacity turned %d times in the minute after the surge", n)
}

// quantile is over the batches that ended between two times; each has its end
// and what it took.
func quantile(batches [][2]float64, from, to, q float64) float64 {
	var took []float64
	for _, b := range batches {
		if b[0] >= from && b[0] < to {
			took = append(took, b[1])
		}
	}
	if len(took) == 0 {
		return math.Inf(1)
	}
	slices.Sort(took)
	return took[int(q*float64(len(took)-1))]
}

// turns counts how often the capacity changes direction, moves below a tenth of a
// slot apart.
func turns(points []point, from, to float64) (n int) {
	last := 0.0
	for i := 1; i < len(points); i++ {
		move := points[i].Capacity - points[i-1].Capacity
		if points[i].At < from || points[i].At >= to || math.Abs(move) < 0.1 {
			continue
		}
		if last*move < 0 {
			n++
		}
		last = move
	}
	return n
}
