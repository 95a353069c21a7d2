package main

import (
	"fmt"
	"math"
	"strings"
)

// The drawing, in pixels, and the field of the curve in it.
const (
	svgWidth, svgHeight                  = 640, 320
	svgLeft, svgRight, svgTop, svgBottom = 64, 620, 36, 268
	svgText                              = `<text x="%.0f" y="%.0f" text-anchor="%s">%s</text>` + "\n"
)

// svg draws the cost of an item over the thing that varies.
func (c *curve) svg() string {
	top := 0.0
	for i := range c.points {
		top = max(top, c.points[i].nanoseconds())
	}
	step := niceStep(top / 5)
	top = step * math.Ceil(top/step)
	y := func(v float64) float64 { return svgBottom - v/top*(svgBottom-svgTop) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#333">`+"\n", svgWidth, svgHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", svgWidth, svgHeight)
	fmt.Fprintf(&b, svgText, float64(svgLeft), 20.0, "start", "CPU ns per item")
	fmt.Fprintf(&b, svgText, float64(svgLeft+svgRight)/2, float64(svgHeight-14), "middle", c.title)
	for v := 0.0; v <= top+step/2; v += step {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", svgLeft, y(v), svgRight)
		fmt.Fprintf(&b, svgText, float64(svgLeft-8), y(v)+4, "end", fmt.Sprintf("%.4g", v))
	}
	var line strings.Builder
	for i := range c.points {
		p := &c.points[i]
		x := c.across(p.x)
		fmt.Fprintf(&line, "%s%.1f %.1f", map[bool]string{true: "M", false: "L"}[i == 0], x, y(p.nanoseconds()))
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="#1565c0"/>`+"\n", x, y(p.nanoseconds()))
		fmt.Fprintf(&b, svgText, x, float64(svgBottom+18), "middle", thousands(int(p.x)))
	}
	fmt.Fprintf(&b, `<path d="%s" fill="none" stroke="#1565c0" stroke-width="2"/>`+"\n</svg>\n", line.String())
	return b.String()
}

// across is where a value stands on the axis.
func (c *curve) across(x float64) float64 {
	first, last := c.points[0].x, c.points[len(c.points)-1].x
	if c.log {
		x, first, last = math.Log(x), math.Log(first), math.Log(last)
	}
	const margin = 24
	return svgLeft + margin + (x-first)/(last-first)*(svgRight-svgLeft-2*margin)
}

// niceStep is 1, 2 or 5 times a power of ten, no less than v.
func niceStep(v float64) float64 {
	power := math.Pow(10, math.Floor(math.Log10(v)))
	for _, m := range []float64{1, 2, 5} {
		if m*power >= v {
			return m * power
		}
	}
	return 10 * power
}
