//go:build e2e

package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"
)

// patience is how long a condition may take to come true. It bounds the test; no
// test asserts a time.
const patience = 3 * time.Minute

// eventually asks until holds says nothing more, and fails with what it said last.
func eventually(t *testing.T, holds func() []string) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Second)
	defer ticker.Stop()
	deadline := time.After(patience)
	for {
		missing := holds()
		if len(missing) == 0 {
			return
		}
		select {
		case <-deadline:
			for _, m := range missing {
				t.Error(m)
			}
			t.FailNow()
		case <-ticker.C:
		}
	}
}

func program(t *testing.T, variable, name string) string {
	t.Helper()
	dir := os.Getenv(variable)
	require.NotEmpty(t, dir, "run this with `make e2e`, which builds what it needs")
	return filepath.Join(dir, name)
}

func spillwayProgram(t *testing.T) string { return program(t, "SPILLWAY_BIN", "") }

func peer(t *testing.T, name string) string { return program(t, "SPILLWAY_PEERS", name) }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// running is a program that runs until the test ends or stop is called.
type running struct {
	cmd  *exec.Cmd
	done chan struct{}
}

// start runs a program, and shows the end of its log when the test fails.
func start(t *testing.T, path string, args ...string) *running {
	t.Helper()
	log := &lockedBuffer{}
	r := &running{cmd: exec.Command(path, args...), done: make(chan struct{})}
	r.cmd.Stdout, r.cmd.Stderr, r.cmd.Dir = log, log, t.TempDir()
	require.NoError(t, r.cmd.Start())
	go func() {
		_ = r.cmd.Wait()
		close(r.done)
	}()
	t.Cleanup(func() {
		r.stop()
		if t.Failed() {
			text := log.b.String()
			t.Logf("%s %v said:\n%s", filepath.Base(path), args, text[max(0, len(text)-3000):])
		}
	})
	return r
}

func (r *running) stop() {
	_ = r.cmd.Process.Kill()
	<-r.done
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

func awaitReady(t *testing.T, r *running, address string) {
	t.Helper()
	eventually(t, func() []string {
		select {
		case <-r.done:
			t.Fatal("the program ended")
		default:
		}
		resp, err := http.Get("http://" + address + "/-/ready")
		if err != nil {
			return []string{err.Error()}
		}
		resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			return []string{address + " is not ready"}
		}
		return nil
	})
}

// process is a running Spillway with its files.
type process struct {
	*running
	dir, address string
}

func startSpillway(t *testing.T, address, config, policy string) *process {
	t.Helper()
	s := &process{dir: t.TempDir(), address: address}
	config = "server: {http_listen_address: '" + s.address + "'}\npolicy_file: policy.yaml\ntelemetry: {interval: 1s}\n" + config
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "spillway.yaml"), []byte(config), 0o644))
	s.writePolicy(t, policy)
	s.running = start(t, spillwayProgram(t), "serve", "--config.file="+filepath.Join(s.dir, "spillway.yaml"))
	awaitReady(t, s.running, s.address)
	return s
}

func (s *process) writePolicy(t *testing.T, policy string) {
	t.Helper()
	require.NoError(t, os.WriteFile(filepath.Join(s.dir, "policy.yaml"), []byte(policy), 0o644))
}

func (s *process) url() string { return "http://" + s.address + "/api/v1/write" }

// load sends series of 20 teams, rate samples a second, until it is stopped.
func (s *process) load(t *testing.T, rate, perRequest, senders int) *running {
	t.Helper()
	return start(t, spillwayProgram(t), "load", "--url="+s.url(), "--duration=10m", "--series=400",
		"--series-per-request="+strconv.Itoa(perRequest), "--rate="+strconv.Itoa(rate), "--concurrency="+strconv.Itoa(senders))
}

// slowly stands before a destination and keeps every answer back for a while, as a
// storage under load does.
func slowly(t *testing.T, destination string, delay time.Duration) (address string) {
	t.Helper()
	to, err := url.Parse("http://" + destination)
	require.NoError(t, err)
	proxy := httputil.NewSingleHostReverseProxy(to)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		time.Sleep(delay)
		proxy.ServeHTTP(w, r)
	})}
	go server.Serve(l)
	t.Cleanup(func() { server.Close() })
	return l.Addr().String()
}

// startKafka runs brokers that speak Kafka's protocol, and returns their addresses.
func startKafka(t *testing.T) string {
	t.Helper()
	c, err := kfake.NewCluster(kfake.NumBrokers(1))
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return "'" + strings.Join(c.ListenAddrs(), "', '") + "'"
}

// series is one series of an answer: its labels and the values in time.
type series struct {
	Metric map[string]string
	Value  [2]any
	Values [][2]any
}

func (s series) numbers(t *testing.T) (out []float64) {
	for _, v := range append([][2]any{s.Value}, s.Values...) {
		if text, ok := v[1].(string); ok {
			n, err := strconv.ParseFloat(text, 64)
			require.NoError(t, err)
			out = append(out, n)
		}
	}
	return out
}

// evaluate asks a Prometheus query API, for now or for every other second since a time.
func evaluate(t *testing.T, address, expr string, since time.Time) []series {
	t.Helper()
	path, form := "query", url.Values{"query": {expr}}
	if !since.IsZero() {
		path = "query_range"
		form.Set("start", strconv.FormatInt(since.Unix(), 10))
		form.Set("end", strconv.FormatInt(time.Now().Unix(), 10))
		form.Set("step", "2")
	}
	var answer struct {
		Status, Error string
		Data          struct{ Result []series }
	}
	ask(t, address, path, form, &answer)
	require.Equal(t, "success", answer.Status, "%s: %s", expr, answer.Error)
	return answer.Data.Result
}

func ask(t *testing.T, address, path string, form url.Values, into any) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/api/v1/" + path + "?" + form.Encode())
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(body, into), "%s", body)
}

// conserved says where the law of items does not hold at s.
func conserved(t *testing.T, s *process) (problems []string) {
	t.Helper()
	resp, err := http.Get("http://" + s.address + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	sum := func(outcome, stream string) (total float64) {
		for _, m := range families["spillway_"+outcome+"_items_total"].GetMetric() {
			for _, l := range m.GetLabel() {
				if l.GetName() == "stream" && l.GetValue() == stream {
					total += m.GetCounter().GetValue()
				}
			}
		}
		return total
	}
	for _, stream := range []string{"metrics", "logs", "traces", "events", "rum"} {
		outcomes := sum("invalid", stream) + sum("dropped", stream) + sum("exempt", stream) + sum("admitted", stream) + sum("refused", stream)
		if received := sum("received", stream); received != outcomes {
			problems = append(problems, fmt.Sprintf("%s: %v %s received, %v accounted for", s.address, received, stream, outcomes))
		}
	}
	if sum("received", "metrics") == 0 {
		problems = append(problems, s.address+" has received nothing")
	}
	return problems
}
