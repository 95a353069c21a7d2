package datadog

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

var at = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func run(t testing.TB, decode func(d *decoder, out *receive.Records) error) ([]receivetest.Record, *decoder, error) {
	t.Helper()
	var out receive.Records
	var d decoder
	out.Reset(nil, "datadog", at, receive.Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
	err := decode(&d, &out)
	return receivetest.Records(t, out.Bytes()), &d, err
}

func logs(t testing.TB, body, query string, plain bool) ([]receivetest.Record, *decoder, error) {
	q, err := url.ParseQuery(query)
	require.NoError(t, err)
	return run(t, func(d *decoder, out *receive.Records) error { return d.logs(out, []byte(body), commonOf(q), plain) })
}

func rum(t testing.TB, body, query string) ([]receivetest.Record, *decoder, error) {
	q, err := url.ParseQuery(query)
	require.NoError(t, err)
	return run(t, func(d *decoder, out *receive.Records) error { return d.rum(out, []byte(body), commonOf(q)) })
}

// ofAgent has the fields that the Datadog Agent sends.
const ofAgent = `{"message":"hello","status":"warn","timestamp":1700000000123,"hostname":"h","service":"web","ddsource":"nginx","ddtags":"env:prod,team:a,team:b,canary,url:http://x"}`

func TestLogsOfTheAgent(t *testing.T) {
	want := receivetest.Record{
		Resource: map[string]any{"service.name": "web", "host.name": "h", "source": "nginx", "env": "prod",
			"team": []any{"a", "b"}, "tags": []any{"canary"}, "url": "http://x"},
		Attributes: map[string]any{"status": "warn"},
		Body:       "hello", Time: 1700000000123e6, Severity: 13, Level: "warn",
	}
	for name, body := range map[string]string{"array": "[" + ofAgent + "]", "object": ofAgent, "lines": ofAgent + "\n"} {
		got, d, err := logs(t, body, "", false)
		require.NoError(t, err, name)
		require.Zero(t, d.invalid)
		require.Equal(t, []receivetest.Record{want}, got, name)
	}
}

func TestTheAddressSpeaksForLogsThatDoNot(t *testing.T) {
	query := "ddsource=heroku&ddtags=env:dev,team:q&service=shop&host=h1"
	got, _, err := logs(t, `[{"message":"a"},{"message":"b","service":"own","ddtags":["team:own"]}]`, query, false)
	require.NoError(t, err)
	require.Equal(t, map[string]any{"service.name": "shop", "host.name": "h1", "source": "heroku", "env": "dev", "team": "q"}, got[0].Resource)
	require.Equal(t, map[string]any{"service.name": "own", "host.name": "h1", "source": "heroku", "env": "dev", "team": []any{"own", "q"}}, got[1].Resource)

	got, _, err = logs(t, "line one\r\n\nline two", query, true)
	require.NoError(t, err)
	require.Len(t, got, 2)
	require.Equal(t, "line one", got[0].Body)
	require.Equal(t, "shop", got[1].Resource["service.name"])
	got, _, err = logs(t, ofAgent, "", true)
	require.NoError(t, err)
	require.Equal(t, "hello", got[0].Body, "JSON under text/plain is JSON")
}

func TestOneBadLogAmongGoodOnes(t *testing.T) {
	tags := strings.Repeat("x:1,", receive.MaxAttributes+1)
	got, d, err := logs(t, `[{"message":"a"},"b",{"message":"c","ddtags":"`+tags+`"},{"message":"d"}]`, "", false)
	require.NoError(t, err)
	require.Equal(t, 2, d.invalid)
	require.Len(t, got, 2)
	_, _, err = logs(t, `[{"message":"a"}`, "", false)
	require.ErrorIs(t, err, receive.ErrJSON)
}

const view = `{"type":"view","date":1700000000123,"service":"shop","version":"1.2","source":"browser","application":{"id":"app-1"},` +
	`"session":{"id":"s","type":"user"},"view":{"id":"v","url":"http://x/","loading_time":1.5},"ddtags":"sdk_version:6.0.0,env:prod","_dd":{"format_version":2}}`
const failure = `{"type":"error","date":1700000000124,"service":"shop","application":{"id":"app-1"},"error":{"message":"boom","source":"source"}}`

func TestRUMEvents(t *testing.T) {
	got, d, err := rum(t, view+"\n"+failure, "ddsource=browser&ddtags=team:web")
	require.NoError(t, err)
	require.Zero(t, d.invalid)
	require.Equal(t, []receivetest.Record{
		{
			Resource: map[string]any{"service.name": "shop", "service.version": "1.2", "source": "browser", "application.id": "app-1",
				"sdk_version": "6.0.0", "env": "prod", "team": "web"},
			Attributes: map[string]any{"type": "view", "session.id": "s", "session.type": "user", "view.id": "v", "view.url": "http://x/",
				"view.loading_time": 1.5, "_dd.format_version": int64(2)},
			Time: 1700000000123e6, EventName: "view",
		},
		{
			Resource:   map[string]any{"service.name": "shop", "source": "browser", "application.id": "app-1", "team": "web"},
			Attributes: map[string]any{"type": "error", "error.message": "boom", "error.source": "source"},
			Body:       "boom", Time: 1700000000124e6, EventName: "error",
		},
	}, got)
}

func TestOneBadRUMEventAmongGoodOnes(t *testing.T) {
	got, d, err := rum(t, view+"\n{\"type\":\n[]\n"+failure+"\n", "")
	require.NoError(t, err)
	require.Equal(t, 2, d.invalid)
	require.Len(t, got, 2)
	for body, invalid := range map[string]int{"": 0, "\n": 0, "x": 1, "[]\n1": 2} {
		got, d, err := rum(t, body, "")
		require.NoError(t, err)
		require.Empty(t, got)
		require.Equal(t, invalid, d.invalid, "%q", body)
	}
}

func FuzzLogs(f *testing.F) {
	f.Add("["+ofAgent+"]", "env:x,,y", false)
	f.Add("plain\ntext", "", true)
	f.Fuzz(func(t *testing.T, body, tags string, plain bool) {
		_, _, _ = logs(t, body, url.Values{"ddtags": {tags}}.Encode(), plain)
	})
}

func FuzzRUM(f *testing.F) {
	f.Add(fmt.Sprint(view, "\n", failure))
	f.Fuzz(func(t *testing.T, body string) { _, _, _ = rum(t, body, "") })
}
