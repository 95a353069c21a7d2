package remotewrite

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	prelabel "github.com/prometheus/prometheus/model/relabel"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// naive is the data path written as simply as it can be, for one policy whose
// rates are too low to mint a token during the test: a class is a number of
// items.
type naive struct {
	rules  []*prelabel.Config
	tokens map[string]int64
	class  func(labels.Labels) string
}

// verdict returns what becomes of one series, and its labels if it is stored.
func (n *naive) verdict(ls []prompb.Label, items int64, v2 bool) (string, string) {
	if len(ls) == 0 || items == 0 {
		return "invalid", ""
	}
	if v2 && !slices.IsSortedFunc(ls, func(a, b prompb.Label) int { return strings.Compare(a.Name, b.Name) }) {
		return "invalid", ""
	}
	seen := map[string]bool{}
	var set []labels.Label
	for _, l := range ls {
		if l.Name == "" || seen[l.Name] && l.Value != "" || !utf8.ValidString(l.Name) || !utf8.ValidString(l.Value) {
			return "invalid", ""
		}
		if l.Value == "" {
			continue
		}
		seen[l.Name] = true
		set = append(set, labels.Label{Name: l.Name, Value: l.Value})
	}
	in := labels.New(set...)
	if in.IsEmpty() {
		return "invalid", ""
	}
	b := labels.NewBuilder(in)
	if !prelabel.ProcessBuilder(b, n.rules...) {
		return "relabel", ""
	}
	out := b.Labels()
	if out.Get("__name__") == "" {
		return "invalid", ""
	}
	text := ""
	out.Range(func(l labels.Label) { text += fmt.Sprintf("%q=%q,", l.Name, l.Value) })
	if out.Get("kfuse") == "true" {
		return "exempt", text
	}
	class := n.class(out)
	if n.tokens[class] < items {
		return "ratelimit", ""
	}
	n.tokens[class] -= items
	return "admitted", text
}

const oraclePolicy = `
streams:
  metrics:
    rate: 0.0001
    burst: 1000
    default: {percent: 40}
    classes:
      - {name: a, percent: 30}
      - {name: nothing, rate: 0}
      - {name: tiny, percent: 1}
    rules:
      - {class: a, matchers: ['team="a"']}
      - {class: nothing, matchers: ['team="zero"']}
      - {class: gone, matchers: ['team="gone"']}
      - {class: tiny, matchers: ['team=~"t.*"', 'env!="prod"']}
`

const oracleRules = `
- {source_labels: [__name__], regex: 'drop_.*', action: drop}
- {source_labels: [environment], regex: '(.+)', target_label: env}
- {action: labeldrop, regex: environment}
- {source_labels: [team, env], separator: /, regex: 'a/(.*)', target_label: place, replacement: '$1'}
`

func newNaive(t *testing.T) *naive {
	n := &naive{tokens: map[string]int64{"default": 400, "a": 300, "tiny": 10}}
	require.NoError(t, yaml.Unmarshal([]byte(oracleRules), &n.rules))
	for _, r := range n.rules {
		r.NameValidationScheme = model.UTF8Validation
	}
	n.class = func(ls labels.Labels) string {
		switch team := ls.Get("team"); {
		case team == "a":
			return "a"
		case team == "zero":
			return "nothing"
		case team == "gone":
			return "gone"
		case strings.HasPrefix(team, "t") && ls.Get("env") != "prod":
			return "tiny"
		}
		return "default"
	}
	return n
}

// randomSeries draws a series, now and then a bad one.
func randomSeries(rng *rand.Rand, ms int64) prompb.TimeSeries {
	pick := func(of ...string) string { return of[rng.IntN(len(of))] }
	pairs := []string{"__name__", pick("up", "down", "drop_me", "größe"), "env", pick("prod", "dev"), "id", strconv.Itoa(rng.IntN(50)), "team", pick("a", "a", "t1", "zero", "gone", "z")}
	switch rng.IntN(12) {
	case 0:
		pairs = append(pairs, "environment", "dev") // unsorted
	case 1:
		pairs = append(pairs, "team", "b") // twice
	case 2:
		pairs = append(pairs, "", "x")
	case 3:
		pairs = append(pairs, "zz", "\xff")
	case 4:
		pairs = pairs[2:] // no name
	case 5:
		pairs = append(pairs, "zz", "") // a label that is none
	case 6:
		pairs = append(pairs[:4:4], "kfuse", "true")
	}
	ts := series(rng.Float64(), ms, pairs...)
	for range rng.IntN(3) {
		ts.Samples = append(ts.Samples, prompb.Sample{Value: math.Float64frombits(0x7ff0000000000002), Timestamp: ms + 1})
	}
	return ts
}

// TestOracle sends random requests in both versions and compares every verdict,
// every byte that the sink gets, every answer and every count with the naive
// data path.
func TestOracle(t *testing.T) {
	for seed := range uint64(8) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runOracle(t, seed) })
	}
}

func runOracle(t *testing.T, seed uint64) {
	s := newSystem(t, oraclePolicy, oracleRules)
	n := newNaive(t)
	rng := rand.New(rand.NewPCG(seed, 3))
	want := map[string]int64{}
	req := &prompb.WriteRequest{}
	for round := range 90 {
		// Senders repeat their series, sometimes with one more or less.
		switch rng.IntN(4) {
		case 0, 1:
		case 2:
			req.Timeseries = req.Timeseries[:rng.IntN(len(req.Timeseries)+1)]
		default:
			req.Timeseries = nil
			for range rng.IntN(40) {
				req.Timeseries = append(req.Timeseries, randomSeries(rng, int64(round)))
			}
		}
		v2, failing := rng.IntN(2) == 0, rng.IntN(6) == 0
		s.sink.series = nil
		s.sink.fail = nil
		if failing {
			s.sink.fail = func() error { return errors.New("the disk is full") }
		}
		before := map[string]int64{}
		for c, v := range n.tokens {
			before[c] = v
		}
		var expect []stored
		outcome := map[string]int64{}
		written := int64(0)
		for _, ts := range req.Timeseries {
			items := int64(len(ts.Samples))
			what, set := n.verdict(ts.Labels, items, v2)
			outcome[what] += items
			if set != "" {
				written += items
				expect = append(expect, stored{set, contentOf(ts, v2)})
			}
		}
		failed := failing && len(expect) > 0
		if failed {
			n.tokens = before // they come back
			outcome["refused"] = outcome["admitted"] + outcome["exempt"]
			outcome["admitted"], outcome["exempt"] = 0, 0
		}
		for k, v := range outcome {
			want[k] += v
		}
		want["received"] += total(req)
		checkAnswer(t, s, req, v2, failed, outcome, written)
		if !failed {
			require.Len(t, s.sink.series, len(expect))
			for i := range expect {
				require.Equal(t, expect[i], s.sink.series[i])
			}
		}
	}
	c := s.requireConserved()
	require.Equal(t, want["received"], c["received_items"])
	require.Equal(t, want["invalid"], c["invalid_items"])
	require.Equal(t, want["relabel"], c["dropped_items/relabel"])
	require.Equal(t, want["ratelimit"], c["dropped_items/ratelimit"])
	require.Equal(t, want["exempt"], c["exempt_items"])
	require.Equal(t, want["admitted"], c["admitted_items"])
	require.Equal(t, want["refused"], c["refused_items/sink"])
}

// contentOf is what a sink must get of a series beside its labels.
func contentOf(ts prompb.TimeSeries, v2 bool) string {
	if !v2 {
		return contentV1(ts)
	}
	return contentV2(toV2(&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{ts}}).Timeseries[0])
}

func total(req *prompb.WriteRequest) (n int64) {
	for _, ts := range req.Timeseries {
		n += int64(len(ts.Samples))
	}
	return n
}

// checkAnswer posts the request and compares the answer with the table of
// answers.
func checkAnswer(t *testing.T, s *system, req *prompb.WriteRequest, v2, failed bool, outcome map[string]int64, written int64) {
	t.Helper()
	lost := outcome["invalid"] + outcome["relabel"] + outcome["ratelimit"]
	all := len(req.Timeseries) > 0 && total(req) == outcome["invalid"]
	if !v2 {
		rec := s.postV1(req)
		switch {
		case failed:
			require.Equal(t, http.StatusServiceUnavailable, rec.Code)
			require.NotEmpty(t, rec.Header().Get("Retry-After"))
		case all:
			require.Equal(t, http.StatusBadRequest, rec.Code)
		default:
			require.Equal(t, http.StatusNoContent, rec.Code, rec.Body)
		}
		return
	}
	rec := s.postV2(toV2(req))
	if failed {
		require.Equal(t, http.StatusServiceUnavailable, rec.Code)
		require.Equal(t, "0", rec.Header().Get(samplesWritten))
		return
	}
	require.Equal(t, strconv.FormatInt(written, 10), rec.Header().Get(samplesWritten))
	require.Equal(t, "0", rec.Header().Get(histogramsWritten))
	require.Equal(t, "0", rec.Header().Get(exemplarsWritten))
	if lost > 0 {
		require.Equal(t, http.StatusBadRequest, rec.Code)
		require.NotEmpty(t, rec.Body.String())
		return
	}
	require.Equal(t, http.StatusNoContent, rec.Code, rec.Body)
}
