//go:build e2e

package e2e

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/governor"
)

// umlInit is the first process of the guest: a cgroup v2 tree as Kubernetes makes
// it, with the limit on the pod and the program in a container of it. What the test
// wants to know goes to the console.
const umlInit = `#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run
mount -t cgroup2 cgroup2 /sys/fs/cgroup
ip link set lo up 2>/dev/null || ifconfig lo up
cd /sys/fs/cgroup && echo +cpu > cgroup.subtree_control && mkdir pod && echo +cpu > pod/cgroup.subtree_control
mkdir pod/container && echo "50000 100000" > pod/cpu.max
export HOME=/run
sh -c 'echo $$ > /sys/fs/cgroup/pod/container/cgroup.procs; exec %[1]s serve --config.file=%[2]s/spillway.yaml' &
n=0
until curl -sf http://127.0.0.1:9900/-/ready > /dev/null; do n=$((n+1)); [ $n -gt 300 ] && break; sleep 0.1; done
%[1]s load --url=http://127.0.0.1:9900/api/v1/write --series=4000 --series-per-request=1000 --concurrency=4 --prepared=8 --duration=%[3]s
say() { echo; echo "@@$1 $(tr -d '\n')"; }
say before < pod/cpu.stat
sleep 2.5
curl -s http://127.0.0.1:9900/api/v1/governor | say governor
say after < pod/cpu.stat
echo o > /proc/sysrq-trigger
sleep 60
`

// uml finds User Mode Linux, a kernel that runs as a program.
func uml(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("SPILLWAY_UML"); path != "" {
		return path
	}
	path, err := exec.LookPath("linux.uml")
	if err != nil {
		t.Skip("skipped: a cgroup v2 CPU limit of our own needs User Mode Linux, and linux.uml is not installed (Debian: user-mode-linux)")
	}
	return path
}

// TestGovernorCgroupV2: under a real cgroup v2 limit that stands one level above the
// program, the shipped binary sees the limit, what is used of it and that it throttles.
func TestGovernorCgroupV2(t *testing.T) {
	kernel := uml(t)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "spillway.yaml"), []byte(quiet+"sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n"), 0o644))
	script := filepath.Join(dir, "init")
	require.NoError(t, os.WriteFile(script, fmt.Appendf(nil, umlInit, os.Getenv("SPILLWAY_BIN"), dir, whole("25s", "6s")), 0o755))

	p := start(t, kernel, "mem=768M", "rootfstype=hostfs", "rootflags=/", "ro", "init="+script, "con=null", "con0=fd:0,fd:1", "umid=spillway", "uml_dir="+dir+"/", "quiet")
	select {
	case <-p.done:
	case <-time.After(2 * patience):
		t.Fatal("the guest does not end")
	}
	said := func(what string) string {
		for line := range strings.Lines(p.log.String()) {
			if rest, ok := strings.CutPrefix(strings.TrimSpace(line), "@@"+what+" "); ok {
				return rest
			}
		}
		t.Fatalf("the guest did not say %q:\n%s", what, tail(p.log.String(), 4000))
		return ""
	}
	var s governor.Snapshot
	require.NoError(t, json.Unmarshal([]byte(said("governor")), &s))
	require.Equal(t, "/sys/fs/cgroup/pod", s.CPU.Source)
	require.Equal(t, 0.5, s.CPU.Limit)
	require.Equal(t, governor.RegimeModel, s.Regime)
	before, after := throttledSeconds(t, said("before")), throttledSeconds(t, said("after"))
	require.Positive(t, before)
	require.GreaterOrEqual(t, s.CPU.Throttled, before)
	require.LessOrEqual(t, s.CPU.Throttled, after)
	// The quota's own arithmetic, not this machine's speed.
	require.Positive(t, s.CPU.Used)
	require.LessOrEqual(t, s.CPU.Used, 0.5*1.1)
	bar(t, true, "cgroup v2: %s: limit %g cores, %.3f used, throttled for %.2f s, stalled for %.2f s, capacity %.1f", s.CPU.Source, s.CPU.Limit, s.CPU.Used, s.CPU.Throttled, s.CPU.Stalled, s.Mean)
}

// throttledSeconds reads throttled_usec from a cpu.stat without its line ends.
func throttledSeconds(t *testing.T, stat string) float64 {
	t.Helper()
	_, rest, ok := strings.Cut(stat, "throttled_usec ")
	require.True(t, ok, stat)
	digits := rest[:len(rest)-len(strings.TrimLeft(rest, "0123456789"))]
	us, err := strconv.ParseFloat(digits, 64)
	require.NoError(t, err)
	return us / 1e6
}
