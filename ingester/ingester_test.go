package ingester

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http/httptest"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/relabel"
)

// nowhere counts what it is given.
type nowhere struct {
	mu    sync.Mutex
	items int64
}

func (n *nowhere) Write(_ context.Context, b *Batch) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	for i := range b.Groups {
		if b.Groups[i].Admitted() {
			n.items += b.Groups[i].Items()
		}
	}
	return nil
}

func settingsOf(t *testing.T, sink Sink, policyYAML, relabelYAML string) Settings {
	t.Helper()
	set, err := policy.Load([]byte(policyYAML), "policy.yaml", 1)
	require.NoError(t, err)
	var doc yaml.Node
	require.NoError(t, yaml.Unmarshal([]byte(relabelYAML), &doc))
	s := Settings{
		Exempt:     ExemptLabel{Label: "kfuse", Value: "true"},
		Limits:     LabelLimits{Names: 64, NameBytes: 256, ValueBytes: 2048, SetBytes: 8192},
		RouteBytes: 1 << 20,
	}
	for _, stream := range Streams() {
		node := &doc
		if len(doc.Content) > 0 {
			node = doc.Content[0]
		}
		rules, err := relabel.Parse(node)
		require.NoError(t, err)
		s.Streams[stream] = StreamSettings{Rules: rules, Policy: set.Stream(stream.String()), Sink: sink, SinkName: "nowhere"}
	}
	return s
}

// batchOf makes a batch of series with one sample each.
func batchOf(sets ...[]string) *Batch {
	b := &Batch{Stream: Metrics, Format: RemoteWrite1, Received: time.Now()}
	for _, pairs := range sets {
		var set []byte
		for i := 0; i+1 < len(pairs); i += 2 {
			set = AppendLabel(set, pairs[i], pairs[i+1])
		}
		g := Group{Field: Span{Start: uint32(len(b.Body))}, Floats: 1}
		b.Body = protowire.AppendTag(b.Body, 1, protowire.BytesType)
		b.Body = protowire.AppendVarint(b.Body, uint64(len(set)))
		g.Message = uint32(len(b.Body))
		b.Body = append(b.Body, set...)
		g.Key = Span{g.Message, uint32(len(b.Body))}
		g.Field.End = g.Key.End
		b.Groups = append(b.Groups, g)
	}
	b.Size = len(b.Body)
	return b
}

func times(n int, pairs ...string) [][]string {
	sets := make([][]string, n)
	for i := range sets {
		sets[i] = append([]string{"__name__", fmt.Sprintf("m%d", i)}, pairs...)
	}
	return sets
}

// TestP1 does not limit a stream without a policy, and counts it all the same.
func TestP1(t *testing.T) {
	sink := &nowhere{}
	in, err := New(settingsOf(t, sink, "", ""), 1<<20, nil)
	require.NoError(t, err)
	res := in.Process(context.Background(), batchOf(times(1000)...))
	require.Empty(t, res.Drops)
	require.EqualValues(t, 1000, sink.items)
	status := in.RateControl().Streams["metrics"]
	require.False(t, status.Limited)
	require.EqualValues(t, 1000, status.Received)
	require.EqualValues(t, 1000, status.Classes[0].Admitted)
}

// TestP7 drops what a rule sends to a class that the policy does not define, and
// shows the class as unconfigured.
func TestP7(t *testing.T) {
	sink := &nowhere{}
	in, err := New(settingsOf(t, sink, `streams: {metrics: {rate: 10, burst: 10, rules: [{class: gone, matchers: ['team="g"']}]}}`, ""), 1<<20, nil)
	require.NoError(t, err)
	res := in.Process(context.Background(), batchOf(times(3, "team", "g")...))
	require.Len(t, res.Drops, 1)
	require.False(t, res.Drops[0].Configured)
	for _, c := range in.RateControl().Streams["metrics"].Classes {
		if c.Name == "gone" {
			require.False(t, c.Configured)
			require.Nil(t, c.Tokens)
			require.EqualValues(t, 3, c.Dropped)
		}
	}
}

// TestP11 keeps the tokens of a class that stays over a reload, clips them to the
// new burst, and starts a new class full.
func TestP11(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const doc = `streams: {metrics: {rate: 0.001, burst: %d, classes: [{name: %s, percent: 50}], rules: [{class: %[2]s, matchers: ['team="a"']}]}}`
		sink := &nowhere{}
		load := func(burst int, class string) Settings { return settingsOf(t, sink, fmt.Sprintf(doc, burst, class), "") }
		in, err := New(load(100, "a"), 1<<20, nil)
		require.NoError(t, err)
		tokens := func(class string) float64 {
			for _, c := range in.RateControl().Streams["metrics"].Classes {
				if c.Name == class {
					return *c.Tokens
				}
			}
			t.Fatalf("no class %s", class)
			return 0
		}
		in.Process(context.Background(), batchOf(times(20, "team", "a")...))
		require.InDelta(t, 30, tokens("a"), 0.01)
		require.NoError(t, in.Reload(load(1000, "a")))
		require.InDelta(t, 30, tokens("a"), 0.01)
		require.NoError(t, in.Reload(load(40, "a")))
		require.InDelta(t, 20, tokens("a"), 0.01)
		require.NoError(t, in.Reload(load(40, "b")))
		require.InDelta(t, 20, tokens("b"), 0.01)
	})
}

// TestReloadChangesRoutes: what is remembered under old rules is not believed
// under new ones, and stays where only rates change.
func TestReloadChangesRoutes(t *testing.T) {
	const withRule = `streams: {metrics: {rate: %d, burst: 100000, classes: [{name: a, rate: 1}], rules: [{class: a, matchers: ['team="a"']}]}}`
	sink := &nowhere{}
	in, err := New(settingsOf(t, sink, fmt.Sprintf(withRule, 1000), ""), 1<<20, nil)
	require.NoError(t, err)
	send := func() Result { return in.Process(context.Background(), batchOf(times(10, "team", "a")...)) }
	send()
	remembered := in.generation.Load().streams[Metrics].routes
	require.NoError(t, in.Reload(settingsOf(t, sink, fmt.Sprintf(withRule, 2000), "")))
	require.Same(t, remembered, in.generation.Load().streams[Metrics].routes, "rates do not change routes")

	require.NoError(t, in.Reload(settingsOf(t, sink, fmt.Sprintf(withRule, 2000), "[{source_labels: [team], regex: a, action: drop}]")))
	require.EqualValues(t, 10, send().Relabelled, "a new relabel rule")
	require.NoError(t, in.Reload(settingsOf(t, sink, `streams: {metrics: {rate: 0, burst: 1}}`, "")))
	require.Equal(t, "default", send().Drops[0].Class, "a rule less")
}

// TestReloadWhileBatchesRun swaps rules under load: every item is counted once,
// and the class that stays never spends more than it has.
func TestReloadWhileBatchesRun(t *testing.T) {
	sink := &nowhere{}
	load := func(extra string) Settings {
		return settingsOf(t, sink, `streams: {metrics: {rate: 0.0001, burst: 1000, classes: [{name: a, percent: 50}`+extra+`], rules: [{class: a, matchers: ['team="a"']}]}}`, "")
	}
	in, err := New(load(""), 1<<20, nil)
	require.NoError(t, err)
	plans := []Settings{load(", {name: b, percent: 10}"), load("")}
	var senders sync.WaitGroup
	for range 4 {
		senders.Go(func() {
			for range 100 {
				in.Process(context.Background(), batchOf(times(7, "team", "a")...))
			}
		})
	}
	for i := range 200 {
		require.NoError(t, in.Reload(plans[i%2]))
	}
	senders.Wait()
	s := in.RateControl().Streams["metrics"]
	require.EqualValues(t, 4*100*7, s.Received)
	for _, c := range s.Classes {
		if c.Name == "a" {
			require.EqualValues(t, 500, c.Admitted, "all of the burst and no more")
			require.EqualValues(t, s.Received, c.Admitted+c.Dropped)
		}
	}
	require.EqualValues(t, 500, sink.items)
}

func digest(key string) string {
	sum := sha256.Sum256([]byte(key))
	return hex.EncodeToString(sum[:])
}

// TestKeys covers who may send what, and whose exempt label counts.
func TestKeys(t *testing.T) {
	keys, err := ParseKeys(fmt.Appendf(nil, `
keys:
  - {name: a, sha256: %s, labels: {team: a}, streams: [metrics]}
  - {name: ops, sha256: %s, exempt: true}
`, digest("secret-a"), digest("secret-ops")), "keys.yaml")
	require.NoError(t, err)
	sink := &nowhere{}
	s := settingsOf(t, sink, `streams: {metrics: {rate: 0, burst: 1}}`, "")
	s.Keys = keys
	in, err := New(s, 1<<20, nil)
	require.NoError(t, err)
	who := func(stream Stream, header, value, query string) (*Sender, error) {
		t.Helper()
		r := httptest.NewRequest("POST", "/api/v1/write"+query, nil)
		if header != "" {
			r.Header.Set(header, value)
		}
		origin, err := in.Authenticate(r, stream)
		return origin.Sender, err
	}
	_, err = who(Metrics, "", "", "")
	require.ErrorIs(t, err, ErrNoKey)
	_, err = who(Metrics, "Kf-Api-Key", "wrong", "")
	require.ErrorIs(t, err, ErrUnknownKey)
	_, err = who(Logs, "Kf-Api-Key", "secret-a", "")
	require.ErrorIs(t, err, ErrWrongStream)
	for _, carrier := range [][3]string{{"Kf-Api-Key", "secret-a", ""}, {"Authorization", "Bearer secret-a", ""}} {
		sender, err := who(Metrics, carrier[0], carrier[1], carrier[2])
		require.NoError(t, err)
		require.Equal(t, "a", sender.Name)
	}

	_, err = who(Metrics, "", "", "?kf-api-key=secret-a")
	require.ErrorIs(t, err, ErrNoKey, "only senders that cannot set a header may put the key into the address")

	for name, exempt := range map[string]int64{"secret-a": 0, "secret-ops": 1} {
		sender, err := who(Metrics, "Kf-Api-Key", name, "")
		require.NoError(t, err)
		before := in.RateControl().Streams["metrics"].Exempt
		b := batchOf([]string{"__name__", "up", "kfuse", "true"})
		b.Sender = sender
		in.Process(context.Background(), b)
		require.Equal(t, exempt, in.RateControl().Streams["metrics"].Exempt-before, name)
	}
	e, err := in.Explain("metrics", `{__name__="up"}`, "a")
	require.NoError(t, err)
	require.Equal(t, "a", e.Relabelled["team"], "the key's labels")

	s.Exempt.AnySender = true
	require.NoError(t, in.Reload(s))
	before := in.RateControl().Streams["metrics"].Exempt
	in.Process(context.Background(), batchOf([]string{"__name__", "up", "kfuse", "true"}))
	require.EqualValues(t, 1, in.RateControl().Streams["metrics"].Exempt-before)
}

// TestKeyFileProblems names every problem of a key file.
func TestKeyFileProblems(t *testing.T) {
	_, err := ParseKeys([]byte("keys: [{name: a, sha256: zz}, {sha256: aa}, {name: b, sha256: "+digest("x")+", streams: [spans]}, {name: c, sha256: "+digest("y")+"}, {name: c, sha256: "+digest("z")+"}, {name: d, sha256: "+digest("y")+"}]"), "keys.yaml")
	for _, want := range []string{"keys[0]: sha256", "keys[1]: name is missing", `keys[2]: streams of "b"`, `keys[4]: name "c" stands twice`, `keys[5]: the same key as "c"`} {
		require.ErrorContains(t, err, want)
	}
	_, err = ParseKeys([]byte("keys: [{name: a, secret: x}]"), "keys.yaml")
	require.ErrorContains(t, err, "secret")
	keys, err := ParseKeys(nil, "keys.yaml")
	require.NoError(t, err)
	require.True(t, keys.required(), "a file that lost its keys opens nothing")
	require.False(t, (*Keys)(nil).required())
}

// TestExplain agrees with what happens, and says why.
func TestExplain(t *testing.T) {
	sink := &nowhere{}
	in, err := New(settingsOf(t, sink, `
streams:
  metrics:
    rate: 100
    burst: 100
    classes: [{name: a, rate: 50}, {name: none, rate: 0}]
    rules:
      - {class: a, matchers: ['team="a"', 'env!="prod"']}
      - {class: none, matchers: ['team=~"a|n"']}
      - {class: gone, matchers: ['team="g"']}
`, "[{source_labels: [__name__], regex: debug, action: drop}, {source_labels: [stage], regex: (.+), target_label: env}]"), 1<<20, nil)
	require.NoError(t, err)
	for labels, want := range map[string][]string{
		`{__name__="up", team="a"}`:               {"admitted", "a", "rule 0"},
		`{__name__="up", team="a", stage="prod"}`: {"dropped (ratelimit)", "none", "rate 0"},
		`{__name__="up", team="g"}`:               {"dropped (ratelimit)", "gone", "does not define"},
		`up`:                                      {"admitted", "default", "no rule matches"},
		`debug`:                                   {"dropped (relabel)", "", "no token is taken"},
		`{job="x"}`:                               {"invalid", "", "__name__"},
		`{__name__="up", kfuse="true"}`:           {"exempt", "kfuse_cp_class", "never limited"},
	} {
		e, err := in.Explain("metrics", labels, "")
		require.NoError(t, err, labels)
		require.Equal(t, want[0], e.Outcome, labels)
		require.Equal(t, want[1], e.Class, labels)
		require.Contains(t, e.Why, want[2], labels)
	}
	e, err := in.Explain("metrics", `{__name__="up", team="a"}`, "")
	require.NoError(t, err)
	require.Equal(t, []int{1}, e.Policy.AlsoMatching)
	require.Contains(t, e.Why, "later rules that match too: 1")
	for _, bad := range [][2]string{{"metric", "up"}, {"metrics", "{"}, {"metrics", ""}} {
		_, err := in.Explain(bad[0], bad[1], "")
		require.Error(t, err, bad)
	}
	_, err = in.Explain("metrics", "up", "nobody")
	require.Error(t, err)
	require.Zero(t, in.RateControl().Streams["metrics"].Received, "explaining counts nothing")
}

// TestReloadBetweenKeyAndProcess: a batch is judged with the rules under which
// its sender was recognised, although the key file was put in another order while
// its body arrived.
func TestReloadBetweenKeyAndProcess(t *testing.T) {
	entry := func(name string) string {
		return fmt.Sprintf("  - {name: %s, sha256: %s, labels: {team: %[1]s}}\n", name, digest(name))
	}
	sink := &nowhere{}
	load := func(files string) Settings {
		s := settingsOf(t, sink, `streams: {metrics: {rate: 1000, burst: 1000, classes: [{name: a, rate: 1}, {name: b, rate: 1}], rules: [{class: a, matchers: ['team="a"']}, {class: b, matchers: ['team="b"']}]}}`, "")
		keys, err := ParseKeys([]byte("keys:\n"+files), "keys.yaml")
		require.NoError(t, err)
		s.Keys = keys
		return s
	}
	in, err := New(load(entry("a")+entry("b")), 1<<20, nil)
	require.NoError(t, err)
	origin := func(key string) Origin {
		r := httptest.NewRequest("POST", "/api/v1/write", nil)
		r.Header.Set("Kf-Api-Key", key)
		o, err := in.Authenticate(r, Metrics)
		require.NoError(t, err)
		return o
	}
	early := origin("a")
	require.NoError(t, in.Reload(load(entry("b")+entry("a"))))
	for _, o := range []Origin{early, origin("b"), origin("a")} {
		b := batchOf([]string{"__name__", "up"})
		b.Origin = o
		in.Process(context.Background(), b)
		labels := string(b.Labels(&b.Groups[0]))
		require.Contains(t, labels, "team\x12\x01"+o.Sender.Name)
	}
	kept := in.generation.Load().streams[Metrics].routes
	require.NoError(t, in.Reload(load(entry("b")+entry("a"))))
	require.True(t, kept == in.generation.Load().streams[Metrics].routes, "the same keys, read again")
}

// TestSequenceTellsTablesApart: two tables whose bytes behind the first header
// are the same, and whose symbols are not.
func TestSequenceTellsTablesApart(t *testing.T) {
	table := func(first uint32) *Batch {
		body := []byte("\x22\x01ax\x22\x01b")
		return &Batch{Format: RemoteWrite2, Body: body, Symbols: []Span{{0, first}, {first, 7}}, Groups: make([]Group, 1)}
	}
	s := newSequences(1 << 20)
	for range 2 {
		_, hash := s.find(table(0), 0)
		s.remember(table(0), 0, hash)
	}
	q, _ := s.find(table(0), 0)
	require.NotNil(t, q)
	q, _ = s.find(table(3), 0)
	require.Nil(t, q)
}
