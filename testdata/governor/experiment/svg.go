package main

import (
	"bytes"
	"fmt"
	"math"
)

const (
	width, panel, left, top, gap = 900, 130, 70, 40, 34
)

func colours() map[string]string {
	return map[string]string{"off": "#b0413e", "step": "#c79a2e", "model": "#2f6f9f"}
}

// series is one panel: what is drawn, its unit, and whether its scale is
// logarithmic, for wall times that differ by a factor of forty.
type series struct {
	title string
	log   bool
	of    func(point) float64
}

func panels(s scenario) []series {
	return []series{
		{"capacity, slots", false, func(p point) float64 { return p.Capacity }},
		{"batches in flight", false, func(p point) float64 { return p.InFlight }},
		{fmt.Sprintf("CPU, %% of %g cores", s.cores), false, func(p point) float64 { return 100 * p.CPU / s.cores }},
		{"wall time of the CPU part, ms (log)", true, func(p point) float64 { return 1000 * p.Wall }},
		{"p99 from asking for a slot to giving it back, s (log)", true, func(p point) float64 { return p.P99 }},
	}
}

// draw makes the picture: a panel per quantity, a line per arm.
func draw(s scenario, arms map[string][]point) []byte {
	var b bytes.Buffer
	all := panels(s)
	height := top + len(all)*(panel+gap) + 20
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#ffffff"/>`+"\n", width, height)
	x := left
	for _, name := range s.arms {
		label := map[string]string{"off": "no governor", "step": "step alone", "model": "step and model"}[name]
		fmt.Fprintf(&b, `<rect x="%d" y="14" width="14" height="4" fill="%s"/><text x="%d" y="21" fill="#333333">%s</text>`+"\n", x, colours()[name], x+20, label)
		x += 150
	}
	end := 1.0
	for _, points := range arms {
		for _, p := range points {
			end = math.Max(end, p.At)
		}
	}
	for i, one := range all {
		drawPanel(&b, one, arms, top+i*(panel+gap), end)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#333333" text-anchor="end">%.0f s</text>`+"\n</svg>\n", width-20, height-8, end)
	return b.Bytes()
}

func drawPanel(b *bytes.Buffer, s series, arms map[string][]point, y int, end float64) {
	low, high := math.Inf(1), 0.0
	for _, points := range arms {
		for _, p := range points {
			if v := s.of(p); v > 0 {
				low, high = math.Min(low, v), math.Max(high, v)
			}
		}
	}
	if !s.log {
		low = 0
	}
	scale := func(v float64) float64 {
		share := (v - low) / (high - low)
		if s.log {
			share = math.Log(math.Max(v, low)/low) / math.Log(high/low)
		}
		return float64(y+panel) - share*float64(panel-16)
	}
	fmt.Fprintf(b, `<text x="%d" y="%d" fill="#333333">%s</text>`+"\n", left, y+8, s.title)
	for _, v := range []float64{low, high} {
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#dddddd"/><text x="%d" y="%.1f" fill="#666666" text-anchor="end">%.3g</text>`+"\n",
			left, width-20, scale(v), scale(v), left-6, scale(v)+4, v)
	}
	for name, points := range arms {
		fmt.Fprintf(b, `<polyline fill="none" stroke="%s" stroke-width="1.5" points="`, colours()[name])
		for _, p := range points {
			fmt.Fprintf(b, "%.1f,%.1f ", left+p.At/end*float64(width-left-20), scale(s.of(p)))
		}
		fmt.Fprint(b, `"/>`+"\n")
	}
}
