package elasticsearch

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

var at = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func run(t testing.TB, body, index string) ([]receivetest.Record, *decoder, error) {
	t.Helper()
	var out receive.Records
	var d decoder
	out.Reset(nil, "elasticsearch", at, receive.Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
	err := d.decode(&out, []byte(body), index)
	return receivetest.Records(t, out.Bytes()), &d, err
}

// ofFilebeat has the fields of an event of Filebeat 8 with add_host_metadata and
// add_kubernetes_metadata.
const ofFilebeat = `{"@timestamp":"2026-11-30T07:59:58.123Z","message":"GET /","log":{"level":"error","offset":12,"file":{"path":"/var/log/a.log"}},` +
	`"host":{"name":"h1","ip":["10.0.0.1","::1"]},"agent":{"type":"filebeat","version":"8.15.0"},"ecs":{"version":"8.0.0"},` +
	`"kubernetes":{"pod":{"name":"p"}},"service.name":"web","input":{"type":"filestream"},"tags":["a","b"]}`

func TestDocumentsOfFilebeat(t *testing.T) {
	body := `{"create":{"_index":"filebeat-8.15.0","_id":"7"}}` + "\n" + ofFilebeat + "\n" + `{"index":{}}` + "\r\n" + `{"log":"x","level":"debug"}` + "\r\n"
	got, d, err := run(t, body, "fallback")
	require.NoError(t, err)
	require.Equal(t, []receivetest.Record{
		{
			Resource: map[string]any{"elasticsearch.index": "filebeat-8.15.0", "host.name": "h1", "host.ip": []any{"10.0.0.1", "::1"},
				"agent.type": "filebeat", "agent.version": "8.15.0", "ecs.version": "8.0.0", "kubernetes.pod.name": "p", "service.name": "web"},
			Attributes: map[string]any{"elasticsearch.id": "7", "log.level": "error", "log.offset": int64(12), "log.file.path": "/var/log/a.log",
				"input.type": "filestream", "tags": []any{"a", "b"}},
			Body: "GET /", Time: uint64(time.Date(2026, 11, 30, 7, 59, 58, 123e6, time.UTC).UnixNano()), Severity: 17, Level: "error",
		},
		{
			Resource: map[string]any{"elasticsearch.index": "fallback"}, Attributes: map[string]any{"level": "debug"}, Body: "x", Severity: 5, Level: "debug",
		},
	}, got)
	require.Equal(t, []item{{action: "create", index: "filebeat-8.15.0", id: "7"}, {action: "index", index: "fallback"}}, d.items)
}

func TestOneBadDocumentAmongGoodOnes(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 10_001) + "1" + strings.Repeat("}", 10_001)
	lines := []string{
		`{"index":{}}`, `{"message":"good"}`,
		`{"index":{}}`, `{"message":`,
		`{"index":{}}`, `[1]`,
		`{"index":{}}`, deep,
		`{"delete":{"_id":"1"}}`,
		`{"update":{"_id":"2"}}`, `{"doc":{"message":"updated"},"doc_as_upsert":true}`,
		`{"update":{"_id":"3"}}`, `{"script":"x"}`,
		`{"update":{"_id":"4"}}`, `{"script":"x","upsert":{"message":"upserted"}}`,
		`{"index":{}}`, `{"message":"good, too"}`,
		`{"index":{}}`,
	}
	got, d, err := run(t, strings.Join(lines, "\n"), "i")
	require.NoError(t, err)
	require.Len(t, got, 4)
	require.Equal(t, "good, too", got[3].Body)
	require.Equal(t, 6, d.invalid)
	var bad []int
	for i, it := range d.items {
		if it.reason != "" {
			bad = append(bad, i)
		}
	}
	require.Equal(t, []int{1, 2, 3, 4, 6, 9}, bad)
}

func TestMalformedActionsMakeTheBodyMalformed(t *testing.T) {
	for _, action := range []string{`{`, `[]`, `{}`, `{"create":1}`, `{"drop":{}}`, `x`} {
		_, _, err := run(t, `{"index":{}}`+"\n{}\n"+action+"\n{}\n", "i")
		require.ErrorContains(t, err, "line 3", action)
	}
	got, d, err := run(t, "\n\n", "i")
	require.NoError(t, err)
	require.Empty(t, got)
	require.Empty(t, d.items)
}

func TestTooLargeIsOfTheRequest(t *testing.T) {
	body := strings.Repeat(`{"index":{}}`+"\n"+`{"message":"`+strings.Repeat("x", 1000)+`"}`+"\n", 1100)
	_, _, err := run(t, body, "i")
	require.True(t, errors.Is(err, receive.ErrTooLarge))
}

func FuzzBulk(f *testing.F) {
	f.Add(`{"create":{"_index":"a","_id":"1"}}`+"\n"+ofFilebeat+"\n", "x")
	f.Add(`{"delete":{}}`+"\n"+`{"update":{}}`+"\n"+`{"doc":{}}`+"\n", "")
	f.Fuzz(func(t *testing.T, body, index string) {
		got, d, err := run(t, body, index)
		if err == nil {
			require.Equal(t, len(d.items), len(got)+d.invalid, "each action has one outcome")
		}
	})
}

// TestAnswersArePaidFor takes the memory of every item and of its answer before anything
// is stored, and says no more of what is wrong than helps.
func TestAnswersArePaidFor(t *testing.T) {
	var body strings.Builder
	for i, id := range []string{"", "7", "\x01\x02\"", "ümläut", "\xff", strings.Repeat("i", 2000)} {
		quoted, err := json.Marshal(id)
		require.NoError(t, err)
		for _, action := range []string{"create", "index", "update", "delete"} {
			body.WriteString(`{"` + action + `":{"_index":` + string(quoted) + `,"_id":` + string(quoted) + "}}\n")
			if action != "delete" {
				body.WriteString([]string{`{"doc":{"message":"m"}}`, "{" + strings.Repeat("x", 5000), "1", "", `{"\`, `{}`}[i] + "\n")
			}
		}
	}
	var taken int64
	var out receive.Records
	var d decoder
	out.Reset(nil, "elasticsearch", at, receive.Bounds{Bytes: 1 << 20, Grow: func(n int64) bool { taken += n; return true }})
	require.NoError(t, d.decode(&out, []byte(body.String()), "i"))
	require.Len(t, d.items, 24)
	groups := make([]ingester.Group, out.Count())
	for _, verdict := range []ingester.Verdict{ingester.Admitted, ingester.Invalid} {
		for i := range groups {
			groups[i].Verdict = verdict
		}
		answer := d.answer(groups, time.Second)
		require.True(t, json.Valid(answer), "%s", answer)
		require.LessOrEqual(t, len(answer), 64+d.answerBytes, "it was allocated once")
	}
	require.GreaterOrEqual(t, taken, int64(d.answerBytes))
	for _, it := range d.items {
		require.LessOrEqual(t, len(it.reason), maxReason)
	}
}
