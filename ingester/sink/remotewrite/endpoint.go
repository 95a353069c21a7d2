package remotewrite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"
)

// endpoint is one address of the destination.
type endpoint struct {
	// name is the address without secrets, url with.
	name, url string
	header    http.Header
	client    *http.Client
	v2        bool
	metrics   endpointMetrics
}

// Bounds of what is read of an answer: text that reaches logs and senders, bytes
// read so that the connection can be used again, and the time for both. By then
// the outcome is known, so an answer whose body does not end delays nothing else.
const (
	longestText  = 1 << 10
	longestDrain = 64 << 10
	drainTime    = time.Second
)

// send posts a compressed message and waits for the answer, for timeout at most.
// When it returns, nothing reads packed any more. number is 0 for the first
// attempt of a batch.
func (e *endpoint) send(ctx context.Context, packed []byte, timeout time.Duration, number int) answer {
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &payload{data: packed}
	defer p.takeBack()

	began := time.Now()
	e.metrics.inFlight.Inc()
	e.metrics.sentBytes.Add(float64(len(packed)))
	a, code := e.exchange(attempt, cancel, p, len(packed), number)
	took := time.Since(began)
	e.metrics.inFlight.Dec()
	e.metrics.seconds.Observe(took.Seconds())

	switch {
	case code != "":
	case ctx.Err() != nil:
		// The sender left or its time is over. Who had half of the timeout and
		// did not answer is to blame all the same, or an endpoint that hangs
		// would never be found out by senders with less patience than ours.
		code = "abandoned"
		if took < timeout/2 {
			a.outcome = abandoned
		}
		a.err = fmt.Errorf("had not answered after %s: %w", took.Round(time.Millisecond), context.Cause(ctx))
	case attempt.Err() != nil:
		code = "timeout"
		a.err = fmt.Errorf("did not answer within the timeout of %s", timeout)
	default:
		code = "error"
	}
	e.metrics.requests.WithLabelValues(code).Inc()
	return a
}

// exchange sends the request and reads the answer. The code is the status, empty
// if there was none.
//
// A connection that was idle may have been closed by the server just now, which
// says nothing about the endpoint and is found out by sending only. So a request
// that fails on one goes out once more, on a new one.
func (e *endpoint) exchange(ctx context.Context, cancel func(), p *payload, size, number int) (a answer, code string) {
	resp, reused, err := e.post(ctx, p, size, number)
	if err != nil && reused && ctx.Err() == nil {
		e.client.CloseIdleConnections()
		resp, _, err = e.post(ctx, p, size, number)
	}
	if err != nil {
		return answer{outcome: broken, err: fmt.Errorf("did not answer: %w", withoutURL(err))}, ""
	}
	text := readText(resp, cancel)
	return judge(resp.StatusCode, resp.Header, text, e.v2, time.Now()), strconv.Itoa(resp.StatusCode)
}

// post sends the request once and reports whether that was on a connection that
// had been used before.
func (e *endpoint) post(ctx context.Context, p *payload, size, number int) (_ *http.Response, reused bool, _ error) {
	var old atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { old.Store(c.Reused) },
	})
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url, &body{from: p})
	if err != nil {
		return nil, false, err
	}
	req.Header = maps.Clone(e.header)
	if number > 0 {
		req.Header.Set(retryHeader, strconv.Itoa(number))
	}
	req.ContentLength = int64(size)
	resp, err := e.client.Do(req)
	return resp, old.Load(), err
}

// readText reads the start of the body of an answer and frees the connection.
func readText(resp *http.Response, cancel func()) string {
	if resp.Body == http.NoBody {
		return ""
	}
	defer time.AfterFunc(drainTime, cancel).Stop()
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, longestText))
	_, _ = io.CopyN(io.Discard, resp.Body, longestDrain)
	return oneLine(text)
}

// withoutURL removes the address from an error of the client: it may hold
// secrets, and the endpoint is named anyway.
func withoutURL(err error) error {
	var u *url.Error
	if errors.As(err, &u) {
		return u.Err
	}
	return err
}
