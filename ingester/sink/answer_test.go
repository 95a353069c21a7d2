package sink

import (
	"bytes"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for value, want := range map[string]time.Duration{
		"":                               0,
		"0":                              0,
		"7":                              7 * time.Second,
		" 7 ":                            7 * time.Second,
		"-7":                             0,
		"1.5":                            0,
		"soon":                           0,
		"299":                            299 * time.Second,
		"86400":                          LongestAsked,
		"9223372036854775807":            LongestAsked,
		"-9223372036854775808":           0,
		"Sun, 01 Mar 2026 12:00:30 GMT":  30 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT":  0,
		"Sun, 01 Mar 2099 12:00:00 GMT":  LongestAsked,
		"Sunday, 01-Mar-26 12:00:05 GMT": 5 * time.Second,
	} {
		require.Equal(t, want, RetryAfter(value, now), "%q", value)
	}
}

func TestOneLine(t *testing.T) {
	require.Equal(t, "a; b c; d ?", OneLine([]byte("a\r\nb c\x00d \xff\n")))
	require.Empty(t, OneLine([]byte(" \n\t")))
	require.Equal(t, strings.Repeat("é", 10), OneLine([]byte(strings.Repeat("é", 10))))
}

func TestBodyLetsGo(t *testing.T) {
	p := &payload{prefix: []byte("12"), data: []byte("abcdef")}
	first, second := &body{from: p}, &body{from: p}
	half := make([]byte, 3)
	_, err := io.ReadFull(first, half)
	require.NoError(t, err)
	whole, err := io.ReadAll(second)
	require.NoError(t, err)
	require.Equal(t, "12abcdef", string(whole))
	p.takeBack()
	for _, b := range []io.Reader{first, second} {
		n, err := b.Read(half)
		require.Zero(t, n)
		require.ErrorIs(t, err, errTakenBack)
	}
}

func TestComplaintsAreFew(t *testing.T) {
	var out bytes.Buffer
	c := newComplaints(slog.New(slog.NewTextHandler(&out, nil)))
	now := time.Unix(1000, 0)
	for i := range 100 {
		c.answer("http://a", Answer{Outcome: Broken, Err: errDown}, now.Add(time.Duration(i)*time.Second))
	}
	c.answer("http://a", Answer{Outcome: Stored}, now)
	c.answer("http://a", Answer{Outcome: Abandoned, Err: errDown}, now)
	require.Equal(t, 4, strings.Count(out.String(), "\n"))
	require.Equal(t, 3, strings.Count(out.String(), "not_logged_before=29"))
	c.answer("http://a", Answer{Outcome: Misconfigured, Err: errDown}, now)
	require.Contains(t, out.String(), "level=ERROR")
	require.Equal(t, 5, strings.Count(out.String(), "\n"))
}

func TestOptionsReachTheTransport(t *testing.T) {
	o := DefaultHTTPOptions()
	o.MaxConnectionsPerEndpoint, o.Timeout = 7, model.Duration(3*time.Second)
	rt, err := newTransport(&o, false)
	require.NoError(t, err)
	plain := rt.(*http.Transport)
	require.Equal(t, 7, plain.MaxConnsPerHost)
	require.Equal(t, 7, plain.MaxIdleConnsPerHost)
	require.Equal(t, 3*time.Second, plain.TLSHandshakeTimeout)
	require.False(t, plain.Protocols.HTTP2())
}
