package otlp

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// TestJSONProblems: a sender is told the place, and not the parser's thoughts.
func TestJSONProblems(t *testing.T) {
	for body, want := range map[string]string{
		`{"resourceLogs":[}`:             "line 1, column 18: invalid character '}' looking for beginning of value",
		"{\n \"resourceLogs\": [],\n x}": "line 3, column 2: invalid character 'x' looking for beginning of object key string",
		`{"resourceLogs":[`:              "line 1, column 17: unexpected end of JSON input",
		`{} {}`:                          "line 1, column 4: invalid character '{' after top-level value",
		"x":                              "line 1, column 1: invalid character 'x' looking for beginning of value",
	} {
		require.EqualError(t, jsonProblem([]byte(body), errors.New("any")), "the body is not valid JSON: "+want)
		for _, format := range []ingester.Format{ingester.OTLPLogs, ingester.OTLPMetrics, ingester.OTLPTraces} {
			if _, err := convert([]byte(body), format); err != nil {
				require.Contains(t, err.Error(), "not valid JSON")
				require.NotContains(t, err.Error(), "bigger context")
			}
		}
	}
	_, err := convert([]byte(`{"resourceLogs":{}}`), ingester.OTLPLogs)
	require.ErrorContains(t, err, "the body is JSON, but not OTLP: ")
	require.NotContains(t, err.Error(), "bigger context")
}
