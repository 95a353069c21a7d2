package main

import (
	"encoding/json"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/cmd/spillway/simulate"
	"github.com/spillway-telemetry/spillway/ingester/receive/telemetry"
)

// writeTemp writes files into one fresh folder and returns it.
func writeTemp(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	return dir
}

const testedPolicy = `
streams:
  metrics:
    rate: 100
    burst: 100
    default: {rate: 10}
    classes: [{name: team-a, rate: 50}, {name: none, rate: 0}]
    rules:
      - {class: team-a, matchers: ['team="a"']}
      - {class: none, matchers: ['team="none"']}
      - {class: ghost, matchers: ['team="ghost"']}
`

// TestPolicyTests runs tests that pass, and the same with every expectation turned
// round: each has to fail with a line for what differs.
func TestPolicyTests(t *testing.T) {
	dir := writeTemp(t, map[string]string{
		"policy.yaml": testedPolicy,
		"new.yaml":    "streams: {metrics: {rate: 1, burst: 1}}\n",
		"spillway.yaml": "policy_file: policy.yaml\nsinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none, relabel_configs: [" +
			"{source_labels: [environment], regex: (.+), target_label: env}, {source_labels: [__name__], regex: 'debug_.*', action: drop}]}}\n",
		"good.yaml": `
config_file: spillway.yaml
tests:
  - {name: budget, series: 'up{team="a"}', expect: {outcome: admitted, class: team-a, rule: 0}}
  - {name: labels, labels: {__name__: up, environment: prod}, expect: {class: default, rule: -1, labels: {__name__: up, environment: prod, env: prod}}}
  - {name: debug, series: debug_x, expect: {outcome: dropped (relabel), relabel_rule: 1}}
  - {name: rate 0, series: 'up{team="none"}', expect: {outcome: dropped (ratelimit), class: none}}
  - {name: ghost, series: 'up{team="ghost"}', expect: {outcome: dropped (ratelimit), rule: 2}}
  - {name: own, series: 'up{kfuse="true"}', expect: {outcome: exempt}}
  - {name: logs, series: '{a="b"}', stream: logs, expect: {outcome: admitted, class: default}}
`,
		"policy_test.yaml": "policy_file: policy.yaml\ntests: [{series: 'up{team=\"a\"}', expect: {class: team-a}}]\n",
		"bad.yaml": `
config_file: spillway.yaml
tests:
  - {name: one, series: 'up{team="a"}', expect: {outcome: exempt, class: default, rule: 1}}
  - {name: two, series: up, expect: {relabel_rule: 0, labels: {a: b}}}
  - {name: three, series: debug_x, expect: {rule: 0}}
`,
	})
	code, stdout, stderr := runLine("test", filepath.Join(dir, "good.yaml"), filepath.Join(dir, "policy_test.yaml"))
	require.Zero(t, code, stdout+stderr)
	require.Contains(t, stdout, "8 tests: 8 passed, 0 failed")

	for _, file := range []string{"good.yaml", "policy_test.yaml"} { // a configuration's policy, and a policy
		code, stdout, _ = runLine("test", filepath.Join(dir, file), "--policy="+filepath.Join(dir, "new.yaml"))
		require.Equal(t, 1, code)
		require.Contains(t, stdout, "- class: team-a\n  + class: default")
	}

	code, stdout, stderr = runLine("test", filepath.Join(dir, "bad.yaml"))
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "3 of 3 tests failed")
	for _, line := range []string{
		"bad.yaml:4 one", "- outcome: exempt\n  + outcome: admitted", "- class: default\n  + class: team-a", "- rule: 1\n  + rule: 0",
		"- relabel rule: 0\n  + relabel rule: none drops it", `- labels: {a="b"}`, "- rule: 0\n  + rule: not asked", "why: rule 0 is the first",
	} {
		require.Contains(t, stdout, line)
	}
	code, stdout, _ = runLine("test", "--format=json", filepath.Join(dir, "bad.yaml"))
	require.Equal(t, 1, code)
	var results []testResult
	require.NoError(t, json.Unmarshal([]byte(stdout), &results))
	require.Len(t, results, 3)
	require.Len(t, results[0].Differ, 3)
}

func TestBadTestFiles(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"nothing to test":  {"tests: [{series: up, expect: {class: a}}]", "either a config_file or a policy_file"},
		"no tests":         {"policy_file: policy.yaml", "tests: there is none"},
		"no series":        {"policy_file: policy.yaml\ntests: [{expect: {class: a}}]", "tests[0]: needs either series or labels"},
		"no expectation":   {"policy_file: policy.yaml\ntests: [{series: up}]", "tests[0].expect: expects nothing"},
		"unknown outcome":  {"policy_file: policy.yaml\ntests: [{series: up, expect: {outcome: dropped}}]", `"dropped" is not one of`},
		"unknown stream":   {"policy_file: policy.yaml\ntests: [{series: up, stream: spans, expect: {class: a}}]", `"spans" is not one of`},
		"unknown field":    {"policy_file: policy.yaml\ntests: [{series: up, expects: {class: a}}]", "unknown field expects"},
		"missing policy":   {"policy_file: nowhere.yaml\ntests: [{series: up, expect: {class: a}}]", "nowhere.yaml"},
		"unreadable label": {"policy_file: policy.yaml\ntests: [{series: '{', expect: {class: a}}]", "1 of 1 test failed"},
	} {
		dir := writeTemp(t, map[string]string{"policy.yaml": testedPolicy, "test.yaml": c.text})
		code, _, stderr := runLine("test", filepath.Join(dir, "test.yaml"))
		require.Equal(t, 1, code, name)
		require.Contains(t, stderr, c.want, name)
	}
}

// TestSimulateExample runs the file that the help and the README name.
func TestSimulateExample(t *testing.T) {
	root := filepath.Join("..", "..", "testdata")
	plot := filepath.Join(t.TempDir(), "plot.svg")
	args := []string{"simulate", "--policy=" + filepath.Join(root, "quickstart", "policy.yaml"), "--traffic=" + filepath.Join(root, "simulate", "traffic.yaml"), "--plot=" + plot}
	code, stdout, stderr := runLine(args...)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "smallest burst that drops nothing: 3000 per ingester (it has 500), which a burst of 12000 of the stream gives it")
	require.NotContains(t, stdout, "\x1b[", "no colours but on a terminal")
	svg, err := os.ReadFile(plot)
	require.NoError(t, err)
	require.Contains(t, string(svg), "batch-jobs")

	code, stdout, _ = runLine(append(args, "--format=json")...)
	require.Zero(t, code)
	var r simulate.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	for _, c := range r.Classes {
		require.Equal(t, c.Offered, c.Admitted+c.Dropped.Total)
	}

	// With the burst that it names the same traffic loses nothing in team-a.
	text, err := os.ReadFile(filepath.Join(root, "quickstart", "policy.yaml"))
	require.NoError(t, err)
	for burst, dropped := range map[string]bool{"12000": false, "11999": true} {
		dir := writeTemp(t, map[string]string{"policy.yaml": strings.Replace(string(text), "burst: 2000", "burst: "+burst, 1)})
		code, stdout, _ = runLine("simulate", "--policy="+filepath.Join(dir, "policy.yaml"), args[2], "--format=json")
		require.Zero(t, code)
		require.NoError(t, json.Unmarshal([]byte(stdout), &r))
		require.Equal(t, "team-a", r.Classes[0].Name)
		require.Equal(t, dropped, r.Classes[0].Dropped.Total > 0)
	}
}

// TestSimulateRecorded lets a Spillway store its own metrics, as it does every 15 s,
// and replays what its query API says of them.
func TestSimulateRecorded(t *testing.T) {
	p := testProcess(t, "", testedPolicy)
	server := httptest.NewServer(http.HandlerFunc(p.server.HTTP.ServeHTTP))
	defer server.Close()
	w := telemetry.Writer{Ingester: p.ingester, Gatherer: p.registry, Labels: map[string]string{"job": "spillway", "instance": "one"}}
	start := time.Now().Add(-10 * time.Minute).Truncate(time.Minute)
	for i := range 41 { // 10 minutes of samples every 15 s
		if i > 0 {
			require.Equal(t, 204, p.get(t, "POST", "/write", packed(t, "a", 30)).Code) // 2/s
		}
		require.NoError(t, w.Write(t.Context(), start.Add(time.Duration(i)*15*time.Second)))
	}
	status := p.ingester.RateControl().Streams["metrics"].Classes[0]
	require.EqualValues(t, 1200, status.Admitted+status.Dropped)

	dir := writeTemp(t, map[string]string{"policy.yaml": strings.ReplaceAll(testedPolicy, "team-a", "checkout")})
	code, stdout, stderr := runLine("simulate", "--policy="+filepath.Join(dir, "policy.yaml"), "--prometheus="+server.URL, "--since=8m", "--every=15s", "--rename=team-a=checkout", "--format=json")
	require.Zero(t, code, stderr)
	var r simulate.Report
	require.NoError(t, json.Unmarshal([]byte(stdout), &r))
	require.InDelta(t, 2*8*60, r.Classes[0].Offered, 130, "two items per second for eight minutes, but for the minute at the end that is not over")
	require.Equal(t, "checkout", r.Classes[0].Name)
	require.EqualValues(t, 30, r.Classes[0].SmallestBurst, "they come 30 at a time")

	code, _, stderr = runLine("simulate", "--policy="+filepath.Join(dir, "policy.yaml"), "--prometheus="+server.URL, "--since=8m")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "has no class team-a; it has: checkout")
	code, _, stderr = runLine("simulate", "--policy="+filepath.Join(dir, "policy.yaml"), "--prometheus="+server.URL, "--since=8m", "--stream=metrics", `--selector=job="other"`)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "has recorded nothing")

	code, stdout, stderr = runLine("plan", "--prometheus="+server.URL, "--since=10m", "--cpu-limit=1", "--format=json")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, `"origin": "measured"`)
}

// TestPlanCommand: the origin of each number is said, and nothing counts twice.
func TestPlanCommand(t *testing.T) {
	dir := writeTemp(t, map[string]string{
		"load.json":     `{"receiver": {"cpu_seconds": 2, "items_per_cpu_second": 1000}}`,
		"policy.yaml":   testedPolicy,
		"spillway.yaml": "policy_file: policy.yaml\ngovernor: {model: {target: 0.8}}\nsinks: {far: {remote_write: {endpoints: ['http://127.0.0.1:1/w', 'http://127.0.0.1:2/w']}}, queue: {kafka: {brokers: ['127.0.0.1:9092']}}, rpc: {otlp: {endpoints: ['http://127.0.0.1:4317'], protocol: grpc}}}\nstreams: {metrics: {sink: far}}\n",
	})
	args := []string{"plan", "--load-report=" + filepath.Join(dir, "load.json"), "--peak=1e4", "--growth=50", "--cpu-limit=2", "--zones=3", "--config.file=" + filepath.Join(dir, "spillway.yaml")}
	code, stdout, stderr := runLine(args...)
	require.Zero(t, code, stderr)
	// 15,000 items/s; two zones left, each ingester 2 x 1000 x 0.8: 10 in two zones.
	for _, line := range []string{"15 ingesters, 5 in each zone", "measured: spillway load", "given: --peak, not checked", "assumed: a default, see --headroom", "read: " + dir, "far    2          1920         2048", "queue  1          495          528", "rpc    1          960          1024"} {
		require.Contains(t, stdout, line)
	}
	code, _, stderr = runLine(append(args, "--endpoint-connections=1000")...)
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "would hold 1024 connections")

	for flags, want := range map[string]string{
		"--forecast-peak=9 --growth=5 --items-per-cpu-second=1 --cpu-limit=1":           "--growth counts a reserve twice",
		"--peak=9 --headroom=5 --safe-items-per-cpu-second=1 --cpu-limit=1":             "--headroom counts a reserve twice",
		"--peak=many --items-per-cpu-second=1 --cpu-limit=1":                            `--peak: "many" is not a number`,
		"--peak=1 --forecast-peak=2 --items-per-cpu-second=1 --cpu-limit=1":             "give one of them",
		"--peak=1 --items-per-cpu-second=1 --safe-items-per-cpu-second=1 --cpu-limit=1": "give one of them",
		"--peak=1 --cpu-limit=1": "plan needs a peak",
		"--peak=1 --items-per-cpu-second=1 --cpu-limit=1 --zones=1.5":                        "not a whole number",
		"--peak=1 --load-report=" + filepath.Join(dir, "policy.yaml") + " --cpu-limit=1":     "is not what spillway load",
		"--peak=1 --items-per-cpu-second=1 --cpu-limit=1 --config.file=/nowhere/nothing.yml": "/nowhere/nothing.yml",
	} {
		code, _, stderr := runLine(append([]string{"plan"}, strings.Fields(flags)...)...)
		require.Equal(t, 1, code, flags)
		require.Contains(t, stderr, want)
	}
	require.Equal(t, big.NewRat(24, 25), decimal(0.96), "the number as it was written")
}

// TestMeantCommands: a mistyped word gets the right one.
func TestMeantCommands(t *testing.T) {
	for line, want := range map[string]string{
		"simluate":                 "did you mean simulate?",
		"plan --peek=3":            "did you mean --peak?",
		"serve --config=x":         "did you mean --config.file?",
		"check polciy":             "did you mean policy?",
		"xyzzy":                    "`spillway --help` lists the commands",
		"explain --config.file=x":  "`spillway explain --help` has examples",
		"simulate --policy=x":      "either --traffic=FILE or --prometheus=URL",
		"completion powershell":    "bash",
		"plan --cpu-limit=1 extra": "unexpected extra",
	} {
		code, _, stderr := runLine(strings.Fields(line)...)
		require.Equal(t, 1, code)
		require.Contains(t, stderr, want)
		require.Equal(t, 1, strings.Count(stderr, "\n"))
	}
}

// TestEditsAgainstRecursion compares with the definition.
func TestEditsAgainstRecursion(t *testing.T) {
	var slow func(a, b string) int
	slow = func(a, b string) int {
		if a == "" || b == "" {
			return len(a) + len(b)
		}
		same := 1
		if a[0] == b[0] {
			same = 0
		}
		return min(slow(a[1:], b[1:])+same, slow(a[1:], b)+1, slow(a, b[1:])+1)
	}
	words := []string{"", "a", "ab", "plan", "paln", "policy", "--peak", "check"}
	for _, a := range words {
		for _, b := range words {
			require.Equal(t, slow(a, b), edits(a, b), "%s %s", a, b)
		}
	}
}

// TestCompletion asks each shell that is on this machine whether it can read its
// script.
func TestCompletion(t *testing.T) {
	for shell, flags := range map[string][]string{"bash": {"-n"}, "zsh": {"-n"}, "fish": {"--no-execute"}} {
		code, script, stderr := runLine("completion", shell)
		require.Zero(t, code, stderr)
		path, err := exec.LookPath(shell)
		if err != nil {
			t.Logf("%s is not on this machine: its script was not read by it", shell)
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		require.NoError(t, os.WriteFile(file, []byte(script), 0o644))
		out, err := exec.Command(path, append(flags, file)...).CombinedOutput()
		require.NoError(t, err, "%s: %s", shell, out)
	}
}

// TestLoadMeasuresTheReceiver: with --receiver-metrics the report has what plan wants,
// and a receiver that does not tell its CPU time is an error and not a figure.
func TestLoadMeasuresTheReceiver(t *testing.T) {
	p := testProcess(t, "sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n", "")
	server := httptest.NewServer(http.HandlerFunc(p.server.HTTP.ServeHTTP))
	defer server.Close()
	code, stdout, stderr := runLine("load", "--url="+server.URL+"/api/v1/write", "--requests=300", "--series=2000", "--receiver-metrics="+server.URL+"/metrics", "--format=json")
	require.Zero(t, code, stderr)
	var s loadSummary
	require.NoError(t, json.Unmarshal([]byte(stdout), &s))
	require.Positive(t, s.Receiver.CPUSeconds)
	require.InDelta(t, float64(s.Items), s.Receiver.ItemsPerCPUSecond*s.Receiver.CPUSeconds, 1)
	report := filepath.Join(writeTemp(t, map[string]string{"load.json": stdout}), "load.json")
	code, stdout, stderr = runLine("plan", "--load-report="+report, "--peak=1000", "--cpu-limit=2")
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "measured: spillway load, "+report)

	code, _, stderr = runLine("load", "--url="+server.URL+"/api/v1/write", "--requests=1", "--receiver-metrics="+server.URL+"/-/ready")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "--receiver-metrics: ")
}

// TestPlanRefusesWhatWasDropped: a receiver that dropped did less than storing, so its
// figure would plan too few ingesters.
func TestPlanRefusesWhatWasDropped(t *testing.T) {
	p := testProcess(t, "sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n", testedPolicy)
	server := httptest.NewServer(http.HandlerFunc(p.server.HTTP.ServeHTTP))
	defer server.Close()
	arguments := []string{"load", "--url=" + server.URL + "/api/v1/write", "--requests=300", "--series=2000", "--receiver-metrics=" + server.URL + "/metrics"}
	code, stdout, stderr := runLine(append(arguments, "--format=json")...)
	require.Zero(t, code, stderr)
	var s loadSummary
	require.NoError(t, json.Unmarshal([]byte(stdout), &s))
	var dropped int64
	for _, c := range p.ingester.RateControl().Streams["metrics"].Classes {
		dropped += c.Dropped
	}
	require.Positive(t, dropped)
	require.Equal(t, dropped, s.Receiver.Dropped)
	require.Contains(t, s.Caveat, "1.0")
	report := filepath.Join(writeTemp(t, map[string]string{"load.json": stdout}), "load.json")
	code, _, stderr = runLine("plan", "--load-report="+report, "--peak=1000", "--cpu-limit=2")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "dropped or refused")
	code, stdout, stderr = runLine(arguments...)
	require.Zero(t, code, stderr)
	require.Contains(t, stdout, "measure again")
}

// TestLoadFails: nothing accepted is a failure that says what to look at.
func TestLoadFails(t *testing.T) {
	p := testProcess(t, "sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n", "")
	server := httptest.NewServer(http.HandlerFunc(p.server.HTTP.ServeHTTP))
	for path, want := range map[string]string{"/api/v1/wriet": "nothing was accepted; the answers were 404; is the path right?", "/v1/metrics": "nothing was accepted; the answers were "} {
		code, stdout, stderr := runLine("load", "--url="+server.URL+path, "--requests=2")
		require.Equal(t, 1, code)
		require.Contains(t, stderr, want)
		require.Regexp(t, `(?m)^sent `, stdout)
	}
	server.Close()
	code, stdout, stderr := runLine("load", "--url="+server.URL+"/api/v1/write", "--requests=1")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "is Spillway running there?")
	require.NotContains(t, stdout, "sent ")
}
