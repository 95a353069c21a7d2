package otlp

import (
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Receiver receives OTLP.
type Receiver struct {
	front   *receive.Front
	options Options
}

// Options are the receiver's bounds and how it names labels.
type Options struct {
	// Items in one request: data points, log records or spans.
	Items int
}

// Grouping says what is one group of a message of log records.
type Grouping uint8

const (
	// EachRecord is a group of its own.
	EachRecord Grouping = iota
	// OneGroup takes all records as a whole: it costs as many tokens as there are
	// records, and its labels are those of the first resource and scope.
	OneGroup
)

// New makes a receiver behind a front.
func New(front *receive.Front, o Options) (*Receiver, error) {
	return &Receiver{front: front, options: o}, nil
}

// Records processes an ExportLogsServiceRequest that another receiver made of its
// request: req's batch becomes it, on the given stream. A refusal says that nothing
// was processed, and is for req.Refuse; otherwise every item has been counted.
func (rc *Receiver) Records(req *receive.Request, stream ingester.Stream, message []byte, how Grouping) (ingester.Result, *receive.Refusal) {
	req.Replace(message)
	b := &req.Batch
	b.Stream, b.Format = stream, ingester.OTLPLogs
	if err := rc.Walk(b, req.Memory, how); err != nil {
		return ingester.Result{}, rc.refusal(req, err)
	}
	return req.Process(), nil
}
