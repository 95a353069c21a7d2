package otlp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// TestJSONProblems: a sender is told the place, and not the parser's thoughts.
func TestJSONProblems(t *testing.T) {
	for body, want := range map[string]string{
		`{"resourceLogs":[}`:             "the body is not valid JSON: line 1, column 18: invalid character '}' looking for beginning of value",
		"{\n \"resourceLogs\": [],\n x}": "the body is not valid JSON: line 3, column 2: invalid character 'x' looking for beginning of object key string",
		`{"resourceLogs":[`:              "the body is not valid JSON: line 1, column 17: unexpected end of JSON input",
		"x":                              "the body is not valid JSON: line 1, column 1: invalid character 'x' looking for beginning of value",
		`{"resourceLogs":{}}`:            "the body is JSON, but not OTLP: ",
		"":                               "the body is empty, which is no JSON",
	} {
		for _, format := range []ingester.Format{ingester.OTLPLogs, ingester.OTLPMetrics, ingester.OTLPTraces} {
			if body == `{"resourceLogs":{}}` && format != ingester.OTLPLogs {
				continue // unknown fields are none of the message
			}
			_, err := convert([]byte(body), format)
			require.ErrorContains(t, err, want, "%q", body)
			require.NotContains(t, err.Error(), "bigger context")
		}
	}
}
