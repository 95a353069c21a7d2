package loki

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/grafana/loki/pkg/push"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

var at = time.Date(2026, 11, 30, 8, 0, 0, 123456789, time.UTC)

const limit = 64 << 20

func run(t testing.TB, decode func(d *decoder) error) ([]receivetest.Record, *decoder, error) {
	t.Helper()
	var out receive.Records
	out.Reset(nil, "loki", at, receive.Bounds{Bytes: limit, Grow: func(int64) bool { return true }})
	d := decoder{out: &out}
	err := decode(&d)
	return receivetest.Records(t, out.Bytes()), &d, err
}

// request makes a push request with Loki's own types, and what it should become.
func request(rng *rand.Rand) (*push.PushRequest, []receivetest.Record) {
	req := &push.PushRequest{}
	var want []receivetest.Record
	texts := []string{"plain", "", "quo\"te", "back\\slash", "new\nline", "ümläut", "{a=\"b\"}", strings.Repeat("long ", 60)}
	text := func() string { return texts[rng.IntN(len(texts))] }
	levels := []string{"info", "ERROR", "loud", "warn"}
	for s := range rng.IntN(4) {
		resource := map[string]any{"app": fmt.Sprint("app", s)}
		for i := range rng.IntN(3) {
			resource[fmt.Sprint("label_", i)] = text()
		}
		if rng.IntN(2) == 0 {
			resource["level"] = levels[rng.IntN(len(levels))]
		}
		set := map[string]string{}
		for name, value := range resource {
			set[name] = value.(string)
		}
		stream := push.Stream{Labels: labels.FromMap(set).String()}
		for range rng.IntN(5) {
			when := at.Add(time.Duration(rng.Int64N(1e18)))
			e := push.Entry{Timestamp: when, Line: text()}
			attributes := map[string]any{}
			level, _ := resource["level"].(string)
			for i := range rng.IntN(3) {
				name, value := fmt.Sprint("meta_", i), text()
				if i == 0 && rng.IntN(2) == 0 {
					name, value = "severity", levels[rng.IntN(len(levels))]
					level = value
				}
				attributes[name] = value
				e.StructuredMetadata = append(e.StructuredMetadata, push.LabelAdapter{Name: name, Value: value})
			}
			stream.Entries = append(stream.Entries, e)
			want = append(want, receivetest.Record{Resource: resource, Attributes: attributes, Body: e.Line, Time: uint64(when.UnixNano()),
				Severity: int32(receive.SeverityNumber(level)), Level: level})
		}
		req.Streams = append(req.Streams, stream)
	}
	return req, want
}

func TestProtobufOfLokisOwnTypes(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 500 {
		req, want := request(rng)
		body, err := req.Marshal()
		require.NoError(t, err)
		got, d, err := run(t, func(d *decoder) error { return d.proto(body) })
		require.NoError(t, err)
		require.Zero(t, d.invalid)
		require.Equal(t, want, got)
	}
}

// jsonOf writes a request as clients do that speak JSON.
func jsonOf(t *testing.T, req *push.PushRequest, want []receivetest.Record) []byte {
	type stream struct {
		Stream map[string]any `json:"stream"`
		Values [][]any        `json:"values"`
	}
	var body struct {
		Streams []stream `json:"streams"`
	}
	for _, s := range req.Streams {
		js := stream{Stream: map[string]any{}, Values: [][]any{}}
		for _, e := range s.Entries {
			js.Stream = want[0].Resource
			value := []any{fmt.Sprint(e.Timestamp.UnixNano()), e.Line}
			if len(e.StructuredMetadata) > 0 {
				value = append(value, want[0].Attributes)
			}
			js.Values = append(js.Values, value)
			want = want[1:]
		}
		body.Streams = append(body.Streams, js)
	}
	text, err := json.Marshal(body)
	require.NoError(t, err)
	return text
}

func TestJSONSaysTheSameAsProtobuf(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 6))
	for range 500 {
		req, want := request(rng)
		body := jsonOf(t, req, want)
		got, d, err := run(t, func(d *decoder) error { return d.jsonRequest(body) })
		require.NoError(t, err)
		require.Zero(t, d.invalid)
		require.Equal(t, want, got)
	}
}

func TestOneBadEntryAmongGoodOnes(t *testing.T) {
	for name, entry := range map[string]string{
		"no array":        `"line"`,
		"no line":         `["1"]`,
		"time is no time": `["yesterday","x"]`,
		"line is no text": `["1",{"a":1}]`,
		"metadata":        `["1","x",["a"]]`,
		"metadata value":  `["1","x",{"a":{}}]`,
	} {
		body := `{"unknown":[1],"streams":[{"stream":{"a":"b"},"values":[["1","good"],` + entry + `,["2","good",{"k":"v"}]]}]}`
		got, d, err := run(t, func(d *decoder) error { return d.jsonRequest([]byte(body)) })
		require.NoError(t, err, name)
		require.Equal(t, 1, d.invalid, name)
		require.Error(t, d.why)
		require.Len(t, got, 2, name)
		require.Equal(t, map[string]any{"k": "v"}, got[1].Attributes, "nothing of the bad entry is left in the next: %s", name)
	}
	bad := push.PushRequest{Streams: []push.Stream{
		{Labels: `{a="b"`, Entries: []push.Entry{{Timestamp: at, Line: "lost"}, {Timestamp: at, Line: "lost"}}},
		{Labels: `{a="b"}`, Entries: []push.Entry{{Timestamp: at, Line: "kept"}}},
	}}
	body, err := bad.Marshal()
	require.NoError(t, err)
	got, d, err := run(t, func(d *decoder) error { return d.proto(body) })
	require.NoError(t, err)
	require.Equal(t, 2, d.invalid)
	require.Len(t, got, 1)
}

func TestMalformedRequests(t *testing.T) {
	for _, body := range []string{``, `[]`, `{"streams":{}}`, `{"streams":"x"}`, `{"streams":[1]}`, `{"streams":[{"stream":{},"values":{}}]}`, `{"streams":[`} {
		_, _, err := run(t, func(d *decoder) error { return d.jsonRequest([]byte(body)) })
		require.Error(t, err, body)
	}
	req, _ := request(rand.New(rand.NewPCG(9, 9)))
	for len(req.Streams) == 0 {
		req, _ = request(rand.New(rand.NewPCG(9, 10)))
	}
	body, err := req.Marshal()
	require.NoError(t, err)
	_, _, err = run(t, func(d *decoder) error { return d.proto(body[:len(body)-1]) })
	require.ErrorIs(t, err, errMalformed)
}

func TestTimesFarOffAreUnknown(t *testing.T) {
	for _, when := range []time.Time{{}, time.Unix(0, 0), time.Unix(-1, 0), time.Unix(1<<36, 0)} {
		req := push.PushRequest{Streams: []push.Stream{{Labels: `{a="b"}`, Entries: []push.Entry{{Timestamp: when, Line: "x"}}}}}
		body, err := req.Marshal()
		require.NoError(t, err)
		got, _, err := run(t, func(d *decoder) error { return d.proto(body) })
		require.NoError(t, err)
		require.Zero(t, got[0].Time, "%s", when)
	}
}

// TestPlainLabels holds the fast reader against Prometheus' parser.
func TestPlainLabels(t *testing.T) {
	for text, plain := range map[string]bool{
		`{a="b"}`: true, `{a="b", c="d"}`: true, `{a="b",c="d",}`: true, `{}`: true, `{a=""}`: true,
		`{a="b\"c"}`: false, `{"a.b"="c"}`: false, `{ a="b" }`: false, `{a="ü"}`: false,
		`{a="b"`: false, `{a="b"}x`: false, `{1="b"}`: false, `{a}`: false, ``: false, `{a="b" c="d"}`: false, `x{a="b"}`: false,
	} {
		ls, ok := parsePlain(nil, text)
		require.Equal(t, plain, ok, text)
		all, err := parseLabels(nil, text)
		if plain {
			require.NoError(t, err)
			require.Equal(t, ls, all)
		}
	}
	ls, err := parseLabels(nil, `{a="b\"c", "x.y"="ü"}`)
	require.NoError(t, err)
	require.ElementsMatch(t, []label{{"a", `b"c`}, {"x.y", "ü"}}, ls)
}

func FuzzProtobuf(f *testing.F) {
	req, _ := request(rand.New(rand.NewPCG(3, 4)))
	body, err := req.Marshal()
	require.NoError(f, err)
	f.Add(body)
	f.Fuzz(func(t *testing.T, body []byte) {
		got, d, err := run(t, func(d *decoder) error { return d.proto(body) })
		var theirs push.PushRequest
		if err != nil || d.invalid > 0 || theirs.Unmarshal(body) != nil {
			return
		}
		n := 0
		for _, s := range theirs.Streams {
			n += len(s.Entries)
		}
		require.Len(t, got, n, "what Loki's types read, is read")
	})
}

func FuzzJSON(f *testing.F) {
	f.Add([]byte(`{"streams":[{"stream":{"a":"b"},"values":[["1","x",{"k":"v"}],["2","\ud800"]]}]}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		_, _, _ = run(t, func(d *decoder) error { return d.jsonRequest(body) })
	})
}

// TestSeveralListsOfEntries stores all that a stream holds, wherever its labels stand.
func TestSeveralListsOfEntries(t *testing.T) {
	body := `{"streams":[{"values":[["1","a"]],"stream":{"app":"x","level":"warn"},"values":[["2","b"],["3","c"]],"values":null},` +
		`{"stream":{"app":"y"},"values":[["4","d"]]}]}`
	got, d, err := run(t, func(d *decoder) error { return d.jsonRequest([]byte(body)) })
	require.NoError(t, err)
	require.Zero(t, d.invalid)
	require.Len(t, got, 4)
	for i, r := range got {
		require.Equal(t, string(rune('a'+i)), r.Body)
		require.EqualValues(t, i+1, r.Time)
	}
	require.Equal(t, map[string]any{"app": "x", "level": "warn"}, got[2].Resource)
	require.Equal(t, "warn", got[2].Level)
	require.Equal(t, map[string]any{"app": "y"}, got[3].Resource)
	require.Empty(t, got[3].Level)
}

// TestLabelsAreEncodedOnce allocates no more for many entries of a stream with long
// labels than the labels and the entries need once.
func TestLabelsAreEncodedOnce(t *testing.T) {
	const entries = 20_000
	body := `{"streams":[{"stream":{"a":"` + strings.Repeat("x", 1_000_000) + `"},"values":[` + strings.Repeat(`["1",""],`, entries-1) + `["1",""]]}]}`
	var out receive.Records
	out.Reset(nil, "loki", at, receive.Bounds{Bytes: 4 << 20, Grow: func(int64) bool { return true }})
	d := decoder{out: &out}
	require.NoError(t, d.jsonRequest([]byte(body)))
	require.Equal(t, entries, out.Count())
	got := receivetest.Records(t, out.Bytes())
	require.Len(t, got, entries)
	require.Len(t, got[entries-1].Resource["a"], 1_000_000)
}

func TestTooManyLabelsAreOfTheStream(t *testing.T) {
	for name, labels := range map[string]string{
		"many": `{` + strings.Repeat(`a="",`, 2000) + `b=""}`,
		"long": `{a="` + strings.Repeat("x", maxLabelBytes) + `"}`,
	} {
		req := &push.PushRequest{Streams: []push.Stream{
			{Labels: labels, Entries: []push.Entry{{Line: "lost"}, {Line: "lost"}}}, {Labels: `{a="b"}`, Entries: []push.Entry{{Line: "kept"}}},
		}}
		body, err := req.Marshal()
		require.NoError(t, err)
		got, d, err := run(t, func(d *decoder) error { return d.proto(body) })
		require.NoError(t, err, name)
		require.Equal(t, 2, d.invalid, name)
		require.Len(t, got, 1, name)
		require.Equal(t, map[string]any{"a": "b"}, got[0].Resource)
	}
}
