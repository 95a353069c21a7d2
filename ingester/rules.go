package ingester

import (
	"sync"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/ratecontrol"
	"github.com/spillway-telemetry/spillway/relabel"
)

// DefaultClass takes what no rule matches.
const DefaultClass = "default"

// ExemptClass is the class that telemetry with the exempt label is counted
// under. No bucket belongs to it.
const ExemptClass = "kfuse_cp_class"

// ExemptLabel says which label marks telemetry that is never limited, and whether
// senders may use it when API keys are configured.
type ExemptLabel struct {
	Label, Value string
	// AnySender lets every sender use the label. Otherwise it is open while
	// no API keys are configured, and then only to keys that say so.
	AnySender bool
}

// StreamSettings is what configuration says of one stream.
type StreamSettings struct {
	Rules    *relabel.Rules
	Policy   *policy.Policy // nil: not limited
	Sink     Sink
	SinkName string
	// Silent answers remote write 2.0 as if nothing had been dropped.
	Silent bool
}

// streamRules is one generation of one stream. Nothing in it changes but
// counters, tokens and what the cache has learnt.
type streamRules struct {
	StreamSettings
	stream Stream
	exempt ExemptLabel
	keys   *Keys
	limits LabelLimits

	limiter  *ratecontrol.Limiter // nil: not limited
	view     *View
	routes   *routes
	counters *streamCounters
	classes  []*classCounters // by class id
	names    []string         // by class id
	budgets  []policy.Class   // by class id; none without a policy
	exemptID int32            // id behind the last class of the policy
	works    sync.Pool
}

// learn works out the route of a label set that is not in the cache.
func (st *streamRules) learn(sender *Sender, hash uint64, key []byte, w *work) Route {
	v, changed, encoded := st.decide(sender, key, w)
	if !changed {
		encoded = nil
	}
	return st.routes.insert(hash, sender.routeScope(), key, v, changed, encoded)
}

// decide applies the rules to a label set: the key's labels are added, then the
// relabel rules run, then the exempt label is looked for, then the class. The
// encoded labels are valid until the next call.
func (st *streamRules) decide(sender *Sender, key []byte, w *work) (v verdict, changed bool, encoded []byte) {
	in, why := w.set.read(key)
	if why == valid && st.stream == Metrics && in.IsEmpty() {
		why = ReasonNoLabels
	}
	if why != valid {
		return verdict{outcome: Invalid, reason: why}, false, nil
	}
	w.builder.Reset(sender.label(w.builder, in))
	if !st.Rules.Apply(w.builder) {
		return verdict{outcome: DroppedRelabel}, false, nil
	}
	out := w.builder.Labels()
	if why := checkNamed(st.stream, out); why != valid {
		return verdict{outcome: Invalid, reason: why}, false, nil
	}
	if w.set.tidied || !labels.Equal(in, out) {
		changed = true
		w.encoded = AppendLabels(w.encoded[:0], out)
	}
	return st.classify(sender, out), changed, w.encoded
}

func (st *streamRules) classify(sender *Sender, ls labels.Labels) verdict {
	if st.mayUseExempt(sender) && ls.Get(st.exempt.Label) == st.exempt.Value {
		return verdict{outcome: Exempt, class: st.exemptID}
	}
	if st.Policy == nil {
		return verdict{outcome: Admitted}
	}
	return verdict{outcome: Admitted, class: int32(st.Policy.Classify(ls))}
}

// mayUseExempt says whether the exempt label means anything on a sender's data.
func (st *streamRules) mayUseExempt(sender *Sender) bool {
	return st.exempt.AnySender || !st.keys.required() || sender != nil && sender.Exempt
}

// sameRoutes says that a label set has the same route under both generations.
func (st *streamRules) sameRoutes(o *streamRules) bool {
	if (st.Policy == nil) != (o.Policy == nil) || st.exempt != o.exempt || st.limits != o.limits {
		return false
	}
	return st.Rules.Equal(o.Rules) && (st.Policy == nil || st.Policy.SameRules(o.Policy)) && st.Sink == o.Sink && st.keys.equal(o.keys)
}

// classNames lists the classes of a policy by id, with the one of exempt
// telemetry behind them.
func classNames(budgets []policy.Class) []string {
	if budgets == nil {
		return []string{DefaultClass, ExemptClass}
	}
	names := make([]string, 0, len(budgets)+1)
	for _, c := range budgets {
		names = append(names, c.Name)
	}
	return append(names, ExemptClass)
}

func (s *Sender) routeScope() uint32 {
	if s == nil {
		return 0
	}
	return s.scope
}

// work is what one batch needs while it is processed. It is reused.
type work struct {
	set     labelSet
	builder *labels.Builder
	encoded []byte
	spelt   []byte // a label set of 2.0, in the encoding of 1.0

	tallies []tally // by class id
	touched []int32 // ids of the classes that the batch has groups of

	received, invalid, relabelled amount
	reasons                       [reasonCount]int64 // invalid items
	written                       Written
	misses, invalidGroups         int
	keep                          int  // groups on their way to the sink
	changed                       bool // some of them with other labels than they came with
}

// amount is a number of items and of the bytes that they came in.
type amount struct{ items, bytes int64 }

func (a *amount) add(items, bytes int64) {
	a.items += items
	a.bytes += bytes
}

// tally is what a batch holds for one class.
type tally struct {
	seen, short          bool
	wants, passes, drops amount
	dropped              int64 // groups
	rejected             int64 // of the items that pass, those that the sink called invalid
}

func (w *work) class(id int32) *tally {
	t := &w.tallies[id]
	if !t.seen {
		t.seen = true
		w.touched = append(w.touched, id)
	}
	return t
}

// refuse counts a group that ends before it is classified.
func (w *work) refuse(g *Group, items, bytes int64) {
	if g.Verdict == DroppedRelabel {
		w.relabelled.add(items, bytes)
		return
	}
	w.invalidGroups++
	w.invalid.add(items, bytes)
	w.reasons[g.reason] += max(items, 1)
}

func (st *streamRules) borrow() *work {
	if w, ok := st.works.Get().(*work); ok {
		return w
	}
	return &work{
		set:     labelSet{limits: st.limits, builder: labels.NewScratchBuilder(16)},
		builder: labels.NewBuilder(labels.EmptyLabels()),
		tallies: make([]tally, len(st.names)),
	}
}

func (st *streamRules) giveBack(w *work) {
	for _, id := range w.touched {
		w.tallies[id] = tally{}
	}
	*w = work{
		set: w.set, builder: w.builder, encoded: w.encoded[:0], spelt: w.spelt[:0],
		tallies: w.tallies, touched: w.touched[:0],
	}
	st.works.Put(w)
}
