package ingester

import (
	"maps"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/relabel"
)

// viewRules are rule lists that read and write labels in every way.
var viewRules = []string{
	`[]`,
	`[{source_labels: [a, b], regex: 'x;(.*)', target_label: c, replacement: '$1'}]`,
	`[{target_label: d, replacement: fixed}]`,
	`[{source_labels: [a], target_label: d, replacement: ''}]`,
	`[{source_labels: [a], regex: '(.+)', target_label: 'out_$1', replacement: y}]`,
	`[{regex: 'b', action: labeldrop}]`,
	`[{regex: 'a|c', action: labelkeep}]`,
	`[{regex: '(b)', replacement: 'out_$1', action: labelmap}]`,
	`[{source_labels: [b], target_label: h, modulus: 4, action: hashmod}]`,
	`[{source_labels: [a], regex: y, action: drop}]`,
	`[{source_labels: [a], target_label: b, action: keepequal}]`,
	`[{source_labels: [a], target_label: b, action: uppercase}]`,
}

// viewed makes the rules of the logs stream from relabel rules, with a policy and an
// API key that see and set labels of their own.
func viewed(t *testing.T, rules string) (*streamRules, *Sender) {
	t.Helper()
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(rules), &doc))
	parsed, err := relabel.Parse(doc.Content[0])
	require.NoError(t, err)
	set, err := policy.Load([]byte(`streams: {logs: {rate: 10, burst: 10, classes: [{name: p, percent: 50}], rules: [{class: p, matchers: ['p="x"', 'q!="y"']}]}}`), "p", 1)
	require.NoError(t, err)
	keys, err := ParseKeys([]byte(`keys: [{name: k, sha256: 5e884898da28047151d0e56f8dc6292773603d0d6aabbdd62a11ef721d1542d8, labels: {k: x}, exempt: true}]`), "k")
	require.NoError(t, err)
	s := Settings{Exempt: ExemptLabel{Label: "kfuse", Value: "x"}, Keys: keys, RouteBytes: 1 << 16,
		Limits: LabelLimits{Names: 64, NameBytes: 64, ValueBytes: 64, SetBytes: 4096}}
	for _, stream := range Streams() {
		s.Streams[stream] = StreamSettings{Rules: parsed, Policy: set.Stream(stream.String()), Sink: &nowhere{}}
	}
	in, err := New(s, 1<<20, nil)
	require.NoError(t, err)
	return in.generation.Load().streams[Logs], keys.find("password")
}

// TestViewIsEnough decides on random label sets as a whole and on what of them is in
// view: the outcome, the class and what the rules changed are the same.
func TestViewIsEnough(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, rules := range viewRules {
		st, sender := viewed(t, rules)
		hidden := 0
		for range 500 {
			set, seen := map[string]string{}, map[string]string{}
			for _, name := range []string{"a", "b", "c", "d", "e", "h", "k", "p", "q", "kfuse", "out_x", "out_b", "other"} {
				if r.IntN(2) == 0 {
					continue
				}
				set[name] = []string{"x", "y", "X"}[r.IntN(3)]
				if st.view.Sees(name) {
					seen[name] = set[name]
				} else {
					hidden++
				}
			}
			w := st.borrow()
			whole, _, out := st.decide(sender, AppendLabels(nil, labels.FromMap(set)), w)
			wholeOut := decoded(t, out, set)
			part, _, out := st.decide(sender, AppendLabels(nil, labels.FromMap(seen)), w)
			partOut := decoded(t, out, seen)
			require.Equal(t, whole, part, "%s: %v", rules, set)
			if whole.outcome == Admitted || whole.outcome == Exempt {
				maps.DeleteFunc(set, func(name, _ string) bool { return st.view.Sees(name) })
				maps.Copy(partOut, set) // what is not in view stays as it is
				require.Equal(t, wholeOut, partOut, "%s", rules)
			}
		}
		require.Equal(t, st.view.All, hidden == 0, "%s hides what no rule looks at", rules)
	}
}

// decoded is a label set by name; none means that it was left as it was.
func decoded(t *testing.T, set []byte, otherwise map[string]string) map[string]string {
	if set == nil {
		return maps.Clone(otherwise)
	}
	out := map[string]string{}
	for len(set) > 0 {
		name, value, rest, ok := nextLabel(set)
		require.True(t, ok)
		out[string(name)] = string(value)
		set = rest
	}
	return out
}
