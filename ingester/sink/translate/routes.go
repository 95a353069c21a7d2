package translate

import (
	"sync"
	"time"

	"github.com/spillway-telemetry/spillway/ingester"
)

const lookback = 5 * time.Minute

// routes remembers a route for each label set, so that what the sink remembers with it
// (the TSDB: the series) is there the next time. It is emptied when it is full.
type routes struct {
	mu    sync.Mutex
	known map[string]ingester.Route
	bytes int
}

// routeBytes bounds the label sets that are remembered. A route takes as much again.
const routeBytes = 64 << 20

// of returns the route of a label set.
func (r *routes) of(set []byte) ingester.Route {
	r.mu.Lock()
	defer r.mu.Unlock()
	if route, ok := r.known[string(set)]; ok {
		return route
	}
	if r.known == nil || r.bytes+len(set) > routeBytes {
		r.known, r.bytes = make(map[string]ingester.Route), 0
	}
	route := ingester.NewRoute(set, nil)
	r.known[string(set)] = route
	r.bytes += len(set)
	return route
}
