package main

import "strings"

// query is one PromQL expression of a panel.
//
// In expr a selector may begin with a word that stands for the variables of the dashboard
// that restrict it: @ingester for metrics of a process, @stream for those with a
// stream, @class for those with a class.
type query struct {
	expr   string
	legend string // as Grafana writes it; empty in tables
	// zero says why all values may be 0 in a busy installation, empty why there
	// may be no series. Without them both would be a mistake in the query.
	zero, empty string
}

// The variables that restrict a selector.
const (
	ingesterSelector = `cluster=~"$cluster", namespace=~"$namespace", instance=~"$ingester", kfuse=~"$telemetry"`
	streamSelector   = ingesterSelector + `, stream=~"$stream"`
	classSelector    = streamSelector + `, class=~"$class"`
)

// withVariables puts the variables where expr names them by a word.
func withVariables(expr string) string {
	return strings.NewReplacer("@ingester", ingesterSelector, "@stream", streamSelector, "@class", classSelector).Replace(expr)
}

// exemptClass is the class of exempt telemetry. It has no budget, so it is no
// part of what classes offer.
const exemptClass = `class!="kfuse_cp_class"`

// offered is what senders offered to the classes, per second, before any answer
// of buckets or sinks: it is admitted, dropped or refused. by is a list of labels,
// selector restricts the series, window is the range of the rate.
func offered(by, selector, window string) string {
	return strings.NewReplacer("BY", by, "SEL", selector, "WIN", window).Replace(
		`sum by (BY) (rate(spillway_admitted_items_total{SEL}[WIN]) or rate(spillway_dropped_items_total{SELreason="ratelimit"}[WIN]) or rate(spillway_refused_items_total{SEL` + exemptClass + `}[WIN]))`)
}

// dropped is what rate control drops, per second.
func dropped(by, selector, window string) string {
	return strings.NewReplacer("BY", by, "SEL", selector, "WIN", window).Replace(
		`sum by (BY) (rate(spillway_dropped_items_total{SELreason="ratelimit"}[WIN]))`)
}

// panelWindow is the range of every rate in a panel: Grafana makes it at least
// four scrapes long.
const panelWindow = "$__rate_interval"
