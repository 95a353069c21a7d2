package translate

import (
	"context"
	"errors"
	"slices"

	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// partBytes is how much is built of a batch before it is written: labels of a resource
// stand in each series of each of its data points, so that a small request may become
// any number of bytes. The memory of one translation is about three times as much. The
// usual batch, some thousand data points, is one part.
const partBytes = 8 << 20

// seriesBytes is what a series takes beside its labels and its message: its
// description here and as a group (on 64 bits about 350 bytes).
const seriesBytes = 400

// parts writes what the translation makes, a part at a time.
type parts struct {
	ctx    context.Context
	next   ingester.Sink
	known  *routes
	limit  int
	built  int
	stored bool // a part
	// refused is what the destination said when it called a part invalid, failed
	// any other error, with which the translation ends.
	refused, failed error
	// reasons say of each data point why it is rejected, "" if it is not.
	reasons []string
}

// flush writes the series that were made since the last flush.
func (a *appender) flush() error {
	p := &a.parts
	if p.failed != nil || len(a.series) == 0 {
		return p.failed
	}
	out := a.batch(p.known)
	err := p.next.Write(p.ctx, out)
	var said *ingester.SinkError
	switch {
	case err == nil:
		p.stored = true
		a.learn(out)
	case errors.As(err, &said) && said.Final:
		p.refused = err
		for i := range a.series {
			a.rejectPoint(a.series[i].point, sink.ReasonRejected)
		}
	default:
		p.failed = err
	}
	a.symbols, a.series, a.body, p.built = writev2.NewSymbolTable(), a.series[:0], a.body[:0], 0
	return p.failed
}

// learn remembers which data points the sink rejected, in whole or in part.
func (a *appender) learn(out *ingester.Batch) {
	reason := mainReason(out)
	for i := range out.Groups {
		if out.Groups[i].Rejected > 0 {
			a.rejectPoint(a.series[i].point, reason)
		}
	}
}

func (a *appender) rejectPoint(point int, reason string) {
	if point >= 0 && a.parts.reasons[point] == "" {
		a.parts.reasons[point] = reason
	}
}

// end writes the last part and returns what the whole write ends with. Parts that are
// stored when a later one fails are stored again, with the same values for the same
// times, when the sender repeats the batch.
func (a *appender) end() error {
	p := &a.parts
	if err := a.flush(); err != nil {
		return err
	}
	if p.ctx.Err() != nil && slices.Contains(a.made, false) {
		// The translation stopped early, and what it left out is not invalid.
		return context.Cause(p.ctx)
	}
	if !p.stored {
		return p.refused
	}
	return nil
}

// settle tells the batch that came in which of its data points were rejected, by the
// sink or by the translation.
func (a *appender) settle() {
	for p, made := range a.made {
		switch {
		case a.parts.reasons[p] != "":
			reject(a.from, a.groups[p], a.parts.reasons[p])
		case !made:
			reject(a.from, a.groups[p], ReasonNotTranslatable)
		}
	}
}
