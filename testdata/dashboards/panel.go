package main

// kind is how a panel draws what its queries return.
type kind int

const (
	lines  kind = iota // over time
	areas              // over time, whose sum means something
	number             // of now, or a few
	bars               // one for each series
	cells              // a table: a row for each set of labels, a column for each query
)

// panel is one panel of a dashboard.
type panel struct {
	kind    kind
	title   string
	about   string // what the reader can conclude from it; the panel's description
	unit    string // one of Grafana's units
	width   uint32 // of 24
	queries []query

	// limits names the series that are limits rather than measurements, as a
	// regular expression on their legend: they are drawn as dashed lines.
	limits string
	// steps colours values: green, and from each step's value on its colour.
	steps []step
	// log draws powers of two at equal distances, where small numbers matter beside large ones.
	log bool
	// max is the end of the axis, 0 to let it follow the values.
	max float64
	// columns are the headings of a table's queries with their units, in order.
	columns []column
	// words replaces numbers, as 0 and 1, by what they mean.
	words map[string]word
}

type step struct {
	from   float64
	colour string
}

type column struct {
	title, unit string
	steps       []step // colour its cells
}

type word struct{ text, colour string }

// row is a heading with the panels below it. All panels of a row have the same height.
type row struct {
	title  string
	height uint32 // in Grafana's units of 30 pixels
	panels []panel
}

// board is one dashboard.
type board struct {
	file, uid, title, about string
	variables               []variable
	rows                    []row
}

// variable is a choice that the reader has.
type variable struct {
	name, label, about string
	query              string // a label_values query; empty for a fixed list
	options            []option
}

type option struct{ text, value string }

// The choices of every dashboard. A label that a data source does not have is
// no obstacle: "All" matches its absence, too.
func installationVariables() []variable {
	return []variable{
		{name: "telemetry", label: "Telemetry", about: "Where the series come from. Choose one if the data source holds both, or every number is doubled.", options: []option{
			{"any", ".*"}, {"scraped", "^$"}, {"written by Spillway", "true"},
		}},
		{name: "cluster", label: "Cluster", about: "The label cluster, if your series have one.", query: `label_values(spillway_build_info, cluster)`},
		{name: "namespace", label: "Namespace", about: "The label namespace, if your series have one.", query: `label_values(spillway_build_info{cluster=~"$cluster"}, namespace)`},
		{name: "ingester", label: "Ingester", about: "The label instance: one Spillway process.", query: `label_values(spillway_build_info{cluster=~"$cluster", namespace=~"$namespace", kfuse=~"$telemetry"}, instance)`},
	}
}

func streamVariable() variable {
	return variable{name: "stream", label: "Stream", about: "metrics, logs, traces, events or rum.", query: `label_values(spillway_received_items_total{` + ingesterSelector + `}, stream)`}
}

func classVariable() variable {
	return variable{name: "class", label: "Class", about: "A class of the policy.", query: `label_values(spillway_admitted_items_total{` + streamSelector + `}, class)`}
}
