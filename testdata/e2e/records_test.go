//go:build e2e

package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

// filed reads the records that the file sink has of a stream.
func filed(t *testing.T, dir, stream string) []receivetest.Record {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, stream, "*.jsonl"))
	require.NoError(t, err)
	var records []receivetest.Record
	for _, name := range files {
		f, err := os.Open(name)
		require.NoError(t, err)
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 16<<20)
		for lines.Scan() {
			logs, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(lines.Bytes())
			require.NoError(t, err, "%s", lines.Bytes())
			records = append(records, receivetest.Logs(t, logs)...)
		}
		require.NoError(t, lines.Err())
		require.NoError(t, f.Close())
	}
	return records
}

// requireStored asserts that a stream received n items, and that every one of them
// has one outcome.
func requireStored(t *testing.T, address, stream string, n int) {
	t.Helper()
	resp, err := http.Get("http://" + address + "/api/v1/ratecontrol")
	require.NoError(t, err)
	defer resp.Body.Close()
	var status struct {
		Streams map[string]struct {
			Received, Invalid int64
			Relabel           int64 `json:"dropped_relabel"`
			Exempt            int64
			Classes           []struct{ Admitted, Dropped, Refused int64 }
		}
	}
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&status))
	s := status.Streams[stream]
	sum := s.Invalid + s.Relabel + s.Exempt
	for _, c := range s.Classes {
		sum += c.Admitted + c.Dropped + c.Refused
	}
	require.Equal(t, s.Received, sum, "conservation on %s", stream)
	require.EqualValues(t, n, s.Received)
}
