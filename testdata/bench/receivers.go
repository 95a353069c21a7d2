package main

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// programs says where the built programs are.
type programs struct{ spillway, peers string }

// receiver is a program with its configuration, ready to be started.
type receiver struct {
	name string
	// start starts it with its files in dir, listening on address and
	// forwarding to the sink.
	start func(ctx context.Context, dir, address, sink string) (*process, error)
	// forwards is how many of a number of items reach the sink; nil: there
	// is none behind it.
	forwards func(items int64) int64
	// note says what made a run unlike the others; nil: nothing can.
	note func(address string) (string, error)
}

func all(items int64) int64  { return items }
func half(items int64) int64 { return items / 2 }

// nothingRules are five relabel rules of the usual kinds that change nothing
// about the series that are sent.
const nothingRules = `- {source_labels: [__name__], regex: 'debug_.*', action: drop}
- {source_labels: [env], regex: 'test', action: drop}
- {source_labels: [environment], regex: '(.+)', target_label: env}
- {regex: 'tmp_.*', action: labeldrop}
- {source_labels: [namespace, pod], regex: 'kube-system;x.*', target_label: system, replacement: 'yes'}
`

// addingRules are those five, and one that changes every series.
const addingRules = nothingRules + `- {target_label: region, replacement: eu-west}
`

// manyRules are n rules that change nothing.
func manyRules(n int) string {
	var b strings.Builder
	for i := range n {
		switch i % 4 {
		case 0:
			fmt.Fprintf(&b, "- {source_labels: [__name__], regex: 'debug%d_.*', action: drop}\n", i)
		case 1:
			fmt.Fprintf(&b, "- {source_labels: [namespace, pod], regex: 'kube-system;x%d.*', target_label: system, replacement: 'yes'}\n", i)
		case 2:
			fmt.Fprintf(&b, "- {source_labels: [absent%d], regex: '(.+)', target_label: env}\n", i)
		case 3:
			fmt.Fprintf(&b, "- {regex: 'tmp%d_.*', action: labeldrop}\n", i)
		}
	}
	return b.String()
}

// policyOf has n classes, one for each team; every second has rate 0 if
// halfDropped is set, all others more than can be sent.
func policyOf(n int, halfDropped bool) string {
	var classes, rules strings.Builder
	for i := range n {
		rate := 1_000_000_000
		if halfDropped && i%2 == 1 {
			rate = 0
		}
		fmt.Fprintf(&classes, "      - {name: team-%02d, rate: %d}\n", i, rate)
		fmt.Fprintf(&rules, "      - {class: team-%02d, matchers: ['team=\"team-%02d\"']}\n", i, i)
	}
	// The smallest cap that leaves each of 10,000 classes a billion a second,
	// with a burst beyond what a run sends.
	return fmt.Sprintf("streams:\n  metrics:\n    rate: %d\n    burst: %d\n    default: {rate: 1000000000}\n    classes:\n%s    rules:\n%s",
		(n+1)*1_000_000_000, 1_000_000_000_000_000, classes.String(), rules.String())
}

// forwarding is Spillway with a remote write sink.
func (p programs) forwarding(name, message, rules, policy string, env ...string) *receiver {
	sinks := func(sink string) string {
		return fmt.Sprintf("{out: {remote_write: {endpoints: [%q], protobuf_message: %s}}}", sink, message)
	}
	return &receiver{name: name, forwards: all, start: p.spillwayStart(sinks, rules, policy, env)}
}

// storing is Spillway with its TSDB set as Prometheus' own is by default.
func (p programs) storing(policy string) *receiver {
	sinks := func(string) string {
		return "{out: {tsdb: {path: data, out_of_order_window: 0s, start_timestamps: false, max_exemplars: 0}}}"
	}
	return &receiver{name: "Spillway", start: p.spillwayStart(sinks, "", policy, nil)}
}

// spillwayStart starts Spillway without its own telemetry, which would arrive at
// the sink too.
func (p programs) spillwayStart(sinks func(string) string, rules, policy string, env []string) func(context.Context, string, string, string) (*process, error) {
	return func(ctx context.Context, dir, address, sink string) (*process, error) {
		config := fmt.Sprintf("server: {http_listen_address: %q}\ntelemetry: {interval: 0s}\nlog: {level: warn}\npolicy_file: policy.yaml\nsinks: %s\nstreams:\n  metrics:\n    sink: out\n",
			address, sinks(sink))
		if rules != "" {
			config += "    relabel_configs:\n" + indent(rules, "      ")
		}
		if err := writeFiles(dir, map[string]string{"spillway.yaml": config, "policy.yaml": policy}); err != nil {
			return nil, err
		}
		return launch(ctx, dir, address, "/-/ready", env, p.spillway, "serve", "--config.file=spillway.yaml")
	}
}

// vmagent forwards as Spillway does: by remote write 1.0 with snappy, which it
// must be told, as it prefers its own protocol with zstd.
func (p programs) vmagent(rules string) *receiver {
	return &receiver{name: "vmagent", forwards: all, note: queuedOnDisk,
		start: func(ctx context.Context, dir, address, sink string) (*process, error) {
			args := []string{
				"-httpListenAddr=" + address, "-remoteWrite.url=" + sink, "-remoteWrite.forcePromProto=true",
				"-remoteWrite.tmpDataPath=" + filepath.Join(dir, "queue"), "-loggerLevel=ERROR",
			}
			if rules != "" {
				if err := writeFiles(dir, map[string]string{"relabel.yaml": rules}); err != nil {
					return nil, err
				}
				args = append(args, "-remoteWrite.relabelConfig="+filepath.Join(dir, "relabel.yaml"))
			}
			return launch(ctx, dir, address, "/health", nil, filepath.Join(p.peers, "vmagent"), args...)
		}}
}

// queuedOnDisk says so if vmagent's queue did not stay in memory, which costs it
// CPU time.
func queuedOnDisk(address string) (string, error) {
	resp, err := http.Get("http://" + address + "/metrics")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		f := strings.Fields(lines.Text())
		if len(f) >= 2 && strings.HasPrefix(f[0], "vm_persistentqueue_blocks_written_total") && f[len(f)-1] != "0" {
			return f[len(f)-1] + " blocks of its queue went to disk", nil
		}
	}
	return "", lines.Err()
}

// prometheus takes remote write into its own TSDB.
func (p programs) prometheus() *receiver {
	return &receiver{name: "Prometheus",
		start: func(ctx context.Context, dir, address, _ string) (*process, error) {
			if err := writeFiles(dir, map[string]string{"prometheus.yml": "global: {}\n"}); err != nil {
				return nil, err
			}
			return launch(ctx, dir, address, "/-/ready", nil, filepath.Join(p.peers, "prometheus"), "--config.file=prometheus.yml",
				"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address,
				"--web.enable-remote-write-receiver", "--log.level=warn")
		}}
}

func indent(text, by string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(by + line)
	}
	return b.String()
}

func writeFiles(dir string, files map[string]string) error {
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}
