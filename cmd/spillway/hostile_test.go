package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// hostile is a request whose few bytes on the wire stand for very much.
type hostile struct {
	name, path, stream string
	header             []string
	body               func(n int) []byte // of about n bytes
	status             []int
}

func repeated(before, again, after string) func(int) []byte {
	return func(n int) []byte { return []byte(before + strings.Repeat(again, n/len(again)) + after) }
}

func hostiles() []hostile {
	asJSON := []string{"Content-Type", "application/json"}
	long := strings.Repeat("t", 500_000)
	tooLarge, few := []int{413}, []int{200, 202, 204, 400}
	delivery := func(data func(int) []byte) func(int) []byte {
		return func(n int) []byte {
			return []byte(`{"requestId":"r","records":[{"data":"` + base64.StdEncoding.EncodeToString(zipped(data(n))) + `"}]}`)
		}
	}
	return []hostile{
		{"firehose lines", "/ingester/kinesis/logs", "logs", asJSON, delivery(repeated("", "a\n", "")), tooLarge},
		{"firehose events", "/ingester/kinesis/logs", "logs", asJSON, delivery(repeated(`{"logEvents":[`, `{"message":""},`, `1]}`)), tooLarge},
		{"firehose bad events", "/ingester/kinesis/logs", "logs", asJSON, delivery(repeated(`{"logEvents":[`, `1,`, `1]}`)), tooLarge},
		{"firehose messages", "/ingester/kinesis/logs", "logs", asJSON, delivery(repeated("", `{"logEvents":[]}`, "")), few},
		{"firehose records", "/ingester/kinesis/logs", "logs", asJSON, repeated(`{"records":[`, `{"data":"YQ=="},`, `1]}`), tooLarge},
		{"firehose attributes", "/ingester/kinesis/logs", "logs", append([]string{"X-Amz-Firehose-Common-Attributes", `{"commonAttributes":{"a":"` + long + `"}}`}, asJSON...),
			func(n int) []byte { return delivery(repeated("", "a\n", ""))(min(n, 100_000)) }, few},
		{"heroku lines", "/ingester/heroku/logs", "logs", []string{"Content-Type", "application/logplex-1", "Logplex-Drain-Token", long}, repeated("", "13 <0>1 t h a p ", ""), tooLarge},
		{"loki entries", "/loki/api/v1/push", "logs", asJSON, repeated(`{"streams":[{"stream":{"a":"b"},"values":[`, `["1",""],`, `1]}]}`), tooLarge},
		{"loki bad entries", "/loki/api/v1/push", "logs", asJSON, repeated(`{"streams":[{"stream":{"a":"b"},"values":[`, `1,`, `1]}]}`), tooLarge},
		{"loki labels", "/loki/api/v1/push", "logs", asJSON, repeated(`{"streams":[{"stream":{`, `"a":"",`, `"b":""},"values":[["1","x"]]}]}`), few},
		{"loki long labels", "/loki/api/v1/push", "logs", asJSON, func(n int) []byte {
			return repeated(`{"streams":[{"stream":{"a":"`+long+`"},"values":[`, `["1",""],`, `["1",""]]}]}`)(n / 40)
		}, []int{204}},
		{"bulk", "/ingester/api/v1/filebeat/_bulk", "logs", asJSON, repeated("", "{\"index\":{}}\n1\n", ""), tooLarge},
		{"bulk of torn documents", "/ingester/api/v1/filebeat/_bulk", "logs", asJSON, repeated("", "{\"index\":{}}\n{\n", ""), tooLarge},
		{"fluent numbers", "/ingester/v1/fluent_bit", "logs", asJSON, repeated("[", "1,", "1]"), tooLarge},
		{"fluent broken lines", "/ingester/v1/fluent_bit", "logs", asJSON, repeated("", "x\n", ""), tooLarge},
		{"fluent tag", "/ingester/v1/fluent_bit", "logs", append([]string{"Fluent-Tag", long}, asJSON...), repeated("[", "{},", "{}]"), tooLarge},
		{"fluent long names", "/ingester/v1/fluent_bit", "logs", asJSON, func(int) []byte {
			return repeated(`{"`+long+`":{`, `"a":1,"b":1,"c":1,"d":1,"e":1,"f":1,"g":1,"h":1,"i":1,"j":1,"k":1,"l":1,`, `"z":1}}`)(2000)
		}, few},
		{"datadog tags", "/api/v2/logs", "logs", asJSON, repeated(`{"message":"m","ddtags":"`, "a:b,", `"}`), few},
		{"datadog list of tags", "/api/v2/logs", "logs", asJSON, repeated(`{"message":"m","ddtags":[`, `"a",`, `"b"]}`), few},
		{"datadog lines", "/api/v2/logs", "logs", []string{"Content-Type", "text/plain"}, repeated("", "x\n", ""), tooLarge},
		{"event tags", "/ingester/events", "events", asJSON, repeated(`{"title":"t","tags":"`, "a,", `"}`), few},
		{"event objects of tags", "/ingester/events", "events", asJSON, repeated(`{"title":"t"`, `,"tags":{}`, `}`), few},
		{"bad events", "/ingester/events", "events", asJSON, repeated("[", "1,", "1]"), tooLarge},
		{"rum lines", "/ingester/ddrumproxy/api/v2/rum", "rum", asJSON, repeated("", "1\n", ""), tooLarge},
		{"kubernetes fields", "/ingester/events", "events", asJSON, repeated(`{"kind":"Event","metadata":{`, `"a":"",`, `"name":"n"}}`), few},
	}
}

// TestFewBytesThatStandForMuch sends what is small on the wire to every source. What a
// process allocates for it in all, garbage included, stays a small multiple of what one
// request may have, whatever it is answered.
func TestFewBytesThatStandForMuch(t *testing.T) {
	const decoded, items = 8 << 20, 50_000
	for _, h := range hostiles() {
		t.Run(h.name, func(t *testing.T) {
			p, _ := receiving(t, "", "")
			p.front.Limits = receive.Limits{BodyBytes: 1 << 20, DecodedBytes: decoded, Items: items}
			body := zipped(h.body(decoded - 1<<19))
			require.Less(t, len(body), 100_000)
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			rec := p.get(t, http.MethodPost, h.path, bytes.NewReader(body), append([]string{"Content-Encoding", "gzip"}, h.header...)...)
			runtime.ReadMemStats(&after)
			require.Contains(t, h.status, rec.Code, "%.300s", rec.Body)
			require.Less(t, rec.Body.Len(), 1<<20)
			t.Logf("%d bytes: %d, %d MiB allocated", len(body), rec.Code, (after.TotalAlloc-before.TotalAlloc)>>20)
			require.LessOrEqual(t, after.TotalAlloc-before.TotalAlloc, uint64(12*decoded))
			outcomes(t, p, h.stream)
			require.True(t, p.ingester.Memory().Grow(p.ingester.Memory().Limit()), "all memory is given back")
		})
	}
}

// leaving is the context of a request whose sender leaves once it has a slot, which is
// where it is asked first.
type leaving struct {
	context.Context
	asked atomic.Int32
}

func (l *leaving) Err() error {
	if l.asked.Add(1) == 1 {
		return nil
	}
	return context.Canceled
}

// TestNobodyWaits stops reading where the sender is gone, and stores nothing.
func TestNobodyWaits(t *testing.T) {
	for _, h := range hostiles() {
		if h.status[0] != http.StatusRequestEntityTooLarge {
			continue
		}
		p, k := receiving(t, "", "")
		req := httptest.NewRequest(http.MethodPost, h.path, bytes.NewReader(zipped(h.body(1<<18)))).WithContext(&leaving{Context: context.Background()})
		req.Header.Set("Content-Encoding", "gzip")
		for i := 0; i+1 < len(h.header); i += 2 {
			req.Header.Set(h.header[i], h.header[i+1])
		}
		rec := httptest.NewRecorder()
		p.server.HTTP.ServeHTTP(rec, req)
		require.Equal(t, http.StatusServiceUnavailable, rec.Code, h.name)
		require.Contains(t, rec.Body.String(), "the sender has gone", h.name)
		require.Empty(t, k.take(), h.name)
		require.Zero(t, outcomes(t, p, h.stream).received, h.name)
	}
}
