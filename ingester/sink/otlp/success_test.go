package otlp

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/config"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/spillway-telemetry/spillway/ingester/sink"
)

func partialResponse(t *testing.T, rejected int64, text string) []byte {
	t.Helper()
	r := plogotlp.NewExportResponse()
	r.PartialSuccess().SetRejectedLogRecords(rejected)
	r.PartialSuccess().SetErrorMessage(text)
	raw, err := r.MarshalProto()
	require.NoError(t, err)
	return raw
}

// A success says how many items it is one for, or is complained of.
func TestSuccessesOverHTTP(t *testing.T) {
	raw := partialResponse(t, 2, "too old")
	for name, c := range map[string]struct {
		kind     string
		body     []byte
		length   int64 // 0: that of the body
		rejected int64
		text     string
	}{
		"empty":                    {kind: typeProto},
		"empty, no type":           {},
		"empty, of a proxy":        {kind: "text/html"},
		"all stored":               {kind: typeProto, body: partialResponse(t, 0, "")},
		"advice":                   {kind: typeProto, body: partialResponse(t, 0, "use less")},
		"partial":                  {kind: typeProto, body: raw, rejected: 2, text: "rejected 2 items: too old"},
		"parameter of the type":    {kind: "Application/X-Protobuf; charset=utf-8", body: raw, rejected: 2, text: "rejected 2 items"},
		"number whole, text cut":   {kind: typeProto, body: raw[:len(raw)-2], text: "no whole message"},
		"cut":                      {kind: typeProto, body: raw[:1], text: "no whole message"},
		"cut between fields":       {kind: typeProto, length: 13, text: "broke after 0 of its 13 bytes"},
		"no message":               {kind: typeProto, body: []byte("<html>"), text: "no whole message"},
		"JSON":                     {kind: typeJSON, body: []byte(`{}`)},
		"partial JSON":             {kind: typeJSON, body: []byte(`{"partialSuccess":{"rejectedLogRecords":"3","errorMessage":"old"}}`), rejected: 3, text: "rejected 3 items: old"},
		"partial JSON, a number":   {kind: typeJSON, body: []byte(`{"partialSuccess":{"rejectedSpans":4}}`), rejected: 4, text: "rejected 4 items"},
		"JSON cut":                 {kind: typeJSON, body: []byte(`{"partialSuccess":{"rej`), text: "no whole message"},
		"a page of a proxy":        {kind: "text/html", body: []byte("<p>welcome"), text: `its Content-Type is "text/html": <p>welcome`},
		"a message without a type": {body: raw, text: "cannot be read"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &http.Response{StatusCode: 200, Header: http.Header{"Content-Type": {c.kind}}, ContentLength: max(c.length, int64(len(c.body)))}
			a, rejected := judgePost(r, c.body, time.Now())
			require.Equal(t, sink.Stored, a.Outcome, "it was accepted")
			require.Equal(t, c.rejected, rejected)
			if c.text == "" {
				require.NoError(t, a.Err)
			} else {
				require.ErrorContains(t, a.Err, c.text)
			}
		})
	}
}

func TestUnreadableSuccessOverGRPC(t *testing.T) {
	raw := partialResponse(t, 2, "too old")
	cut := raw[:len(raw)-2]
	body := append([]byte{0, 0, 0, 0, byte(len(cut))}, cut...)
	a, _ := judgeCall(&http.Response{StatusCode: 200, Trailer: http.Header{"Grpc-Status": {"0"}}}, body)
	require.Equal(t, sink.Stored, a.Outcome)
	require.ErrorContains(t, a.Err, "no whole message")
}

// The warning names the endpoint, and does not come with every batch.
func TestUnreadableSuccessesAreLogged(t *testing.T) {
	to := newReceiver(t, func(w http.ResponseWriter) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "welcome")
	})
	u, err := url.Parse(to.URL)
	require.NoError(t, err)
	o := DefaultOptions()
	o.Endpoints = append(o.Endpoints, &config.URL{URL: u})
	var log bytes.Buffer
	s, err := New(o, slog.New(slog.NewTextHandler(&log, nil)), nil)
	require.NoError(t, err)
	for range 5 {
		b := logsBatch(t, 2)
		require.NoError(t, s.Write(context.Background(), b))
		require.Zero(t, b.Groups[0].Rejected+b.Groups[1].Rejected)
	}
	require.NoError(t, s.Close())
	require.Equal(t, 1, strings.Count(log.String(), "\n"), log.String())
	require.Contains(t, log.String(), "level=WARN")
	require.Contains(t, log.String(), u.Host)
	require.Contains(t, log.String(), "cannot be read")
}
