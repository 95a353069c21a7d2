package policy

import (
	"fmt"
	"io"
	"math"
	"math/big"
	"strconv"
	"strings"
	"text/tabwriter"
)

// Report is a set of policies for people and programs to read. It marshals to
// the JSON that `spillway check policy --format=json` prints.
type Report struct {
	// Streams has the limited streams by name.
	Streams map[string]StreamReport `json:"streams"`
	// Warnings has one line for each warning, never nil.
	Warnings []string `json:"warnings"`
}

// StreamReport is one stream's policy. Rates are the nearest float64 of the
// exact rate.
type StreamReport struct {
	Rate      float64       `json:"rate"`      // items per second over all ingesters
	Burst     int64         `json:"burst"`     // items over all ingesters
	Ingesters int           `json:"ingesters"` // N
	Classes   []ClassReport `json:"classes"`   // as Policy.Classes: default is last
	Rules     []RuleReport  `json:"rules"`     // in order, never nil
}

// ClassReport is one class; see Class for the units.
type ClassReport struct {
	Name             string  `json:"name"`
	Rate             float64 `json:"rate"`
	SharePercent     int64   `json:"share_percent"`
	RatePerIngester  float64 `json:"rate_per_ingester"`
	BurstPerIngester int64   `json:"burst_per_ingester"`
	Configured       bool    `json:"configured"`
}

// RuleReport is one rule, its matchers as Prometheus writes them.
type RuleReport struct {
	Class    string   `json:"class"`
	Matchers []string `json:"matchers"`
}

// Report describes the whole set.
func (s *Set) Report() Report {
	r := Report{Streams: map[string]StreamReport{}, Warnings: []string{}}
	for _, name := range streamNames {
		if p := s.Stream(name); p != nil {
			r.Streams[name] = p.report()
		}
	}
	for _, w := range s.Warnings() {
		r.Warnings = append(r.Warnings, w.String())
	}
	return r
}

func (p *Policy) report() StreamReport {
	r := StreamReport{
		Rate:      float(p.limits.rate),
		Burst:     p.limits.burst,
		Ingesters: p.limits.ingesters,
		Classes:   make([]ClassReport, len(p.classes)),
		Rules:     make([]RuleReport, len(p.rules)),
	}
	for i, c := range p.classes {
		r.Classes[i] = ClassReport{
			Name:             c.Name,
			Rate:             float(c.Rate),
			SharePercent:     c.SharePercent,
			RatePerIngester:  float(c.RatePerIngester),
			BurstPerIngester: c.BurstPerIngester,
			Configured:       c.Configured,
		}
	}
	for i, rule := range p.rules {
		matchers := make([]string, len(rule.matchers))
		for j, m := range rule.matchers {
			matchers[j] = m.String()
		}
		r.Rules[i] = RuleReport{Class: p.classes[rule.class].Name, Matchers: matchers}
	}
	return r
}

func float(r *big.Rat) float64 {
	f, _ := r.Float64()
	return f
}

// WriteText writes the report as aligned tables. It returns the first error
// that w returns.
func (r Report) WriteText(w io.Writer) error {
	var b strings.Builder
	for _, name := range streamNames {
		if s, limited := r.Streams[name]; limited {
			s.writeText(&b, name)
		}
	}
	if len(r.Streams) == 0 {
		b.WriteString("no stream is limited\n")
	}
	if len(r.Warnings) > 0 {
		b.WriteString("\nwarnings\n")
	}
	for _, warning := range r.Warnings {
		b.WriteString("  " + warning + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s StreamReport) writeText(b *strings.Builder, name string) {
	if b.Len() > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(b, "%s: %s items/s, burst %d, on %s\n", name, rateText(s.Rate), s.Burst, ingesters(s.Ingesters))
	t := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	// A strings.Builder takes every write, so Flush cannot fail.
	defer t.Flush()
	fmt.Fprintln(t, "  class\trate/s\tshare\trate/s per ingester\tburst per ingester")
	for _, c := range s.Classes {
		note := ""
		if !c.Configured {
			note = " (unconfigured: all is dropped)"
		}
		fmt.Fprintf(t, "  %s\t%s\t%d%%\t%s\t%d%s\n",
			c.Name, rateText(c.Rate), c.SharePercent, rateText(c.RatePerIngester), c.BurstPerIngester, note)
	}
	if len(s.Rules) == 0 {
		return
	}
	// Flushing ends the columns of the first table.
	t.Flush()
	fmt.Fprintln(t, "  rule\tclass\tmatchers")
	for i, r := range s.Rules {
		fmt.Fprintf(t, "  %d\t%s\t%s\n", i, r.Class, strings.Join(r.Matchers, ", "))
	}
}

// rateText writes a rate to three decimals, and where that would say nothing,
// in scientific notation.
func rateText(rate float64) string {
	if rate != 0 && (rate < 0.001 || rate >= 1e15) {
		return strconv.FormatFloat(rate, 'g', 4, 64)
	}
	return strconv.FormatFloat(math.Round(rate*1000)/1000, 'f', -1, 64)
}

// ingesters writes how many there are.
func ingesters(n int) string {
	if n == 1 {
		return "1 ingester"
	}
	return fmt.Sprintf("%d ingesters", n)
}
