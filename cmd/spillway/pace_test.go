package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoutesDoNotDoubleTheHeap(t *testing.T) {
	const mib = 1 << 20
	require.Equal(t, 100, growthPercent(0, 0), "nothing was collected yet")
	require.Equal(t, 100, growthPercent(20*mib, 0))
	require.Equal(t, 100, growthPercent(1000*mib, 0), "without routes it is as usual")
	for routes := int64(0); routes <= 1000*mib; routes += 10 * mib {
		for _, others := range []int64{10 * mib, 64 * mib, 300 * mib} {
			live := routes + others
			grows := live * int64(growthPercent(live, routes)) / 100
			require.LessOrEqual(t, grows, max(64*mib, others, live/10))
			require.GreaterOrEqual(t, grows, min(live, 60*mib)*9/10)
		}
	}
}
