package receive

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
)

var now = time.Date(2026, 11, 30, 8, 0, 0, 123, time.UTC)

// decode reads what Records wrote with the Collector's library.
func decode(t testing.TB, r *Records) plog.Logs {
	t.Helper()
	req := plogotlp.NewExportRequest()
	require.NoError(t, req.UnmarshalProto(r.Bytes()))
	return req.Logs()
}

func TestRecordsReadAsTheyWereWritten(t *testing.T) {
	var r Records
	r.Reset(nil, "test", now, Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
	long := strings.Repeat("x", 300)
	r.Resource.String("service.name", "shop")
	r.Time(7)
	r.Severity("WARN")
	r.Body(long)
	r.EventName("e")
	r.Attributes.String("a", long)
	r.Attributes.Int("n", -3)
	r.Attributes.Strings("list", []string{"x", long})
	r.Attributes.String("a", "again")
	require.NoError(t, r.Add())
	r.Resource.String("service.name", "shop")
	r.Body("second")
	require.NoError(t, r.Add())
	r.Body("no resource")
	require.NoError(t, r.Add())
	r.Body("never sent")
	r.Discard()

	require.Equal(t, 3, r.Count())
	logs := decode(t, &r)
	require.Equal(t, 2, logs.ResourceLogs().Len(), "the same resource twice is written once")
	require.Equal(t, map[string]any{"service.name": "shop"}, logs.ResourceLogs().At(0).Resource().Attributes().AsRaw())
	scope := logs.ResourceLogs().At(0).ScopeLogs().At(0)
	require.Equal(t, "test", scope.Scope().Name())
	require.Equal(t, 2, scope.LogRecords().Len())
	first := scope.LogRecords().At(0)
	require.EqualValues(t, 7, first.Timestamp())
	require.EqualValues(t, now.UnixNano(), first.ObservedTimestamp())
	require.Equal(t, plog.SeverityNumberWarn, first.SeverityNumber())
	require.Equal(t, "WARN", first.SeverityText())
	require.Equal(t, long, first.Body().Str())
	require.Equal(t, "e", first.EventName())
	require.Equal(t, map[string]any{"a": long, "n": int64(-3), "list": []any{"x", long}}, first.Attributes().AsRaw())
	require.EqualValues(t, 1, first.DroppedAttributesCount(), "a repeated key is counted")
	require.Equal(t, "no resource", logs.ResourceLogs().At(1).ScopeLogs().At(0).LogRecords().At(0).Body().Str())
}

func TestRecordsStayWithinTheirLimit(t *testing.T) {
	var r Records
	r.Reset(nil, "test", now, Bounds{Bytes: 500, Grow: func(int64) bool { return true }})
	r.Body(strings.Repeat("x", 300))
	require.NoError(t, r.Add())
	r.Body(strings.Repeat("x", 300))
	require.ErrorIs(t, r.Add(), ErrTooLarge)
	require.LessOrEqual(t, len(r.Bytes()), 500)
	require.Equal(t, 1, decode(t, &r).LogRecordCount(), "what was added before can still be sent")
}

func TestAttributesAreBoundedAndUnique(t *testing.T) {
	var r Records
	r.Reset(nil, "test", now, Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
	for range 2 {
		for i := range MaxAttributes {
			r.Attributes.Int(fmt.Sprint("key", i), int64(i))
		}
	}
	require.False(t, r.Attributes.TooMany())
	require.Equal(t, MaxAttributes, r.Attributes.Len())
	r.Attributes.Int("one more", 1)
	require.True(t, r.Attributes.TooMany())
	require.NoError(t, r.Add())
	record := decode(t, &r).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	require.Equal(t, MaxAttributes, record.Attributes().Len())
	require.EqualValues(t, MaxAttributes, record.DroppedAttributesCount())
}

func TestInvalidUTF8IsReplaced(t *testing.T) {
	var r Records
	r.Reset(nil, "test", now, Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
	r.Body("a\xffb")
	r.Attributes.String("k\xff", "v\xff")
	r.Severity("\xff")
	require.NoError(t, r.Add())
	record := decode(t, &r).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0)
	require.Equal(t, "a\uFFFDb", record.Body().Str())
	require.Equal(t, map[string]any{"k\uFFFD": "v\uFFFD"}, record.Attributes().AsRaw())
	require.Equal(t, "\uFFFD", record.SeverityText())
}

// flat is the oracle of Attribute: encoding/json builds the tree, which is then
// taken apart.
func flat(into map[string]any, path string, v any, level int) {
	object, ok := v.(map[string]any)
	switch {
	case v == nil:
	case !ok || len(object) == 0 || level >= nestedLevels:
		into[path] = plain(v, level)
	default:
		for name, field := range object {
			flat(into, path+"."+name, field, level+1)
		}
	}
}

// plain is what an attribute's value becomes when pdata shows it as Go values.
func plain(v any, level int) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		if f, err := v.Float64(); err == nil && strings.ContainsAny(v.String(), ".eE") {
			return f
		}
		return v.String()
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, plain(e, level+1))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, e := range v {
			out[name] = plain(e, level+1)
		}
		return out
	}
	return v
}

// randomJSON makes a value of few levels with strings that need quoting.
func randomJSON(rng *rand.Rand, level int) any {
	texts := []string{"", "plain", "quo\"te", "back\\slash", "\\\"", "new\nline", "ümläut", "\u2028", "{\"a\":[1,2]}", "]", "}"}
	text := func() string { return texts[rng.IntN(len(texts))] }
	switch n := rng.IntN(9); {
	case n == 0:
		return nil
	case n == 1:
		return rng.IntN(2) == 0
	case n == 2:
		return json.Number(fmt.Sprint(rng.Int64N(1e6) - 5e5))
	case n == 3:
		return json.Number([]string{"18446744073709551615", "9223372036854775807", "-9223372036854775809", "1e3", "-0.25", "1E+400"}[rng.IntN(6)])
	case n < 6 || level > 4:
		return text()
	case n == 6:
		list := make([]any, rng.IntN(4))
		for i := range list {
			list[i] = randomJSON(rng, level+1)
		}
		return list
	}
	object := map[string]any{}
	for i := range rng.IntN(5) {
		object[fmt.Sprint(text(), i)] = randomJSON(rng, level+1)
	}
	return object
}

func TestJSONValuesBecomeAttributes(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var r Records
	var j JSON
	for range 3000 {
		v := randomJSON(rng, 0)
		text, err := json.Marshal(v)
		require.NoError(t, err)
		if rng.IntN(2) == 0 {
			text, err = json.MarshalIndent(v, " ", "\t")
			require.NoError(t, err)
		}
		checked, err := j.Check(text)
		require.NoError(t, err)
		r.Reset(nil, "test", now, Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
		j.Attribute(&r.Attributes, "v", checked)
		require.NoError(t, r.Add())
		want := map[string]any{}
		flat(want, "v", v, 0)
		got := decode(t, &r).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes()
		require.Equal(t, want, got.AsRaw(), "of %s", text)
	}
}

func TestDeepNestingStaysText(t *testing.T) {
	var r Records
	var j JSON
	for _, c := range []struct{ open, close string }{{"[", "]"}, {`{"a":`, "}"}} {
		for _, depth := range []int{nestedLevels, nestedLevels + 1, 5000, 9990} {
			text := strings.Repeat(c.open, depth) + "1" + strings.Repeat(c.close, depth)
			v, err := j.Check([]byte(text))
			require.NoError(t, err)
			r.Reset(nil, "test", now, Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
			j.Attribute(&r.Attributes, "v", v)
			require.NoError(t, r.Add())
			attrs := decode(t, &r).ResourceLogs().At(0).ScopeLogs().At(0).LogRecords().At(0).Attributes()
			require.Equal(t, 1, attrs.Len())
			attrs.Range(func(_ string, v pcommon.Value) bool {
				for v.Type() == pcommon.ValueTypeSlice {
					v = v.Slice().At(0)
				}
				if depth <= nestedLevels {
					require.EqualValues(t, 1, v.Int())
				} else {
					require.Equal(t, text[nestedLevels*len(c.open):len(text)-nestedLevels], v.Str())
				}
				return true
			})
		}
		_, err := j.Check([]byte(strings.Repeat(c.open, 10_001) + "1" + strings.Repeat(c.close, 10_001)))
		require.ErrorIs(t, err, ErrJSON)
	}
}

func TestCheckRefusesWhatIsNotOneValue(t *testing.T) {
	var j JSON
	for _, text := range []string{"", " ", "{", `{"a":1}}`, "1 2", `{"a" 1}`, "nul", `"\x"`, "\"a\nb\"", "[1,]", "{,}", "NaN", "'a'"} {
		_, err := j.Check([]byte(text))
		require.ErrorIs(t, err, ErrJSON, "of %q", text)
	}
	v, err := j.Check([]byte(" \n{\"a\":\"\xff\",\"a\":2} "))
	require.NoError(t, err, "invalid UTF-8 and repeated names are no reason to lose a line")
	require.Equal(t, "{\"a\":\"\xff\",\"a\":2}", string(v))
}

func TestValuesFollowEachOther(t *testing.T) {
	var j JSON
	var got []string
	var failed error
	for v, err := range j.Values([]byte("{\"a\":1}{\"b\":2}\n\n [3] {\"c\"")) {
		if failed = err; err == nil {
			got = append(got, string(v))
			_, _ = j.Check([]byte(`{"used": "in between"}`))
		}
	}
	require.Equal(t, []string{`{"a":1}`, `{"b":2}`, "[3]"}, got)
	require.ErrorIs(t, failed, ErrJSON)
}

func TestParseTime(t *testing.T) {
	const second = uint64(1_700_000_000)
	for text, want := range map[string]uint64{
		"1700000000":                   second * 1e9,
		"1700000000.123456789":         second*1e9 + 123456789,
		"1700000000.5":                 second*1e9 + 500000000,
		"1700000000.1234567899":        second*1e9 + 123456789,
		"1700000000123":                second*1e9 + 123000000,
		"1700000000123.5":              second*1e9 + 123500000,
		"1700000000123456":             second*1e9 + 123456000,
		"1700000000123456789":          second*1e9 + 123456789,
		"1.7e9":                        second * 1e9,
		"2023-11-14T22:13:20Z":         second * 1e9,
		"2023-11-14T23:13:20.25+01:00": second*1e9 + 250000000,
		"2023-11-14T22:13:20.000001":   second*1e9 + 1000,
		"2023-11-14 22:13:20":          second * 1e9,
		"2023-11-14T22:13:20.5+0000":   second*1e9 + 500000000,
		"2262-01-01T00:00:00Z":         9214646400_000000000,
		"":                             0, "0": 0, "-5": 0, "yesterday": 0, "1969-12-31T23:59:59Z": 0, "9999-12-31T00:00:00Z": 0, "+5": 0,
		"99999999999999999999": 0, "1e400": 0, "1.x": 0, "NaN": 0, "99999999999": 0,
	} {
		got, ok := ParseTime(text)
		require.Equal(t, want, got, "of %q", text)
		require.Equal(t, want != 0, ok, "of %q", text)
	}
}

func TestSeverityNumbers(t *testing.T) {
	for level, want := range map[string]int{"": 0, "INFO": 9, "Warning": 13, "err": 17, "fatal": 21, "debug": 5, "loud": 0, "6": 9, "emerg": 22} {
		require.Equal(t, want, SeverityNumber(level), level)
	}
}

func FuzzJSON(f *testing.F) {
	for _, seed := range []string{`{"a":{"b":[1,null,"x\\\"y"],"c":{}},"d":1e9}`, "{\"\xff\":\"\\ud800\"}", `[]`, `"\\"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		var j JSON
		v, err := j.Check(text)
		if err != nil {
			return
		}
		var r Records
		r.Reset(nil, "fuzz", now, Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
		j.Attribute(&r.Attributes, "v", v)
		if r.Add() == nil {
			require.Equal(t, 1, decode(t, &r).LogRecordCount())
		}
	})
}
