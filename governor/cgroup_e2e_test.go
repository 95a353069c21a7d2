//go:build e2e && linux

package governor

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// childEnv makes the test binary the process in the cgroup.
const childEnv = "SPILLWAY_CGROUP_CHILD"

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		childMain()
		return
	}
	os.Exit(m.Run())
}

// childMain obeys lines of its input: `burn DURATION` uses all the CPU that it
// gets for so long, `read` prints a reading.
func childMain() {
	begun := time.Now()
	clock := func() time.Duration { return time.Since(begun) }
	cgroups := newCgroups(os.DirFS("/"))
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		word, arg, _ := strings.Cut(in.Text(), " ")
		switch word {
		case "burn":
			d, _ := time.ParseDuration(arg)
			done := make(chan struct{})
			for range 2 {
				go func() {
					for end := time.Now().Add(d); time.Now().Before(end); {
					}
					done <- struct{}{}
				}()
			}
			<-done
			<-done
			fmt.Println("{}")
		case "read":
			r, err := cgroups.read(clock)
			problem := ""
			if err != nil {
				problem = err.Error()
			}
			_ = json.NewEncoder(os.Stdout).Encode(struct {
				Reading reading
				Problem string
			}{r, problem})
		}
	}
}

// child is a process that waits for commands.
type child struct {
	t   *testing.T
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Scanner
}

func startChild(t *testing.T) *child {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"=1")
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	c := &child{t: t, cmd: cmd, in: in, out: bufio.NewScanner(out)}
	t.Cleanup(func() {
		in.Close()
		_ = cmd.Wait()
	})
	return c
}

func (c *child) tell(command string) string {
	_, err := fmt.Fprintln(c.in, command)
	require.NoError(c.t, err)
	require.True(c.t, c.out.Scan(), "the child has ended")
	return c.out.Text()
}

func (c *child) read() reading {
	var answer struct {
		Reading reading
		Problem string
	}
	require.NoError(c.t, json.Unmarshal([]byte(c.tell("read")), &answer))
	require.Empty(c.t, answer.Problem)
	return answer.Reading
}

// makeGroup makes a cgroup and removes it when the test and its child are done.
func makeGroup(t *testing.T, parent string) string {
	dir := filepath.Join(parent, fmt.Sprintf("spillway-e2e-%d", os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Skipf("skipped: no cgroup can be made here: %v", err)
	}
	t.Cleanup(func() {
		var err error
		// The kernel needs a moment to notice that the last process has gone.
		for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
			if err = os.Remove(dir); err == nil || errors.Is(err, os.ErrNotExist) {
				return
			}
		}
		t.Errorf("cgroup %s is left behind: %v", dir, err)
	})
	return dir
}

func write(t *testing.T, name, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(name, []byte(text), 0o644))
}

func liveMounts(t *testing.T) []mount {
	if os.Getuid() != 0 {
		t.Skip("skipped: making a cgroup needs root")
	}
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Skipf("skipped: not a Linux machine: %v", err)
	}
	return parseMounts(string(text))
}

// checkLimited is what must be true of a process that burns CPU at half a core.
func checkLimited(t *testing.T, c *child, dir string) {
	before := c.read()
	require.Equal(t, dir, before.Source)
	require.Equal(t, 0.5, before.Limit)
	require.True(t, before.UsageKnown && before.ThrottledKnown)
	c.tell("burn 3s")
	after := c.read()
	elapsed := after.At - before.At
	cores := (after.Usage - before.Usage).Seconds() / elapsed.Seconds()
	periods, throttled := after.Periods-before.Periods, after.ThrottledPeriods-before.ThrottledPeriods
	t.Logf("%s: %.3f cores used over %v, throttled in %d of %d periods for %v", dir, cores, elapsed.Round(time.Millisecond), throttled, periods, after.Throttled-before.Throttled)
	// Not a bar on this machine's speed: the quota's own arithmetic.
	require.LessOrEqual(t, cores, 0.5*1.1)
	require.Positive(t, throttled)
	require.LessOrEqual(t, throttled, periods)
	require.Greater(t, after.Throttled, before.Throttled)
}

func TestG3RealCgroupV1(t *testing.T) {
	mounts := liveMounts(t)
	cpu, acct := withController(mounts, "cpu"), withController(mounts, "cpuacct")
	if len(cpu) == 0 || len(acct) == 0 {
		t.Skip("skipped: no v1 hierarchy has the cpu controller")
	}
	dir := makeGroup(t, cpu[0].point)
	groups := []string{dir}
	if acct[0].point != cpu[0].point {
		groups = append(groups, makeGroup(t, acct[0].point))
	}
	// The quota is to bind, not what else runs on the machine.
	write(t, filepath.Join(dir, "cpu.shares"), "262144")
	write(t, filepath.Join(dir, "cpu.cfs_period_us"), "100000")
	write(t, filepath.Join(dir, "cpu.cfs_quota_us"), "50000")
	c := startChild(t)
	for _, group := range groups {
		write(t, filepath.Join(group, "cgroup.procs"), fmt.Sprint(c.cmd.Process.Pid))
	}
	checkLimited(t, c, dir)

	write(t, filepath.Join(dir, "cpu.cfs_quota_us"), "75000")
	require.Equal(t, 0.75, c.read().Limit, "a limit that changes while running")
	write(t, filepath.Join(dir, "cpu.cfs_quota_us"), "-1")
	require.Zero(t, c.read().Limit, "and goes")
	write(t, filepath.Join(dir, "cpu.cfs_quota_us"), "50000")
	write(t, filepath.Join(cpu[0].point, "cgroup.procs"), fmt.Sprint(c.cmd.Process.Pid))
	require.Zero(t, c.read().Limit, "the process was moved out")
}

func TestG3RealCgroupV2(t *testing.T) {
	for _, m := range liveMounts(t) {
		if !m.v2 {
			continue
		}
		controllers, err := os.ReadFile(filepath.Join(m.point, "cgroup.controllers"))
		if err != nil || !contains(strings.Fields(string(controllers)), "cpu") {
			continue
		}
		if err := os.WriteFile(filepath.Join(m.point, "cgroup.subtree_control"), []byte("+cpu"), 0o644); err != nil {
			t.Skipf("skipped: the cpu controller cannot be enabled for children of %s: %v", m.point, err)
		}
		dir := makeGroup(t, m.point)
		write(t, filepath.Join(dir, "cpu.weight"), "10000")
		write(t, filepath.Join(dir, "cpu.max"), "50000 100000")
		c := startChild(t)
		write(t, filepath.Join(dir, "cgroup.procs"), fmt.Sprint(c.cmd.Process.Pid))
		checkLimited(t, c, dir)
		write(t, filepath.Join(dir, "cpu.max"), "75000 100000")
		require.Equal(t, 0.75, c.read().Limit)
		return
	}
	t.Skip("skipped: no cgroup2 mount has the cpu controller")
}
