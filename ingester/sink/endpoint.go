package sink

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

// Endpoint is one address of a destination.
type Endpoint struct {
	// Name is the address without secrets, url with.
	Name    string
	url     *url.URL
	Client  *http.Client
	metrics endpointMetrics
}

// Request is a message on its way to an endpoint.
type Request struct {
	// Path is put behind the endpoint's own.
	Path   string
	Header http.Header
	// Message are the bytes to send, after Prefix. They are read until Deliver returns.
	Prefix, Message []byte
	// Answers bounds what is read of the body of an answer, in bytes; 0 stands
	// for what a text for a log line needs.
	Answers int64
	// Judge says what a response means. Its body was read; body is the start of
	// it. It may be called once for each endpoint.
	Judge func(r *http.Response, body []byte) Answer
}

// RetryHeader carries the number of the attempt, as Prometheus sends it.
const RetryHeader = "Retry-Attempt"

// Bounds of what is read of an answer: text that reaches logs and senders, bytes
// read so that the connection can be used again, and the time for both. By then
// the outcome is known, so an answer whose body does not end delays nothing else.
const (
	LongestText  = 1 << 10
	longestDrain = 64 << 10
	DrainTime    = time.Second
)

// send posts a message and waits for the answer, for timeout at most. When it
// returns, nothing reads the message any more. number is 0 for the first attempt
// of a batch.
func (e *Endpoint) send(ctx context.Context, r *Request, timeout time.Duration, number int) Answer {
	attempt, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	p := &payload{prefix: r.Prefix, data: r.Message}
	defer p.takeBack()

	began := time.Now()
	e.metrics.inFlight.Inc()
	e.metrics.sentBytes.Add(float64(p.size()))
	a, code := e.exchange(attempt, cancel, r, p, number)
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
			a.Outcome = Abandoned
		}
		a.Err = fmt.Errorf("had not answered after %s: %w", took.Round(time.Millisecond), context.Cause(ctx))
	case attempt.Err() != nil:
		code = "timeout"
		a.Err = fmt.Errorf("did not answer within the timeout of %s", timeout)
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
func (e *Endpoint) exchange(ctx context.Context, cancel func(), r *Request, p *payload, number int) (a Answer, code string) {
	resp, reused, err := e.post(ctx, r, p, number)
	if err != nil && reused && ctx.Err() == nil {
		e.Client.CloseIdleConnections()
		resp, _, err = e.post(ctx, r, p, number)
	}
	if err != nil {
		return Answer{Outcome: Broken, Err: fmt.Errorf("did not answer: %w", withoutURL(err))}, ""
	}
	limit := r.Answers
	if limit == 0 {
		limit = LongestText
	}
	body := readBody(resp, limit, cancel)
	return r.Judge(resp, body), strconv.Itoa(resp.StatusCode)
}

// post sends the request once and reports whether that was on a connection that
// had been used before.
func (e *Endpoint) post(ctx context.Context, r *Request, p *payload, number int) (_ *http.Response, reused bool, _ error) {
	var old atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		GotConn: func(c httptrace.GotConnInfo) { old.Store(c.Reused) },
	})
	to := e.url
	if r.Path != "" {
		to = to.JoinPath(r.Path)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), &body{from: p})
	if err != nil {
		return nil, false, err
	}
	req.Header = maps.Clone(r.Header)
	if number > 0 {
		req.Header.Set(RetryHeader, strconv.Itoa(number))
	}
	req.ContentLength = int64(p.size())
	// A server of HTTP/2 that has no room for another stream says so after the body
	// went out, and the client sends it again by itself.
	req.GetBody = func() (io.ReadCloser, error) { return io.NopCloser(&body{from: p}), nil }
	resp, err := e.Client.Do(req)
	return resp, old.Load(), err
}

// readBody reads the start of the body of an answer and frees the connection.
func readBody(resp *http.Response, limit int64, cancel func()) []byte {
	if resp.Body == http.NoBody {
		return nil
	}
	defer time.AfterFunc(DrainTime, cancel).Stop()
	defer resp.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(resp.Body, limit))
	_, _ = io.CopyN(io.Discard, resp.Body, longestDrain)
	return text
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
