package otlp

import (
	"github.com/prometheus/otlptranslator"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Fields of Metric.
const (
	metricName1    = 1<<3 | receive.BytesType
	descriptionTag = 2<<3 | receive.BytesType
	unitTag        = 3<<3 | receive.BytesType
	gaugeTag       = 5<<3 | receive.BytesType
	sumTag         = 7<<3 | receive.BytesType
	histogramTag   = 9<<3 | receive.BytesType
	exponentialTag = 10<<3 | receive.BytesType
	summaryTag     = 11<<3 | receive.BytesType
	metadataTag    = 12<<3 | receive.BytesType

	lastMetricField = 12
)

// Fields of Gauge, Sum, Histogram and the like.
const (
	pointTag       = 1<<3 | receive.BytesType
	temporalityTag = 2<<3 | receive.VarintType
	monotonicTag   = 3<<3 | receive.VarintType
)

// metricHead is what a Metric says beside its data points.
type metricHead struct {
	name, unit []byte
	kind       otlptranslator.MetricType
	data       int // messages with data points; there should be one
	bad        ingester.Reason
}

// metric walks a Metric and its data points.
func (w *walker) metric(parent int32, field, start, end int) error {
	id, err := w.container(parent, field, start, end)
	if err != nil {
		return err
	}
	head, ok := w.readMetric(start, end)
	if !ok {
		return w.broken(start)
	}
	groups, bad := len(w.b.Groups), head.bad
	if head.data > 1 {
		// Decoders keep one of them, and not all the same.
		bad = worse(bad, ingester.ReasonMalformedItem)
	}
	name := w.names.ofMetric(head.name, head.unit, head.kind)
	if name.bad {
		bad = worse(bad, ingester.ReasonNoMetricName)
	}
	named := [1]labelled{{label: w.names.metricName, value: name.text, wins: true}}
	w.wins = merge(w.wins[:0], w.around, named[:])
	w.setBase(w.wins)
	msg := w.in[:end]
	for i := start; i < end; {
		at := i
		tag, next := receive.Uvarint(msg, i)
		i = receive.Skip(msg, next, tag)
		if points := w.pointShapes(tag); points != nil {
			from, to := receive.Span(msg, next)
			if err := w.points(id, at, from, to, points); err != nil {
				return err
			}
		}
	}
	return w.condemn(groups, bad, start)
}

// pointShapes are the shapes of the data points in a field of Metric, nil if there
// are none in it.
func (w *walker) pointShapes(tag uint64) *shapes {
	switch tag {
	case gaugeTag, sumTag:
		return w.messages.number
	case histogramTag:
		return w.messages.histogram
	case exponentialTag:
		return w.messages.exponential
	case summaryTag:
		return w.messages.summary
	}
	return nil
}

// readMetric reads the fields of a Metric that are not data points. ok is false if
// the frame of messages around those cannot be read.
func (w *walker) readMetric(start, end int) (head metricHead, ok bool) {
	msg := w.in[:end]
	for i := start; i < end; {
		tag, next := receive.Uvarint(msg, i)
		if next < 0 {
			return head, false
		}
		if i = receive.Skip(msg, next, tag); i < 0 {
			return head, false
		}
		if tag&7 != receive.BytesType {
			if tag>>3 <= lastMetricField && w.messages.metric[tag>>3] {
				return head, false
			}
			continue
		}
		from, to := receive.Span(msg, next)
		if !head.read(tag, msg[from:to]) {
			return head, false
		}
	}
	return head, true
}

// read reads one field of a Metric. ok is false if it should hold data points and
// cannot be read.
func (h *metricHead) read(tag uint64, msg []byte) (ok bool) {
	switch tag {
	case metricName1:
		h.name = msg
		h.bad = worse(h.bad, checkText(msg))
	case unitTag:
		h.unit = msg
		h.bad = worse(h.bad, checkText(msg))
	case descriptionTag:
		h.bad = worse(h.bad, checkText(msg))
	case metadataTag:
		h.bad = worse(h.bad, checkPair(msg, 0))
	case sumTag:
		h.data++
		h.kind = otlptranslator.MetricTypeNonMonotonicCounter
		monotonic, ok := isMonotonic(msg)
		if monotonic {
			h.kind = otlptranslator.MetricTypeMonotonicCounter
		}
		return ok
	case gaugeTag:
		h.data, h.kind = h.data+1, otlptranslator.MetricTypeGauge
	case histogramTag:
		h.data, h.kind = h.data+1, otlptranslator.MetricTypeHistogram
	case exponentialTag:
		h.data, h.kind = h.data+1, otlptranslator.MetricTypeExponentialHistogram
	case summaryTag:
		h.data, h.kind = h.data+1, otlptranslator.MetricTypeSummary
	}
	return true
}

// isMonotonic finds Sum.is_monotonic, which stands behind the data points.
func isMonotonic(msg []byte) (monotonic, ok bool) {
	for i := 0; i < len(msg); {
		tag, next := receive.Uvarint(msg, i)
		if next < 0 {
			return false, false
		}
		if i = receive.Skip(msg, next, tag); i < 0 {
			return false, false
		}
		if tag == monotonicTag {
			v, _ := receive.Uvarint(msg, next)
			monotonic = v != 0
		}
	}
	return monotonic, true
}

// points walks a Gauge, Sum, Histogram, ExponentialHistogram or Summary.
func (w *walker) points(parent int32, field, start, end int, s *shapes) error {
	id, err := w.container(parent, field, start, end)
	if err != nil {
		return err
	}
	msg := w.in[:end]
	for i := start; i < end; {
		at := i
		if msg[i] != pointTag {
			if i = w.skipDataField(msg, i, s); i < 0 {
				return w.broken(at)
			}
			continue
		}
		from, to := receive.Span(msg, i+1)
		if from < 0 {
			return w.broken(at)
		}
		if err := w.point(id, at, from, to, s); err != nil {
			return err
		}
		i = to
	}
	return nil
}

// skipDataField passes over a field beside the data points: temporality and
// monotonicity are numbers, and data points are messages.
func (w *walker) skipDataField(msg []byte, i int, s *shapes) (next int) {
	tag, at := receive.Uvarint(msg, i)
	if at < 0 || tag>>3 == pointTag>>3 {
		return -1
	}
	known := tag>>3 <= monotonicTag>>3 && (s == w.messages.number || s != w.messages.summary && tag>>3 == temporalityTag>>3)
	if known && tag&7 != receive.VarintType {
		return -1
	}
	return receive.Skip(msg, at, tag)
}

// point walks a data point.
func (w *walker) point(parent int32, field, start, end int, s *shapes) error {
	g, err := w.group(parent, field, start, end)
	if err != nil {
		return err
	}
	if why := w.walkItem(w.in[start:end], s); why != noReason {
		g.Invalidate(why)
		return nil
	}
	return w.setKey(g)
}

// metricFields marks the numbers of the fields that Metric has.
func metricFields() (known [lastMetricField + 1]bool) {
	for _, tag := range []int{metricName1, descriptionTag, unitTag, gaugeTag, sumTag, histogramTag, exponentialTag, summaryTag, metadataTag} {
		known[tag>>3] = true
	}
	return known
}
