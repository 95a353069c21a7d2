package receive

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
)

// Refusal is the answer to a request that is not stored.
type Refusal struct {
	Status     int           // of HTTP
	Text       string        // what happened, where, what to do
	Allow      string        // methods, for 405
	RetryAfter time.Duration // 0: none
	Exact      bool          // RetryAfter has jitter already
	Capacity   bool          // for want of capacity: the same request can pass later
}

// Answer writes the refusal as plain text.
func (f *Refusal) Answer(rw http.ResponseWriter) {
	f.SetHeaders(rw.Header())
	http.Error(rw, f.Text, f.Status)
}

// SetHeaders sets Retry-After and Allow, for protocols with a body of their own.
func (f *Refusal) SetHeaders(h http.Header) {
	if f.Allow != "" {
		h.Set("Allow", f.Allow)
	}
	if wait := f.Wait(); wait > 0 {
		h.Set("Retry-After", strconv.FormatInt(int64(wait/time.Second), 10))
	}
}

// Wait is how long the sender should wait, in whole seconds, 0 if it need not come
// back. A wait without jitter is spread over whole seconds, which is all that the
// header can say, so that refused senders do not come back at the same moment.
func (f *Refusal) Wait() time.Duration {
	if f.RetryAfter <= 0 {
		return 0
	}
	seconds := int((f.RetryAfter + time.Second - 1) / time.Second)
	if !f.Exact {
		seconds += rand.IntN(seconds/2 + 3)
	}
	return time.Duration(seconds) * time.Second
}

// Unsupported is 415.
func Unsupported(format string, args ...any) *Refusal {
	return &Refusal{Status: http.StatusUnsupportedMediaType, Text: fmt.Sprintf(format, args...)}
}

// TooLarge is 413.
func TooLarge(format string, args ...any) *Refusal {
	return &Refusal{Status: http.StatusRequestEntityTooLarge, Text: fmt.Sprintf(format, args...)}
}

// Malformed is 400.
func Malformed(err error) *Refusal {
	return &Refusal{Status: http.StatusBadRequest, Text: err.Error()}
}

// Failed is the answer to a batch that its sink did not take, nil where it did:
// 400 if sending it again cannot help, else 503 with the time to wait.
func Failed(res *ingester.Result) *Refusal {
	switch {
	case res.Err == nil:
		return nil
	case res.Final:
		return &Refusal{Status: http.StatusBadRequest, Text: "the destination refused this batch for good: " + res.Err.Error()}
	}
	return &Refusal{Status: http.StatusServiceUnavailable, RetryAfter: max(res.RetryAfter, time.Second),
		Text: "this batch cannot be stored now, please send it again: " + res.Err.Error()}
}

// Unauthorized is the answer to an error of Ingester.Authenticate: 401 without an API
// key, 403 with one that is not good for this.
func Unauthorized(err error) *Refusal {
	if errors.Is(err, ingester.ErrNoKey) {
		return &Refusal{Status: http.StatusUnauthorized, Text: err.Error()}
	}
	return &Refusal{Status: http.StatusForbidden, Text: err.Error()}
}

// shed refuses a batch that gets no slot.
func (p *Protocol) shed(err error) *Refusal {
	f := &Refusal{Status: p.shedStatus(), Text: err.Error(), Capacity: true, RetryAfter: time.Second}
	var shed *governor.Shed
	if errors.As(err, &shed) {
		f.RetryAfter, f.Exact = shed.RetryAfter, true
	}
	return f
}

// overCapacity refuses a request for which there is no memory now.
func (p *Protocol) overCapacity() *Refusal {
	return &Refusal{Status: p.shedStatus(), Capacity: true, RetryAfter: time.Second,
		Text: "at capacity: server.max_request_bytes of requests are in memory; please send it again"}
}

// NoMemory refuses a request for which a reservation of memory has failed: for now,
// or with 413 if it cannot succeed at any time.
func (p *Protocol) NoMemory(memory *ingester.Memory) *Refusal {
	if memory.Never() {
		return TooLarge("this request alone needs more memory than server.max_request_bytes, which is %d, has for all of them; send less in one", memory.Limit())
	}
	return p.overCapacity()
}

func (p *Protocol) shedStatus() int {
	if p.ShedStatus != 0 {
		return p.ShedStatus
	}
	return http.StatusTooManyRequests
}
