package relabel

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

var update = flag.Bool("update", false, "rewrite the .txt files in testdata/relabel")

const testdata = "../testdata/relabel/"

func golden(t *testing.T, file, got string) {
	if *update {
		require.NoError(t, os.WriteFile(testdata+file, []byte(got), 0o644))
		return
	}
	want, err := os.ReadFile(testdata + file)
	require.NoError(t, err)
	require.Equal(t, string(want), got)
}

func load(t *testing.T, file string) (*Rules, error) {
	data, err := os.ReadFile(testdata + file)
	require.NoError(t, err)
	return parseText(t, string(data))
}

// bad.yaml holds every way to write a rule wrong, bad.txt what is said of it.
func TestBadRules(t *testing.T) {
	_, err := load(t, "bad.yaml")
	require.Error(t, err)
	golden(t, "bad.txt", err.Error()+"\n")

	data, readErr := os.ReadFile(testdata + "bad.yaml")
	require.NoError(t, readErr)
	lines := strings.Split(string(data), "\n")
	var list yaml.Node
	require.NoError(t, yaml.Unmarshal(data, &list))
	bad := map[int]bool{}
	for _, e := range err.(interface{ Unwrap() []error }).Unwrap() {
		var rule *RuleError
		require.ErrorAs(t, e, &rule)
		bad[rule.Index] = true
		require.Contains(t, lines[rule.Line-1], "# bad", "%v", e)
	}
	require.Len(t, bad, len(list.Content[0].Content), "every rule of bad.yaml is bad")
}

// good.yaml has rules of every action, good.txt what they do to some labels.
func TestExplain(t *testing.T) {
	r, err := load(t, "good.yaml")
	require.NoError(t, err)
	var b strings.Builder
	for _, ls := range []labels.Labels{
		labels.FromStrings("__name__", "up", "env", "prod", "pod", "shop-7f9c", "Team", "A", "k8s_zone", "z1", "owner", "x", "approver", "x"),
		labels.FromStrings("__name__", "up", "env", "prod", "team", "a", "owner", "x", "approver", "y"),
		labels.FromStrings("__name__", "up", "env", "test"),
		labels.FromStrings("__name__", "debug_up", "env", "prod"),
		labels.FromStrings("__name__", "up", "env", "prod", "shard_owner", "b", "pod", "b"),
		labels.EmptyLabels(),
	} {
		fmt.Fprintf(&b, "%s\n", ls)
		for _, s := range r.Explain(ls) {
			result := s.Why
			switch {
			case s.Changed:
				result = s.After.String()
			case s.Dropped:
				result = "DROPPED: " + s.Why
			}
			fmt.Fprintf(&b, "    %s\n        %s\n", s.Rule, result)
		}
	}
	golden(t, "good.txt", b.String())
}

func TestNoRules(t *testing.T) {
	var node yaml.Node
	for _, text := range []string{"", "null", "~", "[]", "# only a comment"} {
		require.NoError(t, yaml.Unmarshal([]byte(text), &node))
		r, err := Parse(&node)
		require.NoError(t, err, text)
		require.True(t, r.Empty(), text)
		node = yaml.Node{}
	}
	r, err := Parse(nil)
	require.NoError(t, err)
	for _, r := range []*Rules{r, new(Rules)} {
		require.True(t, r.Empty())
		ls := labels.FromStrings("a", "b")
		after, keep := apply(r, ls)
		require.True(t, keep)
		require.Equal(t, ls, after)
		require.Empty(t, r.Explain(ls))
		require.False(t, r.Footprint().Reads("a"))
		require.False(t, r.Footprint().Writes("a"))
	}
}

func TestNotAList(t *testing.T) {
	for _, text := range []string{"a", "5", "{source_labels: [a]}"} {
		_, err := parseText(t, "\n"+text)
		require.EqualError(t, err, "relabel_configs (line 2): want a list of rules")
	}
}

// The rules may stand inside a larger file, be anchored, and be merged.
func TestAnchorsAndMerges(t *testing.T) {
	var file struct {
		Base yaml.Node
		Some yaml.Node `yaml:"relabel_configs"`
		More yaml.Node
	}
	require.NoError(t, yaml.Unmarshal([]byte(`
base: &drop {source_labels: [a], action: drop}
relabel_configs: &some
  - *drop
  - {<<: *drop, regex: x}
  - {<<: [*drop, {separator: "-"}], regex: y}
more: *some
`), &file))
	for _, node := range []*yaml.Node{&file.Some, &file.More} {
		r, err := Parse(node)
		require.NoError(t, err)
		require.Equal(t, []string{
			"{action: drop, source_labels: [a]}",
			"{action: drop, source_labels: [a], regex: x}",
			`{action: drop, source_labels: [a], separator: '-', regex: "y"}`,
		}, []string{text(r.configs[0]), text(r.configs[1]), text(r.configs[2])})
	}
	for _, bad := range []string{
		"- {<<: {sep: x}, action: drop}",
		"- {<<: [{action: drop}, {sep: x}]}",
		"- &self {<<: *self, sep: x}",
	} {
		_, err := parseText(t, bad)
		require.ErrorContains(t, err, `there is no field "sep"`, bad)
	}
}

// The fields are those of the library.
func TestKnownFields(t *testing.T) {
	config := reflect.TypeFor[relabel.Config]()
	fields := 0
	for i := range config.NumField() {
		name, _, _ := strings.Cut(config.Field(i).Tag.Get("yaml"), ",")
		if name != "-" {
			require.True(t, known(name), name)
			fields++
		}
	}
	require.Equal(t, 7, fields)
	require.False(t, known("name"))
}

func TestNew(t *testing.T) {
	given := &relabel.Config{Action: relabel.Lowercase, SourceLabels: model.LabelNames{"a"}, TargetLabel: "b", Replacement: "$1"}
	r, err := New([]*relabel.Config{given})
	require.NoError(t, err)
	require.Equal(t, model.UnsetValidation, given.NameValidationScheme, "the caller's is left alone")
	given.SourceLabels[0], given.TargetLabel = "x", "y"
	after, keep := apply(r, labels.FromStrings("a", "UP"))
	require.True(t, keep)
	require.Equal(t, labels.FromStrings("a", "UP", "b", "up"), after)

	_, err = New([]*relabel.Config{nil, given, {Action: "bend"}, {Action: relabel.HashMod}})
	require.EqualError(t, err, "relabel_configs[0]: the rule is empty\n"+
		"relabel_configs[3]: relabel configuration for hashmod requires non-zero modulus")
}

func TestEqual(t *testing.T) {
	const base = `- {source_labels: [a, b], separator: "-", regex: x, modulus: 3, target_label: t, replacement: r, action: replace}`
	r, err := parseText(t, base)
	require.NoError(t, err)
	again, err := parseText(t, base)
	require.NoError(t, err)
	require.True(t, r.Equal(again))
	for _, change := range [][2]string{
		{"a, b", "a"}, {"a, b", "b, a"}, {`"-"`, "_"}, {"regex: x", "regex: y"}, {"3", "4"}, {"target_label: t", "target_label: u"},
		{"replacement: r", "replacement: s"}, {"action: replace", "action: keep"}, {"- {", "- {action: drop}\n- {"},
	} {
		other, err := parseText(t, strings.Replace(base, change[0], change[1], 1))
		require.NoError(t, err, change)
		require.False(t, r.Equal(other), "%q", change)
		require.False(t, other.Equal(r), "%q", change)
	}
	legacy := *r.configs[0]
	legacy.NameValidationScheme = model.LegacyValidation
	other, err := New([]*relabel.Config{&legacy})
	require.NoError(t, err)
	require.False(t, r.Equal(other))
}

// What is temporary or meta stays unless a rule removes it.
func TestNothingIsStripped(t *testing.T) {
	ls := labels.FromStrings("__address__", "h:1", "__meta_x", "m", "__name__", "up", "a", "b")
	r, err := parseText(t, "- {source_labels: [a], target_label: __tmp_a}")
	require.NoError(t, err)
	after, keep := apply(r, ls)
	require.True(t, keep)
	require.Equal(t, labels.NewBuilder(ls).Set("__tmp_a", "b").Labels(), after)

	r, err = parseText(t, "- {regex: __tmp_.*, action: labeldrop}")
	require.NoError(t, err)
	after, _ = apply(r, after)
	require.Equal(t, ls, after)
}

func TestFootprint(t *testing.T) {
	for _, c := range []struct {
		rule             string
		all              bool
		names            []string
		writes, notWrite string
	}{
		{"{source_labels: [b, a], target_label: c}", false, []string{"a", "b"}, "c", "a"},
		{"{source_labels: [a], target_label: 'x.${1}_y'}", false, []string{"a"}, "x.5_y", "xy5_y"},
		{"{target_label: c, replacement: v}", false, nil, "c", "v"},
		{"{source_labels: [a], regex: x, action: keep}", false, []string{"a"}, "", "a"},
		{"{source_labels: [a], regex: x, action: drop}", false, []string{"a"}, "", "a"},
		{"{source_labels: [a], target_label: b, action: keepequal}", false, []string{"a", "b"}, "", "b"},
		{"{source_labels: [a], target_label: b, action: dropequal}", false, []string{"a", "b"}, "", "b"},
		{"{source_labels: [a], target_label: b, modulus: 2, action: hashmod}", false, []string{"a"}, "b", "a"},
		{"{source_labels: [a], target_label: b, action: lowercase}", false, []string{"a"}, "b", "a"},
		{"{source_labels: [a], target_label: b, action: uppercase}", false, []string{"a"}, "b", "a"},
		{"{regex: k8s_(.*), replacement: kube_$1, action: labelmap}", true, nil, "kube_a", "k8s_a"},
		{"{regex: k8s_.*, action: labeldrop}", true, nil, "k8s_a", "a"},
		{"{regex: k8s_.*, action: labelkeep}", true, nil, "a", "k8s_a"},
	} {
		t.Run(c.rule, func(t *testing.T) {
			r, err := parseText(t, "- "+c.rule)
			require.NoError(t, err)
			f := r.Footprint()
			require.Equal(t, c.all, f.All)
			require.Equal(t, c.names, f.Names)
			for _, name := range c.names {
				require.True(t, f.Reads(name))
			}
			require.Equal(t, c.all, f.Reads("elsewhere"))
			require.Equal(t, c.writes != "", f.Writes(c.writes))
			require.False(t, f.Writes(c.notWrite))
		})
	}
}

// Rules that change nothing allocate what the library does: the joined value of
// several source labels.
func TestApplyAllocatesNothingOfItsOwn(t *testing.T) {
	r, err := load(t, "unchanging.yaml")
	require.NoError(t, err)
	b := labels.NewBuilder(series(0))
	require.EqualValues(t, 1, testing.AllocsPerRun(100, func() {
		if !r.Apply(b) {
			panic("dropped")
		}
	}))
	require.Equal(t, series(0), b.Labels())
}

// Explain shows the same winner as Apply where a labelmap leads two labels to
// one name.
func TestExplainKeepsTheOrderOfLabels(t *testing.T) {
	r, err := parseText(t, `
- {target_label: z, replacement: first}
- {target_label: a, replacement: second}
- {regex: a|z, replacement: b, action: labelmap}
`)
	require.NoError(t, err)
	after, _ := apply(r, labels.EmptyLabels())
	require.Equal(t, "second", after.Get("b"))
	require.Equal(t, after, r.Explain(labels.EmptyLabels())[2].After)
}

func TestSharedByGoroutines(t *testing.T) {
	r, err := load(t, "good.yaml")
	require.NoError(t, err)
	ls := labels.FromStrings("__name__", "up", "env", "prod", "pod", "shop-7f9c", "Team", "A")
	want, _ := apply(r, ls)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 200 {
				if got, _ := apply(r, ls); !labels.Equal(want, got) {
					t.Error("differs")
				}
				r.Explain(ls)
			}
		})
	}
	wg.Wait()
}

func series(i int) labels.Labels {
	return labels.FromStrings(
		"__name__", "http_requests_total", "code", "200", "container", "api", "endpoint", "http",
		"env", "prod", "handler", "/v1/items", "instance", fmt.Sprintf("10.0.0.%d:8080", i%256),
		"job", "api", "method", "GET", "namespace", "shop", "pod", "api-7f9c", "service", "api")
}

// Five rules that pass over a series of twelve labels.
func BenchmarkApply(b *testing.B) {
	data, err := os.ReadFile(testdata + "unchanging.yaml")
	require.NoError(b, err)
	var node yaml.Node
	require.NoError(b, yaml.NewDecoder(bytes.NewReader(data)).Decode(&node))
	r, err := Parse(&node)
	require.NoError(b, err)
	builder := labels.NewBuilder(series(1))
	b.ReportAllocs()
	for b.Loop() {
		if !r.Apply(builder) {
			b.Fatal("dropped")
		}
	}
}

func TestRuleErrorUnwraps(t *testing.T) {
	cause := errors.New("cause")
	require.ErrorIs(t, &RuleError{Err: cause}, cause)
}
