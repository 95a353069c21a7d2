package otlp

import (
	"errors"
	"sync"

	"github.com/prometheus/prometheus/config"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Receiver receives OTLP. It may be used by any number of goroutines.
type Receiver struct {
	front    *receive.Front
	options  Options
	messages *messages
	walkers  [streamCount]sync.Pool // of *walker, by stream
}

const streamCount = int(ingester.RUM) + 1

// Options are the receiver's bounds and how it names labels.
type Options struct {
	// Items in one request: data points, log records or spans. More are refused
	// with 413; there may be as many messages around them.
	Items int
	// Attributes of one item, resource or scope, or of a part of one, such as a span's
	// event. An item with more is invalid.
	Attributes int
	// Translation names the labels of metrics, as in Prometheus' configuration.
	Translation config.OTLPConfig
	// UTF8Names leaves the names of attributes of logs, events, RUM events and spans as
	// they are. Otherwise they are translated like those of metrics.
	UTF8Names bool
}

// DefaultOptions are those of Prometheus, and bounds that no SDK reaches.
func DefaultOptions() Options {
	return Options{Items: 2_000_000, Attributes: 1024, Translation: config.DefaultOTLPConfig}
}

// Grouping says what is one group of a message of log records.
type Grouping uint8

const (
	// EachRecord is a group of its own.
	EachRecord Grouping = iota
	// OneGroup takes all records as a whole: it costs as many tokens as there are
	// records, and its labels are those of resource and scope. The records have to be
	// in one scope of one resource.
	OneGroup
)

// New makes a receiver behind a front.
func New(front *receive.Front, o Options) *Receiver {
	return &Receiver{front: front, options: o, messages: newMessages()}
}

// Records processes an ExportLogsServiceRequest that another receiver made of its
// request: req's batch becomes it, on the given stream. A refusal says that nothing
// was processed, and is for req.Refuse; otherwise every item has been counted.
func (rc *Receiver) Records(req *receive.Request, stream ingester.Stream, message []byte, how Grouping) (ingester.Result, *receive.Refusal) {
	if !req.Memory.Grow(int64(len(message))) {
		return ingester.Result{}, req.Protocol.NoMemory(req.Memory)
	}
	req.Replace(message)
	req.Batch.Stream = stream
	return rc.process(req, ingester.OTLPLogs, how)
}

// refusal is the answer to a walk that failed.
func (rc *Receiver) refusal(req *receive.Request, err error) *receive.Refusal {
	switch {
	case errors.Is(err, errNoMemory):
		return req.Protocol.NoMemory(req.Memory)
	case errors.Is(err, errTooMany):
		return receive.TooLarge("%v", err)
	}
	return receive.Malformed(err)
}
