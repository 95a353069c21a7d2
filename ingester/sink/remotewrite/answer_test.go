package remotewrite

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/sink"
)

func TestJudge(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	all := http.Header{samplesWrittenHeader: {"3"}, histogramsWrittenHeader: {"2"}, exemplarsWrittenHeader: {"1"}}
	none := http.Header{samplesWrittenHeader: {"0"}, histogramsWrittenHeader: {"0"}, exemplarsWrittenHeader: {"0"}}
	for name, c := range map[string]struct {
		status  int
		header  http.Header
		v2      bool
		outcome sink.Outcome
		text    string // that the error holds; "": no error
	}{
		"1.0 stored":                       {204, nil, false, sink.Stored, ""},
		"1.0 stored, with a body":          {200, nil, false, sink.Stored, ""},
		"1.0 counts are not looked at":     {204, none, false, sink.Stored, ""},
		"2.0 stored":                       {204, all, true, sink.Stored, ""},
		"2.0 stored in part without a 400": {200, none, true, sink.Stored, ""},
		"2.0 without counts":               {204, nil, true, sink.Misconfigured, "set protobuf_message: prometheus.WriteRequest"},
		"2.0 with counts that are none":    {204, http.Header{samplesWrittenHeader: {"many"}}, true, sink.Misconfigured, "without the X-Prometheus-Remote-Write-Samples-Written header"},
		"2.0 stored in part":               {400, all, true, sink.Stored, "answered 400 Bad Request: because; of it"},
		"2.0 nothing stored":               {400, none, true, sink.Refused, "because"},
		"2.0 bad without counts":           {400, nil, true, sink.Refused, "because"},
		"1.0 bad":                          {400, all, false, sink.Refused, "answered 400 Bad Request: because; of it"},
		"too large":                        {413, nil, false, sink.Refused, "413"},
		"unprocessable":                    {422, all, true, sink.Refused, "422"},
		"unauthorized":                     {401, nil, false, sink.Misconfigured, "correct the address, the credentials or the headers"},
		"forbidden":                        {403, nil, true, sink.Misconfigured, "403"},
		"not found":                        {404, nil, false, sink.Misconfigured, "404"},
		"wrong method":                     {405, nil, false, sink.Misconfigured, "405"},
		"proxy wants credentials":          {407, nil, false, sink.Misconfigured, "407"},
		"1.0 not understood":               {415, nil, false, sink.Misconfigured, "set protobuf_message: io.prometheus.write.v2.Request"},
		"2.0 not understood":               {415, nil, true, sink.Misconfigured, "set protobuf_message: prometheus.WriteRequest"},
		"moved":                            {308, http.Header{"Location": {"/push"}}, false, sink.Misconfigured, `to "/push": redirects are not followed`},
		"not modified":                     {304, nil, false, sink.Misconfigured, "304"},
		"limited":                          {429, all, true, sink.Overloaded, "429"},
		"its timeout":                      {408, nil, false, sink.Broken, "408"},
		"too early":                        {425, nil, false, sink.Broken, "425"},
		"error":                            {500, all, true, sink.Broken, "500 Internal Server Error: because"},
		"unavailable":                      {503, nil, false, sink.Broken, "503"},
		"a code nobody knows":              {599, nil, false, sink.Broken, "599"},
	} {
		t.Run(name, func(t *testing.T) {
			a := judge(c.status, c.header, "because; of it", c.v2, now)
			require.Equal(t, c.outcome, a.Outcome)
			if c.text == "" {
				require.NoError(t, a.Err)
				return
			}
			require.ErrorContains(t, a.Err, c.text)
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
