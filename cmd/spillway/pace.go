package main

import (
	"runtime/debug"
	"runtime/metrics"
)

// The garbage collector lets the heap grow by GOGC per cent of what was live before
// it collects again. Remembered routes are live, large and hold no pointers: they
// cost nothing to keep and should not double the process. So the percentage falls as
// they grow, such that what may pile up between two collections is what it would be
// without them.
const (
	usualPercent = 100      // GOGC's default
	leastPercent = 10       // collections must not follow on each other's heels
	leastGrowth  = 64 << 20 // bytes that may pile up in any case
	liveHeap     = "/gc/heap/live:bytes"
)

// growthPercent is GOGC for a heap of live bytes of which routes are remembered
// routes.
func growthPercent(live, routes int64) int {
	if live <= 0 {
		return usualPercent
	}
	growth := max(leastGrowth, live-routes)
	return int(min(usualPercent, max(leastPercent, 100*growth/live)))
}

// paceCollector keeps the percentage right while routes come and go.
func (p *process) paceCollector() func() {
	now := usualPercent
	sample := []metrics.Sample{{Name: liveHeap}}
	return func() {
		metrics.Read(sample)
		next := growthPercent(int64(sample[0].Value.Uint64()), p.ingester.RouteBytes())
		// To set it stops the world for a moment.
		if diff := next - now; diff < -now/10 || diff > now/10 {
			now = next
			debug.SetGCPercent(now)
		}
	}
}
