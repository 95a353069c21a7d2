package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestEveryProblemAtOnce: a field that is not known hides no other problem, makes none
// up, and the names that may stand there are listed.
func TestEveryProblemAtOnce(t *testing.T) {
	dir := writeTemp(t, map[string]string{"spillway.yaml": `
server: {http_listen_address: nowhere, htp: 1, max_body_bytes: much}
ingester: {replica_count: many, limits: {names: 3}}
log: {level: loud}
policy_file: policy.yaml
sinks:
  a: {file: {path: x, colour: red}}
  b: {remote_write: {endpoints: ["http://c:9009"], colour: red}}
  c: {discard: {}, colour: red}
streams: {metrics: {sink: d}, logs: {sink: a, rate: 3}}
`, "policy.yaml": "streams: {metrics: {rate: 1, burst: 0}}"})
	code, _, stderr := runLine("check", "config", filepath.Join(dir, "spillway.yaml"))
	require.Equal(t, 1, code)
	for _, want := range []string{
		"line 2: unknown field htp: the names are forward_headers, http_listen_address,",
		`line 2: "much" is not a size`,
		"line 3: cannot unmarshal !!str `many` into int",
		"line 3: unknown field names: the names are label_name_bytes,",
		"line 7: unknown field colour: the names are compress",
		"line 8: unknown field colour: the names are ",
		"line 9: unknown field colour: the names are discard, file, kafka, otlp, remote_write, tsdb",
		"line 10: unknown field rate: the names are rate_limit_response, relabel_configs, sink",
		`server.http_listen_address: "nowhere" is not host:port`, `log.level: "loud" is not one of`,
		`streams.metrics.sink: there is no sink "d"`, "streams.metrics.burst: is 0",
	} {
		require.Contains(t, stderr, want)
	}
	require.Equal(t, 12, strings.Count(stderr, "\n"), stderr)
}

// TestWrongKindOfFile: each kind of file where another is wanted is called by its name.
func TestWrongKindOfFile(t *testing.T) {
	files := map[fileKind]string{
		kindConfig: "streams: {metrics: {sink: a}}\nsinks: {a: {discard: {}}}\n", kindPolicy: testedPolicy,
		kindTests: "policy_file: p.yaml\ntests: [{series: up, expect: {class: a}}]\n", kindKeys: "keys: []\n",
		kindTraffic: "duration: 1m\nclasses: {a: {rate: 1}}\n",
	}
	named := map[string]string{"good.yaml": testedPolicy}
	for kind, text := range files {
		require.Equal(t, kind, looksLike([]byte(text)))
		named[string(kind)] = text
	}
	require.Empty(t, looksLike([]byte("streams: {metrics: {}}")))
	require.Empty(t, looksLike([]byte("- a list")))
	dir := writeTemp(t, named)
	for want, command := range map[fileKind][]string{
		kindConfig: {"check", "config"}, kindPolicy: {"check", "policy"}, kindTests: {"test"},
		kindTraffic: {"simulate", "--policy=" + filepath.Join(dir, "good.yaml"), "--traffic"},
	} {
		for kind := range files {
			if kind == want {
				continue
			}
			code, _, stderr := runLine(append(command, filepath.Join(dir, string(kind)))...)
			require.Equal(t, 1, code)
			require.Contains(t, stderr, "this looks like a "+string(kind)+" and not like a "+string(want)+": ")
			require.Equal(t, 1, strings.Count(stderr, "\n"))
		}
	}
}
