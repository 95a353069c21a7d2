// Package discard is the sink that keeps nothing. It measures what Spillway costs
// without a destination, and lets a team see what a policy would drop before
// there is storage behind it. What is discarded is counted as admitted, by the
// ingester, as for every sink.
package discard

import (
	"context"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Sink acknowledges every batch at once and stores none. The zero value is ready
// for use, also by several goroutines.
type Sink struct{}

// Sink implements ingester.Sink.
var _ ingester.Sink = Sink{}

// Write returns nil.
func (Sink) Write(context.Context, *ingester.Batch) error { return nil }
