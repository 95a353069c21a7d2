package policy

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"
)

// index finds the first rule that matches a label set without trying them all.
//
// A rule with a matcher that accepts only certain values, none of them empty,
// can match a label set only if the set has one of these pairs of name and
// value. The rule is filed under the pairs of one such matcher, its key, and is
// tried for label sets with such a pair. All other rules may match label sets
// that lack every label they name, so they are tried for each set.
type index struct {
	// keyed[name][value] are the rules filed under that pair, ascending.
	keyed map[string]map[string][]candidate
	// rest are the rules without a key, ascending.
	rest []candidate
}

// candidate is a rule that may match, and the matchers that decide it: all but
// the key. It holds what a decision needs in as few places as possible, since
// with many rules nearly every place is a wait for memory.
type candidate struct {
	rule     int
	matchers []*labels.Matcher
}

func newIndex(rules []rule) index {
	x := index{keyed: map[string]map[string][]candidate{}}
	uses := countPairs(rules)
	for i, r := range rules {
		key := rarest(r, uses)
		c := candidate{rule: i}
		for j := range r.matchers {
			if m := &r.matchers[j]; m != key {
				c.matchers = append(c.matchers, m.Matcher)
			}
		}
		if key == nil {
			x.rest = append(x.rest, c)
			continue
		}
		byValue := x.keyed[key.Name]
		if byValue == nil {
			byValue = map[string][]candidate{}
			x.keyed[key.Name] = byValue
		}
		for _, v := range key.only {
			byValue[v] = append(byValue[v], c)
		}
	}
	return x
}

// first returns the lowest index of a rule that matches ls, none if no rule
// does. The names of ls are unique.
func (x *index) first(ls labels.Labels, none int) int {
	best := none
	ls.Range(func(l labels.Label) {
		best = lowest(x.keyed[l.Name][l.Value], ls, best)
	})
	return lowest(x.rest, ls, best)
}

// lowest returns the first of the candidates, which ascend, that is below best
// and matches ls; best if there is none.
func lowest(candidates []candidate, ls labels.Labels, best int) int {
	for i := range candidates {
		c := &candidates[i]
		if c.rule >= best {
			break
		}
		if c.matches(ls) {
			return c.rule
		}
	}
	return best
}

func (c *candidate) matches(ls labels.Labels) bool {
	for _, m := range c.matchers {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// pair is a label's name and value.
type pair struct{ name, value string }

// countPairs counts for each pair the matchers that could be filed under it.
func countPairs(rules []rule) map[pair]int {
	uses := map[pair]int{}
	for _, r := range rules {
		for _, m := range r.matchers {
			if !canBeKey(m) {
				continue
			}
			for _, v := range m.only {
				uses[pair{m.Name, v}]++
			}
		}
	}
	return uses
}

// rarest returns the matcher of r whose most used pair is used the least, so
// that few rules share a place in the index; nil if r can have no key.
func rarest(r rule, uses map[pair]int) *matcher {
	var best *matcher
	fewest := 0
	for i := range r.matchers {
		m := &r.matchers[i]
		if !canBeKey(*m) {
			continue
		}
		most := 0
		for _, v := range m.only {
			most = max(most, uses[pair{m.Name, v}])
		}
		if best == nil || most < fewest {
			best, fewest = m, most
		}
	}
	return best
}

func canBeKey(m matcher) bool { return m.only != nil && !slices.Contains(m.only, "") }
