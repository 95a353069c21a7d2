package main

import (
	"errors"
	"fmt"
	"io"
	"math/big"
	"strings"
	"text/tabwriter"

	"github.com/spillway-telemetry/spillway/cmd/spillway/plan"
	"github.com/spillway-telemetry/spillway/ingester"
)

// planReport is a plan for people and programs.
type planReport struct {
	Inputs      []planInput      `json:"inputs"`
	FuturePeak  float64          `json:"future_peak"`
	Ingesters   int64            `json:"ingesters"`
	PerZone     int64            `json:"ingesters_per_zone"`
	Reserve     string           `json:"reserve"`
	Scenarios   []planScenario   `json:"scenarios"`
	Classes     []planClass      `json:"classes,omitempty"`
	Connections []planConnection `json:"connections,omitempty"`
}

type planInput struct {
	Name   string      `json:"name"`
	Value  float64     `json:"value"`
	Unit   string      `json:"unit"`
	Origin plan.Origin `json:"origin"`
	From   string      `json:"from"`
}

type planScenario struct {
	Name    string  `json:"name"`
	Left    int64   `json:"ingesters_left"`
	Use     float64 `json:"cpu_use_percent"`
	Bound   float64 `json:"cpu_may_use_percent"`
	Spare   float64 `json:"spare_items_per_second"`
	Decides bool    `json:"decides"`
}

// planClass is what a class gets while N is all ingesters, and what is left of it
// when some are lost and N is as it was.
type planClass struct {
	Stream      string  `json:"stream"`
	Name        string  `json:"name"`
	Rate        float64 `json:"rate"`
	PerIngester float64 `json:"rate_per_ingester"`
	Burst       int64   `json:"burst_per_ingester"`
	AfterLoss   float64 `json:"rate_after_loss"`
	WithLowerN  float64 `json:"rate_per_ingester_with_n_lowered"`
}

type planConnection struct {
	Sink        string `json:"sink"`
	Endpoints   int    `json:"endpoints"`
	Now         int64  `json:"connections"`
	Overlapping int64  `json:"connections_during_rollout"`
	Each        int64  `json:"per_endpoint_during_rollout"`
	Budget      int    `json:"endpoint_can_hold,omitempty"`
}

func float(r *big.Rat) float64 { f, _ := r.Float64(); return f }

// report works out what the plan means for inputs, classes and sinks.
func (p *planner) report(result *plan.Plan) (*planReport, error) {
	in := p.in
	r := &planReport{
		FuturePeak: float(result.FuturePeak), Ingesters: result.Ingesters, PerZone: result.PerZone,
		Reserve: fmt.Sprintf("%.4g %% of the CPU limit (%s)", 100*float(result.Reserve), result.ReserveBy),
	}
	add := func(name string, n plan.Number, factor float64, unit string) {
		r.Inputs = append(r.Inputs, planInput{name, factor * float(n.Value), unit, n.Origin, n.From})
	}
	add(map[bool]string{false: "items per CPU-second", true: "safe items per CPU-second"}[in.Safe], in.ItemsPerCPUSecond, 1, "")
	add(map[bool]string{false: "peak", true: "forecast peak"}[in.Forecast], in.Peak, 1, "items/s")
	if !in.Forecast {
		add("growth", in.Growth, 100, "%")
	}
	add("CPU limit", in.CPULimit, 1, "cores")
	if !in.Safe {
		add("governor's target", in.Target, 100, "%")
		add("headroom", in.Headroom, 100, "%")
	}
	add("zones", in.Zones, 1, "")
	add("zones that may fail", in.ZonesMayFail, 1, "")
	add("ingesters that may fail", in.IngestersMayFail, 1, "")
	_, overlap, _ := strings.Cut(count(in.Overlap.Value.Num().Int64(), "ingester"), " ")
	add("rollout overlap", in.Overlap, 1, overlap)
	lowest, decides := result.Ingesters, -1
	for i, s := range result.Scenarios {
		capacity := float(result.FuturePeak) / float(s.Use) * float(s.Bound)
		r.Scenarios = append(r.Scenarios, planScenario{s.Name, s.Left, 100 * float(s.Use), 100 * float(s.Bound), capacity - float(result.FuturePeak), false})
		lowest = min(lowest, s.Left)
		// Where several days need as many, the one that leaves the least room decides.
		if s.Needs == result.PerZone && (decides < 0 || r.Scenarios[i].Spare < r.Scenarios[decides].Spare) {
			decides = i
		}
	}
	if decides >= 0 {
		r.Scenarios[decides].Decides = true
	}
	for _, s := range in.Sinks {
		now, overlapping, each := result.Connections(s)
		r.Connections = append(r.Connections, planConnection{s.Name, s.Endpoints, now, overlapping, each, s.EndpointBudget})
	}
	return r, p.addClasses(r, result.Ingesters, lowest)
}

func (p *planner) addClasses(r *planReport, ingesters, lowest int64) error {
	if p.policy == nil {
		return nil
	}
	set, err := p.policy(int(ingesters))
	if err != nil {
		return err
	}
	for _, stream := range ingester.Streams() {
		limits := set.Stream(stream.String())
		if limits == nil {
			continue
		}
		for _, c := range limits.Classes() {
			rate := float(c.Rate)
			r.Classes = append(r.Classes, planClass{
				Stream: stream.String(), Name: c.Name, Rate: rate, PerIngester: float(c.RatePerIngester), Burst: c.BurstPerIngester,
				AfterLoss: rate * float64(lowest) / float64(ingesters), WithLowerN: rate / float64(max(1, lowest)),
			})
		}
	}
	return nil
}

// overBudget is an error for every endpoint that could not hold the connections.
func (r *planReport) overBudget() error {
	var problems []error
	for _, c := range r.Connections {
		if c.Budget > 0 && c.Each > int64(c.Budget) {
			problems = append(problems, fmt.Errorf("sink %s: each endpoint would hold %d connections during a rollout and can hold %d; lower max_connections_per_endpoint, or add endpoints behind it", c.Sink, c.Each, c.Budget))
		}
	}
	return errors.Join(problems...)
}

func (r *planReport) writeText(out io.Writer, paint func(text, kind string) string) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "%s\n\n", paint(fmt.Sprintf("%s, %d in each zone, for a peak of %s items/s.", count(r.Ingesters, "ingester"), r.PerZone, amount(r.FuturePeak)), "bold"))
	fmt.Fprintln(w, "number\tvalue\twhere it comes from")
	for _, i := range r.Inputs {
		fmt.Fprintf(w, "%s\t%s %s\t%s: %s\n", i.Name, amount(i.Value), i.Unit, i.Origin, i.From)
	}
	fmt.Fprintf(w, "\nunused on a good day, counted once: %s\n\n", r.Reserve)
	fmt.Fprintln(w, "when\tingesters left\tCPU used\tmay be used\troom for")
	for _, s := range r.Scenarios {
		fmt.Fprintf(w, "%s\t%d\t%.1f %%\t%.1f %%\t%s items/s more%s\n", s.Name, s.Left, s.Use, s.Bound, amount(s.Spare), map[bool]string{true: "  <- decides", false: ""}[s.Decides])
	}
	if len(r.Classes) > 0 {
		fmt.Fprintf(w, "\nset ingester.replica_count to %d. After the loss of ingesters N stays as it was until a restart, so a class gets its part of what is left:\n", r.Ingesters)
		fmt.Fprintln(w, "stream\tclass\trate/s\trate/s per ingester\tburst per ingester\tin all after the loss\tper ingester if N is lowered")
		for _, c := range r.Classes {
			fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%d\t%s\t%s\n", c.Stream, c.Name, amount(c.Rate), amount(c.PerIngester), c.Burst, amount(c.AfterLoss), amount(c.WithLowerN))
		}
	}
	if len(r.Connections) > 0 {
		fmt.Fprintln(w, "\nsink\tendpoints\tconnections\tduring a rollout\teach endpoint then")
		for _, c := range r.Connections {
			fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%d\n", c.Sink, c.Endpoints, c.Now, c.Overlapping, c.Each)
		}
	}
	return w.Flush()
}

// amount writes a number with digits that a person reads.
func amount(x float64) string {
	text := fmt.Sprintf("%.4g", x)
	if strings.ContainsAny(text, "e") || x >= 10_000 {
		text = fmt.Sprintf("%.0f", x)
	}
	return text
}
