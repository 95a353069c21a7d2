package main

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// samples are the figures of repeated benchmark runs: by benchmark, then by unit.
type samples map[string]map[string][]float64

// goBench runs Go benchmarks and reads their output.
func goBench(ctx context.Context, pattern, pkg string, args ...string) (samples, error) {
	args = append([]string{"test", "-run", "^$", "-bench", pattern, "-benchmem"}, append(args, pkg)...)
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w\n%s%s", strings.Join(args, " "), err, out, stderr.String())
	}
	return parseBench(string(out)), nil
}

// parseBench reads lines such as
//
//	BenchmarkTake/refused-2   1000   12.3 ns/op   0 allocs/op
func parseBench(text string) samples {
	s := make(samples)
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 4 || !strings.HasPrefix(f[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(f[0], "Benchmark")
		if s[name] == nil {
			s[name] = make(map[string][]float64)
		}
		for i := 2; i+1 < len(f); i += 2 {
			if v, err := strconv.ParseFloat(f[i], 64); err == nil {
				s[name][f[i+1]] = append(s[name][f[i+1]], v)
			}
		}
	}
	return s
}

// spread is the median of repeated figures with the smallest and the largest.
type spread struct{ min, median, max float64 }

func spreadOf(v []float64) spread {
	if len(v) == 0 {
		return spread{}
	}
	v = slices.Sorted(slices.Values(v))
	n := len(v)
	return spread{v[0], (v[(n-1)/2] + v[n/2]) / 2, v[n-1]}
}

// of finds the one benchmark whose whole name matches the pattern.
func (s samples) of(pattern, unit string) (spread, error) {
	re := regexp.MustCompile("^(?:" + pattern + ")$")
	for name, units := range s {
		if re.MatchString(name) && len(units[unit]) > 0 {
			return spreadOf(units[unit]), nil
		}
	}
	return spread{}, fmt.Errorf("no benchmark matches %q with the unit %s", pattern, unit)
}

// check is a bar that a benchmark inside one process decides.
type check struct {
	name, bar, figure string
	met               bool
	err               error
}

// inProcess runs the benchmarks of the bars that need no peer.
func (o *options) inProcess(ctx context.Context) []check {
	return append(o.knownSeries(ctx), o.takes(ctx)...)
}

// knownSeries adds, each in units of its own floor, what the path to the sink and
// the sink's encoding cost: both benchmarks measure snappy decode and encode of
// their own bytes in the same run.
func (o *options) knownSeries(ctx context.Context) []check {
	args := []string{"-benchtime", o.benchTime, "-count", strconv.Itoa(o.rounds)}
	path, err := goBench(ctx, "KnownSeries/^1", "./cmd/spillway", args...)
	if err != nil {
		return []check{{name: "in process, known series", err: err}}
	}
	sink, err := goBench(ctx, "^Benchmark(Pack|Snappy)$/^v1", "./ingester/sink/remotewrite", args...)
	if err != nil {
		return []check{{name: "in process, known series", err: err}}
	}
	var missing error
	get := func(s samples, pattern string) float64 {
		v, err := s.of(pattern+`(-\d+)?`, "cpu-ns/series")
		if err != nil {
			missing = err
		}
		return v.median
	}
	floor := get(path, "KnownSeries/1.0/floor.*encode")
	sinkFloor := get(sink, "Snappy/v1/encode-golang") + get(sink, "Snappy/v1/decode-golang")
	var checks []check
	for _, c := range []struct {
		name, path, sink string
		atMost           float64
	}{
		{"none dropped", "KnownSeries/1.0/none_dropped", "Pack/v1-v1/whole", 1},
		{"half dropped", "KnownSeries/1.0/half_dropped", "Pack/v1-v1/half", 2},
	} {
		p, s := get(path, c.path), get(sink, c.sink)
		ratio := p/floor + s/sinkFloor
		checks = append(checks, check{
			name: "in process, known series, " + c.name, bar: fmt.Sprintf("<= %.0f x snappy decode + encode", c.atMost),
			figure: fmt.Sprintf("%.2f x (to the sink %.0f ns of %.0f, the sink's encoding %.1f ns of %.0f, per series)", ratio, p, floor, s, sinkFloor),
			met:    ratio <= c.atMost, err: missing,
		})
	}
	return checks
}

// takes: one take, and two processors on one bucket. The second takes two to
// compare.
func (o *options) takes(ctx context.Context) []check {
	s, err := goBench(ctx, "^BenchmarkTake", "./ratecontrol", "-benchtime", o.benchTime, "-count", strconv.Itoa(o.rounds), "-cpu", "1,2")
	if err != nil {
		return []check{{name: "one take", err: err}}
	}
	var missing error
	get := func(pattern, unit string) spread {
		v, err := s.of(pattern, unit)
		if err != nil {
			missing = err
		}
		return v
	}
	const take = "Take/admitted,takes_per_reading=500"
	one, allocs := get(take, "ns/op"), get(take, "allocs/op")
	alone, two := get("TakeParallel/a_take_per_series,work", "ns/op"), get("TakeParallel/a_take_per_series,work-2", "ns/op")
	// Both are times on the clock. Other programs on the machine only add to
	// them, so the shortest say most.
	kept := alone.min / two.min / 2
	return []check{
		{name: "one take", bar: "<= 15 ns, no allocation", met: one.median <= 15 && allocs.max == 0, err: missing,
			figure: fmt.Sprintf("%.1f ns (%.1f to %.1f), %.0f allocations", one.median, one.min, one.max, allocs.max)},
		{name: "two cores on one bucket", bar: "lose nothing: 1 x what two alone do", met: kept >= 0.95, err: missing,
			figure: fmt.Sprintf("%.2f x (a series, one take included, takes %.1f ns on one core, %.1f ns on two, at the shortest)", kept, alone.min, two.min)},
	}
}
