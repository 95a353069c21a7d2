package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// group is a cgroup made for one run: one directory, or two where cpu and
// cpuacct are mounted apart.
type group struct{ dirs []string }

// mounts finds the mount points of the v1 cpu and cpuacct controllers, or of a
// cgroup2 that has cpu.
func mounts() (v1 []string, v2 string, err error) {
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, "", err
	}
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(line, " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		options := "," + kind[2] + ","
		switch {
		case kind[0] == "cgroup" && (strings.Contains(options, ",cpu,") || strings.Contains(options, ",cpuacct,")):
			v1 = append(v1, fields[4])
		case kind[0] == "cgroup2":
			controllers, _ := os.ReadFile(filepath.Join(fields[4], "cgroup.controllers"))
			if strings.Contains(" "+strings.TrimSpace(string(controllers))+" ", " cpu ") {
				v2 = fields[4]
			}
		}
	}
	return v1, v2, nil
}

func makeGroup(cores float64) (*group, error) {
	if os.Getuid() != 0 {
		return nil, errors.New("the experiment needs root: it makes a cgroup")
	}
	v1, v2, err := mounts()
	if err != nil {
		return nil, fmt.Errorf("the experiment needs cgroups: %w", err)
	}
	parents := v1
	if v2 != "" {
		parents = []string{v2}
		_ = os.WriteFile(filepath.Join(v2, "cgroup.subtree_control"), []byte("+cpu"), 0o644)
	}
	if len(parents) == 0 {
		return nil, errors.New("the experiment needs a cgroup mount with the cpu controller: there is none")
	}
	g := &group{}
	quota := strconv.Itoa(int(cores * 100000))
	for _, parent := range parents {
		dir := filepath.Join(parent, fmt.Sprintf("spillway-experiment-%d", os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			_ = g.remove()
			return nil, fmt.Errorf("no cgroup can be made: %w", err)
		}
		g.dirs = append(g.dirs, dir)
		for file, text := range map[string]string{
			"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": quota, "cpu.shares": "262144", "cpu.max": quota + " 100000", "cpu.weight": "10000",
		} {
			name := filepath.Join(dir, file)
			if _, err := os.Stat(name); err != nil {
				continue // of the other version, or of cpuacct
			}
			if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
				_ = g.remove()
				return nil, err
			}
		}
	}
	return g, nil
}

// remove deletes the group; the kernel needs a moment after its last process.
func (g *group) remove() error {
	var errs []error
	for _, dir := range g.dirs {
		var err error
		for range 50 {
			if err = os.Remove(dir); err == nil {
				break
			}
			time.Sleep(100 * time.Millisecond)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// busy is the machine's CPU time that was not idle, core-seconds.
type busy struct {
	at   time.Time
	busy float64
}

func machineBusy() busy {
	b := busy{at: time.Now()}
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return b
	}
	line, _, _ := strings.Cut(string(text), "\n")
	const idle, wait, guest = 4, 5, 9
	for i, field := range strings.Fields(line) {
		if n, err := strconv.ParseFloat(field, 64); err == nil && i != idle && i != wait && i < guest {
			b.busy += n / 100
		}
	}
	return b
}
