package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// driven is what the sender saw of a run.
type driven struct {
	items    int64
	wall     time.Duration // from the first request to the last answer
	p50, p99 time.Duration // of a request
}

// driver sends prepared requests over a number of connections, each request when
// the one before on its connection is answered.
type driver struct {
	client      *http.Client
	url         string
	message     string
	connections int
}

func newDriver(url, message string, connections int) *driver {
	return &driver{url: url, message: message, connections: connections, client: &http.Client{
		Timeout:   time.Minute,
		Transport: &http.Transport{MaxConnsPerHost: connections, MaxIdleConnsPerHost: connections, DisableCompression: true},
	}}
}

// send sends the requests from number first on, n of them, starting again at the
// beginning behind the last. It ends at the first answer that is no success.
func (d *driver) send(ctx context.Context, r *requests, first, n int) (driven, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	took := make([]time.Duration, n)
	errs := make([]error, d.connections)
	var next, items atomic.Int64
	var wg sync.WaitGroup
	began := time.Now()
	for c := range d.connections {
		wg.Go(func() {
			for errs[c] == nil {
				k := int(next.Add(1)) - 1
				if k >= n {
					return
				}
				req := r.bodies[(first+k)%len(r.bodies)]
				started := time.Now()
				if errs[c] = d.post(ctx, req.body); errs[c] != nil {
					cancel()
				}
				took[k] = time.Since(started)
				items.Add(int64(req.items))
			}
		})
	}
	wg.Wait()
	out := driven{items: items.Load(), wall: time.Since(began)}
	if err := firstCause(errs); err != nil {
		return out, err
	}
	slices.Sort(took)
	out.p50, out.p99 = took[n/2], took[min(n-1, n*99/100)]
	return out, nil
}

// firstCause prefers the error that ended the run to those of requests that were
// given up for it.
func firstCause(errs []error) error {
	for _, err := range errs {
		if err != nil && !errors.Is(err, context.Canceled) {
			return err
		}
	}
	return errors.Join(errs...)
}

func (d *driver) post(ctx context.Context, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	if !isOTLP(d.message) {
		req.Header.Set("Content-Encoding", "snappy")
	}
	req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	if d.message == message2 {
		req.Header.Set("Content-Type", "application/x-protobuf;proto="+message2)
		req.Header.Set("X-Prometheus-Remote-Write-Version", "2.0.0")
	}
	resp, err := d.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode/100 != 2 {
		err = fmt.Errorf("%s answered %d: %.200s", d.url, resp.StatusCode, text)
	}
	return err
}
