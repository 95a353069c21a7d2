package fluent

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

var at = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func run(t testing.TB, body, tag string) ([]receivetest.Record, int, error) {
	t.Helper()
	var out receive.Records
	var d decoder
	out.Reset(nil, "fluent", at, receive.Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
	err := d.decode(&out, []byte(body), tag)
	return receivetest.Records(t, out.Bytes()), d.invalid, err
}

const first = `{"date":1700000000.123456789,"log":"one","stream":"stderr","level":"warn","n":3,
	"kubernetes":{"pod_name":"p","labels":{"app.kubernetes.io/name":"x"}}}`
const second = `{"time":"2023-11-14T22:13:20Z","message":"two","a":{"b":[1,"x"]},"empty":null}`

var want = []receivetest.Record{
	{
		Resource:   map[string]any{"fluent.tag": "t", "kubernetes.pod_name": "p", "kubernetes.labels.app.kubernetes.io/name": "x"},
		Attributes: map[string]any{"stream": "stderr", "level": "warn", "n": int64(3)},
		Body:       "one", Time: 1700000000123456789, Severity: 13, Level: "warn",
	},
	{
		Resource: map[string]any{"fluent.tag": "t"}, Attributes: map[string]any{"a.b": []any{int64(1), "x"}}, Body: "two", Time: 1700000000e9,
	},
}

func TestEveryJSONFormat(t *testing.T) {
	for name, body := range map[string]string{
		"json":        "[" + first + "," + second + "]",
		"json_lines":  strings.ReplaceAll(first, "\n", "") + "\n" + second + "\n",
		"json_stream": first + second,
	} {
		got, invalid, err := run(t, body, "t")
		require.NoError(t, err, name)
		require.Zero(t, invalid, name)
		require.Equal(t, want, got, name)
	}
	got, _, err := run(t, "", "")
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestFieldsOfTheWrongKindStayAttributes(t *testing.T) {
	got, invalid, err := run(t, `[{"log":{"a":1},"message":"m","date":"never","time":{"x":1},"level":7,"kubernetes":"text","MESSAGE":"second"}]`, "")
	require.NoError(t, err)
	require.Zero(t, invalid)
	require.Equal(t, []receivetest.Record{{
		Resource:   map[string]any{"kubernetes": "text"},
		Attributes: map[string]any{"log.a": int64(1), "date": "never", "time.x": int64(1), "level": int64(7), "MESSAGE": "second"},
		Body:       "m", Severity: 5, Level: "7",
	}}, got)
}

func TestBadRecordsAmongGoodOnes(t *testing.T) {
	huge := `{` + strings.Repeat(`"k":1,`, 2) + `"x":{` + manyFields(receive.MaxAttributes+1) + `}}`
	got, invalid, err := run(t, `[{"log":"a"},3,"x",null,[1],`+huge+`,{"log":"b"}]`, "")
	require.NoError(t, err)
	require.Equal(t, 5, invalid)
	require.Len(t, got, 2)
	require.Equal(t, map[string]any{}, got[1].Attributes)
	for _, body := range []string{`{"log":"a"`, "x\ny", "\x92\x01\x02", `[{"log":"a"}`, "[\n{\"log\":\"a\"},\n{\"log\":]\n"} {
		_, _, err := run(t, body, "")
		require.ErrorIs(t, err, receive.ErrJSON, body)
	}
}

// TestBrokenLinesAmongGoodOnes stores what is whole, wherever the broken line stands.
func TestBrokenLinesAmongGoodOnes(t *testing.T) {
	for name, c := range map[string]struct {
		body    string
		invalid int
		stored  []any
	}{
		"first":           {"{\"log\":\n{\"log\":\"b\"}\n{\"log\":\"c\"}\n", 1, []any{"b", "c"}},
		"middle":          {"{\"log\":\"a\"}\n{\"log\":\"b\n{\"log\":\"c\"}\n", 1, []any{"a", "c"}},
		"last, cut off":   {"{\"log\":\"a\"}\n{\"log\":\"b\"}\n{\"lo", 1, []any{"a", "b"}},
		"two, not nested": {"{\"a\":\n{\"a\":\n{\"log\":\"c\"}\r\n\n", 2, []any{"c"}},
		"more on a line":  {"{\"log\":\"a\"} x\n{\"log\":\"b\"}{\"log\":\"c\"}", 1, []any{"a", "b", "c"}},
	} {
		got, invalid, err := run(t, c.body, "")
		require.NoError(t, err, name)
		require.Equal(t, c.invalid, invalid, name)
		var bodies []any
		for _, r := range got {
			bodies = append(bodies, r.Body)
		}
		require.Equal(t, c.stored, bodies, name)
	}
}

func manyFields(n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(`"f` + strings.Repeat("x", i%7) + string(rune('a'+i%26)) + string(rune('0'+i/26%10)) + string(rune('A'+i/260)) + `":1`)
	}
	return b.String()
}

func FuzzDecode(f *testing.F) {
	f.Add("["+first+","+second+"]", "tag")
	f.Add(first+second, "")
	f.Fuzz(func(t *testing.T, body, tag string) { _, _, _ = run(t, body, tag) })
}
