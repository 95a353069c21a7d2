//go:build e2e

// Package e2e runs the spillway binary with real peers around it. `make e2e`
// builds them and says where they are.
package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
)

// patience is how long a condition may take to come true. It bounds the test; no
// test asserts a time.
const patience = 60 * time.Second

// eventually asks until the condition holds.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(50 * time.Millisecond)
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

// freeAddress finds a port that nothing listens on.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// program is a running peer. It is stopped with the test, and its log is shown
// when the test fails.
type program struct {
	cmd  *exec.Cmd
	log  *lockedBuffer
	done chan struct{}
	err  error // of Wait, once done is closed
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func start(t *testing.T, path string, args ...string) *program {
	t.Helper()
	p := &program{cmd: exec.Command(path, args...), log: &lockedBuffer{}, done: make(chan struct{})}
	p.cmd.Stdout, p.cmd.Stderr = p.log, p.log
	p.cmd.Dir = t.TempDir()
	require.NoError(t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.done)
	}()
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("%s said:\n%s", filepath.Base(path), tail(p.log.String(), 4000))
		}
	})
	return p
}

func tail(s string, n int) string {
	if len(s) > n {
		return "..." + s[len(s)-n:]
	}
	return s
}

// kill ends the program without a chance to tidy up.
func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

// stop asks the program to end and waits for it.
func (p *program) stop(t *testing.T) {
	t.Helper()
	require.NoError(t, p.cmd.Process.Signal(syscall.SIGTERM))
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("the program does not stop")
	}
	require.NoError(t, p.err, p.log)
}

func peer(t *testing.T, name string) string {
	t.Helper()
	dir := os.Getenv("SPILLWAY_PEERS")
	require.NotEmpty(t, dir, "run this with `make e2e`, which builds the peers")
	return filepath.Join(dir, name)
}

// spillway is a running Spillway with its files in one folder.
type spillway struct {
	*program
	dir, address       string
	grpcOTLP, httpOTLP string
}

func startSpillway(t *testing.T, dir, address, config, policy string) *spillway {
	t.Helper()
	bin := os.Getenv("SPILLWAY_BIN")
	require.NotEmpty(t, bin, "run this with `make e2e`, which builds spillway")
	grpcOTLP, httpOTLP := freeAddress(t), freeAddress(t)
	config = "server: {http_listen_address: '" + address + "', otlp_grpc_listen_address: '" + grpcOTLP + "', otlp_http_listen_address: '" + httpOTLP + "'}\npolicy_file: policy.yaml\n" + config
	require.NoError(t, os.WriteFile(filepath.Join(dir, "spillway.yaml"), []byte(config), 0o644))
	require.NoError(t, os.WriteFile(filepath.Join(dir, "policy.yaml"), []byte(cmp.Or(policy, "streams: {}")), 0o644))
	s := &spillway{program: start(t, bin, "serve", "--config.file="+filepath.Join(dir, "spillway.yaml")), dir: dir, address: address, grpcOTLP: grpcOTLP, httpOTLP: httpOTLP}
	awaitReady(t, s.program, "http://"+address+"/-/ready")
	return s
}

func awaitReady(t *testing.T, p *program, url string) {
	t.Helper()
	eventually(t, url, func() bool {
		select {
		case <-p.done:
			t.Fatalf("the program ended: %v\n%s", p.err, p.log)
		default:
		}
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// startPrometheus runs a real Prometheus that scrapes target every second and
// writes to url, if they are not empty.
func startPrometheus(t *testing.T, target, url, message string) (address string, p *program) {
	t.Helper()
	dir := t.TempDir()
	address = freeAddress(t)
	config := "global: {scrape_interval: 1s, external_labels: {cluster: e2e}}\n"
	if target != "" {
		config += "scrape_configs: [{job_name: target, static_configs: [{targets: ['" + target + "']}]}]\n"
	}
	if url != "" {
		config += "remote_write: [{url: '" + url + "', protobuf_message: " + message + ", queue_config: {batch_send_deadline: 300ms, min_backoff: 50ms, max_backoff: 500ms}, metadata_config: {send_interval: 2s}}]\n"
	}
	file := filepath.Join(dir, "prometheus.yml")
	require.NoError(t, os.WriteFile(file, []byte(config), 0o644))
	p = start(t, peer(t, "prometheus"), "--config.file="+file, "--storage.tsdb.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--web.enable-remote-write-receiver", "--enable-feature=native-histograms,exemplar-storage,metadata-wal-records")
	awaitReady(t, p, "http://"+address+"/-/ready")
	return address, p
}

// target serves metrics to scrape until it is closed: series that Prometheus
// will send, and a count of the scrapes.
type target struct {
	server  *http.Server
	address string
	scrapes atomic.Int64
	closed  atomic.Bool
}

func startTarget(t *testing.T, series int) *target {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	tg := &target{address: l.Addr().String()}
	tg.server = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if tg.closed.Load() {
			http.Error(w, "closed", http.StatusServiceUnavailable)
			return
		}
		n := tg.scrapes.Add(1)
		fmt.Fprintf(w, "# HELP e2e_scrapes_total Scrapes.\n# TYPE e2e_scrapes_total counter\ne2e_scrapes_total %d\n# TYPE e2e gauge\n", n)
		for i := range series {
			fmt.Fprintf(w, "e2e{team=%q,id=\"%d\"} %d\n", []string{"a", "b"}[i%2], i, n)
		}
	})}
	go tg.server.Serve(l)
	t.Cleanup(func() { tg.server.Close() })
	return tg
}

// raw reads every sample of a selector from a Prometheus query API, by series.
// Exempt telemetry and Prometheus' own marks for what ended are left out by the
// selector and by NaN never being equal; stale markers are not returned at all.
func raw(t *testing.T, address, selector string) map[string][]string {
	t.Helper()
	var answer struct {
		Status string
		Data   struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	query(t, address, selector+"[1h]", &answer)
	require.Equal(t, "success", answer.Status)
	out := map[string][]string{}
	for _, r := range answer.Data.Result {
		delete(r.Metric, "cluster") // Prometheus adds external labels as it sends
		key := labelKey(r.Metric)
		for _, v := range r.Values {
			out[key] = append(out[key], fmt.Sprint(v[0])+" "+fmt.Sprint(v[1]))
		}
	}
	return out
}

func query(t *testing.T, address, promql string, into any) {
	t.Helper()
	resp, err := http.PostForm("http://"+address+"/api/v1/query", url.Values{"query": {promql}})
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	require.NoError(t, dec.Decode(into), "%s", body)
}

func labelKey(m map[string]string) string {
	var parts []string
	for k, v := range m {
		parts = append(parts, k+"="+v)
	}
	sort.Strings(parts)
	return strings.Join(parts, ",")
}

func samplesIn(series map[string][]string) (n int64) {
	for _, s := range series {
		n += int64(len(s))
	}
	return n
}

// metrics reads an exposition and returns the value of each series, keyed as the
// text format writes it.
func metrics(t *testing.T, address string) map[string]float64 {
	t.Helper()
	resp, err := http.Get("http://" + address + "/metrics")
	require.NoError(t, err)
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	require.NoError(t, err)
	out := map[string]float64{}
	for name, f := range families {
		for _, m := range f.GetMetric() {
			var ls []string
			for _, l := range m.GetLabel() {
				ls = append(ls, l.GetName()+"="+strconv.Quote(l.GetValue()))
			}
			out[name+"{"+strings.Join(ls, ",")+"}"] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + m.GetUntyped().GetValue()
		}
	}
	return out
}

// sum adds up the series of a metric that carry all of the given labels.
func sum(m map[string]float64, name string, labels ...string) (total float64) {
	for key, v := range m {
		ok := strings.HasPrefix(key, name+"{")
		for _, l := range labels {
			ok = ok && strings.Contains(key, l)
		}
		if ok {
			total += v
		}
	}
	return total
}

// requireConserved checks the law of items for metrics.
func requireConserved(t *testing.T, m map[string]float64) {
	t.Helper()
	const s = `stream="metrics"`
	require.Equal(t, sum(m, "spillway_received_items_total", s),
		sum(m, "spillway_invalid_items_total", s)+sum(m, "spillway_dropped_items_total", s)+
			sum(m, "spillway_exempt_items_total", s)+sum(m, "spillway_admitted_items_total", s)+sum(m, "spillway_refused_items_total", s))
}
