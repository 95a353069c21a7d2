package remotewrite

import "github.com/spillway-telemetry/spillway/ingester"

// The reasons that this sink gives to ingester.Batch.Reject.
const (
	// ReasonRejected: the destination did not store the item and calls that final.
	ReasonRejected = "destination_rejected"
	// ReasonUnsupported: the message that the destination understands cannot hold
	// the item, or the item's bytes are not what its format says.
	ReasonUnsupported = "destination_unsupported"
)

// settle tells the batch what was refused for good, once the destination has
// answered for the rest.
func (s *Sink) settle(b *ingester.Batch, m *message, a answer) {
	for _, r := range m.sent.refused {
		b.Reject(&b.Groups[r.group], r.items, ReasonUnsupported)
	}
	s.metrics.unsentFamilies.Add(float64(m.sent.families))
	s.metrics.unsentStarts.Add(float64(m.sent.starts))
	if !a.counted {
		return
	}
	if n := m.sent.exemplars - a.written.exemplars; n > 0 {
		b.LoseExemplars(n)
		s.metrics.unsentExemplars.Add(float64(n))
	}
	rejectLast(b, m.sent.floats-a.written.samples, m.sent.histograms-a.written.histograms)
}

// rejectLast rejects as many samples and histograms as the destination counted
// too few. It does not say which, so the last ones are taken: a receiver that
// stops at a limit stops there, and elsewhere only the sums are meant.
func rejectLast(b *ingester.Batch, floats, histograms int64) {
	for i := len(b.Groups) - 1; i >= 0 && (floats > 0 || histograms > 0); i-- {
		g := &b.Groups[i]
		if !g.Admitted() || int64(g.Rejected) >= g.Items() {
			continue
		}
		f, h := min(max(floats, 0), int64(g.Floats)), min(max(histograms, 0), int64(g.Histograms))
		floats, histograms = floats-f, histograms-h
		if f+h > 0 {
			b.Reject(g, uint32(f+h), ReasonRejected)
		}
	}
}
