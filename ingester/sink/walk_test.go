package sink

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// walk describes an OTLP request. Each record is a group of its own, admitted, with
// the label set that labels gives it.
func walk(tb testing.TB, format ingester.Format, request []byte, labels func(group int) []byte) *ingester.Batch {
	tb.Helper()
	b := &ingester.Batch{Format: format}
	require.True(tb, Describe(b, request))
	for i := range b.Groups {
		if labels != nil {
			b.Groups[i].Route = ingester.NewRoute(labels(i), nil)
		}
	}
	return b
}
