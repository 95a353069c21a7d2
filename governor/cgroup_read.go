package governor

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// resolveEvery is how often a process looks for its cgroups again when it
// cannot find or read them.
const resolveEvery = time.Minute

// cgroups reads limit and use of the CPU from a file system that looks like
// the root of a Linux machine. Where there is none, no limit is known.
type cgroups struct {
	root fs.FS
	// self and mounts are the texts that where was found from.
	self    string
	where   layout
	err     error // why nothing was found
	tried   bool
	triedAt time.Duration
}

// layout is where the files are.
type layout struct {
	v2      bool
	cpu     place
	usage   place // v1: in the cpuacct hierarchy, which may be another; "" if none
	hostAcc bool  // v1: the process sits in the root of cpuacct, whose use is the whole machine's
}

func newCgroups(root fs.FS) *cgroups { return &cgroups{root: root} }

func (c *cgroups) text(name string) (string, error) {
	b, err := fs.ReadFile(c.root, strings.TrimPrefix(path.Clean(name), "/"))
	return string(b), err
}

func (c *cgroups) exists(name string) bool {
	_, err := fs.Stat(c.root, strings.TrimPrefix(path.Clean(name), "/"))
	return err == nil
}

// read looks at the CPU. clock is read directly after the counters. The error
// says why no limit or no use is known; the reading is good for what it holds.
func (c *cgroups) read(clock func() time.Duration) (reading, error) {
	self, err := c.text("/proc/self/cgroup")
	if err != nil {
		return reading{At: clock()}, fmt.Errorf("no CPU limit is known: %w", err)
	}
	if err := c.resolve(self, clock()); err != nil {
		return reading{At: clock()}, err
	}
	r, err := c.readAt(c.where, clock)
	if err != nil {
		// The process may have been moved, or the cgroup replaced: look again.
		c.tried = c.tried && clock()-c.triedAt < resolveEvery
	}
	return r, err
}

// resolve finds the directories when the process has moved or they were not found.
func (c *cgroups) resolve(self string, now time.Duration) error {
	moved := self != c.self
	if !moved && c.tried && (c.err == nil || now-c.triedAt < resolveEvery) {
		return c.err
	}
	c.self, c.tried, c.triedAt = self, true, now
	mounts, err := c.text("/proc/self/mountinfo")
	if err != nil {
		c.err = fmt.Errorf("no CPU limit is known: %w", err)
		return c.err
	}
	c.where, c.err = c.locate(parseMemberships(self), parseMounts(mounts))
	return c.err
}

// locate decides between v1 and v2: if any v1 hierarchy has the cpu controller,
// it has the limit, even where a v2 hierarchy is mounted beside it.
func (c *cgroups) locate(members []membership, mounts []mount) (layout, error) {
	for _, m := range members {
		if contains(m.controllers, "cpu") {
			return c.locateV1(m, members, mounts)
		}
	}
	for _, m := range members {
		if m.id != "0" || len(m.controllers) > 0 {
			continue
		}
		var v2 []mount
		for _, candidate := range mounts {
			if candidate.v2 {
				v2 = append(v2, candidate)
			}
		}
		// cpu.stat is in every v2 cgroup, cpu.max only where the controller is on.
		if p, ok := c.first(candidates(v2, m.path), "cpu.stat"); ok {
			return layout{v2: true, cpu: p}, nil
		}
		return layout{}, fmt.Errorf("no CPU limit is known: cgroup %s is under none of the %d cgroup2 mounts", m.path, len(v2))
	}
	return layout{}, errors.New("no CPU limit is known: /proc/self/cgroup names neither a v2 cgroup nor a v1 cpu controller")
}

func (c *cgroups) locateV1(cpu membership, members []membership, mounts []mount) (layout, error) {
	p, ok := c.first(candidates(withController(mounts, "cpu"), cpu.path), "cpu.cfs_quota_us")
	if !ok {
		return layout{}, fmt.Errorf("no CPU limit is known: cgroup %s is under no mount of the v1 cpu controller", cpu.path)
	}
	l := layout{cpu: p}
	for _, m := range members {
		if !contains(m.controllers, "cpuacct") {
			continue
		}
		if l.usage, ok = c.first(candidates(withController(mounts, "cpuacct"), m.path), "cpuacct.usage"); ok {
			// Only the true root of a v1 hierarchy has a release agent.
			l.hostAcc = l.usage.dir == l.usage.top && c.exists(path.Join(l.usage.dir, "release_agent"))
		}
	}
	return l, nil
}

func withController(mounts []mount, controller string) []mount {
	var with []mount
	for _, m := range mounts {
		if contains(m.controllers, controller) {
			with = append(with, m)
		}
	}
	return with
}

// first returns the first place that holds the file.
func (c *cgroups) first(places []place, file string) (place, bool) {
	for _, p := range places {
		if _, err := c.text(path.Join(p.dir, file)); err == nil {
			return p, true
		}
	}
	return place{}, false
}

// readAt reads limit, use, throttling and pressure.
func (c *cgroups) readAt(l layout, clock func() time.Duration) (reading, error) {
	if !c.exists(l.cpu.dir) {
		return reading{At: clock()}, fmt.Errorf("no CPU limit is known: cgroup %s is gone", l.cpu.dir)
	}
	limit, owner, err := c.smallest(l)
	if err != nil {
		return reading{At: clock()}, err
	}
	r := reading{Limit: limit, Source: owner}
	if owner == "" {
		r.At = clock()
		return r, nil
	}
	if allowed := c.allowed(); allowed > 0 {
		r.Limit = min(r.Limit, float64(allowed))
	}
	var problem error
	if l.v2 {
		problem = c.usageV2(&r, owner, clock)
	} else {
		problem = c.usageV1(&r, l, owner, clock)
	}
	if text, err := c.text(path.Join(l.cpu.dir, "cpu.pressure")); l.v2 && err == nil {
		r.Pressure, r.PressureKnown = parsePressure(text)
	}
	return r, problem
}

// smallest finds the smallest limit of the chain and the cgroup that owns it.
// Of equal limits the outermost counts: what it has left is shared, so it binds first.
func (c *cgroups) smallest(l layout) (limit float64, owner string, err error) {
	for _, dir := range l.cpu.chain() {
		cores, limited, err := c.limitAt(l, dir)
		if errors.Is(err, fs.ErrNotExist) {
			continue // no limit at this level, e.g. the root of the hierarchy
		}
		if err != nil {
			return 0, "", fmt.Errorf("CPU limit of cgroup %s: %w", dir, err)
		}
		if limited && (owner == "" || cores <= limit) {
			limit, owner = cores, dir
		}
	}
	return limit, owner, nil
}

func (c *cgroups) limitAt(l layout, dir string) (cores float64, limited bool, err error) {
	if l.v2 {
		text, err := c.text(path.Join(dir, "cpu.max"))
		if err != nil {
			return 0, false, err
		}
		return parseCPUMax(text)
	}
	quota, err := c.number(path.Join(dir, "cpu.cfs_quota_us"))
	if err != nil || quota < 0 {
		return 0, false, err
	}
	period, err := c.number(path.Join(dir, "cpu.cfs_period_us"))
	if err != nil {
		return 0, false, err
	}
	return quotient(quota, period)
}

func (c *cgroups) number(name string) (float64, error) {
	text, err := c.text(name)
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil {
		return 0, fmt.Errorf("%s holds %q, not a number", name, text)
	}
	return n, nil
}

func (c *cgroups) usageV2(r *reading, owner string, clock func() time.Duration) error {
	text, err := c.text(path.Join(owner, "cpu.stat"))
	r.At = clock()
	if err != nil {
		return fmt.Errorf("CPU use of cgroup %s: %w", owner, err)
	}
	stat := parseFlat(text)
	usage, ok := stat["usage_usec"]
	r.Usage, r.UsageKnown = time.Duration(usage)*time.Microsecond, ok
	c.throttling(r, stat, "throttled_usec", time.Microsecond)
	if !ok {
		return fmt.Errorf("CPU use of cgroup %s: cpu.stat has no usage_usec", owner)
	}
	return nil
}

func (c *cgroups) throttling(r *reading, stat map[string]uint64, key string, unit time.Duration) {
	throttled, ok := stat[key]
	r.Throttled, r.ThrottledKnown = time.Duration(throttled)*unit, ok
	r.Periods, r.ThrottledPeriods = stat["nr_periods"], stat["nr_throttled"]
}

// usageV1 reads use from the cpuacct cgroup of the same name as the owner of the limit.
func (c *cgroups) usageV1(r *reading, l layout, owner string, clock func() time.Duration) error {
	if text, err := c.text(path.Join(owner, "cpu.stat")); err == nil {
		c.throttling(r, parseFlat(text), "throttled_time", time.Nanosecond)
	}
	if l.hostAcc || l.usage.dir == "" {
		// The whole machine's use is not ours. What else the limited cgroup holds
		// is missed, and that is all there is.
		text, err := c.text("/proc/self/stat")
		r.At = clock()
		if err == nil {
			r.Usage, r.UsageKnown = parseProcessTime(text)
		}
		r.Source += " (use of the process alone)"
		return err
	}
	dir := l.usage.dir
	if rel, ok := below(l.cpu.top, owner); ok && owner != l.cpu.dir {
		if same := path.Join(l.usage.top, rel); c.exists(path.Join(same, "cpuacct.usage")) {
			dir = same
		}
	}
	usage, err := c.text(path.Join(dir, "cpuacct.usage"))
	r.At = clock()
	if err != nil {
		return fmt.Errorf("CPU use of cgroup %s: %w", dir, err)
	}
	n, err := strconv.ParseInt(strings.TrimSpace(usage), 10, 64)
	if err != nil {
		return fmt.Errorf("CPU use of cgroup %s: cpuacct.usage holds %q, not a number", dir, usage)
	}
	r.Usage, r.UsageKnown = time.Duration(n), true
	return nil
}

// allowed is how many processors the process may run on, 0 if unknown.
func (c *cgroups) allowed() int {
	text, err := c.text("/proc/self/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(text) {
		if list, ok := strings.CutPrefix(line, "Cpus_allowed_list:"); ok {
			n, _ := parseCPUList(list)
			return n
		}
	}
	return 0
}

// parallel is how many threads of this program can run at once.
func (c *cgroups) parallel() int {
	threads := runtime.GOMAXPROCS(0)
	if allowed := c.allowed(); allowed > 0 {
		threads = min(threads, allowed)
	}
	return threads
}
