package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// residentBar is the memory that 1,000,000 active series may take, in bytes.
const (
	residentBar    = 512 << 20
	residentSeries = 1_000_000
)

// barTable has a line for every bar: the ratio, and whether it is met.
func (o *options) barTable(results []*result, checks []check) string {
	var b strings.Builder
	b.WriteString("| what | bar | measured: median (smallest to largest) | met | where Spillway's CPU time goes |\n|---|---|---|---|---|\n")
	line := func(cells ...string) { fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | ")) }
	for _, r := range results {
		if len(r.ratios) == 0 {
			line(r.title(), r.bar(), "not measured: "+oneLine(r.err), "no", "")
			continue
		}
		ratio := spreadOf(r.ratios)
		if r.err != nil {
			r.bound = "no profile: " + oneLine(r.err)
		}
		line(r.title()+" vs "+r.peer.name, r.bar(), fmt.Sprintf("%.2f x (%.2f to %.2f)", ratio.median, ratio.min, ratio.max),
			yes(r.met(ratio.median)), r.bound)
	}
	for _, c := range checks {
		if c.err != nil {
			line(c.name, c.bar, "not measured: "+oneLine(c.err), "no", "")
			continue
		}
		line(c.name, c.bar, c.figure, yes(c.met), "")
	}
	for _, r := range results {
		if r.series == residentSeries && !isOTLP(r.message) && !r.fresh && len(r.ourses) > 0 {
			peak := spreadOf(each(r.ourses, func(m measurement) float64 { return float64(m.peak) }))
			line("peak memory with 1,000,000 active series, "+r.name, "<= 512 MiB resident",
				fmt.Sprintf("%.0f MiB (%.0f to %.0f)", peak.median/(1<<20), peak.min/(1<<20), peak.max/(1<<20)), yes(peak.median <= residentBar), "")
		}
	}
	return b.String()
}

// figureTable has a line for every receiver in every row.
func figureTable(results []*result) string {
	var b strings.Builder
	b.WriteString("| row | receiver | items per CPU-second | items/s | p50 | p99 | peak MiB | remarks |\n|---|---|--:|--:|--:|--:|--:|---|\n")
	for _, r := range results {
		for _, side := range []struct {
			name string
			runs []measurement
		}{{r.peer.name, r.peers}, {r.ours.name, r.ourses}} {
			if len(side.runs) == 0 {
				continue
			}
			per := spreadOf(each(side.runs, measurement.perCPUSecond))
			mid := func(f func(measurement) float64) float64 { return spreadOf(each(side.runs, f)).median }
			var notes []string
			for _, m := range side.runs {
				if m.note != "" {
					notes = append(notes, m.note)
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %s (%s to %s) | %s | %s | %s | %.0f | %s |\n", r.title(), side.name,
				thousands(int(per.median)), thousands(int(per.min)), thousands(int(per.max)),
				thousands(int(mid(func(m measurement) float64 { return float64(m.items) / m.wall.Seconds() }))),
				milliseconds(mid(func(m measurement) float64 { return float64(m.p50) })),
				milliseconds(mid(func(m measurement) float64 { return float64(m.p99) })),
				mid(func(m measurement) float64 { return float64(m.peak) })/(1<<20), strings.Join(notes, "; "))
		}
	}
	return b.String()
}

// circumstances says under what the figures were taken.
func (o *options) circumstances() string {
	library := "?"
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, d := range info.Deps {
			if d.Path == "github.com/golang/snappy" {
				library = d.Version
			}
		}
	}
	return fmt.Sprintf("%s, %d processors, %s/%s, snappy %s; %d pairs of runs, %s items in a run (%s where a TSDB stores them), %d series a request, %d connections, %s.\n",
		runtime.Version(), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, library, o.rounds, thousands(o.items), thousands(o.storedItems),
		o.perRequest, o.connections, time.Now().UTC().Format("2006-01-02"))
}

// writeSection replaces what stands between the two comments that name a section.
func writeSection(file, section, text string) error {
	old, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	begin, end := "<!-- "+section+" begin -->\n", "<!-- "+section+" end -->"
	before, rest, ok := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return fmt.Errorf("%s: has no section between %q and %q", file, strings.TrimSpace(begin), end)
	}
	return os.WriteFile(file, []byte(before+begin+"\n"+text+"\n"+end+after), 0o644)
}

func each(runs []measurement, f func(measurement) float64) []float64 {
	v := make([]float64, len(runs))
	for i, m := range runs {
		v[i] = f(m)
	}
	return v
}

func yes(met bool) string {
	if met {
		return "yes"
	}
	return "no"
}

func oneLine(err error) string {
	line, _, _ := strings.Cut(fmt.Sprint(err), "\n")
	return strings.ReplaceAll(line, "|", "/")
}

func milliseconds(ns float64) string { return fmt.Sprintf("%.2f ms", ns/1e6) }

// thousands writes 1234567 as 1,234,567.
func thousands(n int) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}
