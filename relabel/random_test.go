package relabel

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// A few names and values, so that rules often meet what others left.
func names() []string {
	return []string{"a", "b", "ab", "env", "__name__", "__tmp_x", "label with ünicode", "a.b"}
}

func values() []string {
	return []string{"", "a", "b", "ab", "env", "prod", "Prod", "a;b", "x-1", "x\ny", "$1", "täg"}
}

func pick[T any](rnd *rand.Rand, of []T) T { return of[rnd.IntN(len(of))] }

func randomLabels(rnd *rand.Rand) labels.Labels {
	b := labels.NewBuilder(labels.EmptyLabels())
	for range rnd.IntN(7) {
		b.Set(pick(rnd, names()), pick(rnd, values()))
	}
	return b.Labels()
}

// randomRule is a rule as a user might write it, sometimes a wrong one.
func randomRule(rnd *rand.Rand) map[string]any {
	actions := []string{
		"replace", "Replace", "keep", "drop", "keepequal", "dropequal", "hashmod",
		"labelmap", "labeldrop", "labelkeep", "lowercase", "UPPERCASE",
	}
	rule := map[string]any{}
	action := "replace"
	if rnd.IntN(5) > 0 {
		action = pick(rnd, actions)
		rule["action"] = action
	}
	named := action == "labeldrop" || action == "labelkeep"
	compares := action == "keepequal" || action == "dropequal"
	if odd := rnd.IntN(30) == 0; odd || !named {
		var from []string
		for range rnd.IntN(3) {
			from = append(from, pick(rnd, names()))
		}
		rule["source_labels"] = from
		if rnd.IntN(4) == 0 && (odd || !compares) {
			rule["separator"] = pick(rnd, []string{"", "-", ";;", "a"})
		}
	}
	if rnd.IntN(4) > 0 && (!compares || rnd.IntN(30) == 0) {
		rule["regex"] = pick(rnd, []string{
			"", ".*", "(.*)", "a", "a|b", "(a)(.*)", "(?i:prod)", ".+;.*", "__.*", "(.)(.)?", "env|prod", "(?P<n>.+)-1", "[^_]+",
		})
	}
	if rnd.IntN(12) > 0 && !named {
		rule["target_label"] = pick(rnd, append(names(), "$1", "x_$1", "${2}", "x_${n}_y", "$$"))
	}
	if rnd.IntN(2) == 0 && (action == "replace" || action == "Replace" || action == "labelmap") {
		rule["replacement"] = pick(rnd, []string{"", "b", "$1", "${1}_x", "$2", "__tmp_$1", "fixed"})
	}
	if action == "hashmod" || rnd.IntN(60) == 0 {
		rule["modulus"] = rnd.IntN(5)
	}
	return rule
}

// readByLibrary is what the library makes of a rule by itself.
func readByLibrary(rule map[string]any) (*relabel.Config, error) {
	text, err := yaml.Marshal(rule)
	if err != nil {
		return nil, err
	}
	var c relabel.Config
	if err := yaml.Unmarshal(text, &c); err != nil {
		return nil, err
	}
	return &c, c.Validate(model.UTF8Validation)
}

// randomRules are good rules, as we and as the library read them.
func randomRules(t testing.TB, rnd *rand.Rand) (*Rules, []*relabel.Config) {
	var rules []map[string]any
	var oracle []*relabel.Config
	for range rnd.IntN(6) {
		rule := randomRule(rnd)
		if c, err := readByLibrary(rule); err == nil {
			rules, oracle = append(rules, rule), append(oracle, c)
		}
	}
	r, err := parse(t, rules)
	require.NoError(t, err)
	return r, oracle
}

func parse(t testing.TB, rules any) (*Rules, error) {
	text, err := yaml.Marshal(rules)
	require.NoError(t, err)
	return parseText(t, string(text))
}

func parseText(t testing.TB, text string) (*Rules, error) {
	var node yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(text), &node))
	return Parse(&node)
}

func apply(r *Rules, ls labels.Labels) (labels.Labels, bool) {
	b := labels.NewBuilder(ls)
	if !r.Apply(b) {
		return labels.EmptyLabels(), false
	}
	return b.Labels(), true
}

// The library decides which rules are good, and what they do to which labels.
func TestAgainstTheLibrary(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	did := map[string]int{}
	for range 4000 {
		r, oracle := randomRules(t, rnd)
		ls := randomLabels(rnd)
		b := labels.NewBuilder(ls)
		wantKeep := relabel.ProcessBuilder(b, oracle...)
		got, keep := apply(r, ls)
		require.Equal(t, wantKeep, keep)
		if keep {
			require.True(t, labels.Equal(b.Labels(), got), "%s: want %s, got %s", ls, b.Labels(), got)
		}
		for _, s := range r.Explain(ls) {
			var rule struct{ Action string }
			require.NoError(t, yaml.Unmarshal([]byte(s.Rule), &rule))
			did[fmt.Sprintf("%s changed=%t dropped=%t", rule.Action, s.Changed, s.Dropped)]++
		}
	}
	t.Log(did)
	for _, action := range []relabel.Action{"replace", "labelmap", "labeldrop", "labelkeep", "lowercase", "uppercase", "hashmod"} {
		require.Greater(t, did[fmt.Sprintf("%s changed=true dropped=false", action)], 50)
	}
	for _, action := range []relabel.Action{"keep", "drop", "keepequal", "dropequal"} {
		require.Greater(t, did[fmt.Sprintf("%s changed=false dropped=true", action)], 50)
		require.Greater(t, did[fmt.Sprintf("%s changed=false dropped=false", action)], 50)
	}
}

func TestGoodAndBadRulesAreTheLibrarys(t *testing.T) {
	rnd := rand.New(rand.NewPCG(2, 2))
	bad := 0
	for range 4000 {
		rule := randomRule(rnd)
		_, want := readByLibrary(rule)
		_, got := parse(t, []any{rule})
		require.Equal(t, want == nil, got == nil, "%v: library %v, we %v", rule, want, got)
		if want != nil {
			require.ErrorContains(t, got, want.Error())
			bad++
		}
	}
	require.Greater(t, bad, 200)
	require.Less(t, bad, 2000)
}

// The last step of an explanation is what Apply does; the steps join up.
func TestExplainIsWhatApplyDoes(t *testing.T) {
	rnd := rand.New(rand.NewPCG(3, 2))
	for range 3000 {
		r, _ := randomRules(t, rnd)
		ls := randomLabels(rnd)
		got, keep := apply(r, ls)
		steps := r.Explain(ls)
		if r.Empty() {
			require.Empty(t, steps)
			continue
		}
		last := steps[len(steps)-1]
		require.Equal(t, keep, !last.Dropped)
		if keep {
			require.Len(t, steps, len(r.configs))
			require.True(t, labels.Equal(got, last.After), "%s %v\n%s", ls, steps, got)
		}
		at := ls
		for i, s := range steps {
			require.True(t, labels.Equal(at, s.Before), "%s %v\n%v", ls, steps, at)
			require.Equal(t, s.Changed, !labels.Equal(s.Before, s.After))
			require.Equal(t, s.Changed, s.Why == "")
			require.False(t, s.Dropped && (s.Changed || i < len(steps)-1))
			at = s.After
		}
	}
}

// A rule's text is that rule.
func TestTextReadsBack(t *testing.T) {
	rnd := rand.New(rand.NewPCG(4, 2))
	for range 1500 {
		r, _ := randomRules(t, rnd)
		list := "[]\n"
		for i, c := range r.configs {
			require.NotContains(t, text(c), "\n")
			if i == 0 {
				list = ""
			}
			list += "- " + text(c) + "\n"
		}
		again, err := parseText(t, list)
		require.NoError(t, err, list)
		require.True(t, r.Equal(again), list)
	}
}

// What the footprint says is not read has no influence, and what it says is not
// written does not change.
func TestFootprintIsSound(t *testing.T) {
	rnd := rand.New(rand.NewPCG(5, 2))
	unread, unwritten := 0, 0
	for range 6000 {
		r, _ := randomRules(t, rnd)
		f := r.Footprint()
		ls := randomLabels(rnd)
		name := pick(rnd, names())
		other := labels.NewBuilder(ls).Set(name, pick(rnd, values())).Labels()
		after, keep := apply(r, ls)
		otherAfter, otherKeep := apply(r, other)
		if !f.Reads(name) {
			unread++
			require.Equal(t, keep, otherKeep)
			require.True(t, labels.Equal(without(after, name), without(otherAfter, name)))
		}
		if !keep {
			continue
		}
		for _, name := range append(names(), "x_a", "__tmp_a", "fixed") {
			if !f.Writes(name) {
				unwritten++
				require.Equal(t, ls.Get(name), after.Get(name))
			}
		}
		after.Range(func(l labels.Label) {
			require.True(t, l.Value == ls.Get(l.Name) || f.Writes(l.Name), l.Name)
		})
	}
	require.Greater(t, unread, 1000)
	require.Greater(t, unwritten, 10_000)
}

func without(ls labels.Labels, name string) labels.Labels {
	return labels.NewBuilder(ls).Del(name).Labels()
}
