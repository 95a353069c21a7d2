package main

//lint:file-ignore SA1019 The SDK prefers its second version of dashboards, which only the newest Grafana imports.

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"
)

var update = flag.Bool("update", false, "write the dashboards and rules into the repository")

// folder is dashboards/ of the repository.
const folder = "../../dashboards"

// TestFilesMatch: the repository holds what the code says, and nothing else of its kind.
func TestFilesMatch(t *testing.T) {
	if *update {
		require.NoError(t, write(folder))
	}
	want, err := files()
	require.NoError(t, err)
	var names []string
	require.NoError(t, filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		require.NoError(t, err)
		if name, _ := filepath.Rel(folder, path); !d.IsDir() && filepath.Ext(name) != ".md" {
			names = append(names, name)
		}
		return nil
	}))
	for _, name := range names {
		require.Contains(t, want, name, "no code makes this file: delete it")
	}
	for name, text := range want {
		have, err := os.ReadFile(filepath.Join(folder, name))
		require.NoError(t, err, "run `make golden`")
		require.True(t, bytes.Equal(text, have), "%s is not what the code says: run `make golden` and read the difference", name)
	}
}

func read(t *testing.T, name string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, name))
	require.NoError(t, err)
	return text
}

// decodeBoard reads a dashboard with Grafana's types. A field that they do not
// know, down to the options of a panel, is an error.
func decodeBoard(raw []byte) (dashboard.Dashboard, error) {
	plugins.RegisterDefaultPlugins()
	var checked, d dashboard.Dashboard
	err := checked.UnmarshalJSONStrict(raw)
	// Without a problem it returns an empty list, and because of that it leaves the
	// panels out of what it decodes.
	var list cog.BuildErrors
	if err != nil && !(errors.As(err, &list) && len(list) == 0) {
		return d, err
	}
	return d, json.Unmarshal(raw, &d)
}

// TestDashboardsDecodeStrictly also shows that the decoder objects to a slip.
func TestDashboardsDecodeStrictly(t *testing.T) {
	for _, b := range boards() {
		raw := read(t, b.file)
		d, err := decodeBoard(raw)
		require.NoError(t, err, b.file)
		require.NoError(t, d.Validate(), b.file)
		require.Equal(t, b.uid, *d.Uid)
		_, err = decodeBoard(bytes.Replace(raw, []byte(`"lineWidth"`), []byte(`"lineWidht"`), 1))
		require.ErrorContains(t, err, "lineWidht")
	}
}

// TestRulesDecodeStrictly reads both forms with the types of those who load them.
func TestRulesDecodeStrictly(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	for _, f := range ruleFiles() {
		plain := read(t, "rules/"+f.name+".yaml")
		groups, errs := rulefmt.Parse(plain, false, model.UTF8Validation, p, slog.New(slog.DiscardHandler))
		require.Empty(t, errs)

		object := read(t, "rules/prometheusrule/"+f.name+".yaml")
		var pr monitoring.PrometheusRule
		require.NoError(t, yaml.UnmarshalStrict(object, &pr))
		require.Equal(t, "PrometheusRule", pr.Kind)
		require.Equal(t, monitoring.SchemeGroupVersion.String(), pr.APIVersion)
		require.Equal(t, len(groups.Groups), len(pr.Spec.Groups))
		for i, g := range groups.Groups {
			require.Equal(t, g.Name, pr.Spec.Groups[i].Name)
			require.Equal(t, len(g.Rules), len(pr.Spec.Groups[i].Rules))
			for j, r := range g.Rules {
				same := pr.Spec.Groups[i].Rules[j]
				require.Equal(t, r.Expr, same.Expr.String())
				require.Equal(t, r.Alert+r.Record, same.Alert+same.Record)
				require.Equal(t, r.Labels, same.Labels)
				require.Equal(t, r.Annotations, same.Annotations)
			}
		}

		_, errs = rulefmt.Parse(bytes.Replace(plain, []byte("expr:"), []byte("exprs:"), 1), false, model.UTF8Validation, p, slog.New(slog.DiscardHandler))
		require.NotEmpty(t, errs)
		require.Error(t, yaml.UnmarshalStrict(bytes.Replace(object, []byte("expr:"), []byte("exprs:"), 1), &pr))
	}
}

// alerts are the names of all alerts.
func alerts() (names []string) {
	for _, f := range ruleFiles() {
		for _, g := range f.groups {
			for _, r := range g.rules {
				if r.alert != "" {
					names = append(names, r.alert)
				}
			}
		}
	}
	return names
}

// TestRunbooks: every alert has a section of RUNBOOKS.md, which its annotation
// leads to, and every section an alert.
func TestRunbooks(t *testing.T) {
	var sections []string
	for line := range strings.Lines(string(read(t, "RUNBOOKS.md"))) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			sections = append(sections, strings.TrimSpace(name))
		}
	}
	require.Equal(t, alerts(), sections)
	readme := string(read(t, "README.md"))
	for _, name := range alerts() {
		require.Contains(t, readme, name, "README.md lists every alert")
	}
}

// TestEveryAlertHasUnitTests: promtool's tests let each alert fire, and keep it quiet.
func TestEveryAlertHasUnitTests(t *testing.T) {
	raw, err := os.ReadFile("promtool/alerts.yaml")
	require.NoError(t, err)
	var file struct {
		Tests []struct {
			Alerts []struct {
				Name     string            `json:"alertname"`
				Expected []json.RawMessage `json:"exp_alerts"`
			} `json:"alert_rule_test"`
		}
	}
	require.NoError(t, yaml.Unmarshal(raw, &file))
	fires, quiet := map[string]int{}, map[string]int{}
	for _, test := range file.Tests {
		for _, a := range test.Alerts {
			if len(a.Expected) > 0 {
				fires[a.Name]++
			} else {
				quiet[a.Name]++
			}
		}
	}
	for _, name := range alerts() {
		require.NotZero(t, fires[name], "no unit test lets %s fire", name)
		require.NotZero(t, quiet[name], "no unit test keeps %s quiet", name)
	}
}
