//go:build e2e

package e2e

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// spillwayCommand runs the binary to its end and returns what it printed.
func spillwayCommand(t *testing.T, args ...string) (stdout string, err error) {
	t.Helper()
	var out, said bytes.Buffer
	cmd := exec.Command(os.Getenv("SPILLWAY_BIN"), args...)
	cmd.Stdout, cmd.Stderr = &out, &said
	err = cmd.Run()
	if err != nil {
		t.Logf("spillway %s: %s", args[0], said.String())
	}
	return out.String(), err
}

// TestSimulateRecordedTraffic replays what a real Prometheus has scraped of a
// Spillway under load, under a policy that is stricter than the one in force, and
// plans from the same record.
func TestSimulateRecordedTraffic(t *testing.T) {
	const policy = `
streams:
  metrics:
    rate: 10000
    burst: 20000
    default: {rate: 9000}
    classes: [{name: some, rate: 1000}]
    rules: [{class: some, matchers: ['team=~"team-0."']}]
`
	dir := t.TempDir()
	s := startSpillway(t, dir, freeAddress(t), quiet+"sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n", policy)
	prom, _ := startPrometheus(t, s.address, "", "")
	load := start(t, os.Getenv("SPILLWAY_BIN"), "load", "--url=http://"+s.address+"/api/v1/write", "--rate=1000", "--series=1000", "--series-per-request=100", "--duration=5m")
	stricter := filepath.Join(dir, "stricter.yaml")
	require.NoError(t, os.WriteFile(stricter, []byte("streams: {metrics: {rate: 10000, burst: 10000, default: {rate: 9900}, classes: [{name: some, rate: 100}]}}"), 0o644))

	type class struct {
		Name              string
		Offered, Admitted int64
		Dropped           struct{ Total, Rate int64 }
	}
	var report struct{ Classes []class }
	eventually(t, "twenty seconds of recorded traffic", func() bool {
		out, err := spillwayCommand(t, "simulate", "--policy="+stricter, "--prometheus=http://"+prom, "--since=20s", "--step=5s", "--every=1s", "--format=json")
		return err == nil && json.Unmarshal([]byte(out), &report) == nil && report.Classes[0].Offered > 9000
	})
	some := report.Classes[0]
	require.Equal(t, "some", some.Name)
	require.InDelta(t, 500*20, some.Offered, 1000, "half of the teams are in the class")
	require.LessOrEqual(t, some.Admitted, int64(100+100*20), "burst + rate x t")
	require.Equal(t, some.Offered, some.Admitted+some.Dropped.Total)
	require.Positive(t, some.Dropped.Rate)
	t.Logf("%+v", some)

	out, err := spillwayCommand(t, "plan", "--prometheus=http://"+prom, "--since=1m", "--cpu-limit=1")
	require.NoError(t, err)
	require.Contains(t, out, "measured: http://"+prom)
	load.kill()
	eventually(t, "no batch in flight", func() bool { return sum(metrics(t, s.address), "spillway_governor_in_flight") == 0 })
	requireConserved(t, metrics(t, s.address))
}
