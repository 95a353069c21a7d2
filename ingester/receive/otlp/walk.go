package otlp

import (
	"errors"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Errors of a walk.
var (
	errMalformed = errors.New("malformed protobuf")
	errTooMany   = errors.New("too many items in one request")
	errNoMemory  = errors.New("the budget of bytes in memory is used up")
)

// Walk finds the items of the OTLP request in b.Body[:b.Size], whose kind b.Format
// names, and leaves them in b.Containers and b.Groups with their keys behind the
// message. memory gives what is needed beside the message.
func (rc *Receiver) Walk(b *ingester.Batch, memory *ingester.Memory, how Grouping) error {
	return errMalformed
}

// refusal is the answer to a walk that failed.
func (rc *Receiver) refusal(req *receive.Request, err error) *receive.Refusal {
	switch {
	case errors.Is(err, errNoMemory):
		return req.Protocol.OverCapacity()
	case errors.Is(err, errTooMany):
		return receive.TooLarge("%v", err)
	}
	return receive.Malformed(err)
}
