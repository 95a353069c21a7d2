package remotewrite

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Headers of the protocols.
const (
	versionHeader           = "X-Prometheus-Remote-Write-Version"
	samplesWrittenHeader    = "X-Prometheus-Remote-Write-Samples-Written"
	histogramsWrittenHeader = "X-Prometheus-Remote-Write-Histograms-Written"
	exemplarsWrittenHeader  = "X-Prometheus-Remote-Write-Exemplars-Written"
	// retryHeader carries the number of the attempt, as Prometheus sends it.
	retryHeader = "Retry-Attempt"
)

// outcome is what one attempt at one endpoint came to.
type outcome int

const (
	// stored: the destination has answered for every item.
	stored outcome = iota
	// refused: it calls the batch invalid, and will again.
	refused
	// overloaded: it limits this sender, at whichever endpoint.
	overloaded
	// misconfigured: it does not accept requests like ours; the data is not at
	// fault.
	misconfigured
	// broken: it could not take the batch, or did not say so.
	broken
	// abandoned: the sender left before there was an answer.
	abandoned
)

// answer is an outcome with its circumstances.
type answer struct {
	outcome outcome
	// err says what went wrong. With stored it is the destination's text for what
	// it did not store, nil if it stored all.
	err error
	// asked is how long the destination asked to wait, 0 if it did not.
	asked time.Duration
	// written is what a 2.0 receiver counted; counted says that it did.
	written written
	counted bool
}

// written is the content of the Written headers.
type written struct{ samples, histograms, exemplars int64 }

func (w written) any() bool { return w.samples > 0 || w.histograms > 0 || w.exemplars > 0 }

// judge reads a response. text is the start of its body, v2 says that the request
// was a 2.0 request.
func judge(status int, header http.Header, text string, v2 bool, now time.Time) answer {
	a := answer{asked: retryAfter(header.Get("Retry-After"), now)}
	if v2 {
		a.written, a.counted = readWritten(header)
	}
	said := fmt.Errorf("answered %d %s", status, http.StatusText(status))
	if text != "" {
		said = fmt.Errorf("%w: %s", said, text)
	}
	switch {
	case status/100 == 2 && v2 && !a.counted:
		// The fault is in this sink's configuration, so the batch must not be lost
		// for it.
		a.outcome = misconfigured
		a.err = fmt.Errorf("%w, but without the %s header: it does not understand remote write 2.0 and has stored nothing; set protobuf_message: %s for this sink", said, samplesWrittenHeader, MessageV1)
	case status/100 == 2:
		a.outcome = stored
	case status == http.StatusBadRequest && a.written.any():
		a.outcome, a.err = stored, said
	case status == http.StatusTooManyRequests:
		a.outcome, a.err = overloaded, said
	case status == http.StatusUnsupportedMediaType:
		a.outcome = misconfigured
		a.err = fmt.Errorf("%w: it does not accept this message; set protobuf_message: %s for this sink", said, otherMessage(v2))
	case status/100 == 3:
		a.outcome = misconfigured
		a.err = fmt.Errorf("%w to %q: redirects are not followed; name the final address under endpoints", said, header.Get("Location"))
	case ourFault(status):
		a.outcome = misconfigured
		a.err = fmt.Errorf("%w: correct the address, the credentials or the headers of this sink", said)
	case status/100 == 5 || status == http.StatusRequestTimeout || status == http.StatusTooEarly:
		a.outcome, a.err = broken, said
	default:
		a.outcome, a.err = refused, said
	}
	return a
}

// ourFault lists the answers that speak of how the request was made, not of what
// it holds.
func ourFault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusMisdirectedRequest:
		return true
	}
	return false
}

func otherMessage(v2 bool) string {
	if v2 {
		return MessageV1
	}
	return MessageV2
}

// readWritten reads the Written headers. As 2.0 has it, one that is missing counts
// as 0 if another is there.
func readWritten(h http.Header) (w written, counted bool) {
	for name, n := range map[string]*int64{
		samplesWrittenHeader: &w.samples, histogramsWrittenHeader: &w.histograms, exemplarsWrittenHeader: &w.exemplars,
	} {
		v, err := strconv.ParseInt(strings.TrimSpace(h.Get(name)), 10, 64)
		if err != nil || v < 0 {
			continue
		}
		*n, counted = v, true
	}
	return w, counted
}

// longestAsked bounds the wait that a destination can impose on our senders: a
// wrong date must not silence them for hours.
const longestAsked = 5 * time.Minute

// retryAfter reads a Retry-After header, seconds or a date (RFC 9110, 10.2.3).
func retryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	var wait time.Duration
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		wait = time.Duration(min(max(seconds, 0), int64(longestAsked/time.Second))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), longestAsked)
}

// oneLine makes a destination's text fit for a log line and an error.
func oneLine(text []byte) string {
	fields := strings.FieldsFunc(strings.ToValidUTF8(string(text), "?"), func(r rune) bool { return r < ' ' || r == 0x7f })
	return strings.TrimSpace(strings.Join(fields, "; "))
}
