package policy

import (
	"math/big"
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

const (
	// defaultClass is the name of the class for what no rule takes.
	defaultClass = "default"
	// exemptClass holds telemetry that is never limited. Only the ingester
	// assigns it, so a policy may not name it (P8).
	exemptClass = "kfuse_cp_class"
)

// streamNames are the streams that may have a policy, in the order in which
// they are shown.
var streamNames = [...]string{"metrics", "logs", "traces", "events", "rum"}

// Set holds the policies of all streams. It never changes after Load and is
// safe for concurrent use. The zero value, and nil, limit nothing.
type Set struct {
	streams  map[string]*Policy
	warnings []Warning
}

// Stream returns the policy of the stream of that name, nil where it has none:
// such a stream is not limited (P1).
func (s *Set) Stream(name string) *Policy {
	if s == nil {
		return nil
	}
	return s.streams[name]
}

// Warnings returns what is allowed but probably not meant (P13), sorted by
// line. The caller owns the slice.
func (s *Set) Warnings() []Warning {
	if s == nil {
		return nil
	}
	return slices.Clone(s.warnings)
}

// Policy is one stream's classes and rules. It never changes after Load and is
// safe for concurrent use.
type Policy struct {
	limits  limits
	classes []Class
	rules   []rule
	index   index
}

// Class is a named budget.
type Class struct {
	Name string
	// Rate is in items per second over all ingesters, exact. It is shared and
	// must not be written to, as RatePerIngester.
	Rate *big.Rat
	// SharePercent is floor(100 x Rate / cap rate) (P3).
	SharePercent int64
	// RatePerIngester is Rate / N in items per second, exact (P4).
	RatePerIngester *big.Rat
	// BurstPerIngester is in items, at least 1 (P5), but 0 where Rate is 0:
	// such a class has no bucket and loses every item (P6).
	BurstPerIngester int64
	// Configured is false for a class that a rule names and the policy does
	// not define (P7). Its Rate is 0.
	Configured bool
}

// Classes returns the configured classes in the order of the file, then
// unconfigured ones in the order in which rules name them, then default. The
// index of a class is its id. The caller owns the slice, but not the numbers
// that it points to.
func (p *Policy) Classes() []Class { return slices.Clone(p.classes) }

// Default returns the id of the class default.
func (p *Policy) Default() int { return len(p.classes) - 1 }

// Classify returns the id of the class that ls belongs to: that of the first
// rule whose matchers all match, else default's (P8). A label that ls lacks
// counts as empty (P10). The names of ls must be unique. It allocates nothing
// and does not keep ls.
func (p *Policy) Classify(ls labels.Labels) int {
	if i := p.index.first(ls, len(p.rules)); i < len(p.rules) {
		return p.rules[i].class
	}
	return p.Default()
}

// LabelNames returns the names of all labels that some matcher looks at,
// sorted. Two label sets that agree on these belong to the same class. The
// caller owns the slice.
func (p *Policy) LabelNames() []string {
	var names []string
	for _, r := range p.rules {
		for _, m := range r.matchers {
			names = append(names, m.Name)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// SameRules reports whether a class id that one of p and q gave means the same
// with the other: the same class names stand at the same ids, and the rules
// are the same. Rates may differ. nil, a stream without a policy, is the same
// as nil only.
func (p *Policy) SameRules(q *Policy) bool {
	if p == nil || q == nil {
		return p == q
	}
	sameName := func(a, b Class) bool { return a.Name == b.Name }
	return slices.EqualFunc(p.classes, q.classes, sameName) &&
		slices.EqualFunc(p.rules, q.rules, rule.equal)
}

// limits is what a stream's classes divide among them.
type limits struct {
	rate      *big.Rat // items per second over all ingesters
	burst     int64    // items over all ingesters, 1 to maxBurst
	ingesters int      // N, at least 1
}

// class works out what a class of the given rate may spend (P3 to P6). rate
// must not be above the cap's.
func (l limits) class(name string, rate *big.Rat) Class {
	c := Class{Name: name, Rate: rate, RatePerIngester: new(big.Rat), Configured: true}
	if rate.Sign() == 0 {
		return c
	}
	c.SharePercent = l.share(rate)
	c.RatePerIngester.Quo(rate, new(big.Rat).SetInt64(int64(l.ingesters)))
	c.BurstPerIngester = max(1, l.burstOf(c.SharePercent))
	return c
}

// share is floor(100 x rate / cap rate). The cap rate is above 0, as it is not
// below rate.
func (l limits) share(rate *big.Rat) int64 {
	q := new(big.Rat).Quo(rate, l.rate)
	q.Mul(q, big.NewRat(100, 1))
	return new(big.Int).Quo(q.Num(), q.Denom()).Int64()
}

// burstOf is floor(cap burst x share / (100 x N)). Dividing twice gives the
// same floor as dividing once by the product, and cannot overflow: maxBurst x
// 100 is below 2^60.
func (l limits) burstOf(share int64) int64 {
	return l.burst * share / 100 / int64(l.ingesters)
}

// newPolicy numbers the classes and binds the rules to them.
func newPolicy(s source) *Policy {
	p := &Policy{limits: s.limits, rules: make([]rule, len(s.rulesIn))}
	ids := make(map[string]int, len(s.budgets)+1)
	add := func(c Class) {
		ids[c.Name] = len(p.classes)
		p.classes = append(p.classes, c)
	}
	for _, b := range s.budgets {
		add(s.limits.class(b.name, b.rate))
	}
	for _, r := range s.rulesIn {
		if _, known := ids[r.class]; known || r.class == defaultClass {
			continue
		}
		add(Class{Name: r.class, Rate: new(big.Rat), RatePerIngester: new(big.Rat)})
	}
	add(s.limits.class(defaultClass, s.defaultRate))
	for i, r := range s.rulesIn {
		p.rules[i] = rule{class: ids[r.class], matchers: r.matchers}
	}
	p.index = newIndex(p.rules)
	return p
}
