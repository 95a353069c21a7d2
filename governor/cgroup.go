package governor

import (
	"fmt"
	"path"
	"strconv"
	"strings"
	"time"
)

// reading is one look at the CPU. Counters only grow while Source stays.
type reading struct {
	// At is when the counters were read, monotonic time since any fixed instant.
	At time.Duration
	// Source names the cgroup that owns the smallest limit, "" if none is known.
	Source string
	// Limit is the smallest quota / period among the cgroup and its visible
	// ancestors, no more than the processors allowed, in cores; 0 for none.
	Limit float64
	// Usage is CPU time used by the cgroup that owns Limit.
	Usage      time.Duration
	UsageKnown bool
	// Throttled is time for which that cgroup's run queues stood throttled,
	// summed over processors; Periods and ThrottledPeriods count its quota's periods.
	Throttled                 time.Duration
	ThrottledKnown            bool
	Periods, ThrottledPeriods uint64
	// Pressure is time for which all tasks of our own cgroup that had work
	// waited for CPU.
	Pressure      time.Duration
	PressureKnown bool
}

// membership is one line of /proc/self/cgroup: `id:controllers:path`.
type membership struct {
	id          string
	controllers []string
	path        string
}

// parseMemberships reads /proc/self/cgroup. The path may contain colons.
func parseMemberships(text string) []membership {
	var all []membership
	for line := range strings.Lines(text) {
		parts := strings.SplitN(strings.TrimRight(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		m := membership{id: parts[0], path: parts[2]}
		if parts[1] != "" {
			m.controllers = strings.Split(parts[1], ",")
		}
		all = append(all, m)
	}
	return all
}

// mount is one line of /proc/self/mountinfo that mounts cgroups.
type mount struct {
	root, point string
	v2          bool
	controllers []string // v1
}

// parseMounts reads /proc/self/mountinfo:
//
//	36 35 98:0 /root /point rw,noatime optional... - type source super,options
//
// Optional fields end at " - ". Root and point escape blanks, tabs, line feeds and
// backslashes as octal numbers. Super options may hold blanks.
func parseMounts(text string) []mount {
	var all []mount
	for line := range strings.Lines(text) {
		before, after, ok := strings.Cut(strings.TrimRight(line, "\n"), " - ")
		if !ok {
			continue
		}
		fields, kind := strings.Split(before, " "), strings.SplitN(after, " ", 3)
		if len(fields) < 6 || len(kind) < 3 {
			continue
		}
		m := mount{root: unescape(fields[3]), point: unescape(fields[4])}
		switch kind[0] {
		case "cgroup2":
			m.v2 = true
		case "cgroup":
			m.controllers = strings.Split(kind[2], ",")
		default:
			continue
		}
		all = append(all, m)
	}
	return all
}

// unescape turns \ooo into the byte that it stands for.
func unescape(s string) string {
	if !strings.Contains(s, `\`) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if code, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(code))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func contains(list []string, want string) bool {
	for _, s := range list {
		if s == want {
			return true
		}
	}
	return false
}

// place is a cgroup directory and the mount point up to which its ancestors
// can be seen.
type place struct{ dir, top string }

// chain lists the directory and its visible ancestors, the leaf first.
func (p place) chain() []string {
	dirs := []string{p.dir}
	for dir := p.dir; dir != p.top && strings.HasPrefix(dir, p.top); {
		parent := path.Dir(dir)
		if parent == dir {
			break
		}
		dirs = append(dirs, parent)
		dir = parent
	}
	return dirs
}

// candidates lists where a cgroup path may be found under the mounts of its
// hierarchy, best first:
//
//   - under a mount whose root is an ancestor of the path, the nearest first:
//     an ordinary host, or a container that sees its own part;
//   - at mount point + path: a cgroup namespace, where the path is relative to
//     the namespace while root may show a host path or one that starts with "/..";
//   - at the mount point itself: a container with a mount of just its own cgroup
//     whose path says otherwise.
//
// A path that climbs above the root belongs to a process outside of its own
// namespace: nothing that it can see limits it.
func candidates(mounts []mount, cgroupPath string) []place {
	if strings.HasPrefix(cgroupPath+"/", "/../") {
		return nil
	}
	var inside, joined, points []place
	longest := -1
	for _, m := range mounts {
		if rel, ok := below(m.root, cgroupPath); ok {
			p := place{dir: path.Join(m.point, rel), top: m.point}
			if len(m.root) > longest {
				longest = len(m.root)
				inside = append([]place{p}, inside...)
			} else {
				inside = append(inside, p)
			}
		}
		joined = append(joined, place{dir: path.Join(m.point, cgroupPath), top: m.point})
		points = append(points, place{dir: m.point, top: m.point})
	}
	return append(append(inside, joined...), points...)
}

// below returns p relative to root if it is root or lies under it.
func below(root, p string) (string, bool) {
	if root == "/" {
		return strings.TrimPrefix(p, "/"), true
	}
	if p == root {
		return "", true
	}
	return strings.CutPrefix(p, root+"/")
}

// parseCPUMax reads v2 `quota period` in microseconds; limited is false for
// `max`. A missing period is the kernel's default.
func parseCPUMax(text string) (cores float64, limited bool, err error) {
	fields := strings.Fields(text)
	if len(fields) == 0 || len(fields) > 2 {
		return 0, false, fmt.Errorf("cpu.max is %q, want `quota period`", text)
	}
	if fields[0] == "max" {
		return 0, false, nil
	}
	quota, err := strconv.ParseFloat(fields[0], 64)
	if err != nil {
		return 0, false, fmt.Errorf("cpu.max: quota %q is not a number", fields[0])
	}
	period := 100000.0
	if len(fields) == 2 {
		if period, err = strconv.ParseFloat(fields[1], 64); err != nil {
			return 0, false, fmt.Errorf("cpu.max: period %q is not a number", fields[1])
		}
	}
	return quotient(quota, period)
}

// quotient is quota / period; a quota below 0 is v1's word for none.
func quotient(quota, period float64) (float64, bool, error) {
	if quota < 0 {
		return 0, false, nil
	}
	if quota == 0 || period <= 0 {
		return 0, false, fmt.Errorf("CPU quota %v in a period of %v makes no sense", quota, period)
	}
	return quota / period, true, nil
}

// parseFlat reads `key value` lines, as in cpu.stat.
func parseFlat(text string) map[string]uint64 {
	values := make(map[string]uint64)
	for line := range strings.Lines(text) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if !ok {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(value), 10, 64); err == nil {
			values[key] = n
		}
	}
	return values
}

// parsePressure reads the total of the `full` line of cpu.pressure, which older
// kernels do not have.
func parsePressure(text string) (time.Duration, bool) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "full ") {
			continue
		}
		for _, field := range strings.Fields(line) {
			if total, ok := strings.CutPrefix(field, "total="); ok {
				n, err := strconv.ParseUint(total, 10, 63)
				return time.Duration(n) * time.Microsecond, err == nil
			}
		}
	}
	return 0, false
}

// parseCPUList counts the processors in a list such as `0-3,8,10-11`.
func parseCPUList(text string) (n int, ok bool) {
	for part := range strings.SplitSeq(strings.TrimSpace(text), ",") {
		first, last, isRange := strings.Cut(part, "-")
		a, err := strconv.Atoi(first)
		if err != nil {
			return 0, false
		}
		b := a
		if isRange {
			if b, err = strconv.Atoi(last); err != nil || b < a {
				return 0, false
			}
		}
		n += b - a + 1
	}
	return n, n > 0
}

// parseProcessTime reads user and system time from /proc/self/stat, in the
// hundredths of a second that Linux shows to programs. The command's name, in
// parentheses, may hold anything.
func parseProcessTime(text string) (time.Duration, bool) {
	end := strings.LastIndexByte(text, ')')
	if end < 0 {
		return 0, false
	}
	fields := strings.Fields(text[end+1:])
	const user, system = 11, 12
	if len(fields) <= system {
		return 0, false
	}
	u, errU := strconv.ParseUint(fields[user], 10, 50)
	s, errS := strconv.ParseUint(fields[system], 10, 50)
	return time.Duration(u+s) * 10 * time.Millisecond, errU == nil && errS == nil
}
