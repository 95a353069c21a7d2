package policy

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

// TestP13CoverIsNeverFalse checks what covering claims against every label set:
// a rule said to be covered never matches what the covering rule does not, and
// a rule said to match nothing matches nothing.
func TestP13CoverIsNeverFalse(t *testing.T) {
	sets := allLabelSets()
	covered, contradictions := 0, 0
	for seed := range uint64(1000) {
		rules := randomRules(rand.New(rand.NewPCG(seed, 13)), someRegexp, true)
		oracle := newNaive(t, rules)
		p := loadRules(t, rules).Stream("logs")
		for i, by := range covering(p.rules) {
			_, nothing := p.rules[i].contradiction()
			if nothing {
				contradictions++
			}
			if by >= 0 {
				require.Less(t, by, i)
				covered++
			}
			for _, ls := range sets {
				if !oracle.matches(i, ls) {
					continue
				}
				if nothing || by >= 0 && !oracle.matches(by, ls) {
					t.Fatalf("seed %d: rules[%d] matches %s, although nothing = %t, covered by rules[%d]: %q", seed, i, ls, nothing, by, rules)
				}
			}
		}
	}
	require.Greater(t, covered, 500)
	require.Greater(t, contradictions, 100)
}

// TestP13CoverIsFound checks that among rules of equalities and lists of values
// alone, covering finds the first covering rule there is. All their values are
// in the universe, so trying every label set of it proves what is covered.
func TestP13CoverIsFound(t *testing.T) {
	sets := allLabelSets()
	lists := []string{"x|y", "y", "[xyz]", "xy|z", "x|xy|z"}
	for seed := range uint64(500) {
		rules := randomRules(rand.New(rand.NewPCG(seed, 14)), lists, false)
		oracle := newNaive(t, rules)
		p := loadRules(t, rules).Stream("logs")
		got := covering(p.rules)
		for i := range rules {
			mine := slices.DeleteFunc(slices.Clone(sets), func(ls labels.Labels) bool { return !oracle.matches(i, ls) })
			_, nothing := p.rules[i].contradiction()
			require.Equal(t, len(mine) == 0, nothing, "seed %d, rules[%d]: %q", seed, i, rules)
			if nothing {
				continue
			}
			want := -1
			for e := i - 1; e >= 0; e-- {
				if !slices.ContainsFunc(mine, func(ls labels.Labels) bool { return !oracle.matches(e, ls) }) {
					want = e
				}
			}
			require.Equal(t, want, got[i], "seed %d, rules[%d]: %q", seed, i, rules)
		}
	}
}

// TestP13CoverByNegation pins proofs that need the values which a matcher
// rejects.
func TestP13CoverByNegation(t *testing.T) {
	for _, c := range []struct {
		earlier, later string
		covered        bool
	}{
		{`a!="x"`, `a!="x", b="y"`, true},
		{`a!="x"`, `a="y"`, true},
		{`a!="x"`, `a="x"`, false},
		{`a!="x"`, `b="x"`, false},
		{`a!~"x|y"`, `a!="x", a!="y"`, true},
		{`a!~"x|y"`, `a!="x"`, false},
		{`a!~"x|y"`, `a!~"[xyz]"`, true},
		{`a!=""`, `a=~".+"`, true},
		{`a=~".+"`, `a!=""`, true},
		{`a=~".+"`, `a="x"`, true},
		{`a=~".+"`, `b="x"`, false},
		{`a=~".*"`, `b="x"`, true},
		{`a=""`, `a=""`, true},
		{`a=""`, `a=~""`, true},
		{`a=""`, `b="x"`, false},
		{`a=~"x.*"`, `a=~"x.*", b="y"`, true},
		{`a=~"x.*"`, `a=~"xx.*"`, false}, // true, but not provable here
		{`a=~"x.*"`, `a="xy"`, true},
		{`a=~"x|y|z"`, `a=~"x|w", a!="w"`, true},
	} {
		p := loadRules(t, []testRule{{"c0", strings.Split(c.earlier, ", ")}, {"c1", strings.Split(c.later, ", ")}}).Stream("logs")
		require.Equal(t, c.covered, covering(p.rules)[1] == 0, "%s before %s", c.earlier, c.later)
	}
}
