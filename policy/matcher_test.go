package policy

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/stretchr/testify/require"
)

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
	metric := name == model.MetricNameLabel && !strings.Contains(s, name)
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
				more := maps.Clone(set)
				more[name] = value
				sets = append(sets, more)
			}
		}
	}
	cover := covering(rules)
	for _, set := range sets {
		ls := labels.FromMap(set)
		want := oracle.first(ls)
		if want < 0 {
			want = len(rules)
		}
		require.Equal(t, want, x.first(ls, len(rules)), "%s", ls)
		for i := range rules {
			_, nothing := rules[i].contradiction()
			require.False(t, nothing && oracle.matches(i, ls))
			require.False(t, cover[i] >= 0 && oracle.matches(i, ls) && !oracle.matches(cover[i], ls))
		}
	}
}
