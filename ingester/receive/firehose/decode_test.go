package firehose

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

var at = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

const limit = 1 << 20

func run(t testing.TB, body []byte, r request) ([]receivetest.Record, *decoder, error) {
	t.Helper()
	var out receive.Records
	var d decoder
	out.Reset(nil, "firehose", at, receive.Bounds{Bytes: limit, Grow: func(int64) bool { return true }})
	r.limit = limit
	if r.grow == nil {
		r.grow = func(int64) bool { return true }
	}
	err := d.read(&out, body, &r)
	if err == nil {
		err = d.write(&out, &r)
	}
	return receivetest.Records(t, out.Bytes()), &d, err
}

func pack(t testing.TB, text string) string {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	_, err := w.Write([]byte(text))
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return base64.StdEncoding.EncodeToString(b.Bytes())
}

// delivery is a body as Firehose writes it.
func delivery(data ...string) []byte {
	type record struct {
		Data string `json:"data"`
	}
	body := struct {
		RequestID string   `json:"requestId"`
		Timestamp int64    `json:"timestamp"`
		Records   []record `json:"records"`
	}{RequestID: "r-1", Timestamp: 1700000000000, Records: []record{}}
	for _, d := range data {
		body.Records = append(body.Records, record{d})
	}
	text, _ := json.Marshal(body)
	return text
}

// cloudWatch is a message of a subscription filter.
func cloudWatch(group, stream string, messages ...string) string {
	type event struct {
		ID        string `json:"id"`
		Timestamp int64  `json:"timestamp"`
		Message   string `json:"message"`
	}
	events := []event{}
	for i, m := range messages {
		events = append(events, event{fmt.Sprint("id", i), 1700000000000 + int64(i), m})
	}
	text, _ := json.Marshal(map[string]any{"messageType": "DATA_MESSAGE", "owner": "123", "logGroup": group, "logStream": stream,
		"subscriptionFilters": []string{"f"}, "logEvents": events})
	return string(text)
}

const control = `{"messageType":"CONTROL_MESSAGE","owner":"CloudwatchLogs","logGroup":"","logStream":"","subscriptionFilters":[],"logEvents":[{"id":"","timestamp":1,"message":"CWL CONTROL MESSAGE: Checking health of destination Firehose."}]}`

func TestCloudWatchLogs(t *testing.T) {
	body := delivery(pack(t, control), pack(t, cloudWatch("g", "s1", "one\n", "tw\"o")), pack(t, cloudWatch("g", "s2", "three")))
	got, d, err := run(t, body, request{arn: "arn:aws:firehose:x", common: `{"commonAttributes":{"env":"prod"}}`})
	require.NoError(t, err)
	require.Equal(t, "r-1", d.id)
	require.Zero(t, d.invalid)
	resource := map[string]any{"env": "prod", "cloud.provider": "aws", "aws.firehose.arn": "arn:aws:firehose:x", "source": "cloudwatch",
		"cloud.account.id": "123", "aws.log.group.name": "g", "aws.log.subscription_filters": []any{"f"}}
	record := func(stream, id, message string, millis uint64) receivetest.Record {
		return receivetest.Record{Resource: resource, Attributes: map[string]any{"aws.log.event.id": id, "aws.log.stream.name": stream}, Body: message, Time: millis * 1e6}
	}
	require.Equal(t, []receivetest.Record{
		record("s1", "id0", "one\n", 1700000000000), record("s1", "id1", `tw"o`, 1700000000001), record("s2", "id0", "three", 1700000000000),
	}, got)
}

func TestOtherData(t *testing.T) {
	plain := base64.StdEncoding.EncodeToString([]byte("line 1\nline 2\r\n{\"json\":1}\n"))
	got, d, err := run(t, delivery(plain, base64.StdEncoding.EncodeToString([]byte(cloudWatch("g", "s", "not compressed")+cloudWatch("g", "s", "behind it")))), request{})
	require.NoError(t, err)
	require.Zero(t, d.invalid)
	var bodies []any
	for _, r := range got {
		bodies = append(bodies, r.Body)
	}
	require.Equal(t, []any{"line 1", "line 2", `{"json":1}`, "not compressed", "behind it"}, bodies)
	require.Equal(t, "firehose", got[0].Attributes["source"])
	require.Equal(t, "cloudwatch", got[4].Attributes["source"])
}

func TestOneBadRecordAmongGoodOnes(t *testing.T) {
	good := pack(t, cloudWatch("g", "s", "good"))
	torn, err := base64.StdEncoding.DecodeString(good)
	require.NoError(t, err)
	got, d, err := run(t, delivery(good, "no base64!", base64.StdEncoding.EncodeToString(torn[:len(torn)/2]), pack(t, `{"logEvents":7}`),
		pack(t, `{"logEvents":[{"message":"kept"},{"message":1},4]}`), good), request{})
	require.NoError(t, err)
	require.Equal(t, 5, d.invalid)
	require.Len(t, got, 3)
	for _, body := range []string{``, `[]`, `{}`, `{"records":{}}`, `{"records":[`} {
		_, _, err := run(t, []byte(body), request{})
		require.Error(t, err, body)
	}
	_, _, err = run(t, delivery(good), request{common: "{"})
	require.Error(t, err)
	got, _, err = run(t, []byte(`{"requestId":"x","records":[]}`), request{})
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestBombsInsideBase64(t *testing.T) {
	bomb := pack(t, strings.Repeat("\x00", 8<<20))
	grown := int64(0)
	_, d, err := run(t, delivery(bomb), request{grow: func(n int64) bool { grown += n; return true }})
	require.ErrorIs(t, err, receive.ErrTooLarge)
	require.LessOrEqual(t, len(d.data), limit+1)
	require.LessOrEqual(t, grown, int64(2*limit))
	_, _, err = run(t, delivery(bomb), request{grow: func(int64) bool { return false }})
	require.ErrorIs(t, err, receive.ErrNoMemory)
	many := make([]string, 2000)
	for i := range many {
		many[i] = pack(t, strings.Repeat("x", 1<<10))
	}
	_, _, err = run(t, delivery(many...), request{})
	require.ErrorIs(t, err, receive.ErrTooLarge, "small bombs add up")
}

func FuzzDelivery(f *testing.F) {
	f.Add(delivery(pack(f, control), pack(f, cloudWatch("g", "s", "x"))), `{"commonAttributes":{"a":"b"}}`)
	f.Fuzz(func(t *testing.T, body []byte, common string) {
		got, d, err := run(t, body, request{common: common})
		if err == nil {
			require.Len(t, got, len(d.events))
		}
	})
}

// FuzzData reaches what base64 and gzip hide from FuzzDelivery.
func FuzzData(f *testing.F) {
	f.Add([]byte(cloudWatch("g", "s", "x")))
	f.Add([]byte("a line\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _, _ = run(t, delivery(base64.StdEncoding.EncodeToString(data)), request{})
	})
}
