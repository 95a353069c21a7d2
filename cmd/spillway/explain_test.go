package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestExplainTellsRecentDrops: a bucket with tokens at this moment does not hide what
// its class has just lost.
func TestExplainTellsRecentDrops(t *testing.T) {
	p := testProcess(t, "sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n", testedPolicy)
	require.Equal(t, http.StatusNoContent, p.get(t, "POST", "/api/v1/write", packed(t, "b", 100)).Code)
	p.history.Sample(time.Now().Add(5*time.Second), p.ingester.RateControl())
	server := httptest.NewServer(http.HandlerFunc(p.server.HTTP.ServeHTTP))
	defer server.Close()

	status := p.ingester.RateControl().Streams["metrics"]
	require.Equal(t, int64(100), status.Received)
	code, stdout, stderr := runLine("explain", "--url="+server.URL+"/", `walk{team="b"}`)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "In the last 5 s class default was sent 100 items and lost 90 of them (90.0 %)")

	// The stream defaults to metrics, as on the command line.
	var x explanation
	rec := p.get(t, "GET", "/api/v1/explain?labels=up", nil)
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &x))
	require.Equal(t, "metrics", x.Stream)
	require.Equal(t, int64(100), x.Recent.Offered)

	for url, want := range map[string]string{
		"127.0.0.1:9900":                 "is not a server's address, such as http://",
		server.URL + "/api/v1/write":     "without a path: " + server.URL,
		"http://127.0.0.1:1":             "is Spillway running there?",
		server.URL + "/?stream=metrics#": "is not a server's address",
	} {
		code, _, stderr := runLine("explain", "--url="+url, "up")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, want)
		require.Equal(t, 1, strings.Count(stderr, "\n"))
	}
}

// TestUnknownPath: whoever asks for what is not there is told where the list is, and the
// list has every address that is served.
func TestUnknownPath(t *testing.T) {
	p := testProcess(t, "", "")
	for _, path := range []string{"/api/v2/nothing", "/api/v1/wriet"} { // the second goes to the query API
		rec := p.get(t, "GET", path, nil)
		require.Equal(t, http.StatusNotFound, rec.Code)
		require.Equal(t, path+" is not served here; GET / lists what is\n", rec.Body.String())
	}
	list := p.get(t, "GET", "/", nil).Body.String()
	for _, a := range p.receivers() {
		require.Contains(t, list, strings.TrimPrefix(a.path, "/ingester"))
	}
	for path := range p.otlpPaths {
		if strings.HasPrefix(path, "/v1/") || path == "/otlp/k8s_events" {
			require.Contains(t, list, path)
		}
		if bare, ok := strings.CutPrefix(path, "/ingester"); ok {
			require.Contains(t, p.otlpPaths, bare, "each address is served with and without /ingester")
		}
	}
}
