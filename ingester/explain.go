package ingester

import (
	"errors"
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/relabel"
)

// Explanation says what happens to a label set, step by step, and why. No token
// is taken for it.
type Explanation struct {
	Stream string            `json:"stream"`
	Labels map[string]string `json:"labels"`
	// Sender is the name of the API key that is assumed to send, if any.
	Sender string `json:"sender,omitempty"`
	// Outcome is admitted, exempt, dropped (relabel), dropped (ratelimit) or
	// invalid; Why says it in a sentence.
	Outcome string `json:"outcome"`
	Why     string `json:"why"`
	// Relabel has a step for each rule up to the one that dropped the set.
	Relabel []relabel.Step `json:"relabel"`
	// Relabelled is what the rules left; absent when they dropped it.
	Relabelled map[string]string `json:"relabelled,omitempty"`
	// Class is the class that pays; empty when none is asked.
	Class string `json:"class,omitempty"`
	// Policy says how each rule judged the set; absent without a policy and
	// for what never reached it.
	Policy *policy.Explanation `json:"policy,omitempty"`
	// Bucket is the class's budget and its tokens now.
	Bucket *ClassStatus `json:"bucket,omitempty"`
}

// Explain says what would happen to a label set in PromQL's notation if it came
// from the named API key now; an empty name is a sender without a key.
func (in *Ingester) Explain(stream, set, key string) (*Explanation, error) {
	s, ok := ParseStream(stream)
	if !ok {
		return nil, fmt.Errorf("stream %q is not one of metrics, logs, traces, events, rum", stream)
	}
	ls, err := parser.NewParser(parser.Options{}).ParseMetric(set)
	if err == nil && ls.IsEmpty() {
		err = errors.New("there is no label")
	}
	if err != nil {
		return nil, fmt.Errorf(`labels %q cannot be read: %w; write them as {__name__="up", team="a"}`, set, err)
	}
	g := in.generation.Load()
	sender, err := g.keys.named(key)
	if err != nil {
		return nil, err
	}
	st := g.streams[s]
	e := &Explanation{Stream: stream, Labels: ls.Map(), Sender: key, Relabel: []relabel.Step{}}
	st.explain(e, sender, ls, in.now())
	return e, nil
}

// named finds a key by its name.
func (k *Keys) named(name string) (*Sender, error) {
	if name == "" {
		return nil, nil
	}
	if k != nil {
		for _, s := range k.byDigest {
			if s.Name == name {
				return s, nil
			}
		}
	}
	return nil, fmt.Errorf("there is no API key with the name %q", name)
}

// explain runs the same steps as decide, and writes down what they do.
func (st *streamRules) explain(e *Explanation, sender *Sender, ls labels.Labels, now int64) {
	w := st.borrow()
	defer st.giveBack(w)
	in, why := w.set.read(AppendLabels(nil, ls))
	if why != valid {
		e.Outcome, e.Why = "invalid", reasonTexts[why].sentence
		return
	}
	in = sender.label(w.builder, in)
	e.Relabel = append(e.Relabel, st.Rules.Explain(in)...)
	w.builder.Reset(in)
	if !st.Rules.Apply(w.builder) {
		e.Outcome, e.Why = "dropped (relabel)", "a relabel rule drops it; no token is taken"
		return
	}
	out := w.builder.Labels()
	e.Relabelled = out.Map()
	if why := checkNamed(st.stream, out); why != valid {
		e.Outcome, e.Why = "invalid", "after relabelling, "+reasonTexts[why].sentence
		return
	}
	v := st.classify(sender, out)
	e.Class = st.names[v.class]
	if v.outcome == Exempt {
		e.Outcome, e.Why = "exempt", fmt.Sprintf("it has the exempt label %s=%q, so it is never limited", st.exempt.Label, st.exempt.Value)
		return
	}
	st.explainClass(e, out, now)
}

func (st *streamRules) explainClass(e *Explanation, ls labels.Labels, now int64) {
	if st.Policy == nil {
		e.Outcome, e.Why = "admitted", "the stream has no policy, so it is not limited"
		return
	}
	p := st.Policy.Explain(ls)
	e.Policy = &p
	for _, c := range st.status(now).Classes {
		if c.Name == e.Class {
			e.Bucket = &c
		}
	}
	matched := "no rule matches, so it belongs to default"
	if p.Rule >= 0 {
		matched = fmt.Sprintf("rule %d is the first whose matchers all match", p.Rule)
	}
	if len(p.AlsoMatching) > 0 {
		matched += fmt.Sprintf("; later rules that match too: %s", strings.Trim(fmt.Sprint(p.AlsoMatching), "[]"))
	}
	e.Outcome = "admitted"
	switch {
	case !e.Bucket.Configured:
		e.Outcome = "dropped (ratelimit)"
		e.Why = fmt.Sprintf("%s; it names class %s, which the policy does not define, and so everything is dropped", matched, e.Class)
	case e.Bucket.Tokens == nil:
		e.Outcome = "dropped (ratelimit)"
		e.Why = fmt.Sprintf("%s; class %s has rate 0, so everything is dropped", matched, e.Class)
	case *e.Bucket.Tokens < 1:
		e.Outcome = "dropped (ratelimit)"
		e.Why = fmt.Sprintf("%s; the bucket of class %s has no whole token now, and gets %g a second", matched, e.Class, e.Bucket.LocalRate)
	default:
		e.Why = fmt.Sprintf("%s; the bucket of class %s has %.0f tokens now, and one item costs one", matched, e.Class, *e.Bucket.Tokens)
	}
}

// label puts the API key's labels on a set.
func (s *Sender) label(b *labels.Builder, ls labels.Labels) labels.Labels {
	if s == nil || s.Labels.IsEmpty() {
		return ls
	}
	b.Reset(ls)
	s.Labels.Range(func(l labels.Label) { b.Set(l.Name, l.Value) })
	return b.Labels()
}
