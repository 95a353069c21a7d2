package sink

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Outcome is what one attempt at one endpoint came to.
type Outcome int

const (
	// Stored: the destination has answered for every item.
	Stored Outcome = iota
	// Refused: it calls the batch invalid, and will again.
	Refused
	// Overloaded: it limits this sender, at whichever endpoint.
	Overloaded
	// Misconfigured: it does not accept requests like ours; the data is not at
	// fault.
	Misconfigured
	// Broken: it could not take the batch, or did not say so.
	Broken
	// Abandoned: the sender left before there was an answer.
	Abandoned
)

// Answer is an outcome with its circumstances.
type Answer struct {
	Outcome Outcome
	// Err says what went wrong. With Stored it is the destination's text for what
	// it did not store, nil if it stored all.
	Err error
	// Asked is how long the destination asked to wait, 0 if it did not.
	Asked time.Duration
}

// JudgeStatus reads a status of HTTP as every destination means it. text is the
// start of the body.
//
//	2xx                 stored
//	3xx, 401 403 404 …  our configuration is wrong, not the sender's data
//	429                 the sender waits; other endpoints share the limit
//	5xx 408 425         the endpoint is broken
//	other 4xx           final: sending the batch again cannot help
func JudgeStatus(status int, header http.Header, text string, now time.Time) Answer {
	a := Answer{Asked: RetryAfter(header.Get("Retry-After"), now)}
	said := Said(status, text)
	switch {
	case status/100 == 2:
		a.Outcome = Stored
	case status == http.StatusTooManyRequests:
		a.Outcome, a.Err = Overloaded, said
	case status/100 == 3:
		a.Outcome = Misconfigured
		a.Err = fmt.Errorf("%w to %q: redirects are not followed; name the final address under endpoints", said, header.Get("Location"))
	case ourFault(status):
		a.Outcome = Misconfigured
		a.Err = fmt.Errorf("%w: correct the address, the credentials or the headers of this sink", said)
	case status/100 == 5 || status == http.StatusRequestTimeout || status == http.StatusTooEarly:
		a.Outcome, a.Err = Broken, said
	default:
		a.Outcome, a.Err = Refused, said
	}
	return a
}

// Said is an answer as an error tells it.
func Said(status int, text string) error {
	if text == "" {
		return fmt.Errorf("answered %d %s", status, http.StatusText(status))
	}
	return fmt.Errorf("answered %d %s: %s", status, http.StatusText(status), text)
}

// ourFault lists the answers that speak of how the request was made, not of what
// it holds.
func ourFault(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusPaymentRequired, http.StatusForbidden, http.StatusNotFound,
		http.StatusMethodNotAllowed, http.StatusProxyAuthRequired, http.StatusUnsupportedMediaType, http.StatusMisdirectedRequest:
		return true
	}
	return false
}

// report is what an answer says about the endpoint. One that answers at once that
// it does not accept our requests would look like the least loaded, so it counts
// as failed.
func (a Answer) report() report {
	switch a.Outcome {
	case Broken, Misconfigured:
		return report{verdict: failedIt, reason: a.Err, asked: a.Asked}
	case Abandoned:
		return report{verdict: saysNothing}
	}
	return report{verdict: tookIt}
}

// LongestAsked bounds the wait that a destination can impose on our senders: a
// wrong date must not silence them for hours.
const LongestAsked = 5 * time.Minute

// RetryAfter reads a Retry-After header, seconds or a date (RFC 9110, 10.2.3).
func RetryAfter(value string, now time.Time) time.Duration {
	value = strings.TrimSpace(value)
	if value == "" {
		return 0
	}
	var wait time.Duration
	if seconds, err := strconv.ParseInt(value, 10, 64); err == nil {
		wait = time.Duration(min(max(seconds, 0), int64(LongestAsked/time.Second))) * time.Second
	} else if date, err := http.ParseTime(value); err == nil {
		wait = date.Sub(now)
	}
	return min(max(wait, 0), LongestAsked)
}

// OneLine makes a destination's text fit for a log line and an error.
func OneLine(text []byte) string {
	fields := strings.FieldsFunc(strings.ToValidUTF8(string(text), "?"), func(r rune) bool { return r < ' ' || r == 0x7f })
	return strings.TrimSpace(strings.Join(fields, "; "))
}
