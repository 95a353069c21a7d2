package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/spillway-telemetry/spillway/cmd/spillway/simulate"
)

// recording asks a Prometheus server what running ingesters have received.
type recording struct {
	api      promv1.API
	url      string
	matchers string
}

func newRecording(address string, headers []string, stream, selector string) (*recording, error) {
	address, err := baseURL("--prometheus", address)
	if err != nil {
		return nil, err
	}
	h, err := headerOf(headers)
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient(api.Config{Address: address, RoundTripper: withHeader{h}})
	if err != nil {
		return nil, fmt.Errorf("--prometheus: %w", err)
	}
	matchers := fmt.Sprintf("stream=%q", stream)
	if selector = strings.Trim(strings.TrimSpace(selector), "{},"); selector != "" {
		matchers += "," + selector
	}
	return &recording{api: promv1.NewAPI(client), url: address, matchers: matchers}, nil
}

// withHeader adds a header to every request.
type withHeader struct{ header http.Header }

func (w withHeader) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	for name, values := range w.header {
		r.Header[name] = values
	}
	return http.DefaultTransport.RoundTrip(r)
}

// rates are the rates of each class on each instance, over all items that asked a
// bucket for tokens: as curves of equal points, two for each step.
func (r *recording) rates(ctx context.Context, now time.Time, since, step time.Duration) (map[string]map[string]simulate.Curve, error) {
	all := map[string]map[string]simulate.Curve{}
	steps := int(since / step)
	window := promv1.Range{Start: now.Add(-time.Duration(steps-1) * step), End: now, Step: step}
	for _, metric := range []string{
		fmt.Sprintf("spillway_admitted_items_total{%s}", r.matchers),
		fmt.Sprintf("spillway_dropped_items_total{%s,reason=\"ratelimit\"}", r.matchers),
		fmt.Sprintf("spillway_refused_items_total{%s,class!=\"kfuse_cp_class\"}", r.matchers),
	} {
		query := fmt.Sprintf("sum by (class, instance) (rate(%s[%s]))", metric, model.Duration(step))
		value, _, _, err := r.api.QueryRange(ctx, query, window)
		if err != nil {
			return nil, r.failed(query, err)
		}
		matrix, ok := value.(model.Matrix)
		if !ok {
			return nil, fmt.Errorf("%s answers %s with a %s, not a matrix", r.url, query, value.Type())
		}
		for _, series := range matrix {
			add(all, series, window, steps)
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s has recorded nothing of spillway_admitted_items_total{%s} in the last %s; a rate takes two samples of a class, about 30 s after a start or the class's first item: wait and try again. Else: does it scrape Spillway, and is --step (%s) at least twice its scrape interval?", r.url, r.matchers, since, step)
	}
	return all, nil
}

// add puts one series' rates into its class's curve. A rate at t is that of the
// step before t.
func add(all map[string]map[string]simulate.Curve, series *model.SampleStream, window promv1.Range, steps int) {
	class, instance := string(series.Metric["class"]), string(series.Metric["instance"])
	if all[class] == nil {
		all[class] = map[string]simulate.Curve{}
	}
	curve, ok := all[class][instance]
	if !ok {
		curve = flat(steps, window.Step)
		all[class][instance] = curve
	}
	for _, p := range series.Values {
		i := int(math.Round(float64(p.Timestamp.Time().Sub(window.Start)) / float64(window.Step)))
		if v := float64(p.Value); i >= 0 && i < steps && v > 0 && !math.IsInf(v, 0) {
			curve[2*i].Rate += v
			curve[2*i+1].Rate += v
		}
	}
}

// flat is a curve of zeros with a level for each step.
func flat(steps int, step time.Duration) simulate.Curve {
	curve := make(simulate.Curve, 0, 2*steps)
	for i := range steps {
		from := time.Duration(i) * step
		curve = append(curve, simulate.Point{At: from}, simulate.Point{At: from + step})
	}
	return curve
}

// peakMean is over what a peak is a mean: five minutes, less where little was recorded.
func peakMean(since time.Duration) time.Duration {
	return min(5*time.Minute, max(time.Second, (since/5).Truncate(time.Second)))
}

// peak is the highest rate of received items over all ingesters.
func (r *recording) peak(ctx context.Context, now time.Time, since time.Duration) (float64, error) {
	mean := peakMean(since)
	return r.number(ctx, now, fmt.Sprintf("max_over_time(sum(rate(spillway_received_items_total{%s}[%s]))[%s:%s])",
		r.withoutStream(), model.Duration(mean), model.Duration(since), model.Duration(max(time.Second, (mean/5).Truncate(time.Second)))))
}

// itemsPerCPUSecond is received items over the CPU time of the processes that are
// a Spillway.
func (r *recording) itemsPerCPUSecond(ctx context.Context, now time.Time, since time.Duration) (float64, error) {
	window := model.Duration(since)
	return r.number(ctx, now, fmt.Sprintf("sum(increase(spillway_received_items_total{%s}[%s])) / sum(increase(process_cpu_seconds_total{%s}[%s]) and on (job, instance) max_over_time(spillway_build_info[%s]))",
		r.withoutStream(), window, r.withoutStream(), window, window))
}

// withoutStream are the matchers of the user alone: an ingester's CPU works for all
// streams.
func (r *recording) withoutStream() string {
	_, rest, _ := strings.Cut(r.matchers, ",")
	return rest
}

// failed says which question had no answer, or that nobody is there to ask.
func (r *recording) failed(query string, err error) error {
	var dial *net.OpError
	if errors.As(err, &dial) {
		return fmt.Errorf("--prometheus: %s: %w; is Spillway or Prometheus running there?", r.url, dial)
	}
	return fmt.Errorf("%s: %s: %w", r.url, query, err)
}

// number asks for one number above 0.
func (r *recording) number(ctx context.Context, now time.Time, query string) (float64, error) {
	value, _, _, err := r.api.Query(ctx, query, now)
	if err != nil {
		return 0, r.failed(query, err)
	}
	vector, ok := value.(model.Vector)
	if !ok || len(vector) != 1 || !(vector[0].Value > 0) || math.IsInf(float64(vector[0].Value), 0) {
		return 0, fmt.Errorf("%s has no number above 0 for %s; does it scrape Spillway, and did anything come in? A rate takes two samples, about 30 s after a start", r.url, query)
	}
	return float64(vector[0].Value), nil
}
