package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

// recorded is a request as a real sender made it.
type recorded struct {
	Path    string
	Headers map[string]string
	Body    []byte
}

// TestWhatFluentBitSent replays requests that Fluent Bit 5.1.1 made of ten lines
// `{"level":"warn","msg":"line N","n":N,"x":"quo\"te é"}` with each of its outputs, and
// compares every field of every record.
func TestWhatFluentBitSent(t *testing.T) {
	resource := map[string]map[string]any{
		"json":        {"fluent.tag": "app.log"},
		"json_lines":  {},
		"json_stream": {},
		"es":          {"elasticsearch.index": "fluent-bit"},
		"es_upsert":   {"elasticsearch.index": "fluent-bit"},
		"loki":        {"job": "fb", "env": "test"},
		"datadog":     {"service.name": "web", "source": "nginx", "env": "prod"},
	}
	files, err := filepath.Glob("../../testdata/receive/fluent-bit-5.1.1/*.json")
	require.NoError(t, err)
	require.Len(t, files, len(resource))
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".json")
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			var r recorded
			require.NoError(t, json.Unmarshal(text, &r))
			var header []string
			for k, v := range r.Headers {
				header = append(header, k, v)
			}
			p, k := receiving(t, "", "")
			rec := p.get(t, http.MethodPost, r.Path, bytes.NewReader(r.Body), header...)
			require.Less(t, rec.Code, 300, rec.Body.String())
			records := k.take()
			require.Len(t, records, 10)
			for i := range records {
				require.Equal(t, resource[name], records[i].Resource)
				checkFluentBit(t, name, i, &records[i])
			}
			require.Equal(t, outcome{received: 10, admitted: 10}, outcomes(t, p, "logs"))
			if strings.HasPrefix(name, "es") {
				checkBulkAnswer(t, rec.Body.Bytes(), 10)
			}
		})
	}
}

// checkFluentBit compares the i-th record with the i-th line.
func checkFluentBit(t *testing.T, name string, i int, r *receivetest.Record) {
	t.Helper()
	recordedAt := time.Date(2026, 11, 30, 8, 32, 0, 0, time.UTC)
	sent := time.Unix(0, int64(r.Time)).Sub(recordedAt)
	require.True(t, sent > 0 && sent < time.Hour, "time %d", r.Time)
	if name == "loki" { // it writes the rest of the record as the line
		require.Equal(t, map[string]any{"n": fmt.Sprint(i)}, r.Attributes)
		var line map[string]any
		require.NoError(t, json.Unmarshal([]byte(r.Body.(string)), &line))
		require.Equal(t, map[string]any{"level": "warn", "msg": fmt.Sprint("line ", i), "x": `quo"te é`}, line)
		return
	}
	want := map[string]any{"level": "warn", "n": int64(i), "x": `quo"te é`}
	if strings.HasPrefix(name, "es") {
		require.NotEmpty(t, r.Attributes["elasticsearch.id"])
		want["elasticsearch.id"] = r.Attributes["elasticsearch.id"]
	}
	require.Equal(t, want, r.Attributes)
	require.Equal(t, fmt.Sprint("line ", i), r.Body)
	require.Equal(t, "warn", r.Level)
	require.EqualValues(t, 13, r.Severity)
}

// checkBulkAnswer reads an answer as clients of Elasticsearch do.
func checkBulkAnswer(t *testing.T, body []byte, n int) {
	t.Helper()
	var answer struct {
		Errors bool
		Items  []map[string]struct{ Status int }
	}
	require.NoError(t, json.Unmarshal(body, &answer), "%s", body)
	require.False(t, answer.Errors)
	require.Len(t, answer.Items, n)
	for _, item := range answer.Items {
		require.Len(t, item, 1)
		for _, one := range item {
			require.Contains(t, []int{200, 201}, one.Status)
		}
	}
}
