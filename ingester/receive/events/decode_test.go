package events

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

var at = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func run(t testing.TB, body string) ([]receivetest.Record, *decoder, error) {
	t.Helper()
	var out receive.Records
	var d decoder
	out.Reset(nil, "events", at, receive.Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
	err := d.decode(&out, []byte(body))
	return receivetest.Records(t, out.Bytes()), &d, err
}

const deploy = `{"title":"Deployed","text":"v2 is out","time":1700000000,"tags":["env:prod","team:a","team:b"],"source":"ci","type":"deploy","host":"h","service":"shop","level":"warning","run":{"id":7}}`

var deployed = receivetest.Record{
	Resource: map[string]any{"host.name": "h", "service.name": "shop"},
	Attributes: map[string]any{"title": "Deployed", "source": "ci", "eventType": "deploy", "level": "warning", "run.id": int64(7),
		"env": "prod", "team": []any{"a", "b"}},
	Body: "v2 is out", Time: 1700000000e9, Severity: 13, Level: "warning", EventName: "deploy",
}

func TestOneEventOrAList(t *testing.T) {
	for name, body := range map[string]string{"one": deploy, "list": "[" + deploy + "]", "lines": deploy + "\n"} {
		got, d, err := run(t, body)
		require.NoError(t, err, name)
		require.Zero(t, d.invalid)
		require.Equal(t, []receivetest.Record{deployed}, got, name)
	}
	got, _, err := run(t, `[{"title":"only a title","tags":{"a":"b","n":1}},{"text":"t","tags":"x:y,z"}]`)
	require.NoError(t, err)
	require.Equal(t, []receivetest.Record{
		{Resource: map[string]any{}, Attributes: map[string]any{"title": "only a title", "a": "b", "n": int64(1)}, Body: "only a title"},
		{Resource: map[string]any{}, Attributes: map[string]any{"x": "y", "tags": []any{"z"}}, Body: "t"},
	}, got)
}

func TestEventsOfDatadog(t *testing.T) {
	got, _, err := run(t, `{"title":"T","text":"X","date_happened":1700000000,"alert_type":"error","priority":"low","host":"h","tags":["a:b"],"source_type_name":"chef","aggregation_key":"k"}`)
	require.NoError(t, err)
	require.Equal(t, []receivetest.Record{{
		Resource:   map[string]any{"host.name": "h"},
		Attributes: map[string]any{"title": "T", "source": "chef", "alert_type": "error", "priority": "low", "aggregation_key": "k", "a": "b"},
		Body:       "X", Time: 1700000000e9, Severity: 17, Level: "error",
	}}, got)

	got, d, err := run(t, `{"apiKey":"","internalHostname":"i","events":{"docker":[{"msg_title":"T","msg_text":"X","timestamp":1700000000,"host":"h","alert_type":"info","event_type":"start"}],"api":[{"msg_title":"U","source_type_name":"own"}]}}`)
	require.NoError(t, err)
	require.Zero(t, d.invalid)
	require.Equal(t, []receivetest.Record{
		{Resource: map[string]any{"host.name": "h"}, Attributes: map[string]any{"title": "T", "source": "docker", "alert_type": "info", "eventType": "start"},
			Body: "X", Time: 1700000000e9, Severity: 9, Level: "info", EventName: "start"},
		{Resource: map[string]any{}, Attributes: map[string]any{"title": "U", "source": "api", "source_type_name": "own"}, Body: "U"},
	}, got)

	got, d, err = run(t, `{"internalHostname":"i","meta":{"timezones":["UTC"]}}`)
	require.NoError(t, err)
	require.Zero(t, d.invalid)
	require.Empty(t, got, "what the Agent says of its host is no event")
}

// pulled is what `kubectl get event -o json` shows of an image pull that fails.
const pulled = `{"apiVersion":"v1","kind":"Event","metadata":{"name":"web.17f","namespace":"shop","uid":"u1","creationTimestamp":"2023-11-14T22:13:20Z"},
"involvedObject":{"apiVersion":"v1","kind":"Pod","name":"web-0","namespace":"shop","uid":"p1","fieldPath":"spec.containers{web}"},
"reason":"Failed","message":"pull failed","source":{"component":"kubelet","host":"node-1"},"type":"Warning",
"firstTimestamp":"2023-11-14T22:13:21Z","lastTimestamp":"2023-11-14T22:13:30Z","count":4,"eventTime":null,"reportingComponent":"","reportingInstance":""}`

var pulledRecord = receivetest.Record{
	Resource: map[string]any{"k8s.namespace.name": "shop", "k8s.node.name": "node-1"},
	Attributes: map[string]any{"source": "kubernetes", "eventType": "Warning", "kube_namespace": "shop", "kube_kind": "Pod", "kube_name": "web-0",
		"k8s.event.reason": "Failed", "k8s.event.name": "web.17f", "k8s.event.uid": "u1", "k8s.event.count": int64(4),
		"k8s.object.kind": "Pod", "k8s.object.name": "web-0", "k8s.object.uid": "p1", "k8s.object.api_version": "v1",
		"k8s.object.fieldpath": "spec.containers{web}", "k8s.event.reporting_controller": "kubelet"},
	Body: "pull failed", Time: 1700000010e9, Severity: 13, Level: "warning", EventName: "Warning",
}

func TestEventsOfKubernetes(t *testing.T) {
	for name, body := range map[string]string{
		"one": pulled, "array": "[" + pulled + "]",
		"list":  `{"kind":"EventList","apiVersion":"v1","items":[` + pulled + `]}`,
		"watch": `{"type":"ADDED","object":` + pulled + `}`,
	} {
		got, _, err := run(t, body)
		require.NoError(t, err, name)
		require.Equal(t, []receivetest.Record{pulledRecord}, got, name)
	}
	got, _, err := run(t, `{"apiVersion":"events.k8s.io/v1","kind":"Event","metadata":{"name":"n","namespace":"ns"},"eventTime":"2023-11-14T22:13:20.5Z",
		"note":"scheduled","type":"Normal","reason":"Scheduled","action":"Binding","reportingController":"default-scheduler","regarding":{"kind":"Pod","name":"x"},
		"series":{"count":2,"lastObservedTime":"2023-11-14T22:13:25Z"}}`)
	require.NoError(t, err)
	require.EqualValues(t, 1700000005e9, got[0].Time)
	require.Equal(t, "scheduled", got[0].Body)
	require.EqualValues(t, 9, got[0].Severity)
	require.Equal(t, "ns", got[0].Resource["k8s.namespace.name"])
	require.Equal(t, "default-scheduler", got[0].Attributes["k8s.event.reporting_controller"])
}

func TestOneBadEventAmongGoodOnes(t *testing.T) {
	got, d, err := run(t, `[`+deploy+`,{"time":1},"text",{"title":7},`+pulled+`]`)
	require.NoError(t, err)
	require.Equal(t, 3, d.invalid)
	require.Equal(t, []receivetest.Record{deployed, pulledRecord}, got)
	for _, body := range []string{`{`, `{"title":"x"`, `{"events":[]}`, `{"events":{"a":{}}}`} {
		_, _, err := run(t, body)
		require.Error(t, err, body)
	}
}

func FuzzEvents(f *testing.F) {
	for _, seed := range []string{deploy, pulled, `{"events":{"a":[{"msg_title":"x"}]}}`, `{"items":[{"kind":"Event"}]}`, `{"type":"ADDED","object":{"object":{}}}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, body string) { _, _, _ = run(t, body) })
}
