package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"
)

// row is a bar of the design: two receivers that run in turn, and what has to be
// true of the ratio of their items per CPU-second.
type row struct {
	name        string
	series      int
	peer, ours  *receiver
	peerMessage string // of the peer's requests
	message     string // of ours
	teams       int
	items       int // to be measured in a run, about
	// fresh forbids to send a request twice, as stores want times that move.
	fresh bool
	// atLeast is the bar for ours / peer; atMost, if it is not 0, the bar for
	// peer / ours: how much more an item costs.
	atLeast, atMost float64
}

// ratio is the figure that the bar is about, for one pair of runs.
func (r *row) ratio(peer, ours measurement) float64 {
	if r.atMost > 0 {
		return peer.perCPUSecond() / ours.perCPUSecond()
	}
	return ours.perCPUSecond() / peer.perCPUSecond()
}

func (r *row) met(ratio float64) bool {
	if r.atMost > 0 {
		return ratio <= r.atMost
	}
	return ratio >= r.atLeast
}

func (r *row) bar() string {
	if r.atMost > 0 {
		return fmt.Sprintf("<= %.3g x the cost", r.atMost)
	}
	return fmt.Sprintf(">= %.3g x", r.atLeast)
}

// title names the row with its load.
func (r *row) title() string {
	if isOTLP(r.message) {
		return r.name
	}
	return fmt.Sprintf("%s, %s series", r.name, thousands(r.series))
}

// rows are the bars that need running programs.
func (o *options) rows() []*row {
	var rows []*row
	add := func(r row) {
		if r.items == 0 {
			r.items = o.items
		}
		if r.peerMessage == "" {
			r.peerMessage, r.message = message1, message1
		}
		if r.teams == 0 {
			r.teams = 20
		}
		rows = append(rows, &r)
	}
	p, twenty := o.programs, policyOf(20, false)
	plain := func(name string) *receiver { return p.forwarding(name, message1, nothingRules, twenty) }
	halved := p.forwarding("Spillway", message1, addingRules, policyOf(20, true))
	halved.check = conserved("metrics", 0.5, 0.5)
	for _, n := range o.series {
		add(row{name: "remote write 1.0 in and out, 5 rules, 20 classes", series: n, peer: p.vmagent(nothingRules), ours: plain("Spillway"), atLeast: 5})
		add(row{name: "the same, a label added, half dropped", series: n, peer: p.vmagent(addingRules), ours: halved, atLeast: 3})
		add(row{name: "remote write 2.0 in and out", series: n, peer: plain("Spillway 1.0"), peerMessage: message1,
			ours: p.forwarding("Spillway 2.0", message2, nothingRules, twenty), message: message2, atLeast: 1})
		add(row{name: "remote write in, embedded TSDB", series: n, peer: p.prometheus(), ours: p.storing(twenty), atLeast: 3,
			fresh: true, items: max(o.storedItems, n)})
	}
	for _, m := range []string{otlpMetrics, otlpLogs, otlpTraces} {
		add(row{name: "OTLP " + streamOf(m) + " in and out", series: otlpSeries, peer: p.collector(m), peerMessage: m, ours: p.forwardingOTLP(m), message: m, atLeast: 5})
	}
	n := o.series[0]
	add(row{name: "1 to 10,000 classes", series: n, teams: mostClasses, peer: p.classes(1), ours: p.classes(mostClasses), atMost: 1.2})
	add(row{name: "0 to 100 relabel rules", series: n, peer: p.forwarding("no rules", message1, "", twenty),
		ours: p.forwarding("100 rules", message1, manyRules(100), twenty), atMost: 1.2})
	return rows
}

// result is what became of a row.
type result struct {
	*row
	peers, ourses []measurement
	ratios        []float64 // of the pairs of runs, in their order
	bound         string    // what the CPU time of ours goes to
	err           error
}

// run runs the receivers of a row in turn, peer, ours, peer, ours, ..., and then
// once more ours with its profile taken.
func (b *bench) run(ctx context.Context, r *row, o *options) *result {
	res := &result{row: r}
	peerLoad, ourLoad, err := r.prepare(o)
	if err != nil {
		res.err = err
		return res
	}
	n := max(1, r.items/peerLoad.perRequest)
	for round := range o.rounds {
		peer, err := b.measure(ctx, r.peer, peerLoad, o.connections, n)
		if err != nil {
			res.err = err
			return res
		}
		ours, err := b.measure(ctx, r.ours, ourLoad, o.connections, n)
		if err != nil {
			res.err = err
			return res
		}
		res.peers, res.ourses = append(res.peers, peer), append(res.ourses, ours)
		res.ratios = append(res.ratios, r.ratio(peer, ours))
		b.say("%s, round %d: %s %s, %s %s items per CPU-second: %.2f", r.title(), round+1,
			r.peer.name, thousands(int(peer.perCPUSecond())), r.ours.name, thousands(int(ours.perCPUSecond())), res.ratios[round])
	}
	res.bound, res.err = b.profiled(ctx, r, ourLoad, o, n)
	return res
}

// prepare makes the requests of a row. Both receivers get the same ones, unless
// they speak different versions.
func (r *row) prepare(o *options) (peer, ours *requests, err error) {
	w := workload{message: r.peerMessage, series: r.series, perRequest: o.perRequest, teams: r.teams, passes: 4, warm: 2}
	if isOTLP(r.message) {
		w.perRequest = otlpItems
	}
	if r.series > 500_000 {
		w.passes = 2
	}
	if r.fresh {
		w.warm, w.passes = 1, 1+(r.items+r.series-1)/r.series
	}
	now := time.Now()
	if peer, err = prepare(w, now); err != nil || r.message == r.peerMessage {
		return peer, peer, err
	}
	w.message = r.message
	ours, err = prepare(w, now)
	return peer, ours, err
}

// selected are the rows whose title matches.
func selected(rows []*row, pattern *regexp.Regexp) []*row {
	return slices.DeleteFunc(rows, func(r *row) bool { return !pattern.MatchString(r.title()) })
}
