package simulate

import (
	"fmt"
	"io"
	"math"
	"strings"
	"text/tabwriter"
)

// Paint colours a text where the output is a terminal: bad, good or plain.
type Paint func(text, kind string) string

// WriteText writes the report for a terminal or a file. It returns the first error
// that w returns.
func (r *Report) WriteText(w io.Writer, paint Paint) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s s on %s, stream burst %d\n\n", r.Stream, number(r.Seconds), ingesters(r.Ingesters), r.BurstNow)
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "class\trate/s\tpeak/s\toffered\tadmitted\tdropped\tno budget\tgroup > burst\trate\tburst")
	for _, c := range r.Classes {
		d := c.Dropped
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d\n", c.Name, number(c.Rate), number(c.PeakRate), c.Offered, c.Admitted, d.Total, d.NoBudget, d.GroupLarge, d.Rate, d.Burst)
	}
	t.Flush() // a strings.Builder takes every write
	for _, c := range r.Classes {
		c.writeText(&b, r, paint)
	}
	if r.SmallestBurst > 0 {
		fmt.Fprintf(&b, "\nThe stream's burst is %d. The smallest that would have dropped nothing in the classes that a burst can help: %d.\n", r.BurstNow, r.SmallestBurst)
	}
	if r.WithinRate > 0 && r.WithinRate != r.SmallestBurst {
		fmt.Fprintf(&b, "In those that kept their rate, where a burst is the right remedy: %d.\n", r.WithinRate)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (c *ClassReport) writeText(b *strings.Builder, r *Report, paint Paint) {
	fmt.Fprintf(b, "\n%s  %s\n", c.Name, paint(c.verdict(), kind(c.Dropped.Total)))
	top := c.PeakRate
	fmt.Fprintf(b, "  offered  %s  up to %s/s\n", blocks(c.Curve, top, func(x Bin) float64 { return x.Admitted + x.Dropped }), number(top))
	fmt.Fprintf(b, "  admitted %s\n", paint(blocks(c.Curve, top, func(x Bin) float64 { return x.Admitted }), "good"))
	fmt.Fprintf(b, "  dropped  %s\n", paint(blocks(c.Curve, top, func(x Bin) float64 { return x.Dropped }), kind(c.Dropped.Total)))
	if worst, skewed := c.worst(); skewed {
		fmt.Fprintf(b, "  ingester %d drops most: %d of the %d items that it was sent\n", worst, c.ByIngester[worst].Dropped, c.ByIngester[worst].Offered)
	}
	for _, line := range c.advice(r) {
		fmt.Fprintf(b, "  %s\n", line)
	}
}

func kind(dropped int64) string {
	if dropped > 0 {
		return "bad"
	}
	return "good"
}

func (c *ClassReport) verdict() string {
	switch {
	case c.Offered == 0:
		return "nothing was sent"
	case c.Dropped.Total == 0:
		return "nothing is dropped"
	}
	return fmt.Sprintf("drops %.3g %% (%d of %d)", 100*float64(c.Dropped.Total)/float64(c.Offered), c.Dropped.Total, c.Offered)
}

// advice says what would help, by reason.
func (c *ClassReport) advice(r *Report) (lines []string) {
	add := func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
	d := c.Dropped
	if d.NoBudget > 0 {
		add("no budget: %s; give the class a rate, or correct the rule", c.Why)
		return lines
	}
	if d.GroupLarge > 0 {
		add("group > burst: a group of %d items never fits into a burst of %d per ingester", c.ItemsPerGroup, c.BurstPerIngester)
	}
	if d.Rate > 0 {
		add("rate: it was sent more than %s items/s per ingester for a minute or longer; a rate of %s/s would hold its highest %s s", number(c.RatePerIngester), number(math.Ceil(c.PeakRate)), number(r.Seconds/bins))
	}
	if d.Burst > 0 {
		add("burst: it kept its rate over the minute, but sent more at once than the bucket held")
	}
	switch {
	case c.Why != "":
		add("no burst helps: %s", c.Why)
	case d.Total == 0:
		add("a burst of %d per ingester would have been enough; it has %d", c.SmallestBurst, c.BurstPerIngester)
	default:
		add("smallest burst that drops nothing: %d per ingester (it has %d), which a burst of %d of the stream gives it", c.SmallestBurst, c.BurstPerIngester, c.SmallestCapBurst)
	}
	return lines
}

// worst is the ingester that drops most, and whether another drops less than half
// of its part: then the traffic's skew is to blame.
func (c *ClassReport) worst() (ingester int, skewed bool) {
	least := math.Inf(1)
	for i, x := range c.ByIngester {
		if x.Dropped > c.ByIngester[ingester].Dropped {
			ingester = i
		}
		least = math.Min(least, x.part())
	}
	return ingester, c.ByIngester[ingester].part() > 2*least && c.ByIngester[ingester].Dropped > 0
}

func (x IngesterReport) part() float64 {
	return float64(x.Dropped) / math.Max(1, float64(x.Offered))
}

// blocks draws a curve with one character for each bin.
func blocks(curve []Bin, top float64, of func(Bin) float64) string {
	levels := []rune(" ▁▂▃▄▅▆▇█")
	var b strings.Builder
	for _, bin := range curve {
		level := 0
		if v := of(bin); v > 0 && top > 0 {
			level = 1 + min(7, int(v/top*7.999))
		}
		b.WriteRune(levels[level])
	}
	return b.String()
}

// number writes a rate without digits that nobody reads.
func number(x float64) string {
	if x == math.Trunc(x) && math.Abs(x) < 1e15 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.4g", x)
}

// ingesters writes how many there are.
func ingesters(n int) string {
	if n == 1 {
		return "1 ingester"
	}
	return fmt.Sprintf("%d ingesters", n)
}
