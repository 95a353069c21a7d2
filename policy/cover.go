package policy

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// Whether an earlier rule covers a later one, so that the later one never wins,
// is decided only where it can be proved: a false alarm would send somebody
// looking for a mistake that is not there.
//
// Rule e covers rule r if each matcher of e accepts every value that r leaves
// for its label. r leaves to a label the values that all of r's matchers on it
// accept; where r has none, that is every value, the empty one (no label)
// included.

// covering returns for each rule the first earlier rule that covers it, -1 if
// none is known to.
func covering(rules []rule) []int {
	f := file(rules)
	out := make([]int, len(rules))
	for i := range rules {
		out[i] = f.firstCover(rules, i)
	}
	return out
}

// filed keeps covering from comparing every two rules. A rule is filed under
// one of its matchers, its witness: a rule that it covers must imply that one
// too, which can be seen from the other side.
type filed struct {
	// byValue has a rule under each value that its witness accepts. What the
	// rule covers leaves the label some of these values and no other.
	byValue map[pair][]int
	// byMatcher and byName have a rule whose witness is a regular expression
	// without a list of values. What the rule covers has the same matcher, or
	// leaves the label finitely many values.
	byMatcher map[matcherKey][]int
	byName    map[string][]int
	// rest are the rules all of whose matchers accept all but certain values.
	rest []int
}

// matcherKey tells matchers apart.
type matcherKey struct {
	op labels.MatchType
	pair
}

func (m *matcher) key() matcherKey { return matcherKey{m.Type, pair{m.Name, m.Value}} }

func file(rules []rule) filed {
	f := filed{byValue: map[pair][]int{}, byMatcher: map[matcherKey][]int{}, byName: map[string][]int{}}
	uses := countUses(rules)
	for i := range rules {
		switch w := witness(&rules[i], uses); {
		case w == nil:
			f.rest = append(f.rest, i)
		case w.only == nil:
			f.byMatcher[w.key()] = append(f.byMatcher[w.key()], i)
			f.byName[w.Name] = append(f.byName[w.Name], i)
		default:
			for _, v := range w.only {
				p := pair{w.Name, v}
				f.byValue[p] = append(f.byValue[p], i)
			}
		}
	}
	return f
}

// countUses counts how often each matcher occurs.
func countUses(rules []rule) map[matcherKey]int {
	uses := map[matcherKey]int{}
	for i := range rules {
		for j := range rules[i].matchers {
			uses[rules[i].matchers[j].key()]++
		}
	}
	return uses
}

// witness returns the matcher of r that occurs the least, so that few rules
// share a place; nil if r has none that can be filed.
func witness(r *rule, uses map[matcherKey]int) *matcher {
	var best *matcher
	for i := range r.matchers {
		m := &r.matchers[i]
		if m.allBut == nil && (best == nil || uses[m.key()] < uses[best.key()]) {
			best = m
		}
	}
	return best
}

// firstCover returns the first rule that covers rules[i], -1 if none does. It may
// miss some where rules[i] is a contradiction.
func (f *filed) firstCover(rules []rule, i int) int {
	best := i
	try := func(candidates []int) {
		for _, e := range candidates {
			if e >= best {
				return
			}
			if rules[e].covers(&rules[i]) {
				best = e
			}
		}
	}
	for j := range rules[i].matchers {
		m := &rules[i].matchers[j]
		try(f.byMatcher[m.key()])
		if values, finite := rules[i].leaves(m.Name); finite && len(values) > 0 {
			try(f.byValue[pair{m.Name, values[0]}])
			try(f.byName[m.Name])
		}
	}
	try(f.rest)
	if best == i {
		return -1
	}
	return best
}

// covers reports that every label set that r matches is known to match e too.
func (e *rule) covers(r *rule) bool {
	for i := range e.matchers {
		if !r.implies(&e.matchers[i]) {
			return false
		}
	}
	return true
}

// implies reports that m is known to accept every value that r leaves to m's
// label.
func (r *rule) implies(m *matcher) bool {
	for i := range r.matchers {
		if r.matchers[i].equal(m) {
			return true
		}
	}
	if m.allBut != nil && !slices.ContainsFunc(m.allBut, func(v string) bool { return r.accepts(m.Name, v) }) {
		return true
	}
	values, finite := r.leaves(m.Name)
	return finite && !slices.ContainsFunc(values, func(v string) bool { return !m.Matches(v) })
}

// leaves returns the values that r leaves to a label, if they are known to be
// finitely many.
func (r *rule) leaves(name string) (values []string, finite bool) {
	for i := range r.matchers {
		m := &r.matchers[i]
		if m.only == nil || m.Name != name {
			continue
		}
		for _, v := range m.only {
			if r.accepts(name, v) {
				values = append(values, v)
			}
		}
		return values, true
	}
	return nil, false
}

// accepts reports whether all matchers of r on the label accept value.
func (r *rule) accepts(name, value string) bool {
	for i := range r.matchers {
		m := &r.matchers[i]
		if m.Name == name && !m.Matches(value) {
			return false
		}
	}
	return true
}

// contradiction returns a label that r leaves no value to: r matches nothing.
func (r *rule) contradiction() (name string, found bool) {
	for i := range r.matchers {
		name := r.matchers[i].Name
		if values, finite := r.leaves(name); finite && len(values) == 0 {
			return name, true
		}
	}
	return "", false
}
