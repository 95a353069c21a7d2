package ingester

import (
	"errors"
	"fmt"
	"sort"
	"strings"
	"time"
)

// Result is what became of a batch.
type Result struct {
	// Err is what the sink said; nil when all that was admitted is stored.
	Err error
	// Final says that sending the batch again cannot help.
	Final bool
	// RetryAfter is how long the destination asked to wait; 0 if it did not.
	RetryAfter time.Duration
	// Written is what was stored, Offered what the batch held.
	Written, Offered Written
	// Drops lists the classes that dropped items for their rate, by name.
	Drops []ClassDrop
	// LostExemplars are those that the sink did not keep.
	LostExemplars int64
	// Relabelled and Invalid count items that ended otherwise.
	Relabelled, Invalid int64
	// InvalidGroups counts the series that are invalid, with items or without.
	InvalidGroups int
	// Reasons says why items are invalid, as counted.
	Reasons map[string]int64
	// Silent asks for an answer as if nothing had been dropped.
	Silent bool
}

// Written counts the parts of series that a batch holds.
type Written struct{ Samples, Histograms, Exemplars int64 }

func (n *Written) add(g *Group) {
	n.Samples += int64(g.Floats)
	n.Histograms += int64(g.Histograms)
	n.Exemplars += int64(g.Exemplars)
}

// ClassDrop says what a class dropped of one batch, and what it may spend here.
type ClassDrop struct {
	Class       string
	Items       int64
	Configured  bool
	Rate, Burst float64 // of this ingester
}

// NothingValid reports whether the batch held series, and all of them were found
// invalid, here or by the sink.
func (r *Result) NothingValid() bool {
	return r.Invalid+int64(r.InvalidGroups) > 0 && r.Written == Written{} && len(r.Drops) == 0 && r.Relabelled == 0
}

// Text says in one line per cause what is not stored.
func (r *Result) Text() string {
	var lines []string
	for _, d := range r.Drops {
		switch {
		case !d.Configured:
			lines = append(lines, fmt.Sprintf("class %s: %d items dropped (ratelimit): a rule names this class, but the policy does not define it", d.Class, d.Items))
		case d.Rate == 0:
			lines = append(lines, fmt.Sprintf("class %s: %d items dropped (ratelimit): its rate is 0", d.Class, d.Items))
		default:
			lines = append(lines, fmt.Sprintf("class %s: %d items dropped (ratelimit): it may spend %g items/s with a burst of %g on this ingester", d.Class, d.Items, d.Rate, d.Burst))
		}
	}
	if r.Relabelled > 0 {
		lines = append(lines, fmt.Sprintf("%d items dropped (relabel) by this stream's relabel rules", r.Relabelled))
	}
	names := make([]string, 0, len(r.Reasons))
	for name := range r.Reasons {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		lines = append(lines, fmt.Sprintf("%d invalid (%s): %s", r.Reasons[name], name, sentence(name)))
	}
	return strings.Join(lines, "\n")
}

// settle counts every item of the batch under its one outcome. Where the sink
// failed, the tokens of what it did not store go back: the sender will send it
// again.
func (st *streamRules) settle(b *Batch, w *work, err error) Result {
	res := Result{
		Err: err, Written: w.written, Relabelled: w.relabelled.items, Silent: st.Silent,
		InvalidGroups: w.invalidGroups,
	}
	for i := range b.Groups {
		res.Offered.add(&b.Groups[i])
	}
	var sinkErr *SinkError
	if errors.As(err, &sinkErr) {
		res.Final, res.RetryAfter = sinkErr.Final, sinkErr.RetryAfter
	}
	res.LostExemplars = min(b.lostExemplars, w.written.Exemplars)
	res.Written.Exemplars -= res.LostExemplars
	if err != nil {
		res.Written, res.LostExemplars = Written{}, 0
	}
	st.settleRejected(b, w, &res)

	c := st.counters
	c.received.add(w.received)
	c.relabelled.add(w.relabelled)
	for _, id := range w.touched {
		st.settleClass(id, &w.tallies[id], w, &res)
	}
	c.invalid.add(w.invalid)
	c.routeMisses.Add(int64(w.misses))
	c.routeHits.Add(int64(len(b.Groups) - w.misses))
	st.settleReasons(b, w, &res)
	switch {
	case err == nil:
		c.batches.Add(1)
	case !res.Final:
		c.refusedSink.Add(1)
	}
	sort.Slice(res.Drops, func(i, j int) bool { return res.Drops[i].Class < res.Drops[j].Class })
	return res
}

// settleClass counts what one class's items became.
func (st *streamRules) settleClass(id int32, t *tally, w *work, res *Result) {
	c := st.classes[id]
	if t.dropped > 0 {
		c.dropped.add(t.drops)
		res.Drops = append(res.Drops, st.describeDrop(id, t.drops.items))
	}
	switch {
	case res.Err == nil:
		t.passes.items -= t.rejected
		w.invalid.items += t.rejected
		c.admitted.add(t.passes)
	case res.Final:
		w.invalid.add(t.passes.items, t.passes.bytes)
	default:
		c.refused.add(t.passes)
	}
	if res.Err != nil && st.limiter != nil && id != st.exemptID {
		st.limiter.Return(int(id), t.passes.items)
	}
}

func (st *streamRules) describeDrop(id int32, items int64) ClassDrop {
	class := st.budgets[id]
	rate, _ := class.RatePerIngester.Float64()
	return ClassDrop{Class: class.Name, Items: items, Configured: class.Configured, Rate: rate, Burst: float64(class.BurstPerIngester)}
}

// settleRejected finds out which classes the items belong to that the sink
// called invalid.
func (st *streamRules) settleRejected(b *Batch, w *work, res *Result) {
	if len(b.rejected) == 0 || res.Err != nil {
		return
	}
	for i := range b.Groups {
		g := &b.Groups[i]
		if g.Rejected == 0 {
			continue
		}
		w.tallies[g.class].rejected += int64(g.Rejected)
		floats := min(g.Rejected, g.Floats)
		res.Written.Samples -= int64(floats)
		res.Written.Histograms -= int64(g.Rejected - floats)
	}
}

// settleReasons counts why items are invalid.
func (st *streamRules) settleReasons(b *Batch, w *work, res *Result) {
	for why, n := range w.reasons {
		if n > 0 {
			res.reason(Reason(why).String(), n)
		}
	}
	if res.Err == nil {
		for name, n := range b.rejected {
			res.reason(name, n)
		}
	}
	if res.Final {
		res.reason("destination_rejected", max(w.written.Samples+w.written.Histograms, 1))
	}
	res.Invalid = w.invalid.items
	for name, n := range res.Reasons {
		st.counters.reason(name, n)
	}
}

func (r *Result) reason(name string, n int64) {
	if r.Reasons == nil {
		r.Reasons = make(map[string]int64)
	}
	r.Reasons[name] += n
}

// sentence says what a reason's name means. A sink's own reasons speak for
// themselves.
func sentence(name string) string {
	for _, t := range reasonTexts {
		if t.name == name {
			return t.sentence
		}
	}
	return "the sink does not take them"
}
