package remotewrite

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestJudge(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	all := http.Header{samplesWrittenHeader: {"3"}, histogramsWrittenHeader: {"2"}, exemplarsWrittenHeader: {"1"}}
	none := http.Header{samplesWrittenHeader: {"0"}, histogramsWrittenHeader: {"0"}, exemplarsWrittenHeader: {"0"}}
	for name, c := range map[string]struct {
		status  int
		header  http.Header
		v2      bool
		outcome outcome
		text    string // that the error holds; "": no error
	}{
		"1.0 stored":                       {204, nil, false, stored, ""},
		"1.0 stored, with a body":          {200, nil, false, stored, ""},
		"1.0 counts are not looked at":     {204, none, false, stored, ""},
		"2.0 stored":                       {204, all, true, stored, ""},
		"2.0 stored in part without a 400": {200, none, true, stored, ""},
		"2.0 without counts":               {204, nil, true, misconfigured, "set protobuf_message: prometheus.WriteRequest"},
		"2.0 with counts that are none":    {204, http.Header{samplesWrittenHeader: {"many"}}, true, misconfigured, "without the X-Prometheus-Remote-Write-Samples-Written header"},
		"2.0 stored in part":               {400, all, true, stored, "answered 400 Bad Request: because; of it"},
		"2.0 nothing stored":               {400, none, true, refused, "because"},
		"2.0 bad without counts":           {400, nil, true, refused, "because"},
		"1.0 bad":                          {400, all, false, refused, "answered 400 Bad Request: because; of it"},
		"too large":                        {413, nil, false, refused, "413"},
		"unprocessable":                    {422, all, true, refused, "422"},
		"unauthorized":                     {401, nil, false, misconfigured, "correct the address, the credentials or the headers"},
		"forbidden":                        {403, nil, true, misconfigured, "403"},
		"not found":                        {404, nil, false, misconfigured, "404"},
		"wrong method":                     {405, nil, false, misconfigured, "405"},
		"proxy wants credentials":          {407, nil, false, misconfigured, "407"},
		"1.0 not understood":               {415, nil, false, misconfigured, "set protobuf_message: io.prometheus.write.v2.Request"},
		"2.0 not understood":               {415, nil, true, misconfigured, "set protobuf_message: prometheus.WriteRequest"},
		"moved":                            {308, http.Header{"Location": {"/push"}}, false, misconfigured, `to "/push": redirects are not followed`},
		"not modified":                     {304, nil, false, misconfigured, "304"},
		"limited":                          {429, all, true, overloaded, "429"},
		"its timeout":                      {408, nil, false, broken, "408"},
		"too early":                        {425, nil, false, broken, "425"},
		"error":                            {500, all, true, broken, "500 Internal Server Error: because"},
		"unavailable":                      {503, nil, false, broken, "503"},
		"a code nobody knows":              {599, nil, false, broken, "599"},
	} {
		t.Run(name, func(t *testing.T) {
			a := judge(c.status, c.header, "because; of it", c.v2, now)
			require.Equal(t, c.outcome, a.outcome)
			if c.text == "" {
				require.NoError(t, a.err)
				return
			}
			require.ErrorContains(t, a.err, c.text)
			require.Equal(t, c.v2 && c.header.Get(histogramsWrittenHeader) != "", a.counted)
		})
	}
}

func TestWrittenHeaders(t *testing.T) {
	for _, c := range []struct {
		samples, histograms, exemplars string
		want                           written
		counted                        bool
	}{
		{"3", "2", "1", written{3, 2, 1}, true},
		{"3", "", "", written{3, 0, 0}, true},
		{"", "", "0", written{}, true},
		{"", "", "", written{}, false},
		{"-1", "x", "1e3", written{}, false},
		{"-1", " 7 ", "", written{0, 7, 0}, true},
		{"9223372036854775808", "", "", written{}, false},
	} {
		h := make(http.Header)
		for name, v := range map[string]string{samplesWrittenHeader: c.samples, histogramsWrittenHeader: c.histograms, exemplarsWrittenHeader: c.exemplars} {
			if v != "" {
				h.Set(name, v)
			}
		}
		w, counted := readWritten(h)
		require.Equal(t, c.want, w)
		require.Equal(t, c.counted, counted)
	}
}

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
		"86400":                          longestAsked,
		"9223372036854775807":            longestAsked,
		"-9223372036854775808":           0,
		"Sun, 01 Mar 2026 12:00:30 GMT":  30 * time.Second,
		"Sun, 01 Mar 2026 11:00:00 GMT":  0,
		"Sun, 01 Mar 2099 12:00:00 GMT":  longestAsked,
		"Sunday, 01-Mar-26 12:00:05 GMT": 5 * time.Second,
	} {
		require.Equal(t, want, retryAfter(value, now), "%q", value)
	}
}

func TestOneLine(t *testing.T) {
	require.Equal(t, "a; b c; d ?", oneLine([]byte("a\r\nb c\x00d \xff\n")))
	require.Empty(t, oneLine([]byte(" \n\t")))
	require.Equal(t, strings.Repeat("é", 10), oneLine([]byte(strings.Repeat("é", 10))))
}
