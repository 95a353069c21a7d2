package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/common/config"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink/file"
	"github.com/spillway-telemetry/spillway/ingester/sink/kafka"
	"github.com/spillway-telemetry/spillway/ingester/sink/otlp"
	rwsink "github.com/spillway-telemetry/spillway/ingester/sink/remotewrite"
	"github.com/spillway-telemetry/spillway/ingester/sink/tsdb"
)

var update = flag.Bool("update", false, "rewrite the generated references")

// TestConfigReference keeps CONFIG.md what the code says: the comments of the
// fields, and the defaults that the program uses.
func TestConfigReference(t *testing.T) {
	docs := fieldDocs{}
	docs.read(t, ".")
	docs.read(t, "../../governor")
	docs.read(t, "../../ingester/sink")
	docs.read(t, "../../ingester/sink/tsdb")
	docs.read(t, "../../ingester/sink/remotewrite")
	docs.read(t, "../../ingester/sink/otlp")
	docs.read(t, "../../ingester/sink/kafka")
	docs.read(t, "../../ingester/sink/file")

	var out strings.Builder
	out.WriteString(`# Configuration

One YAML file, strict: an unknown option is an error. Sizes take KiB, MiB, GiB;
durations take ms, s, m, h. Relative names of files start at the configuration
file's folder, relative data folders at the working directory.
` + "`spillway check config FILE`" + ` checks a file and prints it with every default.

Changes are in force within a second. The sections that need a restart say so;
a change to them is logged and waits for one.

The policy file has a reference of its own: [POLICY.md](../../policy/POLICY.md).

`)
	d := defaultConfig()
	docs.table(&out, "", reflect.ValueOf(d))
	out.WriteString("\n## sinks.NAME.tsdb\n\nThe embedded Prometheus TSDB, for metrics. Its query API is served on the HTTP port.\n\n")
	docs.table(&out, "", reflect.ValueOf(tsdb.DefaultOptions("")))
	out.WriteString("\n## sinks.NAME.remote_write\n\nForwards metrics by remote write. The sender's answer waits for the destination's.\n\n")
	docs.table(&out, "", reflect.ValueOf(rwsink.DefaultOptions()))
	out.WriteString(otlpReference)
	docs.table(&out, "", reflect.ValueOf(otlp.DefaultOptions()))
	out.WriteString(kafkaReference)
	docs.table(&out, "", reflect.ValueOf(kafka.DefaultOptions()))
	out.WriteString(fileReference)
	docs.table(&out, "", reflect.ValueOf(file.DefaultOptions("")))
	out.WriteString("\n## sinks.NAME.discard\n\n`discard: {}` acknowledges everything and keeps nothing.\n\n## streams.NAME\n\n")
	docs.table(&out, "", reflect.ValueOf(StreamConfig{}))
	out.WriteString(keysReference)
	requireDocument(t, "CONFIG.md", out.String())
}

const keysReference = "\n## The file of API keys\n\n" + `Named by ` + "`api_keys_file`" + `; a change is in force within a second. Without the option everybody may send. A
file that names no key is refused, since a file that is being written may look so. With keys, a request without one is answered 401, one with an unknown key 403, before its body is read.

` + "```yaml" + `
keys:
  - name: team-a                # names the sender in explanations and in the governor; unique
    sha256: 5e884898da28...     # of the key, 64 hexadecimal digits: printf %s "$KEY" | sha256sum
    labels: {team: a}           # put on everything that the key sends, before relabelling
    streams: [metrics]          # what it may send to; all if left out
    exempt: false               # whether the exempt label counts on its data
    headers: {X-Scope-OrgID: a} # set on what a sink sends on, over what the request says
` + "```" + `

` + "`spillway key new NAME`" + ` mints one: it prints the secret once, the entry for this file, and a class and a rule for the
policy. The class starts at rate 0.

A key is sent as ` + "`Kf-Api-Key: KEY` or as `Authorization: Bearer KEY`; over gRPC as metadata kf-api-key or authorization. Senders with a place of their own may use that: the password of basic authentication (Loki, Fluent Bit and Fluentd, Elasticsearch, Heroku), `api_key` of Beats, `DD-API-KEY` (Datadog), the access key of Firehose. Only browsers, Datadog's forwarders and Heroku may put it into the address, as `kf-api-key` or, for Datadog's, as `dd-api-key`." + `
`

// TestMetricsReference keeps METRICS.md what a running process exposes.
func TestMetricsReference(t *testing.T) {
	dir := t.TempDir()
	p := testProcess(t, strings.ReplaceAll(everySink, "DIR", dir), testedPolicy)
	// Some metrics are there when something was sent: an item that is stored, one of
	// the same time that the database does not take, and one without a name.
	at := time.Now().UnixMilli()
	for _, name := range []string{"up", "up", ""} {
		p.get(t, http.MethodPost, "/api/v1/write", sampleOf(t, name, rand.Float64(), at))
	}
	for _, s := range p.sinks.byName {
		// What is counted by the code of an answer is there when something was sent.
		_ = s.Write(t.Context(), &ingester.Batch{Format: ingester.OTLPLogs, Stream: ingester.Logs, Whole: true, Packed: []byte("x"), Encoding: "gzip"})
		_ = s.Write(t.Context(), &ingester.Batch{Format: ingester.RemoteWrite1, Whole: true, Packed: []byte("x")})
	}
	families, err := p.registry.Gather()
	require.NoError(t, err)
	var out strings.Builder
	out.WriteString("# Metrics\n\nOn `/metrics` and, every 15 s, in the store. Class names are label values; no label\nof a data point ever is. Names that start with `go_`, `process_` and `prometheus_`\ncome from the libraries and are not listed.\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n")
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "spillway_") {
			continue
		}
		var names []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			names = append(names, l.GetName())
		}
		fmt.Fprintf(&out, "| `%s` | %s | %s | %s |\n", f.GetName(), strings.ToLower(f.GetType().String()), strings.Join(names, ", "), f.GetHelp())
	}
	for _, name := range metricNames(t) {
		require.Contains(t, out.String(), "| `"+name+"` |", "this test has to make the program count it")
	}
	requireDocument(t, "METRICS.md", out.String())
}

// metricNames are the names of metrics that the files named metrics.go spell out.
func metricNames(t *testing.T) (names []string) {
	require.NoError(t, filepath.WalkDir("../..", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || filepath.Base(path) != "metrics.go" || strings.Contains(path, "testdata") {
			return err
		}
		source, err := os.ReadFile(path)
		for _, m := range regexp.MustCompile(`"(spillway_[a-z_]*[a-z])"`).FindAllSubmatch(source, -1) {
			names = append(names, string(m[1]))
		}
		return err
	}))
	require.GreaterOrEqual(t, len(names), 40)
	return names
}

// sampleOf is a request of remote write 1.0. A series without a name is invalid.
func sampleOf(t *testing.T, name string, value float64, at int64) io.Reader {
	series := prompb.TimeSeries{Samples: []prompb.Sample{{Value: value, Timestamp: at}}}
	if name != "" {
		series.Labels = []prompb.Label{{Name: "__name__", Value: name}}
	}
	body, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{series}}).Marshal()
	require.NoError(t, err)
	return bytes.NewReader(snappy.Encode(nil, body))
}

func requireDocument(t *testing.T, file, want string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(want), 0o644))
	}
	have, err := os.ReadFile(file)
	require.NoError(t, err)
	if want != string(have) {
		t.Errorf("%s is not what the code says: run `make golden` and read the difference", file)
	}
}

// fieldDocs are the comments of struct fields, by type name and field name.
type fieldDocs map[string]string

func (d fieldDocs) read(t *testing.T, dir string) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	require.NoError(t, err)
	for _, file := range files {
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		require.NoError(t, err)
		ast.Inspect(f, func(n ast.Node) bool {
			spec, ok := n.(*ast.TypeSpec)
			if !ok {
				return true
			}
			if st, ok := spec.Type.(*ast.StructType); ok {
				for _, field := range st.Fields.List {
					names := []string{}
					for _, name := range field.Names {
						names = append(names, name.Name)
					}
					if embedded, ok := field.Type.(*ast.SelectorExpr); ok && len(names) == 0 {
						names = append(names, embedded.Sel.Name)
					}
					for _, name := range names {
						d[f.Name.Name+"."+spec.Name.Name+"."+name] = strings.Join(strings.Fields(field.Doc.Text()), " ")
					}
				}
			}
			return true
		})
	}
}

func (d fieldDocs) table(out *strings.Builder, prefix string, v reflect.Value) {
	out.WriteString("| option | default | what it does |\n|---|---|---|\n")
	d.rows(out, prefix, v)
}

// rows writes one row for each option that has a comment, sections included.
func (d fieldDocs) rows(out *strings.Builder, prefix string, v reflect.Value) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, _, _ := strings.Cut(field.Tag.Get("yaml"), ",")
		if name == "-" || !field.IsExported() {
			continue
		}
		section := v.Field(i)
		ours := section.Kind() == reflect.Struct && (strings.HasPrefix(section.Type().String(), "main.") || strings.HasPrefix(section.Type().String(), "governor.") || strings.HasPrefix(section.Type().String(), "sink.") || section.Type() == reflect.TypeFor[kafka.CreateTopics]())
		doc := plain(field.Name, d[v.Type().String()+"."+field.Name])
		if name == "" { // inlined
			if ours {
				d.rows(out, prefix, section)
			} else if doc != "" {
				fmt.Fprintf(out, "| others |  | %s |\n", doc)
			}
			continue
		}
		if doc != "" {
			fmt.Fprintf(out, "| `%s%s` | %s | %s |\n", prefix, name, defaultText(v.Field(i)), strings.ReplaceAll(doc, "|", "\\|"))
		}
		if ours {
			d.rows(out, prefix+name+".", section)
		}
	}
}

// plain takes the Go name off the start of a comment.
func plain(name, doc string) string {
	for _, verb := range []string{" is ", " are ", " has ", " "} {
		if rest, ok := strings.CutPrefix(doc, name+verb); ok {
			return strings.ToUpper(rest[:1]) + rest[1:]
		}
	}
	return doc
}

func defaultText(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case time.Duration:
		return "`" + x.String() + "`"
	case yaml.Node, config.HTTPClientConfig:
		return ""
	case fmt.Stringer:
		return "`" + x.String() + "`"
	}
	switch v.Kind() {
	case reflect.Struct, reflect.Map, reflect.Slice, reflect.Pointer:
		return ""
	case reflect.String:
		if v.Len() == 0 {
			return "none"
		}
	}
	return fmt.Sprintf("`%v`", v.Interface())
}

// TestCommandsReference keeps COMMANDS.md what --help says.
func TestCommandsReference(t *testing.T) {
	t.Setenv("COLUMNS", "100")
	code, top, _ := runLine("--help")
	require.Zero(t, code)
	_, list, found := strings.Cut(top, "Commands:\n")
	require.True(t, found)
	var out strings.Builder
	out.WriteString("# Commands\n\n`spillway COMMAND --help` shows what stands here. The exit code is 0, or 1 with each problem on a line of\nstandard error. Colours and progress appear on a terminal only; `NO_COLOR=1` switches colours off.\n")
	commands := 0
	for line := range strings.Lines(list) {
		name, ok := strings.CutPrefix(line, "  ")
		if name = strings.TrimSpace(name); !ok || strings.HasPrefix(line, "   ") || name == "help" {
			continue
		}
		commands++
		code, help, stderr := runLine(append(strings.Fields(name), "--help")...)
		require.Zero(t, code, stderr)
		require.Equal(t, 1, strings.Count(help, "usage: "), "%s: help is printed once", name)
		fmt.Fprintf(&out, "\n## spillway %s\n\n```\n%s\n```\n", name, strings.TrimSpace(help))
	}
	require.GreaterOrEqual(t, commands, 10)
	requireDocument(t, "COMMANDS.md", out.String())
}
