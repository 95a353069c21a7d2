package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/spillway-telemetry/spillway/cmd/spillway/simulate"
	"github.com/spillway-telemetry/spillway/policy"
)

// simulateOptions are the flags of spillway simulate.
type simulateOptions struct {
	policy     string
	ingesters  int
	traffic    string
	prometheus string
	headers    []string
	stream     string
	selector   string
	since      time.Duration
	step       time.Duration
	perGroup   int64
	every      time.Duration
	rename     map[string]string
	plot       string
	format     string
}

func simulateCommand(app *kingpin.Application) (*kingpin.CmdClause, *simulateOptions) {
	o := &simulateOptions{rename: map[string]string{}}
	c := app.Command("simulate", "Say what a policy would drop of given or recorded traffic, and the smallest burst that drops nothing.")
	c.HelpLong(`The traffic goes through the buckets of the real program, in virtual time. Give it
as a file, or take what a Prometheus server has recorded of running ingesters.

A traffic file:

    stream: metrics            # default: metrics
    duration: 10m
    classes:
      team-a: {rate: 400}      # items/s over all ingesters, in groups of 1, every second
      team-b:
        rate:                  # straight lines between the points; two at one time are a step
          - {at: 0s, rate: 100}
          - {at: 5m, rate: 100}
          - {at: 5m, rate: 2000}
        items_per_group: 10    # allowed or dropped together
        every: 15s             # what comes in 15 s is sent at once, as scraped series are
        skew: [3, 1, 1, 1]     # parts that the ingesters get; default: evenly

Drops are counted by reason: "no budget" (rate 0, or the class is not defined),
"group > burst" (it never fits), "rate" (the class was sent more than its rate over
the last minute), "burst" (it was not, but too much came at once).

Recorded traffic is what spillway_admitted, _dropped and _refused_items_total say of
each class; relabelled and exempt items use no tokens. How items were grouped is not recorded:
--items-per-group and --every say what to assume.

Examples:

    spillway simulate --policy=policy.yaml --ingesters=4 --traffic=traffic.yaml
    spillway simulate --policy=new.yaml --ingesters=4 --prometheus=http://127.0.0.1:9090 --since=24h --plot=day.svg
    spillway simulate --policy=new.yaml --prometheus=http://127.0.0.1:9900 --since=1h --rename=team-a=checkout
`)
	c.Flag("policy", "The policy to try.").PlaceHolder("FILE").Required().StringVar(&o.policy)
	c.Flag("ingesters", "N, the number of ingesters that the policy is divided by.").Default("1").IntVar(&o.ingesters)
	c.Flag("traffic", "A file that says what is sent.").PlaceHolder("FILE").StringVar(&o.traffic)
	c.Flag("prometheus", "A Prometheus server to take recorded traffic from; a Spillway with a tsdb sink is one.").PlaceHolder("URL").StringVar(&o.prometheus)
	c.Flag("header", `A header for the Prometheus server, repeatable. Example: --header="X-Scope-OrgID: platform"`).PlaceHolder("HEADER").StringsVar(&o.headers)
	c.Flag("stream", "The recorded stream.").Default("metrics").EnumVar(&o.stream, "metrics", "logs", "traces", "events", "rum")
	c.Flag("selector", `Further matchers for the recorded metrics. Example: --selector='cluster="eu"'`).PlaceHolder("MATCHERS").StringVar(&o.selector)
	c.Flag("since", "How much recorded time to replay, up to now.").Default("1h").DurationVar(&o.since)
	c.Flag("step", "Resolution of recorded rates; at least twice the scrape interval.").Default("1m").DurationVar(&o.step)
	c.Flag("items-per-group", "Items of recorded traffic that are allowed or dropped together.").Default("1").Int64Var(&o.perGroup)
	c.Flag("every", "How often recorded traffic is assumed to arrive.").Default("15s").DurationVar(&o.every)
	c.Flag("rename", "A recorded class that the new policy calls otherwise, repeatable. Example: --rename=old=new").PlaceHolder("OLD=NEW").StringMapVar(&o.rename)
	c.Flag("plot", "Write an SVG of what was admitted and dropped.").PlaceHolder("FILE").StringVar(&o.plot)
	c.Flag("format", "text or json.").Default("text").EnumVar(&o.format, "text", "json")
	return c, o
}

func (o *simulateOptions) run(stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	set, err := o.load()
	if err != nil {
		return err
	}
	progress := newProgress(stderr)
	defer progress.clear()
	t, assumed, err := o.source(ctx, progress)
	if err != nil {
		return err
	}
	report, err := simulate.Run(set, o.ingesters, t, func(done float64) { progress.show("simulating", done) })
	progress.clear()
	if err != nil {
		return err
	}
	if o.plot != "" {
		if err := writeFile(o.plot, report.WriteSVG); err != nil {
			return fmt.Errorf("--plot: %w", err)
		}
	}
	if o.format == "json" {
		return printJSON(stdout, report)
	}
	for _, line := range assumed {
		fmt.Fprintln(stdout, line)
	}
	return report.WriteText(stdout, painter(stdout))
}

// load reads the policy and checks the flags that belong to it.
func (o *simulateOptions) load() (*policy.Set, error) {
	if o.ingesters < 1 {
		return nil, fmt.Errorf("--ingesters: %d is not a number of ingesters; it must be 1 or more", o.ingesters)
	}
	if (o.traffic == "") == (o.prometheus == "") {
		return nil, errors.New("simulate wants either --traffic=FILE or --prometheus=URL; `spillway simulate --help` shows both")
	}
	data, err := readFile(o.policy)
	if err != nil {
		return nil, fmt.Errorf("--policy: %w", err)
	}
	return loadPolicy(data, o.policy, o.ingesters)
}

// source is the traffic, and what had to be assumed of it.
func (o *simulateOptions) source(ctx context.Context, p *progress) (*simulate.Traffic, []string, error) {
	if o.prometheus != "" {
		return o.recorded(ctx, p)
	}
	t := &simulate.Traffic{}
	data, err := readFile(o.traffic)
	if err != nil {
		return nil, nil, fmt.Errorf("--traffic: %w", err)
	}
	if err := wrongKind(data, o.traffic, kindTraffic); err != nil {
		return nil, nil, err
	}
	if err := decodeStrict(data, o.traffic, t); err != nil {
		return nil, nil, err
	}
	t.Complete()
	if err := t.Validate(o.ingesters); err != nil {
		return nil, nil, under(o.traffic, err)
	}
	return t, nil, nil
}

// recorded makes traffic of what a Prometheus server knows of running ingesters. As
// many recorded instances as there are ingesters keep their own rates.
func (o *simulateOptions) recorded(ctx context.Context, p *progress) (*simulate.Traffic, []string, error) {
	if o.since < o.step || o.step < time.Second || o.every < time.Millisecond || o.perGroup < 1 {
		return nil, nil, errors.New("--since, --step, --every and --items-per-group: a step is at least 1s and fits into --since; the others are above 0")
	}
	client, err := newRecording(o.prometheus, o.headers, o.stream, o.selector)
	if err != nil {
		return nil, nil, err
	}
	p.show("asking "+o.prometheus, 0)
	rates, err := client.rates(ctx, time.Now(), o.since, o.step)
	if err != nil {
		return nil, nil, err
	}
	instances := map[string]bool{}
	for _, each := range rates {
		for instance := range each {
			instances[instance] = true
		}
	}
	t := &simulate.Traffic{Stream: o.stream, Duration: o.since, Classes: map[string]simulate.Source{}}
	names := slices.Sorted(maps.Keys(instances))
	for _, class := range sortedKeys(rates) {
		source := o.sourceOf(rates[class], names)
		name := class
		if renamed, ok := o.rename[class]; ok {
			name = renamed
		}
		if before, taken := t.Classes[name]; taken {
			source.Each = addCurves(before.Each, source.Each)
		}
		t.Classes[name] = source
	}
	assumed := []string{
		fmt.Sprintf("recorded: %d classes on %d instances (%s), the last %s in steps of %s", len(rates), len(names), strings.Join(names, ", "), o.since, o.step),
		fmt.Sprintf("assumed:  groups of %d, sent every %s%s", o.perGroup, o.every, map[bool]string{true: "", false: fmt.Sprintf("; spread evenly over %d ingesters, as another number was recorded", o.ingesters)}[len(names) == o.ingesters]), "",
	}
	return t, assumed, t.Validate(o.ingesters)
}

func (o *simulateOptions) sourceOf(each map[string]simulate.Curve, instances []string) simulate.Source {
	s := simulate.Source{ItemsPerGroup: o.perGroup, Every: o.every}
	steps := int(o.since / o.step)
	for _, name := range instances {
		curve, ok := each[name]
		if !ok {
			curve = flat(steps, o.step)
		}
		s.Each = append(s.Each, curve)
	}
	if len(instances) != o.ingesters {
		s.Each = evenly(s.Each, o.ingesters)
	}
	return s
}

// evenly divides the sum of curves with equal points into n equal ones.
func evenly(curves []simulate.Curve, n int) []simulate.Curve {
	sum := slices.Clone(curves[0])
	for _, c := range curves[1:] {
		for i := range sum {
			sum[i].Rate += c[i].Rate
		}
	}
	for i := range sum {
		sum[i].Rate /= float64(n)
	}
	return slices.Repeat([]simulate.Curve{sum}, n)
}

// addCurves adds curve by curve and point by point.
func addCurves(a, b []simulate.Curve) []simulate.Curve {
	out := make([]simulate.Curve, len(a))
	for i := range a {
		out[i] = slices.Clone(a[i])
		for k := range out[i] {
			out[i][k].Rate += b[i][k].Rate
		}
	}
	return out
}

// headerOf reads lines of the form NAME: VALUE.
func headerOf(lines []string) (http.Header, error) {
	h := http.Header{}
	for _, line := range lines {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header: %q is not of the form NAME: VALUE", line)
		}
		h.Set(name, strings.TrimSpace(value))
	}
	return h, nil
}

func writeFile(path string, write func(io.Writer) error) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(f), f.Close())
}
