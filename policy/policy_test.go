package policy

import (
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
)

func load(t *testing.T, file string, ingesters int) *Set {
	t.Helper()
	set, err := Load([]byte(file), "test.yaml", ingesters)
	require.NoError(t, err)
	return set
}

func example(t *testing.T, ingesters int) *Set {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("..", "testdata", "policy", "good", "example.yaml"))
	require.NoError(t, err)
	return load(t, string(data), ingesters)
}

// budgetOf returns what a class may spend, in the order share, rate and burst
// per ingester.
func budgetOf(p *Policy, id int) [3]string {
	c := p.Classes()[id]
	return [3]string{
		big.NewInt(c.SharePercent).String(), c.RatePerIngester.RatString(), big.NewInt(c.BurstPerIngester).String(),
	}
}

func TestP1StreamWithoutPolicyIsNotLimited(t *testing.T) {
	set := load(t, "streams: {logs: {rate: 100, burst: 6000}}", 1)
	require.NotNil(t, set.Stream("logs"))
	for _, name := range []string{"metrics", "traces", "events", "rum", "", "LOGS"} {
		require.Nil(t, set.Stream(name))
	}
	for _, none := range []*Set{nil, {}, load(t, "", 1)} {
		require.Nil(t, none.Stream("logs"))
		require.Empty(t, none.Warnings())
		require.Empty(t, none.Report().Streams)
	}
}

func TestDocumentedExample(t *testing.T) {
	p := example(t, 4).Stream("logs")
	classes := p.Classes()
	require.Len(t, classes, 3)
	for id, want := range []struct {
		name   string
		rate   int64
		budget [3]string
	}{
		{"team-a", 39500, [3]string{"39", "9875", "19500"}},
		{"debug", 500, [3]string{"0", "125", "1"}},
		{"default", 60000, [3]string{"60", "15000", "30000"}},
	} {
		require.Equal(t, want.name, classes[id].Name)
		require.Zero(t, classes[id].Rate.Cmp(big.NewRat(want.rate, 1)))
		require.True(t, classes[id].Configured)
		require.Equal(t, want.budget, budgetOf(p, id))
	}
	require.Equal(t, 2, p.Default())
	for class, ls := range map[int]labels.Labels{
		0: labels.FromStrings("team", "a", "level", "debug", "env", "test"),
		1: labels.FromStrings("team", "b", "level", "debug"),
		2: labels.FromStrings("team", "b", "level", "debug", "env", "prod"),
	} {
		require.Equal(t, class, p.Classify(ls), "%s", ls)
	}
}

func TestP2SumIsComparedExactly(t *testing.T) {
	const file = `streams: {logs: {rate: CAP, burst: 10, default: {rate: 0.2}, classes: [{name: a, rate: 0.1}]}}`
	for cap, accepted := range map[string]bool{
		"0.3": true, "0.30000000000000000000000001": true, "0.29999999999999999999999999": false, "3e-1": true,
	} {
		_, err := Load([]byte(strings.Replace(file, "CAP", cap, 1)), "test.yaml", 1)
		require.Equal(t, accepted, err == nil, "cap %s: %v", cap, err)
	}
}

func TestP2DefaultGetsWhatIsLeft(t *testing.T) {
	p := load(t, "streams: {logs: {rate: 100, burst: 1000, classes: [{name: a, rate: 0.1}, {name: b, percent: 33.3}]}}", 1).Stream("logs")
	require.Equal(t, "333/5", p.Classes()[p.Default()].Rate.RatString())
	require.Equal(t, [3]string{"66", "333/5", "660"}, budgetOf(p, p.Default()))
}

// TestP3ShareIsExact tries every whole percentage, of caps that floating point
// rounds badly, and the smallest amounts around it.
func TestP3ShareIsExact(t *testing.T) {
	for _, cap := range []string{"100", "0.7", "1e-7", "123456789.987654321", "1e308", "3e-320"} {
		rate, err := parseDecimal(cap)
		require.NoError(t, err)
		l := limits{rate: rate, burst: 1, ingesters: 1}
		for percent := int64(0); percent <= 100; percent++ {
			class := new(big.Rat).Mul(rate, big.NewRat(percent, 100))
			require.Equal(t, percent, l.class("a", class).SharePercent, "%d %% of %s", percent, cap)
			if percent > 0 {
				class.Mul(class, big.NewRat(1<<62-1, 1<<62))
				require.Equal(t, percent-1, l.class("a", class).SharePercent, "just below %d %% of %s", percent, cap)
			}
		}
	}
}

func TestP4RateIsDividedExactly(t *testing.T) {
	p := load(t, "streams: {logs: {rate: 100, burst: 6000}}", 3).Stream("logs")
	require.Equal(t, "100/3", p.Classes()[0].RatePerIngester.RatString())
	require.Equal(t, "100", p.Classes()[0].Rate.RatString())
}

// TestP5BurstIsExact compares the burst with big integers, at sizes at which
// the product of the factors is far beyond 64 bits.
func TestP5BurstIsExact(t *testing.T) {
	for _, burst := range []int64{1, 2, 99, 100, 101, 6000, maxBurst - 1, maxBurst} {
		for _, n := range []int{1, 3, 7, 1000, 1 << 62} {
			l := limits{rate: big.NewRat(100, 1), burst: burst, ingesters: n}
			for share := int64(1); share <= 100; share++ {
				want := new(big.Int).Mul(big.NewInt(burst), big.NewInt(share))
				want.Quo(want, new(big.Int).Mul(big.NewInt(100), big.NewInt(int64(n))))
				if want.Sign() == 0 {
					want.SetInt64(1)
				}
				require.Equal(t, want.Int64(), l.class("a", big.NewRat(share, 1)).BurstPerIngester)
			}
		}
	}
}

func TestP6RateZeroHasNoBucket(t *testing.T) {
	set := load(t, `streams: {logs: {rate: 0, burst: 100, classes: [{name: a, percent: 50}]}, rum: {rate: 9, burst: 9, default: {rate: 0}}}`, 2)
	for _, c := range append(set.Stream("logs").Classes(), set.Stream("rum").Classes()...) {
		require.Zero(t, c.Rate.Sign())
		require.Zero(t, c.RatePerIngester.Sign())
		require.Zero(t, c.SharePercent)
		require.Zero(t, c.BurstPerIngester)
		require.True(t, c.Configured)
	}
}

func TestP7UnconfiguredClasses(t *testing.T) {
	p := load(t, `
streams:
  logs:
    rate: 100
    burst: 1000
    classes: [{name: z, rate: 1}, {name: y, rate: 1}]
    rules:
      - {class: ghost-b, matchers: ['a="1"']}
      - {class: y, matchers: ['a="2"']}
      - {class: default, matchers: ['a="3"']}
      - {class: ghost-a, matchers: ['a="4"']}
      - {class: ghost-b, matchers: ['a="5"']}
`, 1).Stream("logs")
	var names []string
	for id, c := range p.Classes() {
		names = append(names, c.Name)
		require.Equal(t, !strings.HasPrefix(c.Name, "ghost"), c.Configured)
		if !c.Configured {
			require.Equal(t, [3]string{"0", "0", "0"}, budgetOf(p, id))
			require.Zero(t, c.Rate.Sign())
		}
	}
	require.Equal(t, []string{"z", "y", "ghost-b", "ghost-a", "default"}, names)
	for value, id := range map[string]int{"1": 2, "2": 1, "3": 4, "4": 3, "5": 2, "6": 4} {
		require.Equal(t, id, p.Classify(labels.FromStrings("a", value)))
	}
}

func TestP9PercentIsExact(t *testing.T) {
	for percent, share := range map[string]int64{"29": 29, "39.5": 39, "57": 57, "99.99999999999999999999": 99, "100": 100} {
		p := load(t, "streams: {logs: {rate: 0.7, burst: 1000, classes: [{name: a, percent: "+percent+"}]}}", 1).Stream("logs")
		c := p.Classes()[0]
		want, err := parseDecimal(percent)
		require.NoError(t, err)
		want.Mul(want, big.NewRat(7, 1000))
		require.Zero(t, want.Cmp(c.Rate), "%s %%", percent)
		require.Equal(t, share, c.SharePercent, "%s %%", percent)
	}
}

// TestP10MissingLabelMatchesAsEmpty covers each operator.
func TestP10MissingLabelMatchesAsEmpty(t *testing.T) {
	for m, want := range map[string][3]bool{ // for a missing label, for "x", for "xy"
		`l=""`:      {true, false, false},
		`l="x"`:     {false, true, false},
		`l!=""`:     {false, true, true},
		`l!="x"`:    {true, false, true},
		`l=~""`:     {true, false, false},
		`l=~"x|"`:   {true, true, false},
		`l=~"x"`:    {false, true, false}, // anchored at both ends
		`l=~"x.*"`:  {false, true, true},
		`l!~"x"`:    {true, false, true},
		`l!~"x.*"`:  {true, false, false},
		`l!~".+"`:   {true, false, false},
		`l=~".*"`:   {true, true, true},
		`l!~".*"`:   {false, false, false},
		`"l"=~'xy'`: {false, false, true},
	} {
		p := loadRules(t, []testRule{{"c0", []string{m}}}).Stream("logs")
		for i, ls := range []labels.Labels{labels.FromStrings("other", "x"), labels.FromStrings("l", "x"), labels.FromStrings("l", "xy")} {
			require.Equal(t, want[i], p.Classify(ls) == 0, "%s on %s", m, ls)
		}
	}
}

// TestP13BurstForOne checks that the burst which the warning asks for is the
// smallest that gives a class of that share a whole item.
func TestP13BurstForOne(t *testing.T) {
	for _, n := range []int{1, 3, 10} {
		for share := int64(1); share <= 100; share++ {
			l := limits{burst: burstForOne(share, n).Int64(), ingesters: n}
			require.EqualValues(t, 1, l.burstOf(share))
			l.burst--
			require.Zero(t, l.burstOf(share))
		}
	}
}

func TestP13WarningsSayWhere(t *testing.T) {
	set, err := loadFile(t, filepath.Join("..", "testdata", "policy", "good", "p13.yaml"))
	require.NoError(t, err)
	lines := map[string]int{}
	for _, w := range set.Warnings() {
		lines[w.Path] = w.Line
	}
	require.Equal(t, map[string]int{
		"streams.logs.rate": 5, "streams.logs.default": 7,
		"streams.logs.classes[0]": 9, "streams.logs.classes[1]": 10, "streams.logs.classes[2]": 11,
		"streams.logs.rules[1]": 15, "streams.logs.rules[2]": 16, "streams.logs.rules[4]": 18, "streams.logs.rules[6]": 20,
	}, lines)
}

func TestSameRules(t *testing.T) {
	const base = `streams: {logs: {rate: 100, burst: 10, classes: [{name: a, rate: 1}, {name: b, rate: 2}], rules: [{class: a, matchers: ['x="1"', 'y!~"2"']}, {class: c, matchers: ['x="2"']}]}}`
	p := load(t, base, 4).Stream("logs")
	for _, same := range []struct{ old, new string }{
		{"", ""}, {"rate: 100", "rate: 50"}, {"burst: 10", "burst: 20"}, {"rate: 1}", "percent: 30}"}, {"rate: 2}", "rate: 0}"},
	} {
		q := load(t, strings.Replace(base, same.old, same.new, 1), 7).Stream("logs")
		require.True(t, p.SameRules(q) && q.SameRules(p), "%s to %s", same.old, same.new)
	}
	for _, other := range []struct{ old, new string }{
		{"name: a", "name: d"}, {"{name: a, rate: 1}, {name: b, rate: 2}", "{name: b, rate: 2}, {name: a, rate: 1}"},
		{"{name: a, rate: 1}, ", ""}, {`x="1"`, `x="3"`}, {`x="1"`, `x=~"1"`}, {`x="1"`, `z="1"`}, {`, 'y!~"2"'`, ""},
		{`'x="1"', 'y!~"2"'`, `'y!~"2"', 'x="1"'`}, {", {class: c, matchers: ['x=\"2\"']}", ""}, {"class: c", "class: b"},
		{"class: a,", "class: b,"}, {"name: b", "name: e"},
		{"{name: b, rate: 2}", "{name: b, rate: 2}, {name: unused, rate: 1}"},
	} {
		require.Contains(t, base, other.old)
		q := load(t, strings.Replace(base, other.old, other.new, 1), 4).Stream("logs")
		require.False(t, p.SameRules(q) || q.SameRules(p), "%s to %s", other.old, other.new)
	}
	var none *Policy
	require.True(t, none.SameRules(nil))
	require.False(t, none.SameRules(p) || p.SameRules(nil))
}

func TestLabelNames(t *testing.T) {
	require.Equal(t, []string{"env", "level", "team"}, example(t, 1).Stream("logs").LabelNames())
	twice := []testRule{{"c0", []string{`b="1"`, `a="1"`}}, {"c1", []string{`b="2"`}}}
	require.Equal(t, []string{"a", "b"}, loadRules(t, twice).Stream("logs").LabelNames())
	require.Empty(t, load(t, "streams: {logs: {rate: 100, burst: 6000}}", 1).Stream("logs").LabelNames())
}

// TestResultsBelongToTheCaller writes to what the methods return.
func TestResultsBelongToTheCaller(t *testing.T) {
	set := example(t, 4)
	p := set.Stream("logs")
	p.Classes()[0].Name = "other"
	p.LabelNames()[0] = "other"
	set.Warnings()[0].Path = "other"
	require.Equal(t, "team-a", p.Classes()[0].Name)
	require.Equal(t, "env", p.LabelNames()[0])
	require.Equal(t, "streams.logs.classes[1]", set.Warnings()[0].Path)
}
