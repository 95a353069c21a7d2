// Package receivetest reads what the receivers write, for their tests: with the
// OpenTelemetry Collector's library, which shares no code with them.
package receivetest

import (
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
)

// Record is all of one log record but when it was received.
type Record struct {
	Resource, Attributes map[string]any
	// Body is nil where there is none.
	Body      any
	Time      uint64 // nanoseconds
	Severity  int32
	Level     string // severity_text
	EventName string
	// Dropped is dropped_attributes_count.
	Dropped uint32
}

// Records reads an ExportLogsServiceRequest. Each record must say when it was
// received, and no attribute may stand twice.
func Records(t testing.TB, message []byte) []Record {
	t.Helper()
	req := plogotlp.NewExportRequest()
	require.NoError(t, req.UnmarshalProto(message))
	return Logs(t, req.Logs())
}

// Logs is Records for a request that is read already.
func Logs(t testing.TB, logs plog.Logs) []Record {
	t.Helper()
	var records []Record
	for _, rl := range logs.ResourceLogs().All() {
		resource := rl.Resource().Attributes()
		require.Len(t, resource.AsRaw(), resource.Len(), "attributes of a resource are repeated")
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				require.NotZero(t, lr.ObservedTimestamp())
				require.Len(t, lr.Attributes().AsRaw(), lr.Attributes().Len(), "attributes of a record are repeated")
				records = append(records, Record{
					Resource: resource.AsRaw(), Attributes: lr.Attributes().AsRaw(), Body: lr.Body().AsRaw(),
					Time: uint64(lr.Timestamp()), Severity: int32(lr.SeverityNumber()), Level: lr.SeverityText(),
					EventName: lr.EventName(), Dropped: lr.DroppedAttributesCount(),
				})
			}
		}
	}
	return records
}
