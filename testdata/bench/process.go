package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a running receiver.
type process struct {
	cmd     *exec.Cmd
	address string
	log     bytes.Buffer // to be read when ended is closed
	ended   chan struct{}
}

// launch starts a receiver and waits until it answers ready with a status.
func launch(ctx context.Context, dir, address, ready string, status int, env []string, path string, args ...string) (*process, error) {
	p := &process{cmd: exec.CommandContext(ctx, path, args...), address: address, ended: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.Dir, p.cmd.Env = &p.log, &p.log, dir, append(os.Environ(), env...)
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	if err := p.awaitReady(ctx, "http://"+address+ready, status); err != nil {
		p.kill()
		return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(path), err, p.log.String())
	}
	return p, nil
}

func (p *process) awaitReady(ctx context.Context, url string, status int) error {
	probe := time.NewTicker(20 * time.Millisecond)
	defer probe.Stop()
	deadline := time.After(patience)
	for {
		resp, err := http.Get(url)
		if err == nil {
			resp.Body.Close()
			if resp.StatusCode == status {
				return nil
			}
		}
		select {
		case <-p.ended:
			return errors.New("ended while it started")
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return fmt.Errorf("not ready after %s", patience)
		case <-probe.C:
		}
	}
}

// kill ends the process. Its data goes with its folder, so nothing need be tidied.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// cpu is the user and system time that the process has used, to the nanosecond:
// the clock of another process, numbered as clock_getcpuclockid(3) does.
func (p *process) cpu() (time.Duration, error) {
	var ts unix.Timespec
	clock := int32(^p.cmd.Process.Pid<<3 | 2)
	if err := unix.ClockGettime(clock, &ts); err != nil {
		return 0, fmt.Errorf("CPU time of process %d: %w", p.cmd.Process.Pid, err)
	}
	return time.Duration(ts.Nano()), nil
}

// memory is the most that was resident, in bytes.
func (p *process) memory() (peak int64, err error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "VmHWM:" {
			kib, err := strconv.ParseInt(f[1], 10, 64)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("no VmHWM of process %d", p.cmd.Process.Pid)
}

// freeAddress is a port on loopback that nothing listens on.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}
