package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPageIsServed: a browser gets the page, curl a list of the addresses, and what
// the page asks for is there.
func TestPageIsServed(t *testing.T) {
	p := testProcess(t, "", "streams: {metrics: {rate: 1, burst: 1}}")
	html := p.get(t, "GET", "/", nil, "Accept", "text/html,application/xhtml+xml")
	require.Equal(t, 200, html.Code)
	require.Contains(t, html.Body.String(), "<title>Spillway</title>")
	list := p.get(t, "GET", "/", nil, "Accept", "*/*")
	require.Contains(t, list.Body.String(), "/api/v1/ratecontrol")
	require.Equal(t, 200, p.get(t, "GET", "/page/page.js", nil).Code)
	require.Equal(t, 404, p.get(t, "GET", "/page/none.js", nil).Code)
	require.Equal(t, 405, p.get(t, "POST", "/", nil).Code)

	require.Equal(t, 204, p.get(t, "POST", "/write", packed(t, "a", 1)).Code)
	p.history.Sample(time.Now().Add(time.Second), p.ingester.RateControl())
	var history struct {
		Sequence int64
		Streams  map[string]struct {
			Classes map[string]struct{ Admitted []float64 }
		}
	}
	require.NoError(t, json.Unmarshal(p.get(t, "GET", "/api/v1/ratecontrol/history?after=0", nil).Body.Bytes(), &history))
	require.EqualValues(t, 1, history.Sequence)
	require.Positive(t, history.Streams["metrics"].Classes["default"].Admitted[0])
}

// TestRefusalIsShown: a refused change stands in /api/v1/ratecontrol until what is on
// disk is in force.
func TestRefusalIsShown(t *testing.T) {
	p := testProcess(t, "ingester: {replica_count: 3}\nsinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n", "streams: {metrics: {rate: 1, burst: 1}}")
	file := filepath.Join(filepath.Dir(p.reloader.path), "policy.yaml")
	ask := func() (s rateControlStatus) {
		require.NoError(t, json.Unmarshal(p.get(t, "GET", "/api/v1/ratecontrol", nil).Body.Bytes(), &s))
		return s
	}
	require.Nil(t, ask().Refused)
	require.Equal(t, 3, ask().Ingesters)
	require.Equal(t, "dev", ask().Version)
	require.NoError(t, os.WriteFile(file, []byte("streams: {metrics: {rate: -1, burst: 0}}"), 0o644))
	require.Error(t, p.reloader.reload("test"))
	require.Len(t, ask().Refused.Problems, 2)
	require.NoError(t, os.WriteFile(file, []byte("streams: {metrics: {rate: 2, burst: 1}}"), 0o644))
	require.NoError(t, p.reloader.reload("test"))
	require.Nil(t, ask().Refused)
}
