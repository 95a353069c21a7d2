package main

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/grafana/loki/pkg/push"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

// keeper is a sink that keeps what it is given, or fails.
type keeper struct {
	t       *testing.T
	mu      sync.Mutex
	err     error
	records []receivetest.Record
	headers http.Header
}

func (k *keeper) Write(_ context.Context, b *ingester.Batch) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.err != nil {
		return k.err
	}
	k.headers = b.Headers
	req := plogotlp.NewExportRequest()
	if err := req.UnmarshalProto(b.Body[:b.Size]); err != nil {
		return err
	}
	if b.Whole {
		k.records = append(k.records, receivetest.Logs(k.t, req.Logs())...)
		return nil
	}
	// The records stand in the order of the groups; a group may be several.
	all := receivetest.Logs(k.t, req.Logs())
	for i := range b.Groups {
		n := int(b.Groups[i].Items())
		if b.Groups[i].Admitted() {
			k.records = append(k.records, all[:n]...)
		}
		all = all[n:]
	}
	return nil
}

// take returns what was kept since the last time.
func (k *keeper) take() []receivetest.Record {
	k.mu.Lock()
	defer k.mu.Unlock()
	records := k.records
	k.records = nil
	return records
}

// receiving starts a process whose streams go to a keeper.
func receiving(t *testing.T, config, policy string) (*process, *keeper) {
	t.Helper()
	nowhere := "sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}, logs: {sink: none}, traces: {sink: none}, events: {sink: none}, rum: {sink: none}}\n"
	p := testProcess(t, nowhere+config, policy)
	l, err := load(p.reloader.path, 0)
	require.NoError(t, err)
	k := &keeper{t: t}
	sinks := map[string]ingester.Sink{"": k}
	for name := range p.sinks.byName {
		sinks[name] = k
	}
	require.NoError(t, p.ingester.Reload(l.settings(sinks)))
	return p, k
}

// outcome is what became of a stream's items.
type outcome struct{ received, invalid, relabel, ratelimit, exempt, admitted, refused int64 }

// outcomes reads the counters, and asserts that they add up.
func outcomes(t *testing.T, p *process, stream string) outcome {
	t.Helper()
	s := p.ingester.RateControl().Streams[stream]
	o := outcome{received: s.Received, invalid: s.Invalid, relabel: s.Relabel, exempt: s.Exempt}
	for _, c := range s.Classes {
		o.ratelimit += c.Dropped
		o.admitted += c.Admitted
		o.refused += c.Refused
	}
	require.Equal(t, o.received, o.invalid+o.relabel+o.ratelimit+o.exempt+o.admitted+o.refused, "conservation on %s: %+v", stream, o)
	return o
}

// source is one protocol's request with n good items, and, where the protocol has
// such a thing, with one bad one among them.
type source struct {
	name, path, stream string
	header             []string
	body               func(n int, bad bool) []byte
	stored             int    // status when all is stored
	partly             int    // status when one item is bad
	answer             string // body when all is stored; "" leaves it unchecked
	oneGroup           bool
}

func lines(n int, bad bool, good func(i int) string, wrong, separator string) []byte {
	var all []string
	for i := range n {
		if bad && i == n/2 {
			all = append(all, wrong)
		}
		all = append(all, good(i))
	}
	return []byte(strings.Join(all, separator))
}

func zipped(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, _ = w.Write(text)
	_ = w.Close()
	return b.Bytes()
}

const at = "2026-11-30T08:00:00Z"

func sources() []source {
	lokiProto := func(n int, bad bool) []byte {
		s := push.Stream{Labels: `{team="a"}`}
		for i := range n {
			s.Entries = append(s.Entries, push.Entry{Timestamp: time.Unix(1_700_000_000, 0), Line: fmt.Sprint("line ", i)})
		}
		req := push.PushRequest{Streams: []push.Stream{s}}
		if bad {
			req.Streams = append(req.Streams, push.Stream{Labels: "{", Entries: []push.Entry{{Timestamp: time.Unix(1, 0), Line: "x"}}})
		}
		body, _ := req.Marshal()
		return snappy.Encode(nil, body)
	}
	return []source{
		{name: "Loki protobuf", path: "/loki/api/v1/push", stream: "logs", header: []string{"Content-Type", "application/x-protobuf"},
			body: lokiProto, stored: 204, partly: 400},
		{name: "Loki JSON", path: "/ingester/loki/api/v1/push", stream: "logs", header: []string{"Content-Type", "application/json"},
			body: func(n int, bad bool) []byte {
				entries := lines(n, bad, func(i int) string { return fmt.Sprintf(`["1700000000000000000","line %d"]`, i) }, `["never","x"]`, ",")
				return []byte(`{"streams":[{"stream":{"team":"a"},"values":[` + string(entries) + `]}]}`)
			}, stored: 204, partly: 400},
		{name: "Elasticsearch", path: "/ingester/api/v1/filebeat/_bulk", stream: "logs", header: []string{"Content-Type", "application/x-ndjson", "Content-Encoding", "gzip"},
			body: func(n int, bad bool) []byte {
				return zipped(append(lines(n, bad, func(i int) string {
					return fmt.Sprintf(`{"create":{"_index":"i"}}`+"\n"+`{"@timestamp":"%s","message":"line %d","team":"a"}`, at, i)
				}, `{"create":{}}`+"\n{", "\n"), '\n'))
			}, stored: 200, partly: 200},
		{name: "Fluent Bit", path: "/ingester/v1/fluent_bit", stream: "logs", header: []string{"Content-Type", "application/json"},
			body: func(n int, bad bool) []byte {
				return []byte("[" + string(lines(n, bad, func(i int) string { return fmt.Sprintf(`{"date":1700000000.5,"log":"line %d","team":"a"}`, i) }, `7`, ",")) + "]")
			}, stored: 200, partly: 200},
		{name: "Fluentd", path: "/v1/fluentd", stream: "logs", header: []string{"Content-Type", "application/x-ndjson"},
			body: func(n int, bad bool) []byte {
				return lines(n, bad, func(i int) string { return fmt.Sprintf(`{"message":"line %d","team":"a"}`, i) }, `[[]]`, "\n")
			}, stored: 200, partly: 200},
		{name: "Datadog logs", path: "/api/v2/logs", stream: "logs", header: []string{"Content-Type", "application/json"},
			body: func(n int, bad bool) []byte {
				return []byte("[" + string(lines(n, bad, func(i int) string { return fmt.Sprintf(`{"message":"line %d","ddtags":"team:a"}`, i) }, `7`, ",")) + "]")
			}, stored: 202, partly: 202, answer: "{}"},
		{name: "Firehose", path: "/ingester/kinesis/logs", stream: "logs", header: []string{"Content-Type", "application/json", "X-Amz-Firehose-Request-Id", "r-7",
			"X-Amz-Firehose-Common-Attributes", `{"commonAttributes":{"team":"a"}}`},
			body: func(n int, bad bool) []byte {
				events := []map[string]any{}
				for i := range n {
					events = append(events, map[string]any{"id": fmt.Sprint(i), "timestamp": 1700000000000, "message": fmt.Sprint("line ", i)})
				}
				data, _ := json.Marshal(map[string]any{"messageType": "DATA_MESSAGE", "logGroup": "g", "logStream": "s", "owner": "o", "logEvents": events})
				records := []map[string]string{{"data": base64.StdEncoding.EncodeToString(zipped(data))}}
				if bad {
					records = append(records, map[string]string{"data": "?"})
				}
				body, _ := json.Marshal(map[string]any{"requestId": "r-7", "timestamp": 1, "records": records})
				return body
			}, stored: 200, partly: 200, oneGroup: true},
		{name: "Heroku", path: "/ingester/heroku/logs", stream: "logs", header: []string{"Content-Type", "application/logplex-1", "Logplex-Drain-Token", "d.1"},
			body: func(n int, bad bool) []byte {
				frame := func(l string) string { return fmt.Sprintf("%d %s", len(l), l) }
				return lines(n, bad, func(i int) string {
					return frame(fmt.Sprintf("<190>1 %s h team-a web.1 - line %d\n", at, i))
				}, frame("no"), "")
			}, stored: 204, partly: 204, oneGroup: true},
		{name: "events", path: "/ingester/events", stream: "events", header: []string{"Content-Type", "application/json"},
			body: func(n int, bad bool) []byte {
				return []byte("[" + string(lines(n, bad, func(i int) string { return fmt.Sprintf(`{"title":"t","text":"line %d","tags":["team:a"]}`, i) }, `{}`, ",")) + "]")
			}, stored: 202, partly: 202, answer: `{"status":"ok"}`},
		{name: "RUM", path: "/ddrumproxy?ddforward=%2Fapi%2Fv2%2Frum%3Fddsource%3Dbrowser%26ddtags%3Dteam%3Aa", stream: "rum", header: []string{"Content-Type", "text/plain"},
			body: func(n int, bad bool) []byte {
				return lines(n, bad, func(i int) string {
					return fmt.Sprintf(`{"type":"action","date":1700000000000,"error":{"message":"line %d"}}`, i)
				}, `{"type":`, "\n")
			}, stored: 202, partly: 202},
	}
}

// teamOf is the label that the policies of these tests match.
func teamOf(s *source) string {
	if s.name == "Heroku" {
		return `app_name="team-a"`
	}
	return `team="a"`
}

// policyOf gives a source's team a budget on its stream.
func policyOf(s *source, burst, rate int) string {
	return fmt.Sprintf(`
streams:
  %s:
    rate: 1000000
    burst: %d
    default: {rate: 0}
    classes:
      - {name: team-a, rate: %d}
    rules:
      - {class: team-a, matchers: ['%s']}
`, s.stream, burst, rate, teamOf(s))
}

func (s *source) send(t *testing.T, p *process, body []byte, header ...string) (int, string, http.Header) {
	t.Helper()
	rec := p.get(t, http.MethodPost, s.path, bytes.NewReader(body), append(header, s.header...)...)
	return rec.Code, rec.Body.String(), rec.Result().Header
}

func TestEverySourceIsStoredItemByItem(t *testing.T) {
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) {
			p, k := receiving(t, "", policyOf(&s, 1000000, 1000000))
			status, body, _ := s.send(t, p, s.body(50, false))
			require.Equal(t, s.stored, status, body)
			if s.answer != "" {
				require.Equal(t, s.answer, body)
			}
			records := k.take()
			require.Len(t, records, 50)
			for i, r := range records {
				require.Equal(t, fmt.Sprint("line ", i), r.Body)
			}
			require.Equal(t, outcome{received: 50, admitted: 50}, outcomes(t, p, s.stream))

			status, body, _ = s.send(t, p, s.body(50, true))
			require.Equal(t, s.partly, status, body)
			require.Len(t, k.take(), 50, "one bad item costs the others nothing")
			require.Equal(t, outcome{received: 101, invalid: 1, admitted: 100}, outcomes(t, p, s.stream))
		})
	}
}

func TestEverySourceDropsByItsGroups(t *testing.T) {
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) {
			// 40 tokens, and one more in half an hour.
			policy := policyOf(&s, 40, 1000000)
			policy = strings.Replace(policy, "rate: 1000000\n    burst", "rate: 0.0005\n    burst", 1)
			policy = strings.Replace(policy, "name: team-a, rate: 1000000", "name: team-a, percent: 100", 1)
			p, k := receiving(t, "", policy)
			status, body, _ := s.send(t, p, s.body(50, false))
			require.Equal(t, s.stored, status, "what is dropped for good is no error to the sender: %s", body)
			want := outcome{received: 50, ratelimit: 10, admitted: 40}
			if s.oneGroup {
				want = outcome{received: 50, ratelimit: 50}
			}
			require.Equal(t, want, outcomes(t, p, s.stream))
			require.Len(t, k.take(), int(want.admitted))
			metrics := p.get(t, http.MethodGet, "/metrics", nil).Body.String()
			require.Contains(t, metrics, fmt.Sprintf(`spillway_dropped_items_total{class="team-a",reason="ratelimit",stream="%s"} %d`, s.stream, want.ratelimit))
		})
	}
}

func TestEverySourceIsAskedToComeBackWhenTheSinkIsDown(t *testing.T) {
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) {
			p, k := receiving(t, "", policyOf(&s, 1000000, 1000000))
			k.err = errors.New("no room")
			status, body, header := s.send(t, p, s.body(5, false))
			require.Equal(t, http.StatusServiceUnavailable, status, body)
			require.NotEmpty(t, header.Get("Retry-After"))
			require.Equal(t, outcome{received: 5, refused: 5}, outcomes(t, p, s.stream))
			k.err = nil
			status, _, _ = s.send(t, p, s.body(5, false))
			require.Equal(t, s.stored, status)
			require.Len(t, k.take(), 5)
		})
	}
}

func TestEverySourceRefusesWhatItCannotRead(t *testing.T) {
	garbage := []byte("\x00\xff{[\"not anything")
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) {
			p, _ := receiving(t, "", "")
			p.front.Limits = receive.Limits{BodyBytes: 64 << 10, DecodedBytes: 256 << 10}
			status, body, _ := s.send(t, p, garbage)
			require.Equal(t, http.StatusBadRequest, status, body)
			full := s.body(20, false)
			if s.stream != "rum" { // the lines before a torn one are whole
				status, body, _ = s.send(t, p, full[:len(full)-len(full)/3])
				require.GreaterOrEqual(t, status, 200, body)
				require.Less(t, status, 500, body)
			}
			status, _, _ = s.send(t, p, bytes.Repeat([]byte("x"), 65<<10))
			require.Equal(t, http.StatusRequestEntityTooLarge, status)
			bomb := zipped(bytes.Repeat([]byte(" "), 8<<20))
			rec := p.get(t, http.MethodPost, s.path, bytes.NewReader(bomb), append(append([]string{}, s.header...), "Content-Encoding", "gzip")...)
			require.Equal(t, http.StatusRequestEntityTooLarge, rec.Code, rec.Body.String())
			rec = p.get(t, http.MethodDelete, s.path, nil, s.header...)
			require.Contains(t, []int{http.StatusMethodNotAllowed, http.StatusBadRequest}, rec.Code)
			outcomes(t, p, s.stream)
			_, _, _ = s.send(t, p, nil)
			outcomes(t, p, s.stream)
		})
	}
}

// TestManyAtOnce sends from many goroutines, with and without bad items, and adds up.
func TestManyAtOnce(t *testing.T) {
	p, k := receiving(t, "", "")
	var wg sync.WaitGroup
	for _, s := range sources() {
		for i := range 4 {
			wg.Go(func() {
				for n := range 10 {
					rec := p.get(t, http.MethodPost, s.path, bytes.NewReader(s.body(n, i%2 == 0 && n > 0)), s.header...)
					_, _ = io.Copy(io.Discard, rec.Body)
				}
			})
		}
	}
	wg.Wait()
	kept := int64(len(k.take()))
	for stream, protocols := range map[string]int64{"logs": 8, "events": 1, "rum": 1} {
		o := outcomes(t, p, stream)
		require.Equal(t, protocols*4*45, o.admitted, stream)
		require.Equal(t, protocols*2*9, o.invalid, stream)
		kept -= o.admitted
	}
	require.Zero(t, kept)
}
