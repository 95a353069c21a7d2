//go:build e2e

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestFiveMinutes runs the commands that README prints for the first five minutes,
// as they are printed but for the address, and looks for what they are to show.
func TestFiveMinutes(t *testing.T) {
	text, err := os.ReadFile("../../README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(text), "\n## Five minutes\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	var commands []string
	for _, block := range regexp.MustCompile("(?s) ```\n(.*?)\n *```").FindAllStringSubmatch(section, -1) {
		for line := range strings.Lines(block[1]) {
			commands = append(commands, strings.TrimSpace(line))
		}
	}

	dir, address := t.TempDir(), freeAddress(t)
	require.NoError(t, os.MkdirAll(filepath.Join(dir, "testdata"), 0o755))
	require.NoError(t, os.CopyFS(filepath.Join(dir, "testdata", "quickstart"), os.DirFS("../quickstart")))
	require.NoError(t, os.Mkdir(filepath.Join(dir, "bin"), 0o755))
	require.NoError(t, os.Symlink(os.Getenv("SPILLWAY_BIN"), filepath.Join(dir, "bin", "spillway")))
	config := filepath.Join(dir, "testdata", "quickstart", "spillway.yaml")
	yaml, err := os.ReadFile(config)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(config, []byte(strings.ReplaceAll(string(yaml), "127.0.0.1:9900", address)), 0o644))
	shell := func(command string) *exec.Cmd {
		cmd := exec.Command("bash", "-c", strings.ReplaceAll(command, "127.0.0.1:9900", address))
		cmd.Dir = dir
		return cmd
	}

	var load *program
	shows := []struct{ command, output string }{
		{"make run", ""},
		{"bin/spillway load ", ""},
		{"curl -s http://127.0.0.1:9900/metrics | grep ", `spillway_dropped_items_total\{class="default",reason="ratelimit",stream="metrics"\} [1-9]`},
		{"curl -s http://127.0.0.1:9900/api/v1/ratecontrol", `"name": "default"`},
		{"bin/spillway explain ", `(?s)no rule matches, so it belongs to default.*class default was sent [1-9]`},
		{"sed ", ""},
		{"bin/spillway test ", "5 tests: 5 passed, 0 failed"},
		{"bin/spillway simulate ", `default +nothing is dropped`},
		{"cp ", ""},
	}
	require.Len(t, commands, len(shows), "what a command of the walk is to show stands here: %q", commands)
	for i, step := range shows {
		require.True(t, strings.HasPrefix(commands[i], step.command), "%s is not %s", commands[i], step.command)
		command := commands[i]
		switch {
		case command == "make run": // which builds first, and then does this
			command = "exec bin/spillway serve --config.file=testdata/quickstart/spillway.yaml"
			awaitReady(t, started(t, shell(command)), "http://"+address+"/-/ready")
			continue
		case strings.HasPrefix(command, "bin/spillway load "):
			load = started(t, shell("exec "+strings.Replace(command, "load ", "load --url=http://"+address+"/api/v1/write ", 1)))
			continue
		}
		eventually(t, command, func() bool {
			out, err := shell(command).CombinedOutput()
			return err == nil && regexp.MustCompile(step.output).Match(out)
		})
	}
	// The page's own question: nothing is dropped under the new policy.
	var received, dropped float64
	eventually(t, "3,000 items without a drop", func() bool {
		m := metrics(t, address)
		if now := sum(m, "spillway_dropped_items_total"); now != dropped || received == 0 {
			received, dropped = sum(m, "spillway_received_items_total"), now
		}
		return sum(m, "spillway_class_rate_limit", `class="default"`) == 1100 && sum(m, "spillway_received_items_total") >= received+3000
	})
	load.kill()
	eventually(t, "no batch in flight", func() bool { return sum(metrics(t, address), "spillway_governor_in_flight") == 0 })
	requireConserved(t, metrics(t, address))
}
