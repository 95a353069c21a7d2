//go:build e2e

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// cgroup is a CPU limit that programs can be started under: one directory, or two
// where cpu and cpuacct are mounted apart.
type cgroup struct{ dirs []string }

// newCgroup makes a cgroup for the length of the test, or skips it where none may be
// made. The group gets the largest share of the CPU, so that its limit binds and
// not what else runs on the machine.
func newCgroup(t *testing.T, cores float64) *cgroup {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("skipped: a CPU limit needs a cgroup, and making one needs root")
	}
	g := &cgroup{}
	for _, parent := range cpuMounts(t) {
		dir := filepath.Join(parent, fmt.Sprintf("spillway-%d-%s", os.Getpid(), strings.ToLower(strings.ReplaceAll(t.Name(), "/", "-"))))
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Skipf("skipped: a CPU limit needs a cgroup, and none can be made here: %v", err)
		}
		g.dirs = append(g.dirs, dir)
		// The kernel needs a moment to notice that the last process has gone.
		t.Cleanup(func() { eventually(t, "the cgroup is gone", func() bool { return os.Remove(dir) == nil }) })
		for file, text := range map[string]string{"cpu.shares": "262144", "cpu.weight": "10000"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
			}
		}
	}
	if len(g.dirs) == 0 {
		t.Skip("skipped: a CPU limit needs a cgroup with the cpu controller, and none is mounted")
	}
	g.limit(t, cores)
	return g
}

// cpuMounts lists where cgroups with CPU limits or accounts can be made: the v1
// hierarchies, else a v2 one that lets its children have the controller.
func cpuMounts(t *testing.T) (points []string) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	require.NoError(t, err)
	var v2 []string
	for line := range strings.Lines(string(text)) {
		before, after, _ := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		options := "," + kind[len(kind)-1] + ","
		switch {
		case kind[0] == "cgroup" && (strings.Contains(options, ",cpu,") || strings.Contains(options, ",cpuacct,")):
			points = append(points, fields[4])
		case kind[0] == "cgroup2" && os.WriteFile(filepath.Join(fields[4], "cgroup.subtree_control"), []byte("+cpu"), 0o644) == nil:
			v2 = append(v2, fields[4])
		}
	}
	if len(points) == 0 {
		return v2
	}
	return points
}

// limit sets how many cores the programs in the group may use; 0 is no limit.
func (g *cgroup) limit(t *testing.T, cores float64) {
	t.Helper()
	v1, v2 := "-1", "max"
	if cores > 0 {
		v1 = strconv.Itoa(int(cores * 100_000))
		v2 = v1
	}
	for _, dir := range g.dirs {
		for file, text := range map[string]string{"cpu.cfs_quota_us": v1, "cpu.max": v2 + " 100000"} {
			if _, err := os.Stat(filepath.Join(dir, file)); err == nil {
				require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644))
			}
		}
	}
}

// command is how a program is started in the group: it joins before it begins, as
// in a container.
func (g *cgroup) command(path string, args ...string) (string, []string) {
	if g == nil {
		return path, args
	}
	join := "for d in " + strings.Join(g.dirs, " ") + `; do echo $$ > $d/cgroup.procs; done; exec "$0" "$@"`
	return "/bin/sh", append([]string{"-c", join, path}, args...)
}

// peakMemory is the most that the program ever had resident, in bytes.
func (p *program) peakMemory(t *testing.T) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			require.NoError(t, err)
			return kib << 10
		}
	}
	t.Fatal("the kernel does not tell the peak of resident memory")
	return 0
}
