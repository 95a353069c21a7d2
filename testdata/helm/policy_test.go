package chart

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/spillway-telemetry/spillway/policy"
)

// accepts says whether the chart renders with these policies, and why not.
func accepts(t testing.TB, r *renderer, policies string, n int) (rendered, error) {
	t.Helper()
	v := map[string]any{"ingester": map[string]any{"replicaCount": n}}
	v["rateControl"] = map[string]any{"policies": map[string]any(values(t, policies))}
	return r.render(v)
}

// TestGoodPolicyFiles puts every good policy file of the program through the
// chart: it renders, and the program reads from what was rendered the policy that it
// reads from the file.
func TestGoodPolicyFiles(t *testing.T) {
	r := newRenderer(t)
	for name, text := range policyFiles(t, "good") {
		t.Run(name, func(t *testing.T) {
			streams := streamsOf(t, text)
			want, err := policy.Load([]byte(text), name, 4)
			require.NoError(t, err)
			out, err := accepts(t, r, streams, 4)
			if reason, ok := beyond[name]; ok {
				require.ErrorContains(t, err, reason)
				return
			}
			require.NoError(t, err)
			file := out.find(t, "ConfigMap", "-policy").Data["policy.yaml"]
			got, err := policy.Load([]byte(file), "policy.yaml", 4)
			require.NoError(t, err, file)
			require.Equal(t, report(want), report(got), file)
		})
	}
}

// beyond lists the good policy files that the chart refuses all the same, since
// templates cannot calculate with such numbers exactly.
var beyond = map[string]string{}

// unseen lists the bad policy files whose fault values do not have when they
// reach the chart: Helm has read the YAML by then.
var unseen = map[string]string{
	"yaml-alias":     "Helm resolves aliases",
	"yaml-document":  "Helm reads one document",
	"yaml-duplicate": "Helm takes the last",
	"yaml-list":      "not a mapping of values",
	"yaml-syntax":    "Helm does not read it",
	"yaml-shapes":    "Helm refuses a list as the name of a field",
	"p9":             "Helm refuses .inf; TestPolicyProblems has the rest",
	"p12":            "N is not in the file",
}

// TestBadPolicyFiles puts every bad policy file of the program through the chart.
func TestBadPolicyFiles(t *testing.T) {
	r := newRenderer(t)
	for name, text := range policyFiles(t, "bad") {
		t.Run(name, func(t *testing.T) {
			if reason, ok := unseen[name]; ok {
				t.Skip("cannot be written in values: " + reason)
			}
			out, err := accepts(t, r, streamsOf(t, text), 4)
			require.Error(t, err, "the program refuses this policy, the chart rendered it:\n%s", strings.Join(out.manifests, "---\n"))
		})
	}
}

// TestPolicyProblems pins what a user reads, at install, of each rule.
func TestPolicyProblems(t *testing.T) {
	r := newRenderer(t)
	for _, c := range []struct{ name, policies, want string }{
		{"sum", `logs: {rate: 100, burst: 10, default: {rate: 60}, classes: [{name: a, rate: 40.000001}]}`,
			"rateControl.policies.logs.rate: the classes have default 60 + a 40.000001 = 100.000001 items per second, 0.000001 more than the cap's rate 100; lower a class or raise the cap"},
		{"percents", `logs: {rate: 100, burst: 10, classes: [{name: a, percent: 60}, {name: b, percent: 40.5}]}`,
			"rateControl.policies.logs.rate: the classes have a 60% + b 40.5%, more than the cap's rate 100; lower a class or raise the cap"},
		{"mixed", `logs: {rate: 100, burst: 10, classes: [{name: a, percent: 60}, {name: b, rate: 41}]}`,
			"rateControl.policies.logs.rate: the classes have a 60% + b 41, more than the cap's rate 100; lower a class or raise the cap"},
		{"exempt class", `logs: {rate: 100, burst: 10, classes: [{name: kfuse_cp_class, rate: 1}]}`,
			"rateControl.policies.logs.classes[0].name: is kfuse_cp_class: that class is never limited and only exempt telemetry belongs to it, take another name"},
		{"exempt rule", `logs: {rate: 100, burst: 10, rules: [{class: kfuse_cp_class, matchers: ['a="b"']}]}`,
			"rateControl.policies.logs.rules[0].class: is kfuse_cp_class"},
		{"default", `logs: {rate: 100, burst: 10, classes: [{name: default, rate: 1}]}`,
			"rateControl.policies.logs.classes[0].name: is default: give that class its rate under the stream's own field default"},
		{"duplicate", `logs: {rate: 100, burst: 10, classes: [{name: a, rate: 1}, {name: a, rate: 1}]}`,
			"rateControl.policies.logs.classes[1].name: is a, as classes[0]: names are unique"},
		{"both", `logs: {rate: 100, burst: 10, classes: [{name: a, rate: 1, percent: 1}]}`,
			"rateControl.policies.logs.classes[0].percent: stands beside a rate: keep one of the two"},
		{"neither", `logs: {rate: 100, burst: 10, default: {}}`,
			"rateControl.policies.logs.default: has no rate: write rate, in items per second, or percent, of the cap's rate"},
		{"matcher", `logs: {rate: 100, burst: 10, rules: [{class: a, matchers: ['a="b"', 'team=a']}]}`,
			`rateControl.policies.logs.rules[0].matchers[1]: is "team=a": write one label name`},
		{"regexp", `logs: {rate: 100, burst: 10, rules: [{class: a, matchers: ['a=~"(b"']}]}`,
			"rateControl.policies.logs.rules[0].matchers[0]: is \"a=~\\\"(b\\\"\": the value is not a regular expression (RE2)"},
		{"decimals", `logs: {rate: 0.0000001, burst: 10}`,
			"rateControl.policies.logs.rate: is 1e-07: write it with at most 6 decimals"},
		{"unknown field", `logs: {rate: 100, burst: 10, retention: 3d}`,
			"at '/rateControl/policies/logs': additional properties 'retention' not allowed"},
		{"name", `logs: {rate: 100, burst: 10, classes: [{name: "team a", rate: 1}]}`,
			"at '/rateControl/policies/logs/classes/0/name': 'team a' does not match pattern '^[a-zA-Z0-9_.-]+$'"},
		{"negative", `logs: {rate: -1, burst: 10}`, "at '/rateControl/policies/logs/rate': minimum: got -1, want 0"},
		{"stream", `metric: {rate: 1, burst: 10}`, "at '/rateControl/policies': additional properties 'metric' not allowed"},
		{"all at once", `{logs: {rate: 1, burst: 10, default: {rate: 2}}, rum: {rate: 1, burst: 10, default: {rate: 3}}}`,
			"logs.rate: the classes have default 2 = 2 items per second, 1 more than the cap's rate 1; lower a class or raise the cap\nrateControl.policies.rum.rate: the classes have default 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := accepts(t, r, c.policies, 4)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestMatchers holds the chart's reading of matchers against the program's, on
// each corner of the syntax.
func TestMatchers(t *testing.T) {
	r := newRenderer(t).with("configmap.yaml", "NOTES.txt")
	for matcher, valid := range map[string]bool{
		`a="b"`: true, ` a = "b" `: true, "a\n=\t'b'": true, "a=`b`": true, `"x y"!="b"`: true, `'x'!~"b"`: true, "`x`=\"b\"": true,
		`a=""`: true, `a=~""`: true, `a=~"b|c.*"`: true, `a=~"\\d"`: true, "a=~`\\d`": true, `a=~"\Qb"`: false, "a=~`\\Qb`": true,
		`a='it\'s'`: true, `a="it\'s"`: false, `a='say \"x\"'`: false, `a="\377"`: true, `a="\400"`: false, `a="\78"`: false,
		`a="\xff"`: true, `"\xff"="b"`: false, `a="\xg0"`: false, `a="\u00e9"`: true, `a="\ud800"`: false,
		`a="\U0010ffff"`: true, `a="\U00110000"`: false, `a="\U0000dfff"`: false, `"\u0061"="b"`: true, `""="b"`: false,
		`a=~"("`: false, `a=~"b)|(c"`: false, `a=~"b\\"`: false, `a=~"*"`: false, `a=~"b{2000}"`: false, `a="("`: true, `a=~"(?i)b"`: true, `a=~"(?P<x>b)"`: true,
		`a="{{ .x }}"`: true, `a="}}\u007b{"`: true, `a="b" `: true, `a="b",`: false, `a="b",c="d"`: false, `a=b`: false, `a`: false, `"a"`: false, ``: false,
		`a=="b"`: false, `a.b="c"`: false, `1a="b"`: false, `a:b="c"`: false, `é="b"`: false, `"é"="b"`: true, `a="b"}`: false, `{a="b"}`: false,
		`a="b"#c`: false, "a=\"b\nc\"": false, "a=`b\nc`": true, `a=~"b" or`: false, `on="b"`: true, `inf="b"`: true, "a=\"\uFFFD\"": false,
	} {
		file := "streams: {logs: {rate: 1, burst: 1, rules: [{class: x, matchers: [" + strconv.Quote(matcher) + "]}]}}"
		_, err := policy.Load([]byte(file), "p", 1)
		require.Equal(t, valid, err == nil, "the program: %q: %v", matcher, err)
		_, err = accepts(t, r, "logs: {rate: 1, burst: 1, rules: [{class: x, matchers: ["+strconv.Quote(matcher)+"]}]}", 1)
		require.Equal(t, valid, err == nil, "the chart: %q: %v", matcher, err)
	}
}

// TestPolicyAgreement holds the chart against the program on policies made at
// random, most of them near the edge between valid and not: the chart renders exactly
// those that the program reads, and the program then reads the same policy from the
// ConfigMap.
func TestPolicyAgreement(t *testing.T) {
	r := newRenderer(t).with("configmap.yaml", "NOTES.txt")
	rng := rand.New(rand.NewPCG(6, 11))
	good, bad := 0, 0
	for i := range 600 {
		streams := randomPolicies(rng)
		n := 1 + rng.IntN(9)
		want, wantErr := policy.Load([]byte(indentUnder(streams)), "p", n)
		out, err := accepts(t, r, streams, n)
		if wantErr != nil {
			bad++
			require.Error(t, err, "case %d: the program says:\n%v\nof\n%s", i, wantErr, streams)
			continue
		}
		good++
		require.NoError(t, err, "case %d: the program accepts\n%s", i, streams)
		file := out.find(t, "ConfigMap", "-policy").Data["policy.yaml"]
		got, err := policy.Load([]byte(file), "p", n)
		require.NoError(t, err, file)
		require.Equal(t, report(want), report(got), "case %d:\n%s\nrendered as\n%s", i, streams, file)
		requireNotes(t, out.notes, got.Report())
	}
	t.Logf("%d policies that both accept, %d that both refuse", good, bad)
	require.Greater(t, good, 150)
	require.Greater(t, bad, 150)
}

// report is a policy's report; the order of its streams in the file, which is
// that of its warnings, means nothing.
func report(s *policy.Set) policy.Report {
	r := s.Report()
	slices.Sort(r.Warnings)
	return r
}

// TestPercentOfNothing: nothing is over a cap of 0 but a rate above 0.
func TestPercentOfNothing(t *testing.T) {
	r := newRenderer(t)
	for streams, valid := range map[string]bool{
		`logs: {rate: 0, burst: 1, classes: [{name: a, percent: 70}, {name: b, percent: 70}]}`: true,
		`logs: {rate: 0, burst: 1, classes: [{name: a, percent: 70}, {name: b, rate: 0}]}`:     true,
		`logs: {rate: 0, burst: 1, classes: [{name: a, rate: 0.000001}]}`:                      false,
	} {
		_, err := policy.Load([]byte(indentUnder(streams)), "p", 3)
		require.Equal(t, valid, err == nil, "the program: %s: %v", streams, err)
		out, err := accepts(t, r, streams, 3)
		require.Equal(t, valid, err == nil, "the chart: %s: %v", streams, err)
		if valid {
			require.Contains(t, out.notes, "  default                               0      0%                      0                    0  loses everything\n")
		}
	}
}

// requireNotes compares the table that a user sees after helm install with what
// the program enforces.
func requireNotes(t *testing.T, notes string, report policy.Report) {
	t.Helper()
	for name, stream := range report.Streams {
		_, table, found := strings.Cut(notes, "\n"+name+": ")
		require.True(t, found, notes)
		rows := strings.Split(table, "\n")[2:]
		shown := map[string][]string{}
		for _, row := range rows {
			if strings.TrimSpace(row) == "" {
				break
			}
			fields := strings.Fields(row)
			shown[fields[0]] = fields
		}
		require.Len(t, shown, len(stream.Classes), notes)
		for _, class := range stream.Classes {
			row := shown[class.Name]
			require.NotNil(t, row, "%s is not in the notes:\n%s", class.Name, notes)
			requireNear(t, class.Rate, row[1])
			require.Equal(t, fmt.Sprintf("%d%%", class.SharePercent), row[2], notes)
			requireNear(t, class.RatePerIngester, row[3])
			require.Equal(t, strconv.FormatInt(class.BurstPerIngester, 10), row[4], notes)
			require.Equal(t, noteOf(class), strings.Join(row[5:], " "), notes)
		}
	}
}

// noteOf is what a user must be told about a class, as the program's warnings do.
func noteOf(class policy.ClassReport) string {
	switch {
	case !class.Configured:
		return "not defined: loses all that its rules match"
	case class.BurstPerIngester == 0:
		return "loses everything"
	case class.BurstPerIngester == 1:
		return "loses every group of 2 or more"
	}
	return ""
}

func requireNear(t *testing.T, want float64, text string) {
	t.Helper()
	got, err := strconv.ParseFloat(text, 64)
	require.NoError(t, err)
	require.InDelta(t, want, got, 0.000501+want*1e-12)
}

// randomPolicies writes one or two streams' policies.
func randomPolicies(rng *rand.Rand) string {
	var b strings.Builder
	for _, stream := range []string{"metrics", "logs"}[:1+rng.IntN(2)] {
		randomPolicy(rng, &b, stream)
	}
	return b.String()
}

func randomPolicy(rng *rand.Rand, b *strings.Builder, stream string) {
	capMicro := randomMicro(rng)
	fmt.Fprintf(b, "%s:\n  rate: %s\n  burst: %d\n", stream, decimal(capMicro), randomBurst(rng))
	left := capMicro
	budget := func(last bool) string {
		part := int64(rng.Uint64N(uint64(left) + 1))
		if last {
			// To the edge, and a millionth over it.
			part = left + []int64{-1, 0, 0, 1}[rng.IntN(4)]
		}
		part = max(0, part)
		if capMicro > 0 && rng.IntN(3) == 0 {
			// In whole or broken percent, rounded to either side.
			percent := int64(float64(part)/float64(capMicro)*1e8) + []int64{0, 0, 1}[rng.IntN(3)]
			if rng.IntN(2) == 0 {
				percent = percent / 1e6 * 1e6
			}
			percent = min(max(0, percent), 1e8)
			left = max(0, left-int64(float64(percent)/1e8*float64(capMicro)))
			return "percent: " + decimal(percent)
		}
		if part >= 1e15 {
			// Helm reads numbers as float64, which keeps 15 digits.
			part -= part % 10
		}
		left = max(0, left-part)
		return "rate: " + decimal(part)
	}
	classes := rng.IntN(5)
	withDefault := rng.IntN(2) == 0
	if withDefault {
		fmt.Fprintf(b, "  default: {%s}\n", budget(classes == 0))
	}
	if classes > 0 {
		b.WriteString("  classes:\n")
	}
	for i := range classes {
		fmt.Fprintf(b, "    - {name: %q, %s}\n", randomName(rng, i), budget(i == classes-1 && rng.IntN(4) > 0))
	}
	if rules := rng.IntN(4); rules > 0 {
		b.WriteString("  rules:\n")
		for range rules {
			fmt.Fprintf(b, "    - class: %q\n      matchers: [%s]\n", randomName(rng, rng.IntN(5)), quoted(randomMatcher(rng)))
		}
	}
}

// randomMicro is a rate in millionths, of any magnitude up to the chart's 10^10.
func randomMicro(rng *rand.Rand) int64 {
	switch rng.IntN(6) {
	case 0:
		return int64(rng.IntN(3)) * 1e6
	case 1:
		return int64(rng.IntN(100_000)) * 1e6
	case 2:
		return rng.Int64N(1e9)
	case 3:
		return rng.Int64N(1e10) * 1e6
	}
	// What a float64 tells from its neighbours: 15 digits.
	m := rng.Int64N(1e15)
	for range rng.IntN(15) {
		m /= 10
	}
	return m
}

func randomBurst(rng *rand.Rand) int64 {
	b := rng.Int64N(1e15)
	for range rng.IntN(15) {
		b /= 10
	}
	return max(1, b)
}

func randomName(rng *rand.Rand, i int) string {
	if rng.IntN(60) == 0 {
		return []string{"default", "kfuse_cp_class", "a b", "", "a", "1e3", "true"}[rng.IntN(7)]
	}
	return []string{"a", "team-b", "C_3", "4.5", "null"}[i]
}

// randomMatcher is valid more often than not.
func randomMatcher(rng *rand.Rand) string {
	if rng.IntN(8) == 0 {
		pieces := []string{`a`, `"`, `'`, "`", `\`, `=`, `~`, `!`, ` `, `é`, `\"`, `\x41`, `\xff`, `\u00e9`, `\ud250`, `{`, `}`, `(`, `{{`, `,`, `#`, "\t", "b", "\\\\"}
		var b strings.Builder
		for range 1 + rng.IntN(8) {
			b.WriteString(pieces[rng.IntN(len(pieces))])
		}
		return b.String()
	}
	name := []string{`team`, `__name__`, `"service.name"`, "`x y`", `'q'`, `"a\u00e9"`}[rng.IntN(6)]
	op := []string{`=`, `!=`, `=~`, `!~`, ` =~ `}[rng.IntN(5)]
	value := []string{`"a"`, `'b'`, `""`, `"a|b.*"`, `"\\d+"`, "`\\d+`", `"it's"`, `'say "x"'`, `'it\'s'`, `"{{ .x }}"`, `"x{2}"`, `"\101\x41\U0001F600"`}[rng.IntN(12)]
	return name + op + value
}

func quoted(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

func decimal(micro int64) string {
	if micro%1e6 == 0 {
		return strconv.FormatInt(micro/1e6, 10)
	}
	return strings.TrimRight(fmt.Sprintf("%d.%06d", micro/1e6, micro%1e6), "0")
}

func indentUnder(streams string) string {
	return "streams:\n  " + strings.ReplaceAll(strings.TrimRight(streams, "\n"), "\n", "\n  ") + "\n"
}

// policyFiles reads the program's own examples of a kind.
func policyFiles(t *testing.T, kind string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(root, "testdata", "policy", kind, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	files := map[string]string{}
	for _, p := range paths {
		text, err := os.ReadFile(p)
		require.NoError(t, err)
		files[strings.TrimSuffix(filepath.Base(p), ".yaml")] = string(text)
	}
	return files
}

// streamsOf is what stands under streams in a policy file, as YAML.
func streamsOf(t *testing.T, text string) string {
	t.Helper()
	var file map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(text), &file))
	out, err := yaml.Marshal(file["streams"])
	require.NoError(t, err)
	return string(out)
}
