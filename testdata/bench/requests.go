package main

import (
	"fmt"
	"sync"
	"time"

	"github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
)

// The messages of the two versions of remote write.
const (
	message1 = "prometheus.WriteRequest"
	message2 = "io.prometheus.write.v2.Request"
)

// workload says what is sent. Programs that are compared get the very same
// requests, made once.
type workload struct {
	message    string
	series     int
	perRequest int
	teams      int     // values of the label that policies tell series apart by
	passes     int     // requests are prepared for this many samples of each series
	warm       int     // times that each series is sent before anything is measured
	churn      float64 // fraction of the series in each request that are new
}

// requests are prepared, compressed requests: each series once, then each once
// more some seconds later, and so on.
type requests struct {
	workload
	bodies []request
	parts  int // requests that hold each series once
}

// path is where requests of a message are sent to.
func (w *workload) path() string {
	if isOTLP(w.message) {
		return w.message
	}
	return "/api/v1/write"
}

type request struct {
	items int
	body  []byte
}

// labelsOf are the labels of a series: 12 of about 240 bytes. position decides
// all but the pod, so that a new series differs from the one it replaces as a
// restarted pod does.
func labelsOf(position, identity, teams int) []prompb.Label {
	pairs := [...]string{
		"__name__", fmt.Sprintf("http_request_duration_seconds_%03d", position%100),
		"cluster", "eu-west-1-prod", "container", "server", "env", "prod",
		"handler", fmt.Sprintf("/api/v1/customers/orders/%d", position%50),
		"instance", fmt.Sprintf("10.0.%d.%d:8080", position/250%250, position%250),
		"job", "checkout-frontend", "le", "0.25", "method", "GET", "namespace", "shop",
		"pod", fmt.Sprintf("checkout-frontend-7d9f8b6c5-%08x", identity),
		"team", fmt.Sprintf("team-%02d", position%teams),
	}
	ls := make([]prompb.Label, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		ls = append(ls, prompb.Label{Name: pairs[i], Value: pairs[i+1]})
	}
	return ls
}

// prepare makes the requests of a workload. The last samples carry the time now,
// all are within the last hour, as stores want it.
func prepare(w workload, now time.Time) (*requests, error) {
	parts := (w.series + w.perRequest - 1) / w.perRequest
	r := &requests{workload: w, parts: parts, bodies: make([]request, parts*w.passes)}
	errs := make([]error, parts)
	limit := make(chan struct{}, 2)
	var wg sync.WaitGroup
	for part := range parts {
		limit <- struct{}{}
		wg.Go(func() {
			errs[part] = r.preparePart(part, now)
			<-limit
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// preparePart makes the requests of a part for all passes.
func (r *requests) preparePart(part int, now time.Time) error {
	step := min(15*time.Second, 50*time.Minute/time.Duration(r.passes))
	from := part * r.perRequest
	sets := make([][]prompb.Label, min(r.series-from, r.perRequest))
	for j := range sets {
		sets[j] = labelsOf(from+j, from+j, r.teams)
	}
	perPass := int(r.churn * float64(len(sets)))
	unborn := r.series + part*r.passes*perPass
	at := 0
	for pass := range r.passes {
		for range perPass {
			sets[at] = labelsOf(from+at, unborn, r.teams)
			unborn++
			at = (at + 1) % len(sets)
		}
		stamp := now.Add(-step * time.Duration(r.passes-1-pass))
		if isOTLP(r.message) {
			raw, err := encodeOTLP(r.message, part, stamp)
			if err != nil {
				return err
			}
			r.bodies[pass*r.parts+part] = request{items: otlpItems, body: raw}
			continue
		}
		raw, err := r.encode(sets, pass, stamp.UnixMilli())
		if err != nil {
			return err
		}
		r.bodies[pass*r.parts+part] = request{items: len(sets), body: snappy.Encode(nil, raw)}
	}
	return nil
}

// encode makes one request with the libraries that senders use.
func (r *requests) encode(sets [][]prompb.Label, pass int, stamp int64) ([]byte, error) {
	value := func(j int) float64 { return float64(1+j%997) * float64(pass+1) }
	if r.message == message1 {
		req := &prompb.WriteRequest{Timeseries: make([]prompb.TimeSeries, len(sets))}
		for j, ls := range sets {
			req.Timeseries[j] = prompb.TimeSeries{Labels: ls, Samples: []prompb.Sample{{Value: value(j), Timestamp: stamp}}}
		}
		return req.Marshal()
	}
	table := writev2.NewSymbolTable()
	req := &writev2.Request{Timeseries: make([]writev2.TimeSeries, len(sets))}
	for j, ls := range sets {
		refs := make([]uint32, 0, 2*len(ls))
		for _, l := range ls {
			refs = append(refs, table.Symbolize(l.Name), table.Symbolize(l.Value))
		}
		req.Timeseries[j] = writev2.TimeSeries{LabelsRefs: refs, Samples: []writev2.Sample{{Value: value(j), Timestamp: stamp}}}
	}
	req.Symbols = table.Symbols()
	return req.Marshal()
}
