package main

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
)

// programs says where the built programs are.
type programs struct{ spillway, peers string }

// find makes the paths absolute, since receivers run in folders of their own, and
// looks whether the programs are there.
func (p *programs) find(peers bool) error {
	needed := []*string{&p.spillway}
	if peers {
		needed = append(needed, &p.peers)
	}
	for _, path := range needed {
		var err error
		if *path, err = filepath.Abs(*path); err != nil {
			return err
		}
		if _, err := os.Stat(*path); err != nil {
			return fmt.Errorf("%w: run `make build peers` first", err)
		}
	}
	return nil
}

// receiver is a program with its configuration, ready to be started.
type receiver struct {
	name string
	// start starts it with its files in dir, listening on address and
	// forwarding to the sink.
	start func(ctx context.Context, dir, address, sink string) (*process, error)
	// answersFirst says that it answers before it has forwarded.
	answersFirst bool
	// noMetrics says that it has none of its own at the address that it listens on.
	noMetrics bool
	// check says, from the receiver's own metrics, that nothing of what was
	// sent went another way than it should have, or what makes the run unlike
	// the others. It runs when nothing is measured any more.
	check func(m metrics, sent, atSink int64) (note string, err error)
}

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
	// The default class takes half of the cap, so that with few classes it has
	// the burst for all the teams that have none of their own.
	const billion = 1_000_000_000
	return fmt.Sprintf("streams:\n  metrics:\n    rate: %d\n    burst: %d\n    default: {rate: %d}\n    classes:\n%s    rules:\n%s",
		2*n*billion, 1_000_000*billion, n*billion, classes.String(), rules.String())
}

// forwarding is Spillway with a remote write sink. Nothing may be dropped.
func (p programs) forwarding(name, message, rules, policy string, env ...string) *receiver {
	sinks := func(sink string) string {
		return fmt.Sprintf("{out: {remote_write: {endpoints: [%q], protobuf_message: %s}}}", sink, message)
	}
	return &receiver{name: name, check: conserved("metrics", 0, 0), start: p.spillwayStart(sinks, rules, policy, env)}
}

// mostClasses is how many classes cost is measured up to.
const mostClasses = 10_000

// classes is Spillway with n classes over which all series are spread. Among 10,000
// a class's share is below 1%, so its burst is one item, and a batch whose clock
// reading another one overtook finds no token: a few may be dropped.
func (p programs) classes(n int) *receiver {
	rc := p.forwarding("Spillway, classes: "+thousands(n), message1, nothingRules, policyOf(n, false))
	rc.check = conserved("metrics", 0, 0.01)
	return rc
}

// storing is Spillway with its TSDB set as Prometheus' own is by default.
func (p programs) storing(policy string) *receiver {
	sinks := func(string) string {
		return "{out: {tsdb: {path: data, out_of_order_window: 0s, start_timestamps: false, max_exemplars: 0}}}"
	}
	return &receiver{name: "Spillway", check: stored, start: p.spillwayStart(sinks, "", policy, nil)}
}

// conserved checks that Spillway received what was sent, dropped a fraction of it
// between least and most, and that all the rest is at the sink.
func conserved(stream string, least, most float64) func(metrics, int64, int64) (string, error) {
	return func(m metrics, sent, atSink int64) (string, error) {
		stream := fmt.Sprintf("stream=%q", stream)
		received, admitted := m.sum("spillway_received_items_total", stream), m.sum("spillway_admitted_items_total", stream)
		dropped := m.sum("spillway_dropped_items_total", stream, `reason="ratelimit"`)
		if received != sent || admitted != atSink || admitted+dropped != sent {
			return "", fmt.Errorf("%d items sent, %d received, %d admitted, %d dropped, %d at the sink: these do not add up", sent, received, admitted, dropped, atSink)
		}
		if share := float64(dropped) / float64(sent); share < least || share > most {
			return "", fmt.Errorf("%d of %d items dropped, which should be between %g and %g of them", dropped, sent, least, most)
		}
		if dropped > 0 && least == 0 {
			return fmt.Sprintf("%d items dropped", dropped), nil
		}
		return "", nil
	}
}

// stored checks that a Prometheus TSDB appended what was sent.
func stored(m metrics, sent, _ int64) (string, error) {
	if appended := m.sum("prometheus_tsdb_head_samples_appended_total", `type="float"`); appended != sent {
		return "", fmt.Errorf("%d items sent, %d appended to the TSDB", sent, appended)
	}
	return "", nil
}

// spillwayStart starts Spillway without its own telemetry, which would arrive at
// the sink too.
func (p programs) spillwayStart(sinks func(string) string, rules, policy string, env []string) func(context.Context, string, string, string) (*process, error) {
	return func(ctx context.Context, dir, address, sink string) (*process, error) {
		config := fmt.Sprintf("server: {http_listen_address: %q, otlp_grpc_listen_address: '', otlp_http_listen_address: ''}\ntelemetry: {interval: 0s}\nlog: {level: warn}\npolicy_file: policy.yaml\nsinks: %s\nstreams:\n  metrics:\n    sink: out\n",
			address, sinks(sink))
		if rules != "" {
			config += "    relabel_configs:\n" + indent(rules, "      ")
		}
		if err := writeFiles(dir, map[string]string{"spillway.yaml": config, "policy.yaml": policy}); err != nil {
			return nil, err
		}
		return launch(ctx, dir, address, "/-/ready", http.StatusOK, env, p.spillway, "serve", "--config.file=spillway.yaml")
	}
}

// vmagent forwards as Spillway does: by remote write 1.0 with snappy, which it
// must be told, as it prefers its own protocol with zstd.
func (p programs) vmagent(rules string) *receiver {
	return &receiver{name: "vmagent", answersFirst: true, check: queuedOnDisk,
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
			return launch(ctx, dir, address, "/health", http.StatusOK, nil, filepath.Join(p.peers, "vmagent"), args...)
		}}
}

// queuedOnDisk checks that all is at the sink, and says so if vmagent's queue did
// not stay in memory, which costs it CPU time.
func queuedOnDisk(m metrics, sent, atSink int64) (string, error) {
	if sent != atSink {
		return "", fmt.Errorf("%d items sent, %d at the sink", sent, atSink)
	}
	if n := m.sum("vm_persistentqueue_blocks_written_total"); n > 0 {
		return fmt.Sprintf("%d blocks of its queue went to disk", n), nil
	}
	return "", nil
}

// prometheus takes remote write into its own TSDB.
func (p programs) prometheus() *receiver {
	return &receiver{name: "Prometheus", check: stored,
		start: func(ctx context.Context, dir, address, _ string) (*process, error) {
			if err := writeFiles(dir, map[string]string{"prometheus.yml": "global: {}\n"}); err != nil {
				return nil, err
			}
			return launch(ctx, dir, address, "/-/ready", http.StatusOK, nil, filepath.Join(p.peers, "prometheus"), "--config.file=prometheus.yml",
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
