package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// loadSender sends the requests of its parts one after the other, each when the
// one before has been answered.
type loadSender struct {
	*generator
	parts    []*loadPart
	prepared []loadRequest // instead of parts, if there are any
	turn     int
	buffer   []byte
}

// loadRequest is a request ready to be sent.
type loadRequest struct {
	items int
	body  []byte
}

// run sends until ctx ends or all requests are taken.
func (s *loadSender) run(ctx context.Context) {
	wait := time.Duration(0)
	for ctx.Err() == nil {
		items := s.upcoming()
		if limit := s.options.requests; s.taken.Add(1) > limit && limit > 0 {
			return
		}
		before := s.issued.Add(int64(items)) - int64(items)
		if !sleep(ctx, s.due(before)-time.Since(s.started)+wait) {
			return
		}
		if s.post(s.make()) {
			wait = 0
		} else {
			wait = nextPause(wait)
		}
	}
}

// due is when, after the start, the request is to be sent before which the given
// number of items was sent. A generator that fell behind catches up.
func (g *generator) due(before int64) time.Duration {
	if g.options.rate == 0 {
		return 0
	}
	return time.Duration(float64(before) / g.options.rate * float64(time.Second))
}

// nextPause is how long to leave a receiver alone that gives no answer at all:
// 0.1 s, then twice as long each time, up to 1 s.
func nextPause(last time.Duration) time.Duration {
	return min(time.Second, max(100*time.Millisecond, 2*last))
}

// sleep waits for d, or returns false when ctx ends before.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// upcoming is how many items the next request will have.
func (s *loadSender) upcoming() int {
	if len(s.prepared) > 0 {
		return s.prepared[s.turn%len(s.prepared)].items
	}
	return len(s.parts[s.turn%len(s.parts)].spots)
}

// make returns the next request. Its body is in use until the one after is made.
func (s *loadSender) make() loadRequest {
	turn := s.turn
	s.turn++
	if len(s.prepared) > 0 {
		return s.prepared[turn%len(s.prepared)]
	}
	p := s.parts[turn%len(s.parts)]
	s.buffer = p.next(s.buffer, time.Now(), s.options.churn/100, s.newSeries)
	return loadRequest{items: len(p.spots), body: s.buffer}
}

// post sends a request and counts what became of it. It returns false if there
// was no answer.
func (s *loadSender) post(r loadRequest) bool {
	req, err := http.NewRequest(http.MethodPost, s.options.url, bytes.NewReader(r.body))
	if err != nil {
		s.tally.failed(r, err.Error())
		return false
	}
	req.Header = s.header
	if host := s.header.Get("Host"); host != "" {
		req.Host = host
	}
	began := time.Now()
	resp, err := s.client.Do(req)
	if err != nil {
		s.tally.failed(r, failure(err, s.options.timeout))
		return false
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		s.tally.failed(r, failure(err, s.options.timeout))
		return false
	}
	s.tally.answered(r, loadAnswer{
		code: resp.StatusCode, latency: time.Since(began), accepted: s.accepted(r, resp), text: firstLine(text),
	})
	return true
}

// accepted is how many items of a request the receiver says that it took. Remote
// write 2.0 has a header for that, also beside an error; in 1.0 success means all.
func (s *loadSender) accepted(r loadRequest, resp *http.Response) int {
	if s.options.message == loadMessage2 {
		n, err := strconv.Atoi(resp.Header.Get("X-Prometheus-Remote-Write-Samples-Written"))
		if err == nil {
			return n
		}
	}
	if resp.StatusCode/100 == 2 {
		return r.items
	}
	return 0
}

// failure says why there was no answer, without the addresses of the
// connection, so that the same failure has the same text.
func failure(err error, timeout time.Duration) string {
	var u *url.Error
	var op *net.OpError
	switch {
	case errors.As(err, &u) && u.Timeout():
		return fmt.Sprintf("no answer within %s", timeout)
	case errors.As(err, &op):
		return op.Op + ": " + op.Err.Error()
	case errors.As(err, &u):
		return u.Err.Error()
	}
	return err.Error()
}

func firstLine(text []byte) string {
	line, _, _ := strings.Cut(strings.TrimSpace(string(text)), "\n")
	if len(line) > 200 {
		line = line[:200] + "..."
	}
	return line
}
