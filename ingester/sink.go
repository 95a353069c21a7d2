package ingester

import (
	"context"
	"time"
)

// Sink is where admitted items go.
type Sink interface {
	// Write stores the admitted groups of b and blocks until they are
	// acknowledged: a nil error says that all of them, but for the items that
	// it gave to b.Reject, survive a crash of this process. On an error
	// nothing counts as stored and the sender is told to send the batch again,
	// unless the error is a *SinkError that says it is final.
	//
	// Several batches may be written at the same time. b and all that it
	// points to belong to the caller again as soon as Write returns.
	Write(ctx context.Context, b *Batch) error
}

// SinkError says what the sender should do after a failed write.
type SinkError struct {
	// Err says what happened, where, and what to do.
	Err error
	// Final means that sending the same batch again cannot succeed: the
	// destination called it invalid.
	Final bool
	// RetryAfter is how long the destination asked to wait; 0 if it did not.
	RetryAfter time.Duration
}

func (e *SinkError) Error() string { return e.Err.Error() }
func (e *SinkError) Unwrap() error { return e.Err }
