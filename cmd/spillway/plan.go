package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/spillway-telemetry/spillway/cmd/spillway/plan"
	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/policy"
)

// planOptions are the flags of spillway plan, as they were written: "" is a flag
// that was left out.
type planOptions struct {
	itemsPerCPU, safeItemsPerCPU, loadReport string
	peak, forecastPeak, growth               string
	prometheus                               string
	headers                                  []string
	selector                                 string
	since                                    time.Duration
	cpuLimit, headroom                       string
	zones, zonesMayFail, ingestersMayFail    string
	overlap                                  string
	endpointConnections                      int
	configFile, policyFile                   string
	format                                   string
}

func planCommand(app *kingpin.Application) (*kingpin.CmdClause, *planOptions) {
	o := &planOptions{}
	c := app.Command("plan", "Say how many ingesters a peak needs, and what is left of them when a zone fails.")
	c.HelpLong(`Every number in the answer says where it comes from: measured (by spillway load, or
recorded by a Prometheus server), read (from the configuration or policy), given (by
a flag, not checked) or assumed (a default).

The number of ingesters is the smallest for which the peak to come fits, on a good
day beside the headroom, and on each bad day into what is left, up to what the
governor lets through. Headroom and the governor's own margin are the same CPU and
count once, and so do bad days: the hardest one decides. Growth beside
--forecast-peak, and headroom beside --safe-items-per-cpu-second, are refused: those
numbers hold it already.

Measure first: spillway load --receiver-metrics on a machine like those to come says
items per CPU-second of the receiver. A report of a receiver that dropped or refused
more than 1 % meanwhile is refused.

Examples:

    spillway load --duration=1m --receiver-metrics=http://127.0.0.1:9900/metrics --format=json > load.json
    spillway plan --load-report=load.json --peak=4e6 --growth=50 --cpu-limit=4 --zones=3
    spillway plan --prometheus=http://127.0.0.1:9090 --since=168h --growth=30 --cpu-limit=4 --zones=3 --config.file=spillway.yaml
    spillway plan --items-per-cpu-second=1200000 --forecast-peak=9e6 --cpu-limit=8 --policy=policy.yaml
`)
	c.Flag("items-per-cpu-second", "What one CPU-second of an ingester processes at full load.").PlaceHolder("N").StringVar(&o.itemsPerCPU)
	c.Flag("safe-items-per-cpu-second", "The same with headroom taken off already.").PlaceHolder("N").StringVar(&o.safeItemsPerCPU)
	c.Flag("load-report", "Take it from what spillway load --format=json printed.").PlaceHolder("FILE").StringVar(&o.loadReport)
	c.Flag("peak", "Today's peak in items per second, over all ingesters.").PlaceHolder("N").StringVar(&o.peak)
	c.Flag("forecast-peak", "A peak that has the growth in it already.").PlaceHolder("N").StringVar(&o.forecastPeak)
	c.Flag("growth", "Percent that the peak will grow before the next plan. Default: 0.").PlaceHolder("PERCENT").StringVar(&o.growth)
	c.Flag("prometheus", "Take the peak, and items per CPU-second unless another flag gives them, from what this server has recorded.").PlaceHolder("URL").StringVar(&o.prometheus)
	c.Flag("header", `A header for the Prometheus server, repeatable. Example: --header="X-Scope-OrgID: platform"`).PlaceHolder("HEADER").StringsVar(&o.headers)
	c.Flag("selector", `Further matchers for the recorded metrics. Example: --selector='cluster="eu"'`).PlaceHolder("MATCHERS").StringVar(&o.selector)
	c.Flag("since", "How much recorded time to look at, up to now.").Default("168h").DurationVar(&o.since)
	c.Flag("cpu-limit", "Cores of one ingester.").PlaceHolder("CORES").Required().StringVar(&o.cpuLimit)
	c.Flag("headroom", "Percent of the CPU limit that is to stay unused on a good day. Default: 20.").PlaceHolder("PERCENT").StringVar(&o.headroom)
	c.Flag("zones", "Zones that the ingesters are spread over evenly. Default: 1.").PlaceHolder("N").StringVar(&o.zones)
	c.Flag("zones-may-fail", "Zones whose loss has to be survived. Default: 1 if there are several.").PlaceHolder("N").StringVar(&o.zonesMayFail)
	c.Flag("ingesters-may-fail", "Ingesters whose loss has to be survived; another bad day than the loss of a zone. Default: 1 in a single zone.").PlaceHolder("N").StringVar(&o.ingestersMayFail)
	c.Flag("rollout-overlap", "Ingesters that run beside those that they replace. Default: 1.").PlaceHolder("N").StringVar(&o.overlap)
	c.Flag("endpoint-connections", "Connections that one endpoint of a sink can hold; the plan fails if it takes more.").PlaceHolder("N").IntVar(&o.endpointConnections)
	c.Flag("config.file", "A configuration, for the governor's target, the sinks and the policy.").PlaceHolder("FILE").StringVar(&o.configFile)
	c.Flag("policy", "A policy, for what each class gets.").PlaceHolder("FILE").StringVar(&o.policyFile)
	c.Flag("format", "text or json.").Default("text").EnumVar(&o.format, "text", "json")
	return c, o
}

// planner gathers the input of a plan.
type planner struct {
	*planOptions
	in       plan.Input
	policy   func(ingesters int) (*policy.Set, error) // nil without a policy
	problems []error
}

func (o *planOptions) run(stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	p := &planner{planOptions: o}
	p.readFiles()
	p.readFlags()
	progress := newProgress(stderr)
	defer progress.clear()
	if o.prometheus != "" {
		progress.show("asking "+o.prometheus, 0)
		p.readRecording(ctx)
		progress.clear()
	}
	p.readReport()
	if err := errors.Join(p.problems...); err != nil {
		return err
	}
	if p.in.Peak.Value == nil || p.in.ItemsPerCPUSecond.Value == nil {
		return errors.New("plan needs a peak (--peak, --forecast-peak or --prometheus) and items per CPU-second (--load-report, --items-per-cpu-second or --prometheus)")
	}
	result, err := plan.Make(p.in)
	if err != nil {
		return err
	}
	report, err := p.report(result)
	if err != nil {
		return err
	}
	if o.format == "json" {
		err = printJSON(stdout, report)
	} else {
		err = report.writeText(stdout, painter(stdout))
	}
	return errors.Join(err, report.overBudget())
}

func (p *planner) complain(format string, args ...any) {
	p.problems = append(p.problems, fmt.Errorf(format, args...))
}

// given reads a flag: a number, divided by per.
func (p *planner) given(flag, text string, per int64, assumed int64) plan.Number {
	n := plan.Number{Value: big.NewRat(assumed, per), Origin: plan.Assumed, From: "a default, see --" + flag}
	if text == "" {
		return n
	}
	n = plan.Number{Value: new(big.Rat), Origin: plan.Given, From: "--" + flag + ", not checked", Set: true}
	if _, ok := n.Value.SetString(text); !ok || strings.ContainsAny(text, "/_") || len(text) > 32 {
		p.complain("--%s: %q is not a number, such as 20, 0.5 or 4e6", flag, text)
		return n
	}
	n.Value.Quo(n.Value, big.NewRat(per, 1))
	return n
}

// wholeNumber is a flag that counts something.
func (p *planner) wholeNumber(flag, text string, assumed int64) plan.Number {
	n := p.given(flag, text, 1, assumed)
	if !n.Value.IsInt() || !n.Value.Num().IsInt64() || n.Value.Num().Int64() > 1_000_000 {
		p.complain("--%s: %q is not a whole number up to 1000000", flag, text)
		n.Value = big.NewRat(assumed, 1)
	}
	return n
}

func (p *planner) readFlags() {
	p.in.Growth = p.given("growth", p.growth, 100, 0)
	p.in.Headroom = p.given("headroom", p.headroom, 100, 20)
	p.in.CPULimit = p.given("cpu-limit", p.cpuLimit, 1, 0)
	p.in.Zones = p.wholeNumber("zones", p.zones, 1)
	several := p.in.Zones.Value.Cmp(big.NewRat(1, 1)) > 0
	if several {
		p.in.ZonesMayFail = p.wholeNumber("zones-may-fail", p.zonesMayFail, 1)
		p.in.IngestersMayFail = p.wholeNumber("ingesters-may-fail", p.ingestersMayFail, 0)
	} else {
		p.in.ZonesMayFail = p.wholeNumber("zones-may-fail", p.zonesMayFail, 0)
		p.in.IngestersMayFail = p.wholeNumber("ingesters-may-fail", p.ingestersMayFail, 1)
	}
	p.in.Overlap = p.wholeNumber("rollout-overlap", p.overlap, 1)
	if p.peak != "" && p.forecastPeak != "" {
		p.complain("--peak and --forecast-peak: give one of them")
	}
	switch {
	case p.forecastPeak != "":
		p.in.Peak, p.in.Forecast = p.given("forecast-peak", p.forecastPeak, 1, 0), true
	case p.peak != "":
		p.in.Peak = p.given("peak", p.peak, 1, 0)
	}
	if p.itemsPerCPU != "" && p.safeItemsPerCPU != "" || p.loadReport != "" && p.itemsPerCPU+p.safeItemsPerCPU != "" {
		p.complain("--load-report, --items-per-cpu-second and --safe-items-per-cpu-second: give one of them")
	}
	switch {
	case p.safeItemsPerCPU != "":
		p.in.ItemsPerCPUSecond, p.in.Safe = p.given("safe-items-per-cpu-second", p.safeItemsPerCPU, 1, 0), true
	case p.itemsPerCPU != "":
		p.in.ItemsPerCPUSecond = p.given("items-per-cpu-second", p.itemsPerCPU, 1, 0)
	}
}

// readFiles takes the governor's target, the sinks and the policy.
func (p *planner) readFiles() {
	target := governor.Defaults().Model.Target
	p.in.Target = plan.Number{Value: new(big.Rat).SetFloat64(target), Origin: plan.Assumed, From: "the default of governor.model.target"}
	if p.configFile != "" {
		l, err := load(p.configFile, 0)
		if err != nil {
			p.problems = append(p.problems, err)
			return
		}
		p.in.Target = plan.Number{Origin: plan.Read, From: p.configFile + ", governor.model.target", Set: true}
		target = l.config.Governor.Model.Target
		p.in.Sinks = p.sinksOf(l.config)
		if l.config.PolicyFile != "" {
			p.policy = func(n int) (*policy.Set, error) {
				again, err := load(p.configFile, n)
				return again.policy, err
			}
		}
	}
	p.in.Target.Value = decimal(target)
	if p.policyFile != "" {
		data, err := readFile(p.policyFile)
		if err != nil {
			p.complain("--policy: %w", err)
			return
		}
		p.policy = func(n int) (*policy.Set, error) { return loadPolicy(data, p.policyFile, n) }
	}
}

// decimal is the number that a person wrote: 0.96 and not the nearest binary
// fraction, which may need an ingester more.
func decimal(x float64) *big.Rat {
	r, _ := new(big.Rat).SetString(fmt.Sprint(x))
	return r
}

// sinksOf are the destinations with a bound on connections.
func (p *planner) sinksOf(c Config) (sinks []plan.Sink) {
	for _, name := range sortedKeys(c.Sinks) {
		s := plan.Sink{Name: name, EndpointBudget: p.endpointConnections}
		switch sink := c.Sinks[name]; {
		case sink.RemoteWrite != nil:
			s.Endpoints, s.PerEndpoint = len(sink.RemoteWrite.Endpoints), sink.RemoteWrite.MaxConnectionsPerEndpoint
		case sink.OTLP != nil: // over gRPC writes share connections, up to this many
			s.Endpoints, s.PerEndpoint = len(sink.OTLP.Endpoints), sink.OTLP.MaxConnectionsPerEndpoint
		case sink.Kafka != nil: // brokers that are not named have as many
			s.Endpoints, s.PerEndpoint = len(sink.Kafka.Brokers), sink.Kafka.MaxConnectionsPerBroker+1
		default:
			continue // keeps it here
		}
		sinks = append(sinks, s)
	}
	return sinks
}

// readReport takes items per CPU-second from a report of spillway load.
func (p *planner) readReport() {
	if p.loadReport == "" {
		return
	}
	data, err := readFile(p.loadReport)
	if err != nil {
		p.complain("--load-report: %w", err)
		return
	}
	var s loadSummary
	if err := json.Unmarshal(data, &s); err != nil {
		p.complain("--load-report: %s is not what spillway load --format=json prints: %w", p.loadReport, err)
		return
	}
	if s.Receiver == nil || s.Receiver.ItemsPerCPUSecond <= 0 {
		p.complain("--load-report: %s does not say the receiver's CPU time: measure again with spillway load --receiver-metrics=URL", p.loadReport)
		return
	}
	if part := s.Receiver.unstored(s.Items); part > mostUnstored {
		p.complain("--load-report: %s: the receiver dropped or refused %.1f %% of the items, which takes less CPU than to store them; give the class that load sends to a rate above the load and measure again", p.loadReport, 100*part)
		return
	}
	p.in.ItemsPerCPUSecond = plan.Number{Value: decimal(s.Receiver.ItemsPerCPUSecond), Origin: plan.Measured, From: "spillway load, " + p.loadReport, Set: true}
}

// readRecording asks for what no flag says.
func (p *planner) readRecording(ctx context.Context) {
	r, err := newRecording(p.prometheus, p.headers, ingester.Metrics.String(), p.selector)
	if err != nil {
		p.problems = append(p.problems, err)
		return
	}
	from := fmt.Sprintf("%s, the last %s", p.prometheus, p.since)
	if p.in.Peak.Value == nil {
		peak, err := r.peak(ctx, time.Now(), p.since)
		if err != nil {
			p.problems = append(p.problems, err)
			return
		}
		p.in.Peak = plan.Number{Value: decimal(peak), Origin: plan.Measured, From: fmt.Sprintf("%s, highest mean of %s", from, peakMean(p.since)), Set: true}
	}
	if p.in.ItemsPerCPUSecond.Value == nil && p.loadReport == "" {
		each, err := r.itemsPerCPUSecond(ctx, time.Now(), p.since)
		if err != nil {
			p.problems = append(p.problems, err)
			return
		}
		p.in.ItemsPerCPUSecond = plan.Number{Value: decimal(each), Origin: plan.Measured, From: from + ", at the load that there was", Set: true}
	}
}
