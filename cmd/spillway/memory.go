package main

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/spillway-telemetry/spillway/ingester"
)

// programBytes is what the program takes beside requests and routes: its code and
// tables, the embedded libraries, and a thousand connections of about 40 KiB each.
const programBytes = 96 << 20

// memoryLimit is what the garbage collector keeps the process below: the
// configured limit, else the sum of what the configuration lets it use; 0 where
// that is not known, since an embedded database holds recent samples in memory.
func (c *Config) memoryLimit() int64 {
	if c.Server.MemoryLimit > 0 {
		return int64(c.Server.MemoryLimit)
	}
	for _, s := range c.Sinks {
		if s.TSDB != nil {
			return 0
		}
	}
	return c.leastMemory()
}

// leastMemory is the sum of what the configuration lets requests and routes take,
// and of the program itself.
func (c *Config) leastMemory() int64 {
	return int64(c.Server.MaxRequestBytes) + c.routedStreams()*int64(c.Ingester.RouteCacheBytes) + programBytes
}

// routedStreams counts the streams that the configuration names; one at least.
func (c *Config) routedStreams() int64 {
	streams := int64(0)
	for _, stream := range ingester.Streams() {
		if _, ok := c.Streams[stream.String()]; ok {
			streams++
		}
	}
	return max(1, streams)
}

// limitMemory tells the garbage collector. GOMEMLIMIT in the environment wins.
func (c *Config) limitMemory(logger *slog.Logger) {
	if os.Getenv("GOMEMLIMIT") != "" {
		logger.Info("memory limit taken from GOMEMLIMIT", "bytes", debug.SetMemoryLimit(-1))
		return
	}
	limit := c.memoryLimit()
	if limit == 0 {
		limit = math.MaxInt64
	}
	debug.SetMemoryLimit(limit)
}
