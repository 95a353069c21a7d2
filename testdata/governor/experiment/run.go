package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// runOnce runs one arm in a cgroup of its own.
func runOnce(s scenario, arm string, seed uint64) (r result, err error) {
	g, err := makeGroup(s.cores)
	if err != nil {
		return r, err
	}
	defer func() {
		if e := g.remove(); err == nil {
			err = e
		}
	}()
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	// The shell joins the group before the program begins, as a container does.
	script := "for d in " + strings.Join(g.dirs, " ") + `; do echo $$ > $d/cgroup.procs; done; exec "$0" "$@"`
	cmd := exec.Command("sh", "-c", script, self, "-child="+arm, "-parts="+s.name, fmt.Sprint("-seed=", seed), fmt.Sprint("-seconds=", s.seconds))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return r, err
	}
	before := machineBusy()
	if err := cmd.Start(); err != nil {
		return r, err
	}
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			return r, fmt.Errorf("the child said %q: %w", lines.Text(), err)
		}
	}
	if err := cmd.Wait(); err != nil {
		return r, err
	}
	after := machineBusy()
	if after.at.Sub(before.at) > 0 {
		r.others = (after.busy-before.busy)/after.at.Sub(before.at).Seconds() - r.CPU
	}
	return r, nil
}
