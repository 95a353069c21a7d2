package receive

import (
	"strconv"
	"strings"
	"time"
)

// ParseTime reads when something happened, from the many ways in which senders
// write it, and returns nanoseconds since 1970. It reports false for what it cannot
// read and for what lies before 1970 or after 2262, which nanoseconds in 64 bits
// cannot say.
//
// A number counts from 1970 in the unit that its size suggests: below 10^11 seconds
// (the year 5138), below 10^14 milliseconds, below 10^17 microseconds, else
// nanoseconds. It may have a fraction. Texts are those of RFC 3339 and its
// relatives, in UTC where they name no zone.
func ParseTime(text string) (uint64, bool) {
	if text == "" {
		return 0, false
	}
	if nanos, ok := parseNumericTime(text); ok {
		return nanos, true
	}
	for _, layout := range []string{
		time.RFC3339Nano, "2006-01-02T15:04:05.999999999", "2006-01-02 15:04:05.999999999Z07:00",
		"2006-01-02 15:04:05.999999999 -0700", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999-0700",
	} {
		if t, err := time.Parse(layout, text); err == nil {
			return nanosOf(t)
		}
	}
	return 0, false
}

// nanosOf checks that a time fits; time.UnixNano is undefined for one that does not.
func nanosOf(t time.Time) (uint64, bool) {
	if s := t.Unix(); s < 0 || s >= maxSeconds || s == 0 && t.Nanosecond() == 0 {
		return 0, false
	}
	return uint64(t.UnixNano()), true
}

// maxSeconds is where nanoseconds leave an int64.
const maxSeconds = 1<<63/1_000_000_000 - 1

// TimeOf is ParseTime for a number of units of the given length since 1970.
func TimeOf(count int64, unit time.Duration) (uint64, bool) {
	if count <= 0 || count/int64(time.Second/unit) >= maxSeconds {
		return 0, false
	}
	return uint64(count) * uint64(unit), true
}

// parseNumericTime reads a decimal number digit by digit: a float64 would lose the
// nanoseconds of today's times.
func parseNumericTime(text string) (uint64, bool) {
	whole, fraction, _ := strings.Cut(text, ".")
	if strings.ContainsAny(text, "eE") {
		f, err := strconv.ParseFloat(text, 64)
		if err != nil || f <= 0 || f >= 1<<63 {
			return 0, false
		}
		return parseNumericTime(strconv.FormatFloat(f, 'f', -1, 64))
	}
	n, err := strconv.ParseInt(whole, 10, 64)
	if err != nil || n < 0 || whole[0] == '+' {
		return 0, false
	}
	unit := unitOf(n)
	nanos, ok := TimeOf(n, unit)
	if !ok && n != 0 {
		return 0, false
	}
	part := uint64(0)
	scale := uint64(unit)
	for _, c := range []byte(fraction) {
		if c < '0' || c > '9' {
			return 0, false
		}
		scale /= 10
		part += uint64(c-'0') * scale
	}
	return nanos + part, nanos+part > 0
}

// unitOf guesses the unit of a time since 1970 from its size.
func unitOf(n int64) time.Duration {
	switch {
	case n < 1e11:
		return time.Second
	case n < 1e14:
		return time.Millisecond
	case n < 1e17:
		return time.Microsecond
	}
	return time.Nanosecond
}
