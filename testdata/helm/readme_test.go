package chart

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// The lines between which the table of values stands in the chart's README.
const (
	tableStart = "<!-- Made from values.yaml by make golden. -->\n"
	tableEnd   = "<!-- End of the table. -->\n"
)

// TestValuesTable holds the README's table against the comments of values.yaml.
func TestValuesTable(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "values.yaml"))
	require.NoError(t, err)
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal(text, &doc))
	table := "| value | default | what it does |\n|---|---|---|\n" + strings.Join(tableRows(t, doc.Content[0], ""), "")
	file := filepath.Join(chartDir, "README.md")
	readme, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(readme), tableStart)
	require.True(t, ok)
	_, after, ok := strings.Cut(rest, tableEnd)
	require.True(t, ok)
	requireGolden(t, file, before+tableStart+"\n"+table+"\n"+tableEnd+after)
}

// TestReadmeExample renders the README's policy and looks for what it says a user reads.
func TestReadmeExample(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(chartDir, "README.md"))
	require.NoError(t, err)
	_, example, ok := strings.Cut(string(text), "```yaml\n")
	require.True(t, ok)
	example, rest, _ := strings.Cut(example, "```\n")
	out, err := newRenderer(t).render(values(t, example))
	require.NoError(t, err)
	_, notes, _ := strings.Cut(rest, "```\n")
	notes, _, ok = strings.Cut(notes, "```\n")
	require.True(t, ok)
	require.Contains(t, out.notes, strings.TrimSpace(notes))
}

// tableRows has a row for each value with a comment. A value without one must
// be a section, all of whose values have rows.
func tableRows(t *testing.T, section *yaml.Node, under string) []string {
	t.Helper()
	var rows []string
	for i := 0; i < len(section.Content); i += 2 {
		key, value := section.Content[i], section.Content[i+1]
		name := under + key.Value
		comment := strings.ReplaceAll(strings.TrimPrefix(lastParagraph(key.HeadComment), "# "), "\n# ", " ")
		if comment == "" {
			require.Equal(t, yaml.MappingNode, value.Kind, "values.yaml: %s has no comment", name)
			require.NotEmpty(t, value.Content, "values.yaml: %s has no comment", name)
			rows = append(rows, tableRows(t, value, name+".")...)
			continue
		}
		rows = append(rows, fmt.Sprintf("| `%s` | %s | %s |\n", name, shown(t, value), strings.ReplaceAll(comment, "|", `\|`)))
	}
	return rows
}

// lastParagraph leaves out what stands above an empty line: it is about the file.
func lastParagraph(comment string) string {
	parts := strings.Split(comment, "\n\n")
	return parts[len(parts)-1]
}

// shown writes a default on one line.
func shown(t *testing.T, n *yaml.Node) string {
	t.Helper()
	var v any
	require.NoError(t, n.Decode(&v))
	if v == nil || v == "" {
		return "none"
	}
	text, err := json.Marshal(v)
	require.NoError(t, err)
	if len(text) > 90 {
		return "see values.yaml"
	}
	return "`" + string(text) + "`"
}

// TestSchemaKnowsValues requires that every section of values.yaml stands in the
// schema, and nothing else.
func TestSchemaKnowsValues(t *testing.T) {
	r := newRenderer(t)
	var schema map[string]any
	require.NoError(t, json.Unmarshal(r.chart.Schema, &schema))
	requireSameKeys(t, schema, r.chart.Values, "")
}

func requireSameKeys(t *testing.T, schema, defaults map[string]any, under string) {
	t.Helper()
	properties, _ := schema["properties"].(map[string]any)
	if schema["additionalProperties"] != false && under != "global." || properties == nil || len(defaults) == 0 {
		return
	}
	for name, property := range properties {
		value, ok := defaults[name]
		require.True(t, ok, "values.yaml does not have %s%s", under, name)
		if inner, ok := value.(map[string]any); ok {
			requireSameKeys(t, property.(map[string]any), inner, under+name+".")
		}
	}
	for name := range defaults {
		require.Contains(t, properties, name, "values.schema.json does not have %s%s", under, name)
	}
}

// TestPackagedFiles requires that the chart carries the dashboards and rules of
// dashboards/ as they are: Helm packages only what is inside a chart's folder.
func TestPackagedFiles(t *testing.T) {
	if _, err := os.Stat(filepath.Join(root, "dashboards")); os.IsNotExist(err) {
		t.Skip("there is no folder dashboards/, so there is nothing for the chart to carry")
	}
	for _, kind := range []struct{ from, to, ext string }{
		{"dashboards", "dashboards", "*.json"},
		{"dashboards/rules", "rules", "*.yaml"},
	} {
		want := contents(t, filepath.Join(root, kind.from, kind.ext))
		got := contents(t, filepath.Join(chartDir, "files", kind.to, kind.ext))
		require.Equal(t, want, got, "make chart-files copies %s/%s into the chart", kind.from, kind.ext)
	}
}

// TestDashboardsAndRules requires that what the chart carries arrives as it is.
func TestDashboardsAndRules(t *testing.T) {
	out, err := newRenderer(t).render(valueSets(t)["monitoring"])
	require.NoError(t, err)
	for name, text := range contents(t, filepath.Join(chartDir, "files/dashboards/*.json")) {
		m := out.find(t, "ConfigMap", "-dashboard-"+strings.TrimSuffix(name, ".json"))
		require.Equal(t, strings.TrimRight(text, "\n"), strings.TrimRight(m.Data[name], "\n"))
		require.Less(t, len(text), 1<<20-4096, "%s does not fit into a ConfigMap", name)
		require.Equal(t, "1", m.Metadata.Labels["grafana_dashboard"])
	}
	var want []any
	files := contents(t, filepath.Join(chartDir, "files/rules/*.yaml"))
	for _, name := range slices.Sorted(maps.Keys(files)) {
		var file struct {
			Groups []any `yaml:"groups"`
		}
		require.NoError(t, yaml.Unmarshal([]byte(files[name]), &file))
		want = append(want, file.Groups...)
	}
	var got struct {
		Spec struct {
			Groups []any `yaml:"groups"`
		} `yaml:"spec"`
	}
	for _, manifest := range out.manifests {
		if strings.Contains(manifest, "kind: PrometheusRule") {
			require.NoError(t, yaml.Unmarshal([]byte(manifest), &got))
		}
	}
	require.ElementsMatch(t, want, got.Spec.Groups)
}

// contents reads files by name.
func contents(t *testing.T, glob string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(glob)
	require.NoError(t, err)
	files := map[string]string{}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		files[filepath.Base(p)] = string(text)
	}
	return files
}
