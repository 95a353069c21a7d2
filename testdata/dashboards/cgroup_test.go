//go:build e2e

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// limitCPU gives a running process half a core, where cgroups can be made, and says
// whether it did.
func limitCPU(t *testing.T, r *running) bool {
	t.Helper()
	// The usual mounts of both versions; what is not there cannot be written to.
	layouts := [][]struct{ dir, file, text string }{
		{{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "50000"}, {"/sys/fs/cgroup/cpuacct", "", ""}},
		{{"/sys/fs/cgroup", "cpu.max", "50000 100000"}},
	}
	for _, layout := range layouts {
		done := true
		for _, l := range layout {
			done = done && joinGroup(t, l.dir, l.file, l.text, r) == nil
		}
		if done {
			return true
		}
	}
	t.Log("no cgroup can be made here (it needs root and a cgroup mount), so queries about a CPU limit may be empty")
	return false
}

// joinGroup makes a cgroup under parent, sets one of its files and puts the process into it.
func joinGroup(t *testing.T, parent, file, text string, r *running) error {
	pid := r.cmd.Process.Pid
	if _, err := os.Stat(filepath.Join(parent, "cgroup.procs")); err != nil {
		return err
	}
	dir := filepath.Join(parent, fmt.Sprintf("spillway-dashboards-%d", pid))
	if err := os.Mkdir(dir, 0o755); err != nil {
		return err
	}
	t.Cleanup(func() {
		r.stop()
		removeGroup(t, dir)
	})
	if file != "" {
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(fmt.Sprint(pid)), 0o644)
}

// removeGroup tries for a while: the kernel needs a moment to notice that the last
// process has gone.
func removeGroup(t *testing.T, dir string) {
	err := os.Remove(dir)
	for end := time.Now().Add(5 * time.Second); err != nil && time.Now().Before(end); {
		if err = os.Remove(dir); errors.Is(err, os.ErrNotExist) {
			return
		}
	}
	require.NoError(t, err)
}
