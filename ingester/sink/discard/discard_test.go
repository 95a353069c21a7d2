package discard

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

func TestDiscardAcknowledgesAndLeavesTheBatchAlone(t *testing.T) {
	b := ingester.Batch{Format: ingester.RemoteWrite1, Groups: []ingester.Group{{Floats: 2}, {Histograms: 1, Verdict: ingester.Exempt}}}
	before := append([]ingester.Group(nil), b.Groups...)
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, ctx := range []context.Context{t.Context(), ended} {
		require.NoError(t, Sink{}.Write(ctx, &b))
		require.NoError(t, Sink{}.Write(ctx, &ingester.Batch{}))
	}
	require.Equal(t, before, b.Groups)
}
