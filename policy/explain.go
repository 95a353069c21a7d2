package policy

import "github.com/prometheus/prometheus/model/labels"

// Explanation says how the rules judged a label set.
type Explanation struct {
	// Class is the name, ClassID the id of the class that the set belongs to.
	Class   string `json:"class"`
	ClassID int    `json:"class_id"`
	// Rule is the index of the rule that won, -1 where none matches and the
	// class is default.
	Rule int `json:"rule"`
	// AlsoMatching are the later rules that match too, and would win if the
	// ones before them did not.
	AlsoMatching []int `json:"also_matching"`
	// Rules are all rules, in order.
	Rules []RuleOutcome `json:"rules"`
}

// RuleOutcome says how one rule judged a label set.
type RuleOutcome struct {
	Class    string           `json:"class"`
	Matches  bool             `json:"matches"`
	Matchers []MatcherOutcome `json:"matchers"`
}

// MatcherOutcome says how one matcher judged a label set.
type MatcherOutcome struct {
	// Matcher is the matcher as Prometheus writes it.
	Matcher string `json:"matcher"`
	// Value is what the matcher saw: empty where the label is missing.
	Value string `json:"value"`
	// Present is false where the label is missing.
	Present bool `json:"present"`
	Matches bool `json:"matches"`
}

// Explain tries every rule and every matcher on ls, which it does not keep. It
// is for people: Classify gives the same class much faster.
func (p *Policy) Explain(ls labels.Labels) Explanation {
	e := Explanation{
		ClassID:      p.Default(),
		Rule:         -1,
		AlsoMatching: []int{},
		Rules:        make([]RuleOutcome, len(p.rules)),
	}
	for i, r := range p.rules {
		o := p.judge(r, ls)
		e.Rules[i] = o
		switch {
		case !o.Matches:
		case e.Rule < 0:
			e.Rule, e.ClassID = i, r.class
		default:
			e.AlsoMatching = append(e.AlsoMatching, i)
		}
	}
	e.Class = p.classes[e.ClassID].Name
	return e
}

func (p *Policy) judge(r rule, ls labels.Labels) RuleOutcome {
	o := RuleOutcome{
		Class:    p.classes[r.class].Name,
		Matches:  true,
		Matchers: make([]MatcherOutcome, len(r.matchers)),
	}
	for i, m := range r.matchers {
		v := ls.Get(m.Name)
		o.Matchers[i] = MatcherOutcome{
			Matcher: m.String(), Value: v, Present: ls.Has(m.Name), Matches: m.Matches(v),
		}
		o.Matches = o.Matches && o.Matchers[i].Matches
	}
	return o
}
