package chart

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	helmchart "helm.sh/helm/v3/pkg/chart"
)

var update = flag.Bool("update", false, "rewrite the golden renders and the table in the chart's README")

// TestGolden compares every render with the one that is checked in. Dashboards
// and rules are small ones here: a change of the real ones is no change of the chart.
func TestGolden(t *testing.T) {
	r := newRenderer(t)
	r.chart.Files = []*helmchart.File{
		{Name: "files/dashboards/example.json", Data: []byte("{\n  \"title\": \"{{ not a template }}\"\n}\n")},
		{Name: "files/rules/one.yaml", Data: []byte("groups: [{name: one, rules: [{alert: A, expr: up == 0, for: 5m, annotations: {summary: '{{ $labels.job }}'}}]}]\n")},
		{Name: "files/rules/two.yaml", Data: []byte("groups: [{name: two, rules: [{record: a:b, expr: sum(b)}]}]\n")},
	}
	seen := map[string]bool{}
	for name, set := range valueSets(t) {
		t.Run(name, func(t *testing.T) {
			out, err := r.render(set)
			require.NoError(t, err)
			got := "# What values/" + name + ".yaml renders, then what the user reads.\n---\n" +
				strings.Join(out.manifests, "---\n") + "--- NOTES\n" + out.notes
			file := filepath.Join("golden", name+".txt")
			seen[file] = true
			requireGolden(t, file, got)
		})
	}
	files, err := filepath.Glob("golden/*")
	require.NoError(t, err)
	for _, file := range files {
		require.True(t, seen[file], "%s belongs to no value set", file)
	}
}

func requireGolden(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err, "make golden makes it")
	require.Equal(t, string(want), got, "make golden rewrites it")
}
