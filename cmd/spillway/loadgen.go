package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
)

// loadOptions is what `spillway load` is told.
type loadOptions struct {
	url         string
	signal      string
	message     string // loadMessage1 or loadMessage2
	series      int
	perRequest  int           // series
	rate        float64       // items per second, 0: as fast as answered
	concurrency int           // senders, each with a connection
	duration    time.Duration // 0: none
	requests    int64         // 0: no limit
	churn       float64       // percent of the series in a request that are new
	prepared    int           // requests made ahead and sent over and over, 0: each is made when it is sent
	timeout     time.Duration
	headers     []string
	format      string

	receiverMetrics string // where the receiver tells its CPU time, "" if it is not asked
}

// loadCommand adds the command to the command line.
func loadCommand(app *kingpin.Application) (*kingpin.CmdClause, *loadOptions) {
	o := &loadOptions{}
	c := app.Command("load", "Send generated telemetry and say what became of it.")
	c.HelpLong(`Series have 12 labels of about 240 bytes. The label "team" has the values team-00 to
team-19, evenly spread, for a policy to tell apart. Ctrl-C ends it with the summary.
With --receiver-metrics the summary has items per CPU-second, from which spillway plan
starts; send as fast as the receiver answers then, and give the class a budget that drops
nothing: what the receiver dropped or refused meanwhile stands in the summary, too. The
exit code is 1 if nothing at all was accepted.

Examples:

    spillway load --url=http://127.0.0.1:9900/api/v1/write --series=100000 --rate=50000 --duration=1m
    spillway load --concurrency=4 --series=100000 --duration=1m --receiver-metrics=http://127.0.0.1:9900/metrics --format=json > load.json
    spillway load --protobuf-message=io.prometheus.write.v2.Request --header="Kf-Api-Key: abc"
`)
	c.Flag("url", "Where to send to.").Default("http://127.0.0.1:9900/api/v1/write").StringVar(&o.url)
	c.Flag("signal", "What to send: metrics.").Default("metrics").EnumVar(&o.signal, "metrics")
	c.Flag("protobuf-message", "prometheus.WriteRequest for remote write 1.0, io.prometheus.write.v2.Request for 2.0.").Default(loadMessage1).EnumVar(&o.message, loadMessage1, loadMessage2)
	c.Flag("series", "Active series.").Default("10000").IntVar(&o.series)
	c.Flag("series-per-request", "Series in a request, each with one sample.").Default("2000").IntVar(&o.perRequest)
	c.Flag("rate", "Items per second over all senders; 0 is as fast as they are answered.").Default("0").Float64Var(&o.rate)
	c.Flag("concurrency", "Senders, each with a connection and one request at a time. A series always comes from the same sender.").Default("1").IntVar(&o.concurrency)
	c.Flag("duration", "How long to send. Without --duration and --requests: 30s.").DurationVar(&o.duration)
	c.Flag("requests", "How many requests to send.").Int64Var(&o.requests)
	c.Flag("churn", "Percent of the series in each request that are new and take the place of old ones.").Default("0").Float64Var(&o.churn)
	c.Flag("prepared", "Make this many requests ahead and send them over and over, so that the generator takes little CPU. Their times repeat. 0 makes each as it is sent.").Default("0").IntVar(&o.prepared)
	c.Flag("timeout", "How long an answer may take.").Default("30s").DurationVar(&o.timeout)
	c.Flag("header", `A header for every request, repeatable. Example: --header="Kf-Api-Key: abc"`).StringsVar(&o.headers)
	c.Flag("receiver-metrics", "Ask the receiver here for its CPU time, for items per CPU-second. Example: --receiver-metrics=http://127.0.0.1:9900/metrics").PlaceHolder("URL").StringVar(&o.receiverMetrics)
	c.Flag("format", "text or json.").Default("text").EnumVar(&o.format, "text", "json")
	return c, o
}

// parts is in how many requests all series fit.
func (o *loadOptions) parts() int { return (o.series + o.perRequest - 1) / o.perRequest }

// validate returns every problem by the name of its flag. It changes nothing.
func (o *loadOptions) validate() error {
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if u, err := url.Parse(o.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		complain("--url: %q is not an http or https address", o.url)
	}
	if o.series < 1 || o.perRequest < 1 || o.concurrency < 1 {
		complain("--series, --series-per-request and --concurrency: must be 1 or more")
		return errors.Join(problems...)
	}
	if o.concurrency > o.parts() {
		complain("--concurrency: %d series in requests of %d make %d requests, too few for %d senders, as a series always comes from the same one; lower --series-per-request to %d",
			o.series, o.perRequest, o.parts(), o.concurrency, max(1, o.series/o.concurrency))
	}
	if o.prepared != 0 && o.prepared < o.parts() {
		complain("--prepared: %d requests of %d do not hold all %d series; it takes %d", o.prepared, o.perRequest, o.series, o.parts())
	}
	if !(o.rate >= 0) || !(o.churn >= 0 && o.churn <= 100) {
		complain("--rate and --churn: must not be below 0, and churn is a percentage")
	}
	if o.duration < 0 || o.requests < 0 || o.timeout <= 0 {
		complain("--duration, --requests and --timeout: must not be below 0")
	}
	if _, err := o.header(); err != nil {
		problems = append(problems, err)
	}
	return errors.Join(problems...)
}

// header is what every request carries.
func (o *loadOptions) header() (http.Header, error) {
	h := http.Header{
		"Content-Encoding": {"snappy"}, "User-Agent": {"spillway-load/" + version},
		"Content-Type": {"application/x-protobuf"}, "X-Prometheus-Remote-Write-Version": {"0.1.0"},
	}
	if o.message == loadMessage2 {
		h.Set("Content-Type", "application/x-protobuf;proto="+loadMessage2)
		h.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	}
	for _, line := range o.headers {
		name, value, ok := strings.Cut(line, ":")
		if !ok || name == "" {
			return nil, fmt.Errorf("--header: %q is not of the form NAME: VALUE", line)
		}
		h.Set(name, strings.TrimSpace(value))
	}
	return h, nil
}

// run sends until the time is over, the requests are sent, or a signal comes. A
// second signal ends the program at once.
func (o *loadOptions) run(stdout, stderr io.Writer) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop)
	if err := o.validate(); err != nil {
		return err
	}
	l, err := newLoad(o)
	if err != nil {
		return err
	}
	defer l.client.CloseIdleConnections()
	if isTerminal(stderr) {
		defer l.showProgress(stderr)()
	}
	summary, err := l.sendMeasured(ctx)
	if summary == nil {
		return err
	}
	measured := err
	if o.format == "json" {
		err = printJSON(stdout, summary)
	} else {
		err = summary.writeText(stdout)
	}
	return errors.Join(err, measured, summary.failure(o.url))
}

// generator sends what a loadOptions says. Parts are dealt to senders once: two
// requests with the same series are never on their way together, so that their
// samples arrive in order.
type generator struct {
	options *loadOptions
	header  http.Header
	client  *http.Client
	senders []*loadSender
	tally   loadTally

	issued  atomic.Int64 // items of requests that a sender has taken up
	taken   atomic.Int64 // such requests
	unborn  atomic.Int64 // the number of the next new series
	started time.Time
}

// newLoad encodes all series and, with --prepared, all requests. It starts
// nothing.
func newLoad(o *loadOptions) (*generator, error) {
	header, err := o.header()
	if err != nil {
		return nil, err
	}
	g := &generator{options: o, header: header, tally: newLoadTally(), client: &http.Client{
		Timeout:       o.timeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, MaxConnsPerHost: o.concurrency, MaxIdleConnsPerHost: o.concurrency, DisableCompression: true,
		},
	}}
	g.unborn.Store(int64(o.series))
	for range o.concurrency {
		g.senders = append(g.senders, &loadSender{generator: g})
	}
	for k := range o.parts() {
		from := k * o.perRequest
		s := g.senders[k%o.concurrency]
		s.parts = append(s.parts, newLoadPart(o.message, from, min(o.series, from+o.perRequest)))
	}
	g.prepare(time.Now())
	return g, nil
}

// preparedStep is how much later the samples of a series are in the next
// prepared request: little enough for the whole rotation to be recent.
const preparedStep = time.Second

// prepare makes the requests that are sent over and over. The last ones carry
// the time now.
func (g *generator) prepare(now time.Time) {
	n := len(g.senders)
	rounds := (g.options.prepared + g.options.parts() - 1) / g.options.parts()
	var buffer []byte
	for k := range g.options.prepared {
		part, round := k%g.options.parts(), k/g.options.parts()
		s := g.senders[part%n]
		at := now.Add(-preparedStep * time.Duration(rounds-1-round))
		p := s.parts[part/n]
		buffer = p.next(buffer, at, g.options.churn/100, g.newSeries)
		s.prepared = append(s.prepared, loadRequest{items: len(p.spots), body: bytes.Clone(buffer)})
	}
}

// newSeries returns the number of a series that was never sent.
func (g *generator) newSeries() int64 { return g.unborn.Add(1) - 1 }

// send runs the senders and returns what became of everything. When ctx ends,
// requests on their way still get their answer.
func (g *generator) send(ctx context.Context) *loadSummary {
	o := g.options
	duration := o.duration
	if duration == 0 && o.requests == 0 {
		duration = 30 * time.Second
	}
	if duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, duration)
		defer cancel()
	}
	g.started = time.Now()
	g.tally.start(g.started)
	var wg sync.WaitGroup
	for _, s := range g.senders {
		wg.Go(func() { s.run(ctx) })
	}
	wg.Wait()
	s := g.tally.summary(time.Now())
	if o.message == loadMessage1 {
		s.Caveat = "remote write 1.0 does not say what of a 2xx was dropped"
	}
	return s
}
