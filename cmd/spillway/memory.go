package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/grafana/dskit/services"
)

// programBytes is what the program takes beside requests and routes: its code and
// tables, the embedded libraries, and a thousand connections of about 40 KiB each.
const programBytes = 96 << 20

// memoryLimit is what the garbage collector keeps the process below, in bytes, when
// so many streams remember routes: the configured limit, else the sum of what the
// configuration lets it use. It is 0 where that is not known, since an embedded
// database holds recent samples in memory.
func (c *Config) memoryLimit(streams int) int64 {
	if c.Server.MemoryLimit > 0 {
		return int64(c.Server.MemoryLimit)
	}
	for _, s := range c.Sinks {
		if s.TSDB != nil {
			return 0
		}
	}
	return c.memorySum(streams)
}

// memorySum is what the configuration lets requests, the routes of so many streams
// and the program itself take.
func (c *Config) memorySum(streams int) int64 {
	return int64(c.Server.MaxRequestBytes) + int64(max(1, streams))*int64(c.Ingester.RouteCacheBytes) + programBytes
}

// limitMemory tells the garbage collector. GOMEMLIMIT in the environment wins.
func (c *Config) limitMemory(streams int) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	limit := c.memoryLimit(streams)
	if limit == 0 {
		limit = math.MaxInt64
	}
	debug.SetMemoryLimit(limit)
}

// memoryInterval is how often it is looked whether another stream remembers routes.
const memoryInterval = 2 * time.Second

// memoryService keeps the garbage collector's limit at what the streams that
// receive anything may use.
func (p *process) memoryService() services.Service {
	streams := 0
	follow := func(context.Context) error {
		if n := p.ingester.RoutedStreams(); n != streams {
			streams = n
			p.config.limitMemory(n)
		}
		return nil
	}
	start := func(context.Context) error { p.config.limitMemory(0); return nil }
	return services.NewTimerService(memoryInterval, start, follow, nil)
}
