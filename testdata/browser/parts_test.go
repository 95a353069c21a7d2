package browser

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// patience bounds how long something may take to show; no test asserts a time.
const patience = 60 * time.Second

// eventually asks until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	deadline := time.After(patience)
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("gave up waiting: %s", what)
		case <-ticker.C:
		}
	}
}

// spillway is a running Spillway with its files in one folder.
type spillway struct {
	dir, address string
	cmd          *exec.Cmd
}

func newSpillway(t *testing.T, policy string) *spillway {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &spillway{dir: t.TempDir(), address: l.Addr().String()}
	require.NoError(t, l.Close())
	config := fmt.Sprintf(`
server: {http_listen_address: '%s'}
ingester: {replica_count: 4}
policy_file: policy.yaml
sinks: {local: {tsdb: {path: '%s'}}}
streams:
  metrics:
    sink: local
    relabel_configs:
      - {source_labels: [__name__], regex: 'debug_.*', action: drop}
      - {source_labels: [environment], regex: '(.+)', target_label: env}
      - {action: labeldrop, regex: 'environment'}
log: {level: warn}
`, s.address, filepath.Join(s.dir, "data"))
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "spillway.yaml"), []byte(config), 0o644))
	s.policy(t, policy)
	s.start(t)
	return s
}

func (s *spillway) policy(t *testing.T, text string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "policy.yaml"), []byte(text), 0o644))
}

func (s *spillway) start(t *testing.T) {
	t.Helper()
	s.cmd = s.run(t, "serve", "--config.file="+filepath.Join(s.dir, "spillway.yaml"))
	eventually(t, "Spillway is ready", func() bool {
		resp, err := http.Get("http://" + s.address + "/-/ready")
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// run starts the binary under test, which ends with the test.
func (s *spillway) run(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	bin := os.Getenv("SPILLWAY_BIN")
	require.NotEmpty(t, bin, "run this with `make browser`, which builds spillway")
	var said bytes.Buffer
	cmd := exec.Command(bin, args...)
	cmd.Stdout, cmd.Stderr = &said, &said
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		kill(cmd)
		if t.Failed() {
			t.Logf("spillway %s said:\n%s", args[0], said.String())
		}
	})
	return cmd
}

func kill(cmd *exec.Cmd) {
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
}

// sequence is how many samples the history has.
func (s *spillway) sequence(t *testing.T) int {
	t.Helper()
	resp, err := http.Get("http://" + s.address + "/api/v1/ratecontrol/history")
	require.NoError(t, err)
	defer resp.Body.Close()
	var answer struct{ Sequence int }
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	return answer.Sequence
}

// conserved says that what was received is what the outcomes add up to, those of
// classes that have left the policy included.
func (s *spillway) conserved(t *testing.T) bool {
	t.Helper()
	resp, err := http.Get("http://" + s.address + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	items := map[string]float64{}
	for line := range strings.Lines(string(text)) {
		name, rest, ok := strings.Cut(line, "_items_total{")
		if fields := strings.Fields(rest); ok && len(fields) == 2 {
			n, err := strconv.ParseFloat(fields[1], 64)
			require.NoError(t, err, line)
			items[strings.TrimPrefix(name, "spillway_")] += n
		}
	}
	return items["received"] > 0 && items["received"] == items["invalid"]+items["dropped"]+items["exempt"]+items["admitted"]+items["refused"]
}

// load sends 20 teams' series, items in a second, until it is killed.
func (s *spillway) load(t *testing.T, rate int) *exec.Cmd {
	return s.run(t, "load", "--url=http://"+s.address+"/api/v1/write", fmt.Sprintf("--rate=%d", rate), "--series=2000", "--series-per-request=200", "--duration=10m",
		"--protobuf-message=io.prometheus.write.v2.Request")
}

// tab is a tab of a headless Chromium.
type tab struct {
	ctx      context.Context
	mu       sync.Mutex
	problems []string // what the browser complained about
}

// findChromium returns the browser's path, or skips the test and says why.
func findChromium(t *testing.T) string {
	if path := os.Getenv("CHROMIUM"); path != "" {
		return path
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome-headless-shell", "headless-shell"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	t.Skip("no Chromium on this machine: install the package chromium, or name one in CHROMIUM")
	return ""
}

func openTab(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath(findChromium(t)), chromedp.NoSandbox, chromedp.DisableGPU,
		chromedp.Flag("disable-quic", true), chromedp.Flag("lang", "en-GB"), chromedp.UserDataDir(t.TempDir()))
	ctx, endBrowser := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, closeTab := chromedp.NewContext(ctx)
	b := &tab{ctx: ctx}
	t.Cleanup(func() { closeTab(); endBrowser() })
	require.NoError(t, chromedp.Listen(ctx, b.listen))
	b.do(t, command(log.Enable, cdp.Empty{}), command(runtime.Enable, cdp.Empty{}))
	return b
}

// listen keeps errors and warnings: a breach of the content security policy or
// an exception shows nowhere else.
func (b *tab) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		b.problems = append(b.problems, "exception: "+e.ExceptionDetails.Text+fmt.Sprint(e.ExceptionDetails.Exception))
	case *log.EventEntryAdded:
		// A server that is away is the network's complaint, not the page's.
		if e.Entry.Source != "network" && (e.Entry.Level == "error" || e.Entry.Level == "warning") {
			b.problems = append(b.problems, e.Entry.Text)
		}
	}
}

func (b *tab) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string{}, b.problems...)
}

func (b *tab) do(t *testing.T, actions ...chromedp.Action[chromedp.Void]) {
	t.Helper()
	require.NoError(t, chromedp.Do(b.ctx, actions...))
}

// command is a command of the browser's protocol whose answer nobody needs.
func command[P, R any](c cdp.Command[P, R], params P) chromedp.Action[chromedp.Void] {
	return chromedp.Func(func(ctx context.Context, target *chromedp.Target) error {
		_, err := cdp.Call(ctx, target, c, params)
		return err
	})
}

// text evaluates an expression that gives a string.
func (b *tab) text(t *testing.T, js string) string {
	t.Helper()
	s, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+js+")"))
	require.NoError(t, err, js)
	return s
}

// run evaluates statements.
func (b *tab) run(t *testing.T, js string) {
	t.Helper()
	b.do(t, chromedp.Evaluate[chromedp.Void](js))
}

// shows waits until an expression is true.
func (b *tab) shows(t *testing.T, js string) {
	t.Helper()
	eventually(t, js, func() bool { return b.text(t, "Boolean("+js+")") == "true" })
}

// look sets the size of the window and the colours that the person prefers.
func (b *tab) look(t *testing.T, width, height int64, scheme string) {
	t.Helper()
	b.do(t, chromedp.EmulateViewport(width, height),
		command(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: scheme}}}))
}

// picture writes a screenshot into the folder SCREENSHOTS, for a person to look at.
func (b *tab) picture(t *testing.T, name string, whole bool) []byte {
	t.Helper()
	dir := os.Getenv("SCREENSHOTS")
	if dir == "" {
		dir = t.TempDir()
	}
	require.NoError(t, os.MkdirAll(dir, 0o755))
	shot := chromedp.CaptureScreenshot()
	if whole {
		shot = chromedp.FullScreenshot(100)
	}
	png, err := chromedp.Run(b.ctx, shot)
	require.NoError(t, err)
	path := filepath.Join(dir, name+".png")
	require.NoError(t, os.WriteFile(path, png, 0o644))
	t.Logf("%s: %d bytes", path, len(png))
	return png
}

// quote is a JavaScript string.
func quote(s string) string { return strconv.Quote(s) }
