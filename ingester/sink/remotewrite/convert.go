package remotewrite

import (
	"encoding/binary"

	"github.com/spillway-telemetry/spillway/ingester"
)

// v1ToV2 writes a 1.0 series as a 2.0 series, or as two if it holds both samples
// and histograms, which 2.0 keeps apart. The exemplars go with the first.
func (e *encoder) v1ToV2(g *ingester.Group) bool {
	b := e.batch
	labels := e.labels(g)
	if !e.labelNumbers(labels, e.previousLabels) {
		return false
	}
	e.previousLabels = labels
	e.previous = append(e.previous[:0], e.numbers...)
	family := e.families.of(b.Bytes(g.Key))
	message := b.Message(g)
	if g.Key.Start == g.Message && g.Key.End <= g.Field.End {
		// All labels stand at the front.
		message = b.Body[g.Key.End:g.Field.End]
	}
	if g.Floats == 0 || g.Histograms == 0 {
		return e.seriesV2(message, family, 0)
	}
	return e.seriesV2(message, family, v1SeriesHistogram) && e.seriesV2(message, family, v1SeriesSamples)
}

// seriesV2 writes a 2.0 series with the labels in e.previous and the fields of a
// 1.0 message. Without is v1SeriesHistogram for the first half of a series that is
// split, v1SeriesSamples for the second, else 0.
func (e *encoder) seriesV2(message []byte, family *familyMetadata, without uint32) bool {
	e.numbers = append(e.numbers[:0], e.previous...)
	guess := len(message) + len(e.numbers)
	out, start := openMessage(e.out, v2RequestSeries, guess)
	out = e.appendRefs(out, v2SeriesRefs)
	for at := 0; at < len(message); {
		f, ok := nextField(message, at)
		if !ok {
			return false
		}
		at = f.end
		if f.typ != wireBytes || f.num == without {
			continue
		}
		switch body := message[f.body:f.end]; f.num {
		case v1SeriesSamples:
			out = append(out, message[f.start:f.end]...)
		case v1SeriesHistogram:
			out = appendBytesField(out, v2SeriesHistogram, body)
		case v1SeriesExemplars:
			if without == v1SeriesSamples {
				continue
			}
			if out, ok = e.exemplarV2(out, body); !ok {
				return false
			}
		}
	}
	if family != nil {
		out = e.metadataOf(family).appendTo(out)
	}
	e.out = closeMessage(out, start, guess)
	return true
}

// exemplarV2 appends a 1.0 exemplar as a 2.0 exemplar.
func (e *encoder) exemplarV2(out, exemplar []byte) ([]byte, bool) {
	e.numbers = e.numbers[:0]
	for at := 0; at < len(exemplar); {
		f, ok := nextField(exemplar, at)
		if !ok {
			return out, false
		}
		if f.num == exemplarLabels {
			name, value, n := nextLabel(exemplar[at:])
			if n == 0 {
				return out, false
			}
			e.numbers = append(e.numbers, e.table.number(name), e.table.number(value))
		}
		at = f.end
	}
	out, start := openMessage(out, v2SeriesExemplars, len(exemplar))
	out = e.appendRefs(out, exemplarLabels)
	out, ok := appendWithout(out, exemplar, exemplarLabels)
	return closeMessage(out, start, len(exemplar)), ok
}

// v2ToV1 writes a 2.0 series as a 1.0 series and its metadata as that of a
// family. A series of which nothing can be sent is left out.
func (e *encoder) v2ToV1(g *ingester.Group) bool {
	labels, message := e.labels(g), e.batch.Message(g)
	guess := len(labels) + len(message)
	before, meta := len(e.out), metadata{}
	out, start := openMessage(e.out, v1RequestSeries, guess)
	out = append(out, labels...)
	empty := len(out)
	for at := 0; at < len(message); {
		f, ok := nextField(message, at)
		if !ok {
			return false
		}
		at = f.end
		if f.typ != wireBytes {
			continue
		}
		switch body := message[f.body:f.end]; f.num {
		case v2SeriesSamples:
			out, ok = e.sampleV1(out, body)
		case v2SeriesHistogram:
			out, ok = e.histogramV1(out, body)
		case v2SeriesExemplars:
			out, ok = e.exemplarV1(out, body)
		case v2SeriesMetadata:
			ok = meta.merge(body)
		}
		if !ok {
			return false
		}
	}
	if meta != (metadata{}) && !e.metadataV1(g, labels, meta) {
		return false
	}
	if len(out) == empty && g.Histograms > 0 {
		e.out = out[:before]
		return true
	}
	e.out = closeMessage(out, start, guess)
	return true
}

// sampleV1 appends a 2.0 sample without its start timestamp.
func (e *encoder) sampleV1(out, sample []byte) ([]byte, bool) {
	out, start := openMessage(out, v1SeriesSamples, len(sample))
	body := len(out)
	out, ok := appendWithout(out, sample, sampleStart)
	if len(out)-body < len(sample) {
		e.sent.starts++
	}
	return closeMessage(out, start, len(sample)), ok
}

// histogramV1 appends a 2.0 histogram without its start timestamp, or refuses it
// if it has custom buckets.
func (e *encoder) histogramV1(out, histogram []byte) ([]byte, bool) {
	var schema int32
	for at := 0; at < len(histogram); {
		f, ok := nextField(histogram, at)
		if !ok {
			return out, false
		}
		if f.num == histogramSchema && f.typ == wireVarint {
			schema = unzigzag(f.value)
		}
		at = f.end
	}
	if schema == customBucketSchema {
		e.sent.refused = append(e.sent.refused, refusal{items: 1})
		return out, true
	}
	out, start := openMessage(out, v1SeriesHistogram, len(histogram))
	body := len(out)
	out, ok := appendWithout(out, histogram, histogramStart)
	if len(out)-body < len(histogram) {
		e.sent.starts++
	}
	return closeMessage(out, start, len(histogram)), ok
}

// exemplarV1 appends a 2.0 exemplar as a 1.0 exemplar.
func (e *encoder) exemplarV1(out, exemplar []byte) ([]byte, bool) {
	var ok bool
	if e.numbers, _, ok = e.readRefs(e.numbers[:0], exemplar, exemplarLabels); !ok {
		return out, false
	}
	out, start := openMessage(out, v1SeriesExemplars, 2*len(exemplar))
	for i := 0; i+1 < len(e.numbers); i += 2 {
		out = appendLabel(out, e.table.string(e.numbers[i]), e.table.string(e.numbers[i+1]))
	}
	out, ok = appendWithout(out, exemplar, exemplarLabels)
	return closeMessage(out, start, 2*len(exemplar)), ok
}

// appendLabel appends a label as 1.0 encodes it within a series or an exemplar.
func appendLabel(out, name, value []byte) []byte {
	n := 2 + uvarintLen(uint64(len(name))) + len(name) + uvarintLen(uint64(len(value))) + len(value)
	out = appendTag(out, v1SeriesLabels, wireBytes)
	out = binary.AppendUvarint(out, uint64(n))
	out = appendBytesField(out, v1LabelName, name)
	return appendBytesField(out, v1LabelValue, value)
}
