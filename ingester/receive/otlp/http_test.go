package otlp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// TestJSONIsOneDocument stores nothing of a body of which it would drop a part unseen.
func TestJSONIsOneDocument(t *testing.T) {
	one := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"a"}}]}]}]}`
	for _, path := range []string{"/v1/logs", "/v1/traces", "/v1/metrics"} {
		for _, behind := range []string{one, "{}", "x", "]", "\n" + one} {
			s := newSystem(t, setup{})
			rec := s.post(path, []byte(one+behind), "Content-Type", "application/json")
			require.Equal(t, 400, rec.Code, "%s and %q", path, behind)
			require.Zero(t, s.requireConserved(ingester.Logs)["spillway_received_items_total"])
		}
	}
	s := newSystem(t, setup{})
	require.Equal(t, 200, s.post("/v1/logs", []byte(" "+one+"\n"), "Content-Type", "application/json").Code)
	require.EqualValues(t, 1, s.requireConserved(ingester.Logs)["spillway_admitted_items_total"])
}
