//go:build e2e

package chart

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// podSpec is what a node needs to know to run a container.
type podSpec struct {
	image  string // the image's files
	user   string
	args   []string
	mounts map[string]string // path in the container to a folder here
}

// pod is a container made by hand: the image's files as a read-only root, mounts,
// the image's user, and a network of its own, so that the ports that are open to
// all in a cluster are open to nobody here.
type pod struct {
	pid  int
	http *http.Client
}

// startPod starts the container and waits until it is ready.
func startPod(t *testing.T, spec podSpec) *pod {
	t.Helper()
	script := []string{`root=$1; user=$2; shift 2`, `mount --bind "$root" "$root"`}
	for _, dir := range []string{"proc", "sys", "dev"} { // a container has these, whatever its image
		require.NoError(t, os.MkdirAll(filepath.Join(spec.image, dir), 0o755))
		script = append(script, fmt.Sprintf(`mount --rbind /%s "$root/%s"`, dir, dir))
	}
	for path, folder := range spec.mounts {
		require.NoError(t, os.MkdirAll(filepath.Join(spec.image, path), 0o755))
		script = append(script, fmt.Sprintf(`mount --bind %q "$root%s"`, folder, path))
		if path != "/data" {
			script = append(script, fmt.Sprintf(`mount -o remount,bind,ro "$root%s"`, path))
		}
	}
	if _, mounted := spec.mounts["/data"]; !mounted {
		script = append(script, `mount --bind "$root/data" "$root/data"`)
	}
	script = append(script, `mount -o remount,bind,ro "$root"`, `exec chroot --userspec="$user" --groups= "$root" /usr/bin/spillway "$@"`)
	run := []string{"--mount", "--net", "--propagation", "private", "sh", "-ec", strings.Join(script, "\n"), "sh", spec.image, spec.user}
	cmd := start(t, t.TempDir(), mustFind(t, "unshare"), append(run, spec.args...)...)

	p := &pod{pid: cmd.Process.Pid}
	p.http = &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{DialContext: p.dial, DisableKeepAlives: true}}
	eventually(t, "the container is ready", func() error {
		response, err := p.http.Get("http://127.0.0.1:9900/-/ready")
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("ready: %s", response.Status)
		}
		return nil
	})
	return p
}

func mustFind(t *testing.T, program string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	require.NoError(t, err)
	return path
}

// dial connects inside the container's network. The thread that entered it is
// never given back: it ends with its goroutine.
func (p *pod) dial(ctx context.Context, network, address string) (net.Conn, error) {
	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result, 1)
	go func() {
		runtime.LockOSThread()
		conn, err := p.dialHere(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

func (p *pod) dialHere(ctx context.Context, network, address string) (net.Conn, error) {
	ns, err := os.Open(fmt.Sprintf("/proc/%d/ns/net", p.pid))
	if err != nil {
		return nil, err
	}
	defer ns.Close()
	own, err := os.Readlink("/proc/thread-self/ns/net")
	if err != nil {
		return nil, err
	}
	if theirs, err := os.Readlink(ns.Name()); err != nil || theirs == own {
		return nil, fmt.Errorf("the container has no network of its own yet (%w)", err)
	}
	if err := unix.Setns(int(ns.Fd()), unix.CLONE_NEWNET); err != nil {
		return nil, err
	}
	if err := loopbackUp(); err != nil {
		return nil, err
	}
	return new(net.Dialer).DialContext(ctx, network, address)
}

// loopbackUp does what a node does for a new network.
func loopbackUp() error {
	s, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(s)
	request, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	request.SetUint16(unix.IFF_UP | unix.IFF_RUNNING)
	return unix.IoctlIfreq(s, unix.SIOCSIFFLAGS, request)
}

func (p *pod) get(t *testing.T, path string) string {
	t.Helper()
	response, err := p.http.Get("http://127.0.0.1:9900" + path)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	require.Equal(t, http.StatusOK, response.StatusCode, string(body))
	return string(body)
}

// requireConfined requires that the process is not root, has no capability, and
// sees a root folder that is mounted read-only.
func (p *pod) requireConfined(t *testing.T) {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	require.NoError(t, err)
	for _, want := range []string{"Name:\tspillway\n", "Uid:\t65532\t65532\t65532\t65532\n", "Gid:\t65532\t65532\t65532\t65532\n", "CapEff:\t0000000000000000\n"} {
		require.Contains(t, string(status), want)
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.pid))
	require.NoError(t, err)
	for line := range strings.Lines(string(mounts)) {
		if f := strings.Fields(line); f[4] == "/" {
			require.Contains(t, strings.Split(f[5], ","), "ro", line)
			return
		}
	}
	t.Fatalf("no root in\n%s", mounts)
}

// rateOf is a class's rate over all ingesters as the program enforces it.
func (p *pod) rateOf(t *testing.T, stream, class string) float64 {
	t.Helper()
	var answer struct {
		Streams map[string]struct {
			Classes []struct {
				Name string  `json:"name"`
				Rate float64 `json:"rate"`
			} `json:"classes"`
		} `json:"streams"`
	}
	require.NoError(t, json.Unmarshal([]byte(p.get(t, "/api/v1/ratecontrol")), &answer))
	for _, c := range answer.Streams[stream].Classes {
		if c.Name == class {
			return c.Rate
		}
	}
	t.Fatalf("stream %s has no class %s", stream, class)
	return 0
}

// load sends series in the container's network, more than the policy admits.
func (p *pod) load(t *testing.T) {
	t.Helper()
	ns := fmt.Sprintf("--net=/proc/%d/ns/net", p.pid)
	out, err := exec.Command(mustFind(t, "nsenter"), ns, spillway(t), "load", "--requests=4", "--series=2000").CombinedOutput()
	require.NoError(t, err, string(out))
}

// items sums the items of stream metrics by outcome.
func (p *pod) items(t *testing.T) map[string]float64 {
	t.Helper()
	sums := map[string]float64{}
	for line := range strings.Lines(p.get(t, "/metrics")) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "spillway_"), "_items_total{")
		if !ok || !strings.Contains(rest, `stream="metrics"`) {
			continue
		}
		fields := strings.Fields(rest)
		value, err := strconv.ParseFloat(fields[len(fields)-1], 64)
		require.NoError(t, err, line)
		sums[name] += value
	}
	return sums
}

// volume is a folder with a ConfigMap's files as the kubelet keeps it: files are
// links into ..data, which links to a folder that is replaced as a whole.
type volume struct {
	dir      string
	versions int
}

func newVolume(t *testing.T, files map[string]string) *volume {
	t.Helper()
	v := &volume{dir: t.TempDir()}
	require.NoError(t, os.Chmod(v.dir, 0o755))
	v.put(t, files)
	for name := range files {
		require.NoError(t, os.Symlink(filepath.Join("..data", name), filepath.Join(v.dir, name)))
	}
	return v
}

// put replaces what is in the volume in one step.
func (v *volume) put(t *testing.T, files map[string]string) {
	t.Helper()
	v.versions++
	name := fmt.Sprintf("..version_%d", v.versions)
	for file, text := range files {
		write(t, filepath.Join(v.dir, name, file), text)
	}
	next := filepath.Join(v.dir, "..data_tmp")
	require.NoError(t, os.Symlink(name, next))
	require.NoError(t, os.Rename(next, filepath.Join(v.dir, "..data")))
}
