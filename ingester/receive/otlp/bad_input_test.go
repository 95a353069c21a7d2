package otlp

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// msg builds a message by hand: a field's number and what it holds, in turn. A string
// or []byte is length-delimited, a number a varint, a uint64 a fixed64, a uint32 a
// fixed32.
func msg(fields ...any) []byte {
	var b []byte
	for i := 0; i+1 < len(fields); i += 2 {
		n := protowire.Number(fields[i].(int))
		switch v := fields[i+1].(type) {
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, n, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, n, protowire.BytesType), v)
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, n, protowire.VarintType), uint64(v))
		case uint64:
			b = protowire.AppendFixed64(protowire.AppendTag(b, n, protowire.Fixed64Type), v)
		case uint32:
			b = protowire.AppendFixed32(protowire.AppendTag(b, n, protowire.Fixed32Type), v)
		default:
			panic(fmt.Sprintf("%T", v))
		}
	}
	return b
}

// nested is an attribute value of lists inside each other.
func nested(levels int) []byte {
	value := msg(1, "x")
	for range levels {
		value = msg(5, msg(1, value))
	}
	return msg(1, msg(2, msg(2, msg(6, msg(1, "deep", 2, value)))))
}

// badItem is a log record with which something is wrong.
type badItem struct {
	name   string
	record []byte
	reason string
}

func badItems() []badItem {
	list := func(levels int) []byte {
		value := msg(1, "x")
		for range levels {
			value = msg(6, msg(1, msg(1, "k", 2, value)))
		}
		return value
	}
	many := bytes.Repeat(msg(6, msg(1, "k", 2, msg(1, "v"))), 1025)
	return []badItem{
		{"time is a varint", msg(1, 7), "malformed_item"},
		{"severity is a string", msg(2, "x"), "malformed_item"},
		{"severity text is a number", msg(3, 7), "malformed_item"},
		{"body is a number", msg(5, 7), "malformed_item"},
		{"attribute is cut off", []byte{0x32, 9, 1}, "malformed_item"},
		{"attribute value is cut off", msg(6, []byte{0x0a, 1, 'k', 0x12, 9}), "malformed_item"},
		{"attribute key is a number", msg(6, msg(1, 7)), "malformed_item"},
		{"attribute has two values", msg(6, msg(1, "k", 2, msg(1, "a"), 2, msg(1, "b"))), "malformed_item"},
		{"double is cut off", msg(6, msg(1, "k", 2, []byte{0x21, 1})), "malformed_item"},
		{"time is cut off", []byte{0x09, 1, 2}, "malformed_item"},
		{"flags are cut off", []byte{0x45, 1}, "malformed_item"},
		{"number does not end", append([]byte{0x10}, bytes.Repeat([]byte{0xff}, 11)...), "malformed_item"},
		{"trace id is short", msg(9, "short"), "malformed_item"},
		{"span id is long", msg(10, "too long an id"), "malformed_item"},
		{"group", []byte{0x7b, 0x7c}, "malformed_item"},
		{"field 0", []byte{0x02, 0}, "malformed_item"},
		{"body is not UTF-8", msg(5, msg(1, "\xff")), "invalid_utf8"},
		{"long body is not UTF-8", msg(5, msg(1, strings.Repeat("long", 9)+"\xc3("+strings.Repeat("long", 9))), "invalid_utf8"},
		{"key is not UTF-8", msg(6, msg(1, "k\xff", 2, msg(1, "v"))), "invalid_utf8"},
		{"value is not UTF-8", msg(6, msg(1, "k", 2, msg(1, "\xc0\x80"))), "invalid_utf8"},
		{"event name is not UTF-8", msg(12, "\xff"), "invalid_utf8"},
		{"severity is not UTF-8", msg(3, "\xff"), "invalid_utf8"},
		{"body is 33 lists deep", msg(5, list(33)), "too_deep"},
		{"attribute is 10,000 lists deep", msg(6, msg(1, "k", 2, list(10_000))), "too_deep"},
		{"1025 attributes", many, "too_many_attributes"},
	}
}

// request is the bad record between two good ones.
func (b badItem) request() []byte {
	good := msg(1, uint64(1), 5, msg(1, "good"))
	return msg(1, msg(1, msg(1, msg(1, "service.name", 2, msg(1, "shop"))), 2, msg(1, msg(1, "scope"), 2, good, 2, b.record, 2, good)))
}

// TestOneBadItem stores the neighbours of a bad item, and says so.
func TestOneBadItem(t *testing.T) {
	for _, c := range badItems() {
		t.Run(c.name, func(t *testing.T) {
			s := newSystem(t, setup{})
			rec := s.post("/v1/logs", c.request())
			require.Equal(t, 200, rec.Code, rec.Body)
			require.Contains(t, rec.Body.String(), "1 invalid ("+c.reason+")")
			require.Len(t, s.sink.items, 2)
			require.Zero(t, s.sink.whole, "the bad one must not leave with the others")
			counts := s.requireConserved(ingester.Logs)
			require.EqualValues(t, 1, counts["spillway_invalid_items_total"])
			require.EqualValues(t, 1, counts["spillway_invalid_reasons_total/"+c.reason])
		})
	}
}

// TestGoodOddities stores what is unusual and allowed.
func TestGoodOddities(t *testing.T) {
	for name, record := range map[string][]byte{
		"nothing":                      {},
		"unknown fields":               msg(100, "x", 101, 7, 102, uint64(1), 103, uint32(1), 4, "reserved"),
		"times far off":                msg(1, uint64(0), 11, ^uint64(0)),
		"empty key":                    msg(6, msg(1, "", 2, msg(1, "v"))),
		"no value":                     msg(6, msg(1, "k")),
		"value first":                  msg(6, msg(2, msg(1, "v"), 1, "k")),
		"no ids":                       msg(9, "", 10, ""),
		"enum beyond what is known":    msg(2, 1<<40),
		"number in ten bytes":          {0x10, 0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0},
		"unknown field of a KeyValue":  msg(6, msg(1, "k", 2, msg(1, "v"), 9, "x")),
		"unknown field of an AnyValue": msg(5, msg(9, "x", 1, "v")),
		"1024 attributes":              bytes.Repeat(msg(6, msg(1, "k", 2, msg(1, "v"))), 1024),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, setup{policy: oneOfA})
			rec := s.post("/v1/logs", badItem{record: record}.request())
			require.Equal(t, 200, rec.Code)
			require.Zero(t, s.requireConserved(ingester.Logs)["spillway_invalid_items_total"], rec.Body)
			require.EqualValues(t, 3, s.requireConserved(ingester.Logs)["spillway_received_items_total"])
		})
	}
	s := newSystem(t, setup{})
	require.Equal(t, 200, s.post("/v1/logs", nested(32)).Code)
	require.Len(t, s.sink.items, 1, "32 levels are not too deep")
	require.Equal(t, 200, s.post("/v1/logs", nil).Code, "an empty request is a request")
	require.Equal(t, 200, s.post("/v1/logs", msg(1, msg(1, msg(1, msg(1, "a", 2, msg(1, "b")))))).Code, "a resource without items")
}

// TestBadAround makes the items of a bad resource, scope or metric invalid, and leaves
// their neighbours alone.
func TestBadAround(t *testing.T) {
	good := msg(2, msg(2, msg(5, msg(1, "good"))))
	for name, bad := range map[string][]byte{
		"resource attribute is not UTF-8": msg(1, msg(1, msg(1, "k", 2, msg(1, "\xff"))), 2, msg(2, msg(5, msg(1, "x")))),
		"resource is malformed":           msg(1, msg(1, 7), 2, msg(2, msg(5, msg(1, "x")))),
		"scope name is a number":          msg(2, msg(1, msg(1, 7), 2, msg(5, msg(1, "x")))),
		"scope's schema is not UTF-8":     msg(2, msg(2, msg(5, msg(1, "x")), 3, "\xff")),
		"resource's schema is not UTF-8":  msg(2, msg(2, msg(5, msg(1, "x"))), 3, "\xff"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, setup{})
			rec := s.post("/v1/logs", msg(1, bad, 1, good))
			require.Equal(t, 200, rec.Code, rec.Body)
			require.Len(t, s.sink.items, 1)
			require.EqualValues(t, 1, s.requireConserved(ingester.Logs)["spillway_invalid_items_total"])
		})
	}
}

// TestBadMetrics is about what only metrics have.
func TestBadMetrics(t *testing.T) {
	point := msg(3, uint64(1), 6, uint64(7))
	for name, c := range map[string]struct {
		metric []byte
		reason string
	}{
		"no name":                  {msg(5, msg(1, point)), "no_metric_name"},
		"name is not UTF-8":        {msg(1, "\xff", 5, msg(1, point)), "invalid_utf8"},
		"two kinds of data":        {msg(1, "m", 5, msg(1, point), 7, msg(1, point)), "malformed_item"},
		"value is a varint":        {msg(1, "m", 5, msg(1, msg(4, 7))), "malformed_item"},
		"bucket counts are odd":    {msg(1, "m", 9, msg(1, msg(6, "1234567"))), "malformed_item"},
		"exponential buckets":      {msg(1, "m", 10, msg(1, msg(8, msg(2, "\xff")))), "malformed_item"},
		"quantile is a string":     {msg(1, "m", 11, msg(1, msg(6, msg(1, "x")))), "malformed_item"},
		"exemplar's trace id":      {msg(1, "m", 5, msg(1, msg(5, msg(5, "short")))), "malformed_item"},
		"exemplar's attribute":     {msg(1, "m", 5, msg(1, msg(5, msg(7, msg(1, "\xff"))))), "invalid_utf8"},
		"attribute without a name": {msg(1, "m", 5, msg(1, msg(7, msg(1, "", 2, msg(1, "v"))))), "empty_label_name"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, setup{})
			rec := s.post("/v1/metrics", msg(1, msg(2, msg(2, c.metric, 2, msg(1, "good", 5, msg(1, point))))))
			require.Equal(t, 200, rec.Code, rec.Body)
			require.Contains(t, rec.Body.String(), "("+c.reason+")")
			require.Len(t, s.sink.items, 1)
			s.requireConserved(ingester.Metrics)
		})
	}
}

// TestBadSpans is about what only spans have.
func TestBadSpans(t *testing.T) {
	for name, span := range map[string][]byte{
		"flags are a varint":      msg(16, 7),
		"event's name":            msg(11, msg(2, "\xff")),
		"link's span id":          msg(13, msg(2, "short")),
		"status is a number":      msg(15, 1),
		"event has 1025":          msg(11, bytes.Repeat(msg(3, msg(1, "k")), 1025)),
		"parent's id is too long": msg(4, "123456789"),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, setup{})
			good := msg(5, "good", 16, uint32(1))
			require.Equal(t, 200, s.post("/v1/traces", msg(1, msg(2, msg(2, span, 2, good)))).Code)
			require.Len(t, s.sink.items, 1)
			require.EqualValues(t, 1, s.requireConserved(ingester.Traces)["spillway_invalid_items_total"])
		})
	}
}

// TestBrokenFrame refuses a request whose items cannot be told apart, at every byte
// where it may be cut off, and stores nothing of it.
func TestBrokenFrame(t *testing.T) {
	for format, body := range benchBodies(t) {
		s := newSystem(t, setup{})
		for cut := 1; cut < len(body); cut += 1 + cut/50 {
			_, err := s.walk(streamOf(format), format, body[:cut], EachRecord)
			require.ErrorIs(t, err, errMalformed, "cut at %d", cut)
		}
	}
	s := newSystem(t, setup{})
	for name, body := range map[string][]byte{
		"wrong type": msg(1, 7), "scope is a number": msg(1, msg(2, 7)), "record is a number": msg(1, msg(2, msg(2, 7))),
		"two scopes": msg(1, msg(2, msg(1, "", 2, "", 1, ""))), "field 0": {0x02, 0}, "group": {0x13},
		"items before scopes": msg(1, msg(1000, msg(2, msg(5, msg(1, "unseen"))))),
	} {
		require.Equal(t, 400, s.post("/v1/logs", body).Code, name)
	}
	counts := s.requireConserved(ingester.Logs)
	require.Zero(t, counts["spillway_received_items_total"])
	require.EqualValues(t, 7, counts["spillway_invalid_batches_total"])
}

// TestManyMessages bounds what a few bytes can ask for: messages around no item.
func TestManyMessages(t *testing.T) {
	s := newSystem(t, setup{options: func(o *Options) { o.Items = 1000 }})
	require.Equal(t, 200, s.post("/v1/logs", bytes.Repeat(msg(1, ""), 1000)).Code)
	require.Equal(t, 413, s.post("/v1/logs", bytes.Repeat(msg(1, ""), 1001)).Code)
	s.requireConserved(ingester.Logs)
}

// TestOneGroup takes the tokens of a message that another receiver made as a whole.
func TestOneGroup(t *testing.T) {
	s := newSystem(t, setup{policy: "streams: {logs: {rate: 0.1, burst: 3}}"})
	record := msg(5, msg(1, "line"), 6, msg(1, "team", 2, msg(1, "a")))
	body := msg(1, msg(1, msg(1, msg(1, "service.name", 2, msg(1, "shop"))), 2, msg(2, record, 2, record)))
	b, err := s.walk(ingester.Logs, ingester.OTLPLogs, body, OneGroup)
	require.NoError(t, err)
	require.Len(t, b.Groups, 1)
	require.EqualValues(t, 2, b.Groups[0].Items())
	require.Equal(t, string(msg(2, record, 2, record)), string(b.Bytes(b.Groups[0].Field)))
	require.Empty(t, b.Groups[0].Key.End-b.Groups[0].Key.Start, "no label of a record is in view")

	require.NoError(t, s.ingester.Process(t.Context(), b).Err)
	b, err = s.walk(ingester.Logs, ingester.OTLPLogs, body, OneGroup)
	require.NoError(t, err)
	res := s.ingester.Process(t.Context(), b)
	require.EqualValues(t, 2, res.Drops[0].Items, "one token is left, and two are asked for")
	require.Len(t, s.sink.items, 1)

	_, err = s.walk(ingester.Logs, ingester.OTLPLogs, append(body, body...), OneGroup)
	require.ErrorIs(t, err, errGroups)
}

func grpcRequest(body []byte) *http.Request {
	req := httptest.NewRequest(http.MethodPost, logsMethod, bytes.NewReader(body))
	req.ProtoMajor = 2
	req.Header.Set("Content-Type", "application/grpc")
	return req
}
