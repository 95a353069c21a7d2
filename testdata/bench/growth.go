package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// curve is how the cost of an item grows with one thing.
type curve struct {
	file, title string
	log         bool // the axis of the thing is logarithmic
	points      []point
}

// point is Spillway with one value of that thing, and what it cost.
type point struct {
	x           float64
	receiver    *receiver
	load        workload
	connections int
	measurement
}

func (p *point) nanoseconds() float64 { return float64(p.cpu) / float64(p.items) }

// mostRequests bounds the runs with small requests.
const mostRequests = 30_000

// curves are the things that cost may grow with, each beside what the first bar
// is measured with.
func (o *options) curves() []*curve {
	twenty := policyOf(20, false)
	usual := o.programs.forwarding("Spillway", message1, nothingRules, twenty)
	base := point{receiver: usual, connections: o.connections,
		load: workload{message: message1, series: o.series[0], perRequest: o.perRequest, teams: 20, passes: 4}}
	vary := func(values []float64, change func(p *point)) []point {
		var points []point
		for _, x := range values {
			p := base
			p.x = x
			change(&p)
			points = append(points, p)
		}
		return points
	}
	return []*curve{
		{"classes.svg", "classes", true, vary([]float64{1, 10, 100, 1000, 10_000}, func(p *point) {
			p.load.teams = mostClasses
			p.receiver = o.programs.classes(int(p.x))
		})},
		{"rules.svg", "relabel rules", false, vary([]float64{0, 1, 5, 20, 50, 100}, func(p *point) {
			p.receiver = o.programs.forwarding("Spillway", message1, manyRules(int(p.x)), twenty)
		})},
		{"series.svg", "active series", true, vary([]float64{10_000, 100_000, 300_000, 1_000_000, 3_000_000}, func(p *point) {
			p.load.series = int(p.x)
			if p.x > 500_000 {
				p.load.passes = 2
			}
		})},
		{"churn.svg", "percent of series new in each request", false, vary([]float64{0, 1, 5, 25, 50, 100}, func(p *point) {
			p.load.churn = p.x / 100
			p.load.passes = 1 + (o.items+p.load.series-1)/p.load.series
		})},
		{"connections.svg", "connections", true, vary([]float64{1, 2, 4, 16, 64}, func(p *point) { p.connections = int(p.x) })},
		{"processors.svg", "processors (GOMAXPROCS)", false, vary([]float64{1, 2}, func(p *point) {
			p.receiver = o.programs.forwarding("Spillway", message1, nothingRules, twenty, fmt.Sprintf("GOMAXPROCS=%.0f", p.x))
		})},
		{"batch.svg", "series in a request", true, vary([]float64{10, 100, 1000, 2000, 10_000}, func(p *point) { p.load.perRequest = int(p.x) })},
	}
}

// runGrowth measures every point, prints the table and, if it is to be kept,
// draws the curves.
func (o *options) runGrowth(ctx context.Context, b *bench) error {
	var table, plots strings.Builder
	table.WriteString("| what | value | CPU ns per item: median (smallest to largest) | items/s | p99 | peak MiB |\n|---|--:|--:|--:|--:|--:|\n")
	for _, c := range o.curves() {
		if !o.only.MatchString(c.title) {
			continue
		}
		for i := range c.points {
			p := &c.points[i]
			cost, err := o.measurePoint(ctx, b, p)
			if err != nil {
				return fmt.Errorf("%s %v: %w", c.title, p.x, err)
			}
			b.say("%s %v: %.0f ns per item", c.title, p.x, cost.median)
			fmt.Fprintf(&table, "| %s | %s | %.0f (%.0f to %.0f) | %s | %s | %.0f |\n", c.title, thousands(int(p.x)), cost.median, cost.min, cost.max,
				thousands(int(float64(p.items)/p.wall.Seconds())), milliseconds(float64(p.p99)), float64(p.peak)/(1<<20))
		}
		if o.keep {
			if err := os.WriteFile(filepath.Join(o.folder, c.file), []byte(c.svg()), 0o644); err != nil {
				return err
			}
			fmt.Fprintf(&plots, "![%s](%s)\n", c.title, c.file)
		}
	}
	fmt.Print(table.String())
	if !o.keep {
		return nil
	}
	return writeSection(filepath.Join(o.folder, "README.md"), "growth", o.circumstances()+"\n"+plots.String()+"\n"+table.String())
}

// measurePoint runs a point as often as a row and leaves in it the run with the
// lowest cost, which other programs disturbed least.
func (o *options) measurePoint(ctx context.Context, b *bench, p *point) (spread, error) {
	load, err := prepare(p.load, time.Now())
	if err != nil {
		return spread{}, err
	}
	n := min(mostRequests, max(1, o.items/p.load.perRequest))
	var costs []float64
	for range o.rounds {
		m, err := b.measure(ctx, p.receiver, load, p.connections, n)
		if err != nil {
			return spread{}, err
		}
		run := *p
		run.measurement = m
		if len(costs) == 0 || run.nanoseconds() < p.nanoseconds() {
			*p = run
		}
		costs = append(costs, run.nanoseconds())
	}
	return spreadOf(costs), nil
}
