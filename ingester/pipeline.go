package ingester

import (
	"context"
	"fmt"
	"runtime/debug"
)

// Process takes a batch from step 4 of the data path to step 8 and says what
// became of it. It blocks until the sink has answered.
//
// Batches may be processed at the same time. One batch uses one generation of
// the rules and one clock reading from start to end.
func (in *Ingester) Process(ctx context.Context, b *Batch) Result {
	now := in.at(b.Received)
	rules := b.rules
	if rules == nil {
		rules = in.generation.Load()
	}
	st := rules.streams[b.Stream]
	w := st.borrow()
	defer st.giveBack(w)

	st.route(b, w)             // 4 relabel, 5 exempt, 6 classify
	st.take(b, w, now)         // 7 take
	err := st.write(ctx, b, w) // 8 sink
	return st.settle(b, w, err)
}

// route finds out what the rules make of every group. A known label set costs a
// comparison: with the series that came next the last time (receivers may do that
// before they read the labels, see Guess), else with what its hash leads to. Only
// an unknown one is decoded.
func (st *streamRules) route(b *Batch, w *work) {
	scope := b.Sender.routeScope()
	seq, table := st.routes.sequences.find(b, scope)
	var last Route
	var lastKey Span
	strays := 0
	for i := range b.Groups {
		g := &b.Groups[i]
		items, bytes := g.Items(), g.bytes()
		w.received.add(items, bytes)
		if g.Verdict == Invalid {
			w.refuse(g, items, bytes)
			continue
		}
		r := g.Route // set if the receiver guessed it
		if r.seg == nil && g.Key == lastKey {
			r = last // receivers of OTLP point to the key before where it is the same
		}
		if r.seg == nil {
			loc, known := seq.route(i, b.Bytes(g.Key))
			if known {
				r, known = st.routes.at(loc)
			}
			if !known {
				strays++
				r = st.lookUp(b, g, w, last)
			}
		}
		last, lastKey = r, g.Key
		e := r.entry()
		e.touch()
		v := e.verdict
		g.Route, g.Verdict, g.reason, g.class = r, v.outcome, v.reason, v.class
		if !g.Admitted() {
			w.refuse(g, items, bytes)
			continue
		}
		w.class(v.class).wants.add(items, bytes)
	}
	if table != 0 && strays > len(b.Groups)/8 {
		st.routes.remember(b, scope, table)
	}
}

// lookUp finds a group's route by its label set, or works it out.
func (st *streamRules) lookUp(b *Batch, g *Group, w *work, last Route) Route {
	key, scope := b.Bytes(g.Key), b.Sender.routeScope()
	if b.Format == RemoteWrite2 {
		var why Reason
		if key, why = w.spellOut(b, key, st.limits.SetBytes); why != valid {
			return loneRoute(verdict{outcome: Invalid, reason: why}, nil, false, nil)
		}
	}
	r, known := st.routes.after(last, scope, key)
	if !known {
		hash := st.routes.hash(key)
		if r, known = st.routes.find(hash, scope, key); !known {
			r = st.learn(b.Sender, hash, key, w)
			w.misses++
		}
	}
	st.routes.follow(last, r)
	return r
}

// take asks each class's bucket for all that the batch wants of it at once. That
// is the same as asking group by group as long as all of it fits. Where it does
// not, the groups are asked for one by one, in the order of the request.
func (st *streamRules) take(b *Batch, w *work, now int64) {
	for _, id := range w.touched {
		t := &w.tallies[id]
		t.short = !st.takeTokens(id, t.wants.items, now)
	}
	for i := range b.Groups {
		g := &b.Groups[i]
		if !g.Admitted() {
			continue
		}
		items, bytes := g.Items(), g.bytes()
		t := &w.tallies[g.class]
		if t.short && !st.takeTokens(g.class, items, now) {
			g.Verdict = DroppedRatelimit
			t.drops.add(items, bytes)
			t.dropped++
			continue
		}
		t.passes.add(items, bytes)
		w.written.add(g)
		w.keep++
		w.changed = w.changed || g.Route.Changed()
	}
	b.Whole = w.keep == len(b.Groups) && !w.changed
}

// takeTokens takes n tokens from a class's bucket, all or none. Exempt telemetry
// and a stream without a policy have no bucket to take them from.
func (st *streamRules) takeTokens(id int32, n, now int64) bool {
	if st.limiter == nil || id == st.exemptID {
		return true
	}
	return st.limiter.Take(int(id), n, now)
}

// write hands what is left to the sink. A sink that panics has failed like any
// other: the batch counts as refused and the process lives.
func (st *streamRules) write(ctx context.Context, b *Batch, w *work) (err error) {
	if w.keep == 0 && len(b.Families) == 0 {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("a bug in sink %q: %v\n%s", st.SinkName, p, debug.Stack())
		}
	}()
	// A sender that leaves now must not leave half a write behind: whether
	// the destination took it could not be known any more.
	return st.Sink.Write(context.WithoutCancel(ctx), b)
}
