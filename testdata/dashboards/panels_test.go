package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// TestLayoutOfDashboards: rows of panels fill the width, nothing overlaps, ids are
// unique, as Grafana needs it to draw the file as it is written.
func TestLayoutOfDashboards(t *testing.T) {
	for _, b := range boards() {
		d, err := decodeBoard(read(t, b.file))
		require.NoError(t, err)
		type cell struct{ x, y uint32 }
		taken, ids, height := map[cell]string{}, map[uint32]bool{}, uint32(0)
		place := func(title string, x, y, w, h, id uint32) {
			require.False(t, ids[id], "%s: two panels have id %d", b.file, id)
			ids[id] = true
			height = max(height, y+h)
			for i := x; i < x+w; i++ {
				for j := y; j < y+h; j++ {
					require.Empty(t, taken[cell{i, j}], "%s: %q lies over another panel", b.file, title)
					require.Less(t, i, uint32(gridWidth), "%s: %q leaves the grid", b.file, title)
					taken[cell{i, j}] = title
				}
			}
		}
		for _, p := range d.Panels {
			if p.RowPanel != nil {
				g := p.RowPanel.GridPos
				place(*p.RowPanel.Title, g.X, g.Y, g.W, g.H, p.RowPanel.Id)
				continue
			}
			g := p.Panel.GridPos
			place(*p.Panel.Title, g.X, g.Y, g.W, g.H, *p.Panel.Id)
		}
		require.Len(t, taken, int(height)*gridWidth, "%s: a row of panels leaves a gap", b.file)
	}
}

// TestPanelsSpeakForThemselves: title, description and unit on every panel, a
// name for every line, and titles that are unique on their dashboard.
func TestPanelsSpeakForThemselves(t *testing.T) {
	for _, b := range boards() {
		titles := map[string]bool{}
		for _, r := range b.rows {
			for _, p := range r.panels {
				where := b.file + " " + p.title
				require.NotEmpty(t, p.title, where)
				require.False(t, titles[p.title], where)
				titles[p.title] = true
				require.True(t, strings.HasSuffix(p.about, ".") || strings.HasSuffix(p.about, ")"), "%s: the description is no sentence", where)
				require.NotEmpty(t, p.unit, where)
				require.NotEmpty(t, p.queries, where)
				if p.kind == cells {
					require.Len(t, p.queries, len(p.columns), where)
					continue
				}
				for _, q := range p.queries {
					require.NotEmpty(t, q.legend, where)
				}
				if p.limits != "" {
					limits := regexp.MustCompile("^(?:" + p.limits + ")$")
					require.Condition(t, func() bool {
						for _, q := range p.queries {
							if limits.MatchString(q.legend) {
								return true
							}
						}
						return false
					}, "%s: no series is called %s", where, p.limits)
				}
			}
		}
	}
}

// TestLinks: the dashboards link each other, and keep what the reader has chosen:
// a variable has the same name on each.
func TestLinks(t *testing.T) {
	labels := map[string]string{}
	for _, b := range boards() {
		d, err := decodeBoard(read(t, b.file))
		require.NoError(t, err)
		require.Contains(t, d.Tags, tag)
		require.Len(t, d.Links, 1)
		require.Equal(t, []string{tag}, d.Links[0].Tags)
		require.True(t, d.Links[0].IncludeVars && d.Links[0].KeepTime)
		for _, v := range d.Templating.List {
			if known, ok := labels[v.Name]; ok {
				require.Equal(t, known, *v.Label)
			}
			labels[v.Name] = *v.Label
		}
	}
	for _, name := range []string{"datasource", "cluster", "ingester", "stream", "class"} {
		require.Contains(t, labels, name)
	}
}

// everyExpr calls f with every expression as Prometheus gets it, and where it stands.
func everyExpr(f func(where, expr string)) {
	for _, b := range boards() {
		f(b.file+" annotations", interpolate(reloadsQuery().expr, scraped))
		for _, r := range b.rows {
			for _, p := range r.panels {
				for i, q := range p.queries {
					f(b.file+" "+p.title+" "+refID(i), interpolate(q.expr, scraped))
				}
			}
		}
	}
	for _, file := range ruleFiles() {
		for _, g := range file.groups {
			for _, r := range g.rules {
				f(file.name+" "+r.record+r.alert, withInstallation(r.expr))
			}
		}
	}
}

// What a reader may choose for the variable telemetry.
const (
	scraped = "^$"
	own     = "true"
)

// interpolate does what Grafana does with an expression: every variable but one at
// All, and the windows of a graph of the last minutes.
func interpolate(expr, telemetry string) string {
	return strings.NewReplacer(
		"$cluster", ".*", "$namespace", ".*", "$ingester", ".*", "$telemetry", telemetry, "$stream", ".*", "$class", ".*",
		"$__rate_interval", "15s", "$__range", "5m",
	).Replace(withVariables(expr))
}

// TestQueriesAreRestricted: every selector of a panel obeys the variables, every
// metric of ours exists, and every expression parses.
func TestQueriesAreRestricted(t *testing.T) {
	exported := exportedMetrics(t)
	recorded := map[string]bool{}
	for _, f := range ruleFiles() {
		for _, g := range f.groups {
			for _, r := range g.rules {
				recorded[r.record] = true
			}
		}
	}
	p := parser.NewParser(parser.Options{})
	everyExpr(func(where, expr string) {
		require.NotRegexp(t, `[$@][a-z_{]`, expr, where)
		parsed, err := p.ParseExpr(expr)
		require.NoError(t, err, "%s: %s", where, expr)
		parser.Inspect(parsed, func(n parser.Node, _ []parser.Node) error {
			s, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			if strings.Contains(where, ".json") {
				require.Contains(t, s.String(), `kfuse=~"`+scraped+`"`, "%s: %s ignores the variables", where, s)
			}
			if !recorded[s.Name] && strings.HasPrefix(s.Name, "spillway_") {
				name := s.Name
				for _, part := range []string{"_bucket", "_sum", "_count"} {
					if base, ok := strings.CutSuffix(name, part); ok && !exported[name] {
						name = base
					}
				}
				require.True(t, exported[name], "%s: no code exports %s", where, s.Name)
			}
			return nil
		})
	})
}

// exportedMetrics finds the names of all metrics: those that METRICS.md lists,
// and those that appear with their first label value only and stand in the code.
func exportedMetrics(t *testing.T) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	name := regexp.MustCompile("[\"`](spillway_[a-z0-9_]+)[\"`]")
	add := func(path string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range name.FindAllStringSubmatch(string(text), -1) {
			names[m[1]] = true
		}
	}
	add("../../cmd/spillway/METRICS.md")
	for _, dir := range []string{"cmd", "ingester", "governor"} {
		require.NoError(t, filepath.WalkDir("../../"+dir, func(path string, _ os.DirEntry, err error) error {
			if err == nil && filepath.Base(path) == "metrics.go" {
				add(path)
			}
			return err
		}))
	}
	require.Greater(t, len(names), 50)
	return names
}
