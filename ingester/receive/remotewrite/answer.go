package remotewrite

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Headers of remote write 2.0 that say what was written
// (https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/#required-written-response-headers).
const (
	samplesWritten    = "X-Prometheus-Remote-Write-Samples-Written"
	histogramsWritten = "X-Prometheus-Remote-Write-Histograms-Written"
	exemplarsWritten  = "X-Prometheus-Remote-Write-Exemplars-Written"
)

// answer says what became of a batch, as the table of answers has it.
//
// Remote write 1.0 has no way to say that part of a request was dropped, and a
// 400 would make the sender count all of it as lost, so it hears 204. Only a
// request of which nothing at all is valid is answered 400.
func answer(rw http.ResponseWriter, format ingester.Format, res *ingester.Result) {
	if res.Err != nil {
		refuse(rw, format, res)
		return
	}
	if format == ingester.RemoteWrite2 {
		written := res.Written
		if res.Silent && res.Invalid == 0 {
			written = res.Offered
		}
		setWritten(rw, written)
		written.Exemplars = min(written.Exemplars+res.LostExemplars, res.Offered.Exemplars)
		if written != res.Offered || res.InvalidGroups > 0 {
			http.Error(rw, res.Text(), http.StatusBadRequest)
			return
		}
	}
	if format == ingester.RemoteWrite1 && res.NothingValid() {
		http.Error(rw, res.Text(), http.StatusBadRequest)
		return
	}
	rw.WriteHeader(http.StatusNoContent)
}

func setWritten(rw http.ResponseWriter, w ingester.Written) {
	rw.Header().Set(samplesWritten, strconv.FormatInt(w.Samples, 10))
	rw.Header().Set(histogramsWritten, strconv.FormatInt(w.Histograms, 10))
	rw.Header().Set(exemplarsWritten, strconv.FormatInt(w.Exemplars, 10))
}

// refuse answers a batch that the sink did not take. Nothing of it counts as
// stored.
func refuse(rw http.ResponseWriter, format ingester.Format, res *ingester.Result) {
	if format == ingester.RemoteWrite2 {
		setWritten(rw, ingester.Written{})
	}
	if res.Final {
		http.Error(rw, "the destination refused this batch for good: "+res.Err.Error(), http.StatusBadRequest)
		return
	}
	(&refusal{status: http.StatusServiceUnavailable, retryAfter: max(res.RetryAfter, time.Second),
		text: "this batch cannot be stored now, please send it again: " + res.Err.Error()}).answer(rw)
}

// refusal is an answer to a request that ends before it is processed.
type refusal struct {
	status     int
	text       string
	allow      string        // methods, for 405
	retryAfter time.Duration // 0: none
	exact      bool          // retryAfter has jitter already
	capacity   bool          // for want of capacity
}

// answer writes the refusal. A wait without jitter is spread over whole seconds,
// which is all that the header can say, so that refused senders do not come back
// at the same moment.
func (f *refusal) answer(rw http.ResponseWriter) {
	if f.allow != "" {
		rw.Header().Set("Allow", f.allow)
	}
	if f.retryAfter > 0 {
		seconds := wholeSeconds(f.retryAfter)
		if !f.exact {
			seconds += rand.IntN(seconds/2 + 3)
		}
		rw.Header().Set("Retry-After", strconv.Itoa(seconds))
	}
	http.Error(rw, f.text, f.status)
}

// wholeSeconds rounds up to what the header can say.
func wholeSeconds(wait time.Duration) int { return int((wait + time.Second - 1) / time.Second) }

func unsupported(format string, args ...any) *refusal {
	return &refusal{status: http.StatusUnsupportedMediaType, text: fmt.Sprintf(format, args...)}
}

func tooLarge(format string, args ...any) *refusal {
	return &refusal{status: http.StatusRequestEntityTooLarge, text: fmt.Sprintf(format, args...)}
}

func malformed(err error) *refusal {
	return &refusal{status: http.StatusBadRequest, text: err.Error()}
}

func unauthorized(err error) *refusal {
	if errors.Is(err, ingester.ErrNoKey) {
		return &refusal{status: http.StatusUnauthorized, text: err.Error()}
	}
	return &refusal{status: http.StatusForbidden, text: err.Error()}
}

// noMemory refuses a request for which there is no memory now, or never.
func (h *Handler) noMemory(memory *ingester.Memory) *refusal {
	if memory.Never() {
		return tooLarge("this request alone needs more memory than server.max_request_bytes, which is %d, has for all of them; send less in one", memory.Limit())
	}
	return &refusal{status: h.capacityStatus, capacity: true, retryAfter: time.Second,
		text: "at capacity: server.max_request_bytes of requests are in memory; please send it again"}
}
