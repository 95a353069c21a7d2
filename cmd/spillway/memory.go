package main

import (
	"context"
	"math"
	"os"
	"runtime/debug"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
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

// effectiveLimit is the smaller of what the configuration asks for and nine tenths of
// what the container may have, as not all of a process is the collector's; 0 for none.
func effectiveLimit(configured int64, container func() (uint64, error)) int64 {
	limit, err := memlimit.ApplyRatio(container, containerShare)()
	if err != nil || limit == 0 || limit > math.MaxInt64 {
		return configured // no container, or none that limits memory
	}
	if configured == 0 {
		return int64(limit)
	}
	return min(configured, int64(limit))
}

const (
	// containerShare is the library's default, too.
	containerShare = 0.9
	memoryInterval = time.Second
)

// memoryService tells the garbage collector, from second to second, what the memory
// limit is and how far the heap may grow between two collections: both follow the
// routes that are remembered, the limit also the container's. GOMEMLIMIT and GOGC in
// the environment win.
func (p *process) memoryService() services.Service {
	var tell []func()
	if os.Getenv("GOMEMLIMIT") == "" {
		tell = append(tell, p.limitMemory())
	}
	if os.Getenv("GOGC") == "" {
		tell = append(tell, p.paceCollector())
	}
	follow := func(context.Context) error {
		for _, f := range tell {
			f()
		}
		return nil
	}
	return services.NewTimerService(memoryInterval, follow, follow, nil)
}

func (p *process) limitMemory() func() {
	now := int64(-1)
	return func() {
		limit := effectiveLimit(p.config.memoryLimit(p.ingester.RoutedStreams()), memlimit.FromCgroup)
		if limit == 0 {
			limit = math.MaxInt64
		}
		if limit != now {
			now = limit
			debug.SetMemoryLimit(limit)
		}
	}
}
