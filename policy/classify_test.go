package policy

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

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
		for i, by := range covering(p.rules, p.index) {
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
		got := covering(p.rules, p.index)
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
		require.Equal(t, c.covered, covering(p.rules, p.index)[1] == 0, "%s before %s", c.earlier, c.later)
	}
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

// BenchmarkLoad loads 10,000 classes with a rule each, whose warnings are
// quick or slow to find.
func BenchmarkLoad(b *testing.B) {
	regexps := make([]testRule, 10000)
	for i := range regexps {
		regexps[i] = testRule{"c0", []string{fmt.Sprintf(`pod=~"team-%d-.*"`, i), `env!="test"`}}
	}
	for name, rules := range map[string][]testRule{"keyed": manyRules(10000), "regexps": regexps} {
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

// FuzzMatchers takes any text for a matcher. What parseMatcher accepts, the
// Prometheus parser reads as the same one matcher; what it refuses, that parser
// refuses too or reads as something other than one matcher. Rules made of such
// matchers classify as the oracle does.
func FuzzMatchers(f *testing.F) {
	for _, seed := range [][2]string{
		{`a="x"`, `b!="y"`}, {`"a.b"=~"x|y"`, `a!~".+"`}, {` a = 'x' `, "a=~`x\\d`"}, {`a="x",`, `"x"`},
		{`a="x"} #`, `a=""`}, {`"a\x2eb"="\u0041"`, `a=~"(?i)x"`}, {`a=~"x|"`, `a=~""`}, {`a=~"[x-z]|\x{fffd}"`, `a=~"(x"`},
		{`a=~"^x$"`, `a=~"(^x|y$)"`}, {`a=~"(|x)(y|)"`, `a!~"x*"`},
	} {
		f.Add(seed[0], seed[1], "x", "y")
	}
	f.Fuzz(func(t *testing.T, first, second, u, v string) {
		var rules []rule
		var oracle naive
		for _, s := range []string{first, second} {
			m, ok := checkParse(t, s)
			if !ok {
				continue
			}
			rules = append(rules, rule{matchers: []matcher{m}})
			oracle.matchers = append(oracle.matchers, []*labels.Matcher{m.Matcher})
			checkValues(t, m, u, v)
		}
		if len(rules) == 2 {
			rules = append(rules, rule{matchers: []matcher{rules[0].matchers[0], rules[1].matchers[0]}})
			oracle.matchers = append(oracle.matchers, []*labels.Matcher{oracle.matchers[0][0], oracle.matchers[1][0]})
		}
		slices.Reverse(rules)
		slices.Reverse(oracle.matchers)
		checkRules(t, rules, oracle, u, v)
	})
}

func checkParse(t *testing.T, s string) (matcher, bool) {
	got, err := parseMatcher(s)
	want, wantErr := parser.NewParser(parser.Options{}).ParseMetricSelector("{" + s + "}")
	if err != nil {
		trailing := strings.Contains(s, "#") || strings.HasSuffix(strings.TrimSpace(s), ",")
		require.True(t, wantErr != nil || trailing || !isMatcher(want, s), "%q refused: %v", s, err)
		return got, false
	}
	require.NoError(t, wantErr, "%q", s)
	require.Len(t, want, 1)
	require.Equal(t, want[0].String(), got.String())
	again, err := parseMatcher(got.String())
	require.NoError(t, err)
	require.True(t, got.equal(&again), "%q does not survive being written and read", s)
	return got, true
}

// isMatcher reports that the selector ms, parsed from s, is one matcher on a
// valid name, and not a metric name alone.
func isMatcher(ms []*labels.Matcher, s string) bool {
	if len(ms) != 1 {
		return false
	}
	name := ms[0].Name
	metric := name == labels.MetricName && !strings.Contains(s, name)
	return name != "" && utf8.ValidString(name) && !metric
}

// checkValues compares what is claimed of a matcher's values with the matcher.
func checkValues(t *testing.T, m matcher, more ...string) {
	require.False(t, m.only != nil && m.allBut != nil)
	probes := slices.Concat(m.only, m.allBut, more, []string{"", "x", "\n", "\xff", "\ufffd"})
	for _, v := range probes {
		if m.only != nil {
			require.Equal(t, slices.Contains(m.only, v), m.Matches(v), "%s on %q", m, v)
		}
		if m.allBut != nil {
			require.Equal(t, !slices.Contains(m.allBut, v), m.Matches(v), "%s on %q", m, v)
		}
	}
}

// checkRules compares index, covering and contradiction with the oracle on the
// label sets that give u, v or nothing to each label that a rule names.
func checkRules(t *testing.T, rules []rule, oracle naive, u, v string) {
	x := newIndex(rules)
	sets := []map[string]string{{}}
	for _, name := range (&Policy{rules: rules}).LabelNames() {
		for _, set := range slices.Clone(sets) {
			for _, value := range []string{u, v} {
				more := map[string]string{name: value}
				for k, o := range set {
					more[k] = o
				}
				sets = append(sets, more)
			}
		}
	}
	cover := covering(rules, x)
	for _, set := range sets {
		ls := labels.FromMap(set)
		want := oracle.first(ls)
		if want < 0 {
			want = len(rules)
		}
		require.Equal(t, want, x.first(rules, ls), "%s", ls)
		for i := range rules {
			_, nothing := rules[i].contradiction()
			require.False(t, nothing && oracle.matches(i, ls))
			require.False(t, cover[i] >= 0 && oracle.matches(i, ls) && !oracle.matches(cover[i], ls))
		}
	}
}
