package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// built is the program, made once where SPILLWAY_BIN does not name one.
var built = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "spillway-chart-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "spillway")
	build := exec.Command("go", "build", "-trimpath", "-buildvcs=false", "-ldflags", "-s -w", "-o", bin, "./cmd/spillway")
	build.Dir, build.Env = root, append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return bin, fmt.Errorf("%w\n%s", err, out)
	}
	return bin, nil
})

// TestMain removes what built has left.
func TestMain(m *testing.M) {
	code := m.Run()
	if used.Load() {
		bin, _ := built()
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// used says that built was called.
var used atomic.Bool

// spillway is the program: SPILLWAY_BIN, else built here.
func spillway(t testing.TB) string {
	t.Helper()
	if bin := os.Getenv("SPILLWAY_BIN"); bin != "" {
		return bin
	}
	used.Store(true)
	bin, err := built()
	require.NoError(t, err)
	return bin
}

// unpack writes the rendered files where dir stands for /etc/spillway in the
// pod, and returns the configuration's name.
func unpack(t testing.TB, r rendered, dir string) string {
	t.Helper()
	config := r.find(t, "ConfigMap", "-config").Data["spillway.yaml"]
	write(t, filepath.Join(dir, "config", "spillway.yaml"), strings.ReplaceAll(config, "/etc/spillway/", dir+"/"))
	write(t, filepath.Join(dir, "policy", "policy.yaml"), r.find(t, "ConfigMap", "-policy").Data["policy.yaml"])
	for _, manifest := range r.manifests {
		if strings.Contains(manifest, "\nkind: Secret\n") {
			write(t, filepath.Join(dir, "keys", "keys.yaml"), r.find(t, "Secret", "-keys").StringData["keys.yaml"])
		}
	}
	return filepath.Join(dir, "config", "spillway.yaml")
}

func write(t testing.TB, file, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
	require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
}

// checked is what `spillway check config --format=json` says of a configuration.
type checked struct {
	Config struct {
		Server   map[string]any `json:"server"`
		Ingester struct {
			ReplicaCount int `json:"replica_count"`
		} `json:"ingester"`
		PolicyFile string         `json:"policy_file"`
		Sinks      map[string]any `json:"sinks"`
		Streams    map[string]struct {
			Sink           string           `json:"sink"`
			RelabelConfigs []map[string]any `json:"relabel_configs"`
		} `json:"streams"`
	} `json:"config"`
	Policy struct {
		Streams map[string]struct {
			Ingesters int     `json:"ingesters"`
			Rate      float64 `json:"rate"`
		} `json:"streams"`
	} `json:"policy"`
}

func check(t testing.TB, bin, file string) checked {
	t.Helper()
	cmd := exec.Command(bin, "check", "config", file, "--format=json")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	text, _ := os.ReadFile(file)
	require.NoError(t, err, "%s%s", stderr.String(), text)
	var c checked
	require.NoError(t, json.Unmarshal(out, &c))
	return c
}

// TestConfiguration feeds every rendered configuration, with its policy and keys,
// to the program.
func TestConfiguration(t *testing.T) {
	r, bin := newRenderer(t), spillway(t)
	n := map[string]int{"example": 4, "nodes": 6, "roles": 4, "relabel": 2, "forward": 10}
	limited := map[string]int{"example": 1, "nodes": 5}
	for name, set := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			out, err := r.render(set)
			require.NoError(t, err)
			dir := t.TempDir()
			file := unpack(t, out, dir)
			if name == "secrets" {
				keys := "keys: [{name: a, sha256: 2c70e12b7a0646f92279f427c7b38e7334d8e5389cff167a1dc30e73f826b683}]\n"
				write(t, filepath.Join(dir, "keys", "file.yaml"), keys)
			}
			c := check(t, bin, file)
			require.Equal(t, max(1, n[name]), c.Config.Ingester.ReplicaCount)
			require.Equal(t, filepath.Join(dir, "policy", "policy.yaml"), c.Config.PolicyFile)
			require.Len(t, c.Policy.Streams, limited[name])
			for _, s := range c.Policy.Streams {
				require.Equal(t, max(1, n[name]), s.Ingesters)
			}
			if name == "relabel" {
				require.Len(t, c.Config.Streams["metrics"].RelabelConfigs, 3)
				require.Len(t, c.Config.Streams["traces"].RelabelConfigs, 1)
			}
		})
	}
}

// TestRefusals pins what a user reads of values that contradict each other.
func TestRefusals(t *testing.T) {
	r := newRenderer(t)
	for _, c := range []struct{ name, values, want string }{
		{"roles", `global: {numNodes: 6, kfRoles: {ingestion: {numNodes: 2}}}`,
			"ingester.replicaCount is not set, and global.kfRoles is: global.numNodes then counts nodes on which no ingester runs"},
		{"role list", `global: {kfRoles: [ingestion]}`, "ingester.replicaCount is not set, and global.kfRoles is"},
		{"no ingesters", `ingester: {replicaCount: 0}`, "at '/ingester/replicaCount': minimum: got 0, want 1"},
		{"half an ingester", `ingester: {replicaCount: 1.5}`, "at '/ingester/replicaCount': got number, want"},
		{"no nodes", `global: {numNodes: 0}`, "at '/global/numNodes': minimum: got 0, want 1"},
		{"budget", "ingester: {replicaCount: 10}\nsinks: {mimir: {remote_write: {endpoints: [http://m/w]}}}\nconnectionBudgets: {mimir: 500}",
			"connectionBudgets.mimir: 10 ingesters x 64 connections are 640 to each endpoint, 140 more than its budget 500: let sinks.mimir make at most 50 from each ingester, or raise the budget"},
		{"budget of brokers", "ingester: {replicaCount: 10}\nsinks: {k: {kafka: {brokers: [k1:9092]}}}\nconnectionBudgets: {k: 319}", "10 ingesters x 32 connections are 320 to each endpoint, 1 more than its budget 319"},
		{"budget of nothing", `connectionBudgets: {mimir: 500}`, "connectionBudgets.mimir: no sink of that name makes connections; those that do are: none"},
		{"sink", `streams: {metrics: {sink: mimir}}`, `streams.metrics.sink: there is no sink "mimir"; sinks are: none`},
		{"written", `config: {policy_file: a, ingester: {replica_count: 3}, server: {tls: {}}}`,
			"config.policy_file: the chart writes it; set rateControl.policies\nconfig.server.tls: the chart writes it; set tls\nconfig.ingester.replica_count: the chart writes it; set ingester.replicaCount"},
		{"relabel twice", `ingester: {relabelConfigs: {metrics: [{action: drop}]}, config: {aggregator: {metric: {relabelConfigs: [{action: drop}]}}}}`,
			"ingester.config.aggregator.metric.relabelConfigs: stands beside ingester.relabelConfigs.metrics: keep one of the two"},
		{"relabel in stream", `streams: {logs: {relabel_configs: []}}`, "streams.logs.relabel_configs: the chart writes it; set ingester.relabelConfigs.logs"},
		{"relabel field", `ingester: {relabelConfigs: {metrics: [{actoin: drop}]}}`, "additional properties 'actoin' not allowed"},
		{"section", `config: {govenor: {}}`, "at '/config': additional properties 'govenor' not allowed"},
		{"key twice", `apiKeys: {existingSecret: a, keys: [{name: a, key: b}]}`, "apiKeys.keys stands beside apiKeys.existingSecret: keep one of the two"},
		{"key without a secret", `apiKeys: {keys: [{name: a}]}`, "at '/apiKeys/keys/0'"},
		{"misspelled", `ingestor: {replicaCount: 3}`, "additional properties 'ingestor' not allowed"},
		{"two kinds of sink", `sinks: {a: {discard: {}, tsdb: {}}}`, "at '/sinks/a': maxProperties: got 2, want 1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := r.render(values(t, c.values))
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestSections requires that the schema knows every section of the program's
// configuration file.
func TestSections(t *testing.T) {
	r, bin := newRenderer(t), spillway(t)
	cmd := exec.Command(bin, "check", "config", os.DevNull, "--format=json")
	out, err := cmd.Output()
	require.NoError(t, err)
	var program struct {
		Config map[string]any `json:"config"`
	}
	require.NoError(t, json.Unmarshal(out, &program))
	var schema struct {
		Properties struct {
			Config struct {
				Properties map[string]any `json:"properties"`
			} `json:"config"`
		} `json:"properties"`
	}
	require.NoError(t, json.Unmarshal(r.chart.Schema, &schema))
	for section := range program.Config {
		require.Contains(t, schema.Properties.Config.Properties, section, "values.schema.json, config")
	}
}

// TestConnectionDefaults holds the numbers of connections that the chart takes
// where a sink does not say against the program's own.
func TestConnectionDefaults(t *testing.T) {
	r, bin := newRenderer(t), spillway(t)
	for kind, where := range map[string]string{"remote_write": `endpoints: ["http://a:1/w"]`, "otlp": `endpoints: ["http://a:1/w"]`, "kafka": `brokers: ["a:1"]`} {
		t.Run(kind, func(t *testing.T) {
			out, err := r.render(values(t, fmt.Sprintf("ingester: {replicaCount: 10}\nsinks: {x: {%s: {%s}}}", kind, where)))
			require.NoError(t, err)
			file := unpack(t, out, t.TempDir())
			cmd := exec.Command(bin, "check", "config", file)
			if text, err := cmd.CombinedOutput(); err != nil && strings.Contains(string(text), "unknown field "+kind) {
				t.Skip("this program has no sink of the kind " + kind)
			}
			options := check(t, bin, file).Config.Sinks["x"].(map[string]any)[kind].(map[string]any)
			each, ok := options["max_connections_per_endpoint"]
			if !ok {
				each = options["max_connections_per_broker"]
			}
			require.Contains(t, out.notes, fmt.Sprintf("Connections to each endpoint of sink x: at most %v0 (10 x %v)", each, each))
		})
	}
}

// TestKubernetesVersions shows that what an older API server does not know is left out.
func TestKubernetesVersions(t *testing.T) {
	for version, sleeps := range map[string]bool{"v1.27.3": false, "v1.29.9": false, "v1.30.0": true, "v1.34.4": true} {
		r := newRenderer(t)
		r.version = version
		out, err := r.render(nil)
		require.NoError(t, err)
		require.Equal(t, sleeps, strings.Contains(strings.Join(out.manifests, ""), "preStop:"), version)
	}
}

// TestWhatRestarts shows which changes give the pods a new template, hence
// restart them: those that the program reads at start, and no others.
func TestWhatRestarts(t *testing.T) {
	r := newRenderer(t)
	base := "sinks: {a: {discard: {}}, b: {discard: {}}}\napiKeys: {keys: [{name: x, key: one}]}\nstreams: {logs: {sink: a}}\n"
	template := func(values map[string]any) string {
		out, err := r.render(values)
		require.NoError(t, err)
		for _, manifest := range out.manifests {
			if _, pod, ok := strings.Cut(manifest, "\n  template:\n"); ok && strings.Contains(manifest, "kind: StatefulSet") {
				return pod
			}
		}
		t.Fatal("no pod template")
		return ""
	}
	before := template(values(t, base))
	for change, restarts := range map[string]bool{
		`rateControl: {policies: {logs: {rate: 1, burst: 1}}}`:           false,
		`ingester: {relabelConfigs: {logs: [{action: drop, regex: a}]}}`: false,
		`streams: {logs: {sink: b}}`:                                     false,
		`streams: {logs: {sink: a, rate_limit_response: silent}}`:        false,
		`apiKeys: {keys: [{name: x, key: two}]}`:                         false,
		`service: {annotations: {a: b}}`:                                 false,
		`ingester: {replicaCount: 3}`:                                    true,
		`sinks: {c: {discard: {}}}`:                                      true,
		`config: {governor: {max_in_flight: 5}}`:                         true,
		`config: {log: {level: debug}}`:                                  true,
	} {
		changed := values(t, base)
		merge(changed, values(t, change))
		require.Equal(t, restarts, template(changed) != before, change)
	}
}

// merge puts what is in over onto base, as a second file of values does.
func merge(base, over map[string]any) {
	for key, value := range over {
		inner, ok := value.(map[string]any)
		under, both := base[key].(map[string]any)
		if ok && both {
			merge(under, inner)
			continue
		}
		base[key] = value
	}
}
