package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

// testRule is a rule as a file has it.
type testRule struct {
	class    string
	matchers []string
}

// policyFile writes a policy for logs with the given rules, of which those for
// the classes in configured are not unconfigured.
func policyFile(configured []string, rules []testRule) []byte {
	var b strings.Builder
	b.WriteString("streams:\n  logs:\n    rate: 100000\n    burst: 200000\n    classes:\n")
	for _, c := range configured {
		fmt.Fprintf(&b, "      - {name: %q, rate: 1}\n", c)
	}
	b.WriteString("    rules:\n")
	for _, r := range rules {
		fmt.Fprintf(&b, "      - class: %q\n        matchers:\n", r.class)
		for _, m := range r.matchers {
			// YAML's single quotes escape nothing but themselves.
			fmt.Fprintf(&b, "          - '%s'\n", strings.ReplaceAll(m, "'", "''"))
		}
	}
	return []byte(b.String())
}

// naive is the oracle of Classify: every rule in turn, by Prometheus's own
// parser and matchers.
type naive struct {
	classes  []string
	matchers [][]*labels.Matcher
}

func newNaive(t testing.TB, rules []testRule) naive {
	var n naive
	for _, r := range rules {
		ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector("{" + strings.Join(r.matchers, ",") + "}")
		require.NoError(t, err)
		n.classes = append(n.classes, r.class)
		n.matchers = append(n.matchers, ms)
	}
	return n
}

func (n naive) matches(i int, ls labels.Labels) bool {
	for _, m := range n.matchers[i] {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// first returns the rule that wins, -1 for none.
func (n naive) first(ls labels.Labels) int {
	for i := range n.matchers {
		if n.matches(i, ls) {
			return i
		}
	}
	return -1
}

func (n naive) class(ls labels.Labels) string {
	if i := n.first(ls); i >= 0 {
		return n.classes[i]
	}
	return "default"
}

// The universe of the random tests is small, so that rules overlap, cover and
// contradict each other, and all its label sets can be tried.
var (
	someNames  = []string{"a", "b", "__name__"}
	someValues = []string{"", "x", "y", "z", "xy"}
	someRegexp = []string{"x|y", "x.*", ".*", ".+", "", "x|", "[xyz]", "(?i)X", "x(y|z)?", "y", "x|x", ".", "(x|y)z?", "z|q"}
)

func randomMatcher(rnd *rand.Rand, regexps []string, negative bool) string {
	op, value := "=", someValues[rnd.IntN(len(someValues))]
	if n := rnd.IntN(len(regexps) + len(someValues)); n < len(regexps) {
		op, value = "=~", regexps[n]
	}
	if negative && rnd.IntN(3) == 0 {
		op = map[string]string{"=": "!=", "=~": "!~"}[op]
	}
	return someNames[rnd.IntN(len(someNames))] + op + strconv.Quote(value)
}

func randomRules(rnd *rand.Rand, regexps []string, negative bool) []testRule {
	rules := make([]testRule, 1+rnd.IntN(12))
	for i := range rules {
		rules[i].class = "c" + strconv.Itoa(rnd.IntN(5))
		if rnd.IntN(10) == 0 {
			rules[i].class = "default"
		}
		for range 1 + rnd.IntN(4) {
			rules[i].matchers = append(rules[i].matchers, randomMatcher(rnd, regexps, negative))
		}
	}
	return rules
}

func loadRules(t testing.TB, rules []testRule) *Set {
	set, err := Load(policyFile([]string{"c0", "c1", "c2"}, rules), "test.yaml", 1)
	require.NoError(t, err)
	return set
}

// allLabelSets returns every label set of the universe, those that lack labels
// included, and some with a label that no rule names.
func allLabelSets() []labels.Labels {
	sets := []labels.Labels{labels.EmptyLabels(), labels.FromStrings("zz", "x")}
	for _, name := range someNames {
		for _, ls := range slices.Clone(sets) {
			for _, v := range someValues {
				b := labels.NewBuilder(ls)
				b.Set(name, v)
				sets = append(sets, b.Labels())
			}
		}
	}
	// The builder drops empty values. A sender may well send one.
	return append(sets, labels.FromStrings("a", "", "b", "x"), labels.FromStrings("__name__", "", "a", ""))
}

// TestP8FirstMatchingRuleWins compares Classify and Explain with the oracle on
// every label set of the universe, for seeded random rules.
func TestP8FirstMatchingRuleWins(t *testing.T) {
	sets := allLabelSets()
	for seed := range uint64(300) {
		rules := randomRules(rand.New(rand.NewPCG(seed, 8)), someRegexp, true)
		oracle := newNaive(t, rules)
		p := loadRules(t, rules).Stream("logs")
		classes := p.Classes()
		for _, ls := range sets {
			id := p.Classify(ls)
			if got, want := classes[id].Name, oracle.class(ls); got != want {
				t.Fatalf("seed %d: class %s, want %s for %s, rules %q", seed, got, want, ls, rules)
			}
			if seed%5 > 0 {
				continue
			}
			if got, want := p.Explain(ls), oracle.explain(ls, id); !reflect.DeepEqual(got, want) {
				require.Equal(t, want, got, "seed %d, %s, rules %q", seed, ls, rules)
			}
		}
	}
}

// explain is what Explain should say of a label set whose class has that id.
func (n naive) explain(ls labels.Labels, id int) Explanation {
	e := Explanation{Class: n.class(ls), ClassID: id, Rule: n.first(ls), AlsoMatching: []int{}}
	for i, class := range n.classes {
		o := RuleOutcome{Class: class, Matches: n.matches(i, ls)}
		if o.Matches && i != e.Rule {
			e.AlsoMatching = append(e.AlsoMatching, i)
		}
		for _, m := range n.matchers[i] {
			v := ls.Get(m.Name)
			o.Matchers = append(o.Matchers, MatcherOutcome{Matcher: m.String(), Value: v, Present: ls.Has(m.Name), Matches: m.Matches(v)})
		}
		e.Rules = append(e.Rules, o)
	}
	return e
}

// TestIndexTriesFewRules checks what keeps many classes as cheap as few: no
// label set of a policy of 1000 teams has more than a handful of candidates,
// although all rules share a label value and half of them list several values.
func TestIndexTriesFewRules(t *testing.T) {
	p := loadRules(t, manyRules(1000)).Stream("logs")
	require.Empty(t, p.index.rest)
	for _, byValue := range p.index.keyed {
		for _, candidates := range byValue {
			require.LessOrEqual(t, len(candidates), 2)
		}
	}
}

func manyRules(n int) []testRule {
	rules := make([]testRule, n)
	for i := range rules {
		team := fmt.Sprintf(`team="team-%d"`, i)
		if i%2 == 1 {
			team = fmt.Sprintf(`team=~"team-%d|squad-%d|crew-%d"`, i, i, i)
		}
		rules[i] = testRule{"class-" + strconv.Itoa(i), []string{`env="prod"`, team, `level!="debug"`}}
	}
	return rules
}

// manyLabelSets are log lines of n teams, and as many of nobody.
func manyLabelSets(n int) []labels.Labels {
	rnd := rand.New(rand.NewPCG(1, 2))
	sets := make([]labels.Labels, 1024)
	for i := range sets {
		team := "team-" + strconv.Itoa(rnd.IntN(2*n))
		sets[i] = labels.FromStrings(
			"cluster", "eu-west-1", "container", "app", "env", "prod", "host", "ip-10-0-"+strconv.Itoa(rnd.IntN(256)),
			"kube_namespace", "shop", "level", "info", "pod_name", "checkout-"+strconv.Itoa(rnd.IntN(100000)),
			"service", "checkout", "source", "kubernetes", "team", team, "version", "1.2.3", "zone", "eu-west-1a")
	}
	return sets
}

func TestClassifyAllocatesNothing(t *testing.T) {
	p := loadRules(t, append(manyRules(100), testRule{"c0", []string{`pod_name=~"check.*9"`}})).Stream("logs")
	sets := manyLabelSets(100)
	i := 0
	require.Zero(t, testing.AllocsPerRun(2000, func() {
		p.Classify(sets[i%len(sets)])
		i++
	}))
}

func BenchmarkClassify(b *testing.B) {
	for _, n := range []int{10, 1000, 10000} {
		b.Run(fmt.Sprintf("%dclasses", n), func(b *testing.B) {
			p := loadRules(b, manyRules(n)).Stream("logs")
			sets := manyLabelSets(n)
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				p.Classify(sets[i%len(sets)])
				i++
			}
		})
	}
}

// BenchmarkLoad loads 10,000 rules that are told apart by an equality, by a
// regular expression alone, and by one beside an equality that all have.
func BenchmarkLoad(b *testing.B) {
	regexps, mixed := make([]testRule, 10000), make([]testRule, 10000)
	for i := range regexps {
		pod := fmt.Sprintf(`pod=~"team-%d-.*"`, i)
		regexps[i] = testRule{"c0", []string{pod, `env!="test"`}}
		mixed[i] = testRule{"c0", []string{`env="prod"`, pod}}
	}
	for name, rules := range map[string][]testRule{"equalities": manyRules(10000), "regexps": regexps, "mixed": mixed} {
		b.Run(name, func(b *testing.B) {
			file := policyFile([]string{"c0"}, rules)
			for b.Loop() {
				if _, err := Load(file, "policy.yaml", 4); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestRulesShareMatchers checks that a matcher which many rules repeat is parsed
// and kept once, and a bad one is refused wherever it stands.
func TestRulesShareMatchers(t *testing.T) {
	p := loadRules(t, manyRules(3)).Stream("logs")
	require.Same(t, p.rules[0].matchers[0].Matcher, p.rules[2].matchers[0].Matcher)
	require.NotSame(t, p.rules[0].matchers[1].Matcher, p.rules[2].matchers[1].Matcher)
	bad := testRule{"c0", []string{`a=~"("`}}
	_, err := Load(policyFile(nil, []testRule{bad, bad}), "test.yaml", 1)
	var problems Problems
	require.ErrorAs(t, err, &problems)
	require.Len(t, problems, 2)
}
