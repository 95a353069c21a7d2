package simulate

import (
	"fmt"
	"html"
	"io"
	"strings"
)

// Measures of the plot in pixels.
const (
	plotWidth  = 860
	plotLeft   = 70
	plotRight  = 20
	panelTop   = 44
	panelHigh  = 110
	panelSpace = 172
)

// WriteSVG draws a panel for each class: admitted, dropped on top of it, and the
// class's rate as a line.
func (r *Report) WriteSVG(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" font-size="12">`+"\n", plotWidth, 50+panelSpace*len(r.Classes))
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	fmt.Fprintf(&b, `<text x="%d" y="24" font-size="15" font-weight="bold">%s on %s, %s s</text>`+"\n", plotLeft, html.EscapeString(r.Stream), ingesters(r.Ingesters), number(r.Seconds))
	b.WriteString(`<g font-size="12"><rect x="560" y="13" width="12" height="12" fill="#a9c9ee"/><text x="577" y="23">admitted</text>` +
		`<rect x="645" y="13" width="12" height="12" fill="#c94f58"/><text x="662" y="23">dropped</text>` +
		`<line x1="725" x2="749" y1="19" y2="19" stroke="#16202c" stroke-dasharray="5 3"/><text x="755" y="23">rate</text></g>` + "\n")
	for i := range r.Classes {
		r.Classes[i].writeSVG(&b, 40+i*panelSpace, r.Seconds)
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *ClassReport) writeSVG(b *strings.Builder, y int, seconds float64) {
	top := max(c.PeakRate, min(c.Rate, 2*c.PeakRate), 1e-9) * 1.05
	width := float64(plotWidth-plotLeft-plotRight) / float64(len(c.Curve))
	floor := float64(y + panelTop + panelHigh)
	scale := panelHigh / top
	fmt.Fprintf(b, `<text x="%d" y="%d"><tspan font-weight="bold">%s</tspan>  %s</text>`+"\n", plotLeft, y+panelTop-10, html.EscapeString(c.Name), html.EscapeString(c.verdict()))
	for i, bin := range c.Curve {
		x := plotLeft + float64(i)*width
		rect := func(from, height float64, color string) {
			if height > 0 {
				fmt.Fprintf(b, `<rect x="%.1f" y="%.1f" width="%.2f" height="%.1f" fill="%s"/>`, x, floor-(from+height)*scale, width+0.2, height*scale, color)
			}
		}
		rect(0, bin.Admitted, "#a9c9ee")
		rect(bin.Admitted, bin.Dropped, "#c94f58")
	}
	fmt.Fprintf(b, "\n"+`<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#8a949f"/>`+"\n", plotLeft, plotWidth-plotRight, floor, floor)
	if c.Rate > 0 && c.Rate <= top {
		line := floor - c.Rate*scale
		fmt.Fprintf(b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#16202c" stroke-dasharray="5 3"/>`+"\n", plotLeft, plotWidth-plotRight, line, line)
	}
	fmt.Fprintf(b, `<text x="%d" y="%.1f" text-anchor="end">%s/s</text><text x="%d" y="%.1f" text-anchor="end">0</text>`+"\n", plotLeft-6, floor-panelHigh+10, number(top), plotLeft-6, floor)
	fmt.Fprintf(b, `<text x="%d" y="%.1f">0 s</text><text x="%d" y="%.1f" text-anchor="end">%s s</text>`+"\n", plotLeft, floor+15, plotWidth-plotRight, floor+15, number(seconds))
}
