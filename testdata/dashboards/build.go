package main

//lint:file-ignore SA1019 The SDK prefers its second version of dashboards, which only the newest Grafana imports.

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/bargauge"
	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/variants"
	"github.com/grafana/grafana-foundation-sdk/go/common"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
	"github.com/grafana/grafana-foundation-sdk/go/prometheus"
	"github.com/grafana/grafana-foundation-sdk/go/stat"
	"github.com/grafana/grafana-foundation-sdk/go/table"
	"github.com/grafana/grafana-foundation-sdk/go/timeseries"
)

// gridWidth is the width of a dashboard in Grafana's units.
const gridWidth = 24

// tag is on every dashboard of this folder, and links them.
const tag = "spillway"

// boards are all dashboards, in the order in which they are documented.
func boards() []board {
	return []board{rateControl(), capacity(), ingesterBoard()}
}

// render returns the dashboard as Grafana imports it.
func (b board) render() ([]byte, error) {
	d := dashboard.NewDashboardBuilder(b.title).
		Uid(b.uid).
		Description(b.about).
		Tags([]string{tag}).
		Readonly().
		Tooltip(dashboard.DashboardCursorSyncCrosshair).
		Time("now-1h", "now").
		Refresh("30s").
		Timezone("browser").
		WithVariable(dashboard.NewDatasourceVariableBuilder("datasource").Label("Data source").Type("prometheus")).
		Link(dashboard.NewDashboardLinkBuilder("Spillway").Type(dashboard.DashboardLinkTypeDashboards).
			Tags([]string{tag}).IncludeVars(true).KeepTime(true)).
		Annotation(reloads())
	for _, v := range b.variables {
		d.WithVariable(v.builder())
	}
	id, y := uint32(1), uint32(0)
	for _, r := range b.rows {
		d.WithRow(dashboard.NewRowBuilder(r.title).Id(id).GridPos(dashboard.GridPos{X: 0, Y: y, W: gridWidth, H: 1}))
		id, y = id+1, y+1
		x := uint32(0)
		for _, p := range r.panels {
			if x+p.width > gridWidth {
				x, y = 0, y+r.height
			}
			d.WithPanel(p.builder(id, dashboard.GridPos{X: x, Y: y, W: p.width, H: r.height}))
			id, x = id+1, x+p.width
		}
		y += r.height
	}
	built, err := d.Build()
	if err != nil {
		return nil, fmt.Errorf("dashboard %s: %w", b.file, err)
	}
	out, err := json.MarshalIndent(built, "", "  ")
	return append(out, '\n'), err
}

// reloadsQuery returns a value where the rules changed.
func reloadsQuery() query {
	return query{
		expr:  `changes(spillway_config_last_reload_success_timestamp_seconds{@ingester}[$__rate_interval]) > 0`,
		empty: "nothing is marked where no policy was put in force within the time that is shown",
	}
}

// reloads marks on every graph when a policy or configuration was put in force.
func reloads() cog.Builder[dashboard.AnnotationQuery] {
	return dashboard.NewAnnotationQueryBuilder().
		Name("Rules put in force").
		Datasource(dataSource()).
		Enable(true).
		IconColor("blue").
		Expr(withVariables(reloadsQuery().expr)).
		TitleFormat("New rules in force").
		TextFormat("{{instance}}").
		Step("30s")
}

func dataSource() common.DataSourceRef {
	return common.DataSourceRef{Type: cog.ToPtr("prometheus"), Uid: cog.ToPtr("${datasource}")}
}

func (v variable) builder() cog.Builder[dashboard.VariableModel] {
	if len(v.options) > 0 {
		var values []string
		for _, o := range v.options {
			values = append(values, o.text+" : "+o.value)
		}
		first := choice(v.options[0].text, v.options[0].value)
		return dashboard.NewCustomVariableBuilder(v.name).Label(v.label).Description(v.about).
			Values(dashboard.StringOrMap{String: cog.ToPtr(strings.Join(values, ", "))}).Current(first)
	}
	return dashboard.NewQueryVariableBuilder(v.name).Label(v.label).Description(v.about).
		Datasource(dataSource()).
		Query(dashboard.StringOrMap{String: cog.ToPtr(v.query)}).
		Refresh(dashboard.VariableRefreshOnTimeRangeChanged).
		Sort(dashboard.VariableSortNaturalAsc).
		Multi(true).IncludeAll(true).AllValue(".*").Current(choice("All", "$__all"))
}

func choice(text, value string) dashboard.VariableOption {
	return dashboard.VariableOption{
		Selected: cog.ToPtr(true),
		Text:     dashboard.StringOrArrayOfString{String: &text},
		Value:    dashboard.StringOrArrayOfString{String: &value},
	}
}

// drawer is what the builders of all kinds of panels have in common.
type drawer[B any] interface {
	cog.Builder[dashboard.Panel]
	Id(uint32) B
	Title(string) B
	Description(string) B
	Datasource(common.DataSourceRef) B
	GridPos(dashboard.GridPos) B
	Unit(string) B
	Max(float64) B
	Thresholds(cog.Builder[dashboard.ThresholdsConfig]) B
	Mappings([]dashboard.ValueMapping) B
	WithTarget(cog.Builder[variants.Dataquery]) B
}

// describe sets what panels of every kind have.
func describe[B drawer[B]](b B, p panel, id uint32, at dashboard.GridPos) B {
	b.Id(id).Title(p.title).Description(p.about).Datasource(dataSource()).GridPos(at).Unit(p.unit)
	if p.max > 0 {
		b.Max(p.max)
	}
	if len(p.steps) > 0 {
		b.Thresholds(thresholds(p.steps))
	}
	if len(p.words) > 0 {
		b.Mappings(mappings(p.words))
	}
	for i, q := range p.queries {
		b.WithTarget(p.target(i, q))
	}
	return b
}

func (p panel) target(i int, q query) cog.Builder[variants.Dataquery] {
	t := prometheus.NewDataqueryBuilder().RefId(refID(i)).Expr(withVariables(q.expr)).EditorMode(prometheus.QueryEditorModeCode)
	if q.legend != "" {
		t.LegendFormat(q.legend)
	}
	if p.instant() {
		t.Instant()
	} else {
		t.Range()
	}
	if p.kind == cells {
		t.Format(prometheus.PromQueryFormatTable)
	}
	return t
}

// instant says that the panel shows the values of now.
func (p panel) instant() bool { return p.kind != lines && p.kind != areas }

// refID names a panel's queries A, B, C and so on, as Grafana does.
func refID(i int) string { return string(rune('A' + i)) }

func (p panel) builder(id uint32, at dashboard.GridPos) cog.Builder[dashboard.Panel] {
	switch p.kind {
	case number:
		return p.statBuilder(id, at)
	case bars:
		return p.barsBuilder(id, at)
	case cells:
		return p.tableBuilder(id, at)
	}
	return p.graphBuilder(id, at)
}

func (p panel) graphBuilder(id uint32, at dashboard.GridPos) cog.Builder[dashboard.Panel] {
	b := describe(timeseries.NewPanelBuilder(), p, id, at).
		ColorScheme(dashboard.NewFieldColorBuilder().Mode(dashboard.FieldColorModeIdPaletteClassicByName)).
		LineWidth(1.5).FillOpacity(8).ShowPoints(common.VisibilityModeNever).
		Tooltip(common.NewVizTooltipOptionsBuilder().Mode(common.TooltipDisplayModeMulti).Sort(common.SortOrderDescending)).
		Legend(common.NewVizLegendOptionsBuilder().ShowLegend(true).DisplayMode(common.LegendDisplayModeList).Placement(common.LegendPlacementBottom))
	if p.log {
		b.ScaleDistribution(common.NewScaleDistributionConfigBuilder().Type(common.ScaleDistributionLog).Log(2))
	} else {
		b.Min(0)
	}
	if p.kind == areas {
		b.FillOpacity(40).Stacking(common.NewStackingConfigBuilder().Mode(common.StackingModeNormal))
	}
	if len(p.steps) > 0 {
		b.ThresholdsStyle(common.NewGraphThresholdsStyleConfigBuilder().Mode(common.GraphThresholdsStyleModeDashed))
	}
	if p.limits != "" {
		b.OverrideByRegexp(p.limits, []dashboard.DynamicConfigValue{
			{Id: "custom.lineStyle", Value: map[string]any{"fill": "dash", "dash": []int{8, 6}}},
			{Id: "custom.fillOpacity", Value: 0},
			{Id: "custom.stacking", Value: map[string]any{"mode": "none", "group": "A"}},
		})
	}
	return b
}

func (p panel) statBuilder(id uint32, at dashboard.GridPos) cog.Builder[dashboard.Panel] {
	return describe(stat.NewPanelBuilder(), p, id, at).
		GraphMode(common.BigValueGraphModeNone).
		ColorMode(common.BigValueColorModeValue).
		TextMode(textMode(p.queries)).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
}

// textMode shows names where there may be more than one value.
func textMode(queries []query) common.BigValueTextMode {
	if len(queries) > 1 || strings.Contains(queries[0].legend, "{{") {
		return common.BigValueTextModeValueAndName
	}
	return common.BigValueTextModeValue
}

func (p panel) barsBuilder(id uint32, at dashboard.GridPos) cog.Builder[dashboard.Panel] {
	return describe(bargauge.NewPanelBuilder(), p, id, at).
		Min(0).
		Orientation(common.VizOrientationHorizontal).
		DisplayMode(common.BarGaugeDisplayModeBasic).
		ReduceOptions(common.NewReduceDataOptionsBuilder().Calcs([]string{"lastNotNull"}))
}

// tableBuilder joins the queries on their labels: a row for each set of labels, a
// column for each query.
func (p panel) tableBuilder(id uint32, at dashboard.GridPos) cog.Builder[dashboard.Panel] {
	names := map[string]string{}
	b := describe(table.NewPanelBuilder(), p, id, at).ShowHeader(true).
		Footer(common.NewTableFooterOptionsBuilder().Show(false).Reducer([]string{}))
	for i, c := range p.columns {
		names[valueField(len(p.columns), i)] = c.title
		properties := []dashboard.DynamicConfigValue{{Id: "unit", Value: c.unit}}
		if len(c.steps) > 0 {
			properties = append(properties,
				dashboard.DynamicConfigValue{Id: "thresholds", Value: thresholdsConfig(c.steps)},
				dashboard.DynamicConfigValue{Id: "custom.cellOptions", Value: map[string]any{"type": "color-text"}})
		}
		b.OverrideByName(c.title, properties)
	}
	return b.
		OverrideByName("class", []dashboard.DynamicConfigValue{{Id: "links", Value: []map[string]any{{
			"title": "Only this class",
			"url":   "/d/" + rateControlUID + "?${__url_time_range}&${datasource:queryparam}&${cluster:queryparam}&${namespace:queryparam}&var-stream=${__data.fields.stream}&var-class=${__value.raw}",
		}}}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "merge", Options: map[string]any{}}).
		WithTransformation(dashboard.DataTransformerConfig{Id: "organize", Options: map[string]any{
			"excludeByName": map[string]bool{"Time": true},
			"renameByName":  names,
		}})
}

// valueField is what Grafana calls the values of a table's query after the merge.
func valueField(queries, i int) string {
	if queries == 1 {
		return "Value"
	}
	return "Value #" + refID(i)
}

func thresholds(steps []step) cog.Builder[dashboard.ThresholdsConfig] {
	c := thresholdsConfig(steps)
	return dashboard.NewThresholdsConfigBuilder().Mode(c.Mode).Steps(c.Steps)
}

func thresholdsConfig(steps []step) dashboard.ThresholdsConfig {
	all := []dashboard.Threshold{{Color: "green"}}
	for _, s := range steps {
		all = append(all, dashboard.Threshold{Value: cog.ToPtr(s.from), Color: s.colour})
	}
	return dashboard.ThresholdsConfig{Mode: dashboard.ThresholdsModeAbsolute, Steps: all}
}

func mappings(words map[string]word) []dashboard.ValueMapping {
	options := map[string]dashboard.ValueMappingResult{}
	for value, w := range words {
		options[value] = dashboard.ValueMappingResult{Text: cog.ToPtr(w.text), Color: cog.ToPtr(w.colour)}
	}
	return []dashboard.ValueMapping{{ValueMap: &dashboard.ValueMap{Type: dashboard.MappingTypeValueToText, Options: options}}}
}
