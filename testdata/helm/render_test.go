// Package chart tests the Helm chart in helm/spillway: what it renders, what it
// refuses to render, and with build tag e2e what becomes of it in a real API server.
// It is a module of its own, so that the libraries of Helm and Kubernetes stay out of
// the product's go.mod.
package chart

import (
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	helmchart "helm.sh/helm/v3/pkg/chart"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"
)

// root is the repository.
const root = "../.."

// chartDir is the chart.
const chartDir = root + "/helm/spillway"

// rendered is what Helm makes of one set of values.
type rendered struct {
	manifests []string // one object each, in the order of their files
	notes     string
}

// renderer holds the chart, read once, and the version of the cluster.
type renderer struct {
	chart   *helmchart.Chart
	version string
}

func newRenderer(t testing.TB) *renderer {
	t.Helper()
	c, err := loader.LoadDir(chartDir)
	require.NoError(t, err)
	return &renderer{c, "v1.34.4"}
}

// with leaves out all templates but helpers and those named, to be fast.
func (r *renderer) with(names ...string) *renderer {
	c := *r.chart
	c.Templates = slices.DeleteFunc(slices.Clone(c.Templates), func(f *helmchart.File) bool {
		base := path.Base(f.Name)
		return !strings.HasPrefix(base, "_") && !slices.Contains(names, base)
	})
	return &renderer{&c, r.version}
}

// render does what helm template does: values over the chart's own, checked
// against the schema, through every template.
func (r *renderer) render(values map[string]any) (rendered, error) {
	options := chartutil.ReleaseOptions{Name: "demo", Namespace: "telemetry", Revision: 1, IsInstall: true}
	capabilities := *chartutil.DefaultCapabilities
	capabilities.KubeVersion = chartutil.KubeVersion{Version: r.version}
	full, err := chartutil.ToRenderValues(r.chart, values, options, &capabilities)
	if err != nil {
		return rendered{}, err
	}
	files, err := engine.Render(r.chart, full)
	if err != nil {
		return rendered{}, err
	}
	var out rendered
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if path.Base(name) == "NOTES.txt" {
			out.notes = files[name]
			continue
		}
		docs := releaseutil.SplitManifests(files[name])
		keys := slices.Collect(maps.Keys(docs))
		sort.Sort(releaseutil.BySplitManifestsOrder(keys))
		for _, key := range keys {
			if strings.TrimSpace(docs[key]) != "" {
				out.manifests = append(out.manifests, "# Source: "+name+"\n"+strings.TrimSpace(docs[key])+"\n")
			}
		}
	}
	return out, nil
}

// values reads YAML as Helm reads a file of values.
func values(t testing.TB, text string) map[string]any {
	t.Helper()
	v, err := chartutil.ReadValues([]byte(text))
	require.NoError(t, err)
	return v
}

// object is a rendered object with what every kind has.
type object struct {
	Kind     string `json:"kind"`
	Metadata struct {
		Name   string            `json:"name"`
		Labels map[string]string `json:"labels"`
	} `json:"metadata"`
	Data       map[string]string `json:"data"`
	StringData map[string]string `json:"stringData"`
}

// find returns the object of a kind whose name ends so.
func (r rendered) find(t testing.TB, kind, suffix string) object {
	t.Helper()
	for _, manifest := range r.manifests {
		var o object
		require.NoError(t, yaml.Unmarshal([]byte(manifest), &o), manifest)
		if o.Kind == kind && strings.HasSuffix(o.Metadata.Name, suffix) {
			return o
		}
	}
	t.Fatalf("no %s whose name ends in %q was rendered", kind, suffix)
	return object{}
}

// valueSets reads values/*.yaml by name.
func valueSets(t testing.TB) map[string]map[string]any {
	t.Helper()
	files, err := filepath.Glob("values/*.yaml")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(files), 12, "the chart is tested with a dozen value sets")
	sets := map[string]map[string]any{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		sets[strings.TrimSuffix(filepath.Base(file), ".yaml")] = values(t, string(text))
	}
	return sets
}
