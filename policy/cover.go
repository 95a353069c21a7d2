package policy

import "slices"

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
func covering(rules []rule, x index) []int {
	out := make([]int, len(rules))
	for i := range rules {
		out[i] = firstCover(rules, x, i)
	}
	return out
}

// firstCover looks for rules that cover rules[i] only where they can be filed:
// a rule with a key accepts for its label only the values of the key, so if it
// covers rules[i], then rules[i] leaves a finite set of values to that label,
// and the other rule is filed under each of them.
func firstCover(rules []rule, x index, i int) int {
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
	for _, m := range rules[i].matchers {
		if values, finite := rules[i].leaves(m.Name); finite && len(values) > 0 {
			try(x.keyed[m.Name][values[0]])
		}
	}
	try(x.rest)
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
