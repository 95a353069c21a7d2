package tsdb

import (
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// readHistogram reads a Histogram message. One that cannot be read, or breaks
// the rules of native histograms, is a rejected item: its neighbours go on.
func (w *staged) readHistogram(b *ingester.Batch, g *ingester.Group, m []byte) {
	p, ok := histogramPoint(b.Format, m)
	if !ok {
		w.rejected = append(w.rejected, rejection{g, ReasonInvalidHistogram})
		return
	}
	w.points = append(w.points, p)
	w.hasHistograms = true
}

func histogramPoint(f ingester.Format, m []byte) (p point, ok bool) {
	if f == ingester.RemoteWrite2 {
		var h writev2.Histogram
		if h.Unmarshal(m) != nil {
			return p, false
		}
		p.st, p.t = h.StartTimestamp, h.Timestamp
		if h.IsFloatHistogram() {
			p.fh = h.ToFloatHistogram()
		} else {
			p.h = h.ToIntHistogram()
		}
		return p, p.reduce()
	}
	var h prompb.Histogram
	if h.Unmarshal(m) != nil {
		return p, false
	}
	p.t = h.Timestamp
	if h.IsFloatHistogram() {
		p.fh = h.ToFloatHistogram()
	} else {
		p.h = h.ToIntHistogram()
	}
	return p, p.reduce()
}

// reduce halves the resolution until it is one that the database can keep, and
// reports whether the histogram is valid. Schemas above 8 are reserved: a
// receiver that meets one is meant to reduce it, as Prometheus' own does.
func (p *point) reduce() bool {
	if p.h != nil {
		if tooFine(p.h.Schema) && p.h.ReduceResolution(histogram.ExponentialSchemaMax) != nil {
			return false
		}
		return p.h.Validate() == nil
	}
	if tooFine(p.fh.Schema) && p.fh.ReduceResolution(histogram.ExponentialSchemaMax) != nil {
		return false
	}
	return p.fh.Validate() == nil
}

func tooFine(schema int32) bool {
	return histogram.IsExponentialSchemaReserved(schema) && schema > histogram.ExponentialSchemaMax
}

// readExemplar reads an Exemplar message. Exemplars are no items, so one that
// cannot be kept is counted and otherwise ignored.
func (w *staged) readExemplar(b *ingester.Batch, m []byte) {
	e, ok := w.exemplar(b, m)
	if !ok || e.Ts > w.maxTime {
		w.lostExemplars++
		return
	}
	w.exemplars = append(w.exemplars, e)
}

func (w *staged) exemplar(b *ingester.Batch, m []byte) (e exemplar.Exemplar, ok bool) {
	if b.Format == ingester.RemoteWrite1 {
		var pb prompb.Exemplar
		if pb.Unmarshal(m) != nil {
			return e, false
		}
		return pb.ToExemplar(&w.builder, nil), true
	}
	var pb writev2.Exemplar
	if pb.Unmarshal(m) != nil || len(pb.LabelsRefs)%2 != 0 {
		return e, false
	}
	w.builder.Reset()
	for i := 0; i < len(pb.LabelsRefs); i += 2 {
		name, ok1 := symbol(b, pb.LabelsRefs[i])
		value, ok2 := symbol(b, pb.LabelsRefs[i+1])
		if !ok1 || !ok2 {
			return e, false
		}
		w.builder.Add(view(name), view(value))
	}
	w.builder.Sort()
	return exemplar.Exemplar{
		Labels: w.builder.Labels(),
		Value:  pb.Value,
		Ts:     pb.Timestamp,
		HasTs:  pb.Timestamp != 0,
	}, true
}

// symbol is an entry of a remote write 2.0 request's table.
func symbol(b *ingester.Batch, ref uint32) ([]byte, bool) {
	if uint64(ref) >= uint64(len(b.Symbols)) {
		return nil, false
	}
	return b.Bytes(b.Symbols[ref]), true
}

// readMetadata notes type, help and unit of a remote write 2.0 series under the
// name of its family. Neighbours mostly belong to one family, so a repetition of
// the one before is not noted.
func (w *staged) readMetadata(b *ingester.Batch, g *ingester.Group, m []byte) {
	var typ, helpRef, unitRef uint64
	c := cursor{buf: m}
	for c.pos < len(m) {
		field := &typ
		switch m[c.pos] {
		case 1 << 3: // a varint
		case 3 << 3: // a varint
			field = &helpRef
		case 4 << 3: // a varint
			field = &unitRef
		default:
			if !c.skip() {
				return
			}
			continue
		}
		c.pos++
		v, ok := c.varint()
		if !ok {
			return
		}
		*field = v
	}
	if helpRef >= uint64(len(b.Symbols)) || unitRef >= uint64(len(b.Symbols)) || typ >= uint64(len(metricTypes)) {
		return
	}
	entry := metadata{typ: uint8(typ), help: b.Bytes(b.Symbols[helpRef]), unit: b.Bytes(b.Symbols[unitRef])}
	if entry.empty() {
		return
	}
	entry.family = familyOf(metricName(b.Labels(g)), entry.typ)
	if len(entry.family) == 0 {
		return
	}
	if n := len(w.metadata); n > 0 && w.metadata[n-1].equal(&entry) {
		return
	}
	w.metadata = append(w.metadata, entry)
}

// readFamilies notes the MetricMetadata messages of remote write 1.0.
func (w *staged) readFamilies(b *ingester.Batch) error {
	for _, span := range b.Families {
		entry, ok := readFamily(b.Bytes(span))
		if !ok {
			return errMalformed
		}
		if len(entry.family) > 0 && !entry.empty() {
			w.metadata = append(w.metadata, entry)
		}
	}
	return nil
}

func readFamily(m []byte) (e metadata, ok bool) {
	for len(m) > 0 {
		num, typ, n := protowire.ConsumeTag(m)
		if n < 0 {
			return e, false
		}
		m = m[n:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(m)
			if n < 0 {
				return e, false
			}
			if v < uint64(len(metricTypes)) {
				e.typ = uint8(v)
			}
			m = m[n:]
		case (num == 2 || num == 4 || num == 5) && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(m)
			if n < 0 {
				return e, false
			}
			switch num {
			case 2:
				e.family = v
			case 4:
				e.help = v
			case 5:
				e.unit = v
			}
			m = m[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, m)
			if n < 0 {
				return e, false
			}
			m = m[n:]
		}
	}
	return e, true
}

// metricName finds the name in an encoded label set, without copying it.
func metricName(encoded []byte) []byte {
	c := cursor{buf: encoded}
	for {
		name, value, ok := c.nextLabel()
		if !ok {
			return nil
		}
		if view(name) == model.MetricNameLabel {
			return value
		}
	}
}
