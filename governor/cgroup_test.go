package governor

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

// tree reads a machine's files from testdata/governor/cgroup: a comment, then
// `-- path --` before each file's text.
func tree(t *testing.T, name string) fstest.MapFS {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "testdata", "governor", "cgroup", name+".txt"))
	require.NoError(t, err)
	files := fstest.MapFS{}
	var file *fstest.MapFile
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSuffix(line, " --\n"), "-- "); ok && strings.HasSuffix(line, " --\n") {
			file = &fstest.MapFile{Mode: 0o444}
			files[path] = file
		} else if file != nil {
			file.Data = append(file.Data, line...)
		}
	}
	return files
}

// clockAt is a clock that a test sets.
type clockAt struct{ now time.Duration }

func (c *clockAt) read() time.Duration { return c.now }

func TestG3Layouts(t *testing.T) {
	const ms = time.Millisecond
	v2 := func(dir string, limit float64, usage time.Duration) reading {
		return reading{Source: dir, Limit: limit, Usage: usage, UsageKnown: true}
	}
	with := func(r reading, periods, throttledPeriods uint64, throttled time.Duration) reading {
		r.Periods, r.ThrottledPeriods, r.Throttled, r.ThrottledKnown = periods, throttledPeriods, throttled, true
		return r
	}
	pressed := func(r reading, pressure time.Duration) reading {
		r.Pressure, r.PressureKnown = pressure, true
		return r
	}
	for name, want := range map[string]reading{
		"v2-leaf":               pressed(with(v2("/sys/fs/cgroup/system.slice/spillway.service", 0.5, 2050*ms), 41, 40, 1990*ms), 1900*ms),
		"v2-parent":             pressed(with(v2("/sys/fs/cgroup/kubepods/pod1", 1, 7000*ms), 70, 7, 123*time.Microsecond), 3*ms),
		"v2-equal":              v2("/sys/fs/cgroup/pod", 1, 7000*ms),
		"v2-no-controller":      with(v2("/sys/fs/cgroup/user.slice", 2, 3000*ms), 10, 1, 5*ms),
		"v2-unlimited":          {},
		"v2-namespace":          with(v2("/sys/fs/cgroup", 1.5, 6000*ms), 3, 2, ms),
		"v2-namespace-odd-root": v2("/sys/fs/cgroup/app", 0.75, 4000*ms),
		"v2-two-mounts":         v2("/sys/fs/cgroup", 0.8, 4000*ms),
		"v2-escaped":            v2(`/mnt/c group\x/odd:name/0::x`, 0.6, 4000*ms),
		"v1-joint":              with(v2("/sys/fs/cgroup/cpu,cpuacct/docker/abc", 1.5, 2521696633), 51, 50, 2482743556),
		"v1-separate":           with(v2("/sys/fs/cgroup/cpu/pod", 0.5, 7000*ms), 10, 4, 5*ms),
		"v1-cpuacct-elsewhere":  v2("/sys/fs/cgroup/cpu/limited", 0.5, 3000*ms),
		"v1-cpuacct-root":       v2("/sys/fs/cgroup/cpu/limited (use of the process alone)", 0.5, 1680*ms),
		"v1-bind":               with(v2("/sys/fs/cgroup/cpuacct,cpu", 2, 3000*ms), 5, 0, 0),
		"v1-bind-foreign":       v2("/sys/fs/cgroup/cpuacct,cpu", 2, 3000*ms),
		"hybrid":                v2("/sys/fs/cgroup/cpu,cpuacct/app", 1.5, 3000*ms),
		"hybrid-v2-cpu":         v2("/sys/fs/cgroup/unified/app", 0.9, 4000*ms),
		"wsl":                   v2("/sys/fs/cgroup/app", 0.9, 4000*ms),
		"affinity":              v2("/sys/fs/cgroup/app", 2, 4000*ms),
	} {
		t.Run(name, func(t *testing.T) {
			clock := clockAt{now: time.Hour}
			got, err := newCgroups(tree(t, name)).read(clock.read)
			require.NoError(t, err)
			want.At = time.Hour
			// Only the fixtures that name a throttled counter promise one.
			if !want.ThrottledKnown {
				require.Zero(t, got.Throttled)
				got.ThrottledKnown = false
			}
			require.Equal(t, want, got)
		})
	}
}

func TestG3NoLimitKnown(t *testing.T) {
	for name, c := range map[string]struct {
		files fs.FS
		want  string
	}{
		"no cgroup":   {fstest.MapFS{}, "proc/self/cgroup"},
		"not mounted": {tree(t, "no-mount"), "under none of the 0 cgroup2 mounts"},
		"outside":     {tree(t, "v2-outside-namespace"), "under none of the 1 cgroup2 mounts"},
		"no cpu":      {tree(t, "no-cpu"), "neither"},
	} {
		clock := clockAt{}
		r, err := newCgroups(c.files).read(clock.read)
		require.ErrorContains(t, err, c.want, name)
		require.Zero(t, r, name)
	}
}

// failFS fails to read some files the way that a kernel does.
type failFS struct {
	fs.FS
	fail map[string]error
}

func (f failFS) Open(name string) (fs.File, error) {
	if err := f.fail[name]; err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return f.FS.Open(name)
}

func TestG3FilesThatCannotBeRead(t *testing.T) {
	const dir = "sys/fs/cgroup/system.slice/spillway.service/"
	clock := clockAt{}
	read := func(t *testing.T, change func(fstest.MapFS, map[string]error)) (reading, error) {
		files, fail := tree(t, "v2-leaf"), map[string]error{}
		change(files, fail)
		return newCgroups(failFS{files, fail}).read(clock.read)
	}
	t.Run("pressure is switched off", func(t *testing.T) {
		r, err := read(t, func(_ fstest.MapFS, fail map[string]error) { fail[dir+"cpu.pressure"] = syscall.EOPNOTSUPP })
		require.NoError(t, err)
		require.False(t, r.PressureKnown)
		require.True(t, r.UsageKnown && r.ThrottledKnown)
	})
	t.Run("pressure is missing", func(t *testing.T) {
		r, err := read(t, func(files fstest.MapFS, _ map[string]error) { delete(files, dir+"cpu.pressure") })
		require.NoError(t, err)
		require.False(t, r.PressureKnown)
	})
	t.Run("pressure has no full line", func(t *testing.T) {
		r, err := read(t, func(files fstest.MapFS, _ map[string]error) {
			files[dir+"cpu.pressure"] = &fstest.MapFile{Data: []byte("some avg10=0.00 avg60=0.00 avg300=0.00 total=5\n")}
		})
		require.NoError(t, err)
		require.False(t, r.PressureKnown)
	})
	t.Run("use cannot be read", func(t *testing.T) {
		files := tree(t, "v2-leaf")
		fail := map[string]error{}
		c := newCgroups(failFS{files, fail})
		_, err := c.read(clock.read)
		require.NoError(t, err)
		fail[dir+"cpu.stat"] = syscall.EACCES
		r, err := c.read(clock.read)
		require.ErrorIs(t, err, fs.ErrPermission)
		require.False(t, r.UsageKnown)
		require.Equal(t, 0.5, r.Limit, "the limit is known all the same: the step alone governs")
		require.True(t, r.PressureKnown)
	})
	t.Run("the limit cannot be read", func(t *testing.T) {
		r, err := read(t, func(_ fstest.MapFS, fail map[string]error) { fail[dir+"cpu.max"] = syscall.EACCES })
		require.ErrorIs(t, err, fs.ErrPermission)
		require.Zero(t, r.Limit)
	})
	t.Run("the limit makes no sense", func(t *testing.T) {
		for _, text := range []string{"", "x 100000", "50000 x", "50000 0", "0 100000", "1 2 3"} {
			_, err := read(t, func(files fstest.MapFS, _ map[string]error) {
				files[dir+"cpu.max"] = &fstest.MapFile{Data: []byte(text)}
			})
			require.Error(t, err, "%q", text)
		}
	})
	t.Run("cpu.stat without use", func(t *testing.T) {
		r, err := read(t, func(files fstest.MapFS, _ map[string]error) {
			files[dir+"cpu.stat"] = &fstest.MapFile{Data: []byte("nr_periods 5\n")}
		})
		require.ErrorContains(t, err, "usage_usec")
		require.False(t, r.UsageKnown)
	})
}

func TestG3LimitsChangeWhileRunning(t *testing.T) {
	const dir = "sys/fs/cgroup/system.slice/spillway.service"
	files := tree(t, "v2-leaf")
	clock := clockAt{}
	c := newCgroups(files)
	limit := func() float64 {
		clock.now += 2 * time.Second
		r, err := c.read(clock.read)
		require.NoError(t, err)
		return r.Limit
	}
	require.Equal(t, 0.5, limit())
	files[dir+"/cpu.max"] = &fstest.MapFile{Data: []byte("75000 100000\n")}
	require.Equal(t, 0.75, limit(), "re-read at every sample")
	files["sys/fs/cgroup/system.slice/cpu.max"] = &fstest.MapFile{Data: []byte("25000 100000\n")}
	require.Equal(t, 0.25, limit(), "an ancestor's too")
	files["sys/fs/cgroup/system.slice/cpu.max"] = &fstest.MapFile{Data: []byte("max 100000\n")}
	files[dir+"/cpu.max"] = &fstest.MapFile{Data: []byte("max 100000\n")}
	require.Zero(t, limit(), "gone")

	files["proc/self/cgroup"] = &fstest.MapFile{Data: []byte("0::/moved\n")}
	files["sys/fs/cgroup/moved/cpu.max"] = &fstest.MapFile{Data: []byte("125000 100000\n")}
	files["sys/fs/cgroup/moved/cpu.stat"] = &fstest.MapFile{Data: []byte("usage_usec 5\n")}
	require.Equal(t, 1.25, limit(), "the process was moved: found at once")
}

func TestG3VanishedCgroupIsLookedForOnceAMinute(t *testing.T) {
	files := tree(t, "v2-leaf")
	clock := clockAt{}
	c := newCgroups(files)
	_, err := c.read(clock.read)
	require.NoError(t, err)
	gone := fstest.MapFS{}
	for name, file := range files {
		if strings.HasPrefix(name, "sys/fs/cgroup/system.slice/") {
			gone[name] = file
			delete(files, name)
		}
	}
	clock.now += 2 * time.Second
	_, err = c.read(clock.read)
	require.ErrorContains(t, err, "gone")

	// The hierarchy comes back elsewhere, under the same name.
	for name, file := range gone {
		files["new/"+strings.TrimPrefix(name, "sys/fs/cgroup/")] = file
	}
	files["proc/self/mountinfo"] = &fstest.MapFile{Data: []byte("30 22 0:26 / /new rw - cgroup2 cgroup2 rw\n")}
	clock.now += 30 * time.Second
	_, err = c.read(clock.read)
	require.Error(t, err, "not yet: finding it costs")
	clock.now += 31 * time.Second
	_, err = c.read(clock.read)
	require.Error(t, err, "this read finds that it is time")
	clock.now += 2 * time.Second
	r, err := c.read(clock.read)
	require.NoError(t, err)
	require.Equal(t, 0.5, r.Limit)
}

func TestG3ClockIsReadAfterTheCounters(t *testing.T) {
	for _, name := range []string{"v2-leaf", "v1-joint", "v1-cpuacct-root"} {
		files := tree(t, name)
		readsDone, readAt := 0, 0
		counting := countFS{files, &readsDone}
		_, err := newCgroups(counting).read(func() time.Duration { readAt = readsDone; return time.Second })
		require.NoError(t, err)
		require.GreaterOrEqual(t, readAt, readsDone-1, "%s: at most the pressure is read after the clock", name)
	}
}

type countFS struct {
	fs.FS
	n *int
}

func (c countFS) Open(name string) (fs.File, error) {
	*c.n++
	return c.FS.Open(name)
}

func TestG3ParseCPUList(t *testing.T) {
	for text, want := range map[string]int{"0": 1, "0-3": 4, "0-3,8,10-11\n": 7, "\t5": 1} {
		n, ok := parseCPUList(text)
		require.True(t, ok, "%q", text)
		require.Equal(t, want, n, "%q", text)
	}
	for _, text := range []string{"", "a", "3-1", "1-", "0,,1"} {
		_, ok := parseCPUList(text)
		require.False(t, ok, "%q", text)
	}
}

// No text that a file may hold makes the parsers panic or claim nonsense.
func FuzzG3Parsers(f *testing.F) {
	f.Add("0::/a:b\n4:cpu,cpuacct:/x\n", `30 22 0:26 / /mnt/c\040 rw - cgroup2 x y z`, "50000 100000", "usage_usec 5\nfull total=9\n")
	f.Add(":::", `1 2 3 \777 \0 - - cgroup`, "max max", "full total=-1\n1 (x) ")
	f.Fuzz(func(t *testing.T, self, mounts, limit, stat string) {
		members := parseMemberships(self)
		parsed := parseMounts(mounts)
		for _, m := range members {
			for _, p := range candidates(parsed, m.path) {
				if len(p.chain()) == 0 {
					t.Fatal("a chain holds at least its leaf")
				}
			}
		}
		if cores, limited, err := parseCPUMax(limit); err == nil && limited && !(cores > 0) {
			t.Fatalf("limit %v", cores)
		}
		parseFlat(stat)
		parsePressure(stat)
		parseProcessTime(stat)
		parseCPUList(stat)
	})
}
