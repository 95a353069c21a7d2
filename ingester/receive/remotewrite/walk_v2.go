package remotewrite

import (
	"fmt"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// walkV2 finds the symbols and series of a 2.0 Request in b.Body and leaves them
// in b.Symbols and b.Groups. Nothing is copied but label references that do not
// lie in one piece. Whether these refer to something is found out when the label
// set is first seen.
func (w *walker) walkV2() error {
	b := w.b
	b.Format = ingester.RemoteWrite2
	body := b.Body[:b.Size]
	for i := 0; i < len(body); {
		field := i
		tag, at := receive.Uvarint(body, i)
		if at < 0 {
			return fmt.Errorf("%w: Request ends within a tag at byte %d", errMalformed, field)
		}
		switch tag {
		case v2SymbolTag, v2SeriesTag:
			start, end := receive.Span(body, at)
			if start < 0 {
				return fmt.Errorf("%w: field %d of Request at byte %d is cut off", errMalformed, tag>>3, field)
			}
			i = end
			if tag == v2SymbolTag {
				if err := w.addSpan(len(b.Symbols)); err != nil {
					return err
				}
				b.Symbols = append(b.Symbols, ingester.Span{Start: uint32(start), End: uint32(end)})
				continue
			}
			g, err := w.addGroup(field, start, end)
			if err != nil {
				return err
			}
			if !walkSeriesV2(b, g) {
				return fmt.Errorf("%w: time series %d at byte %d", errMalformed, len(b.Groups)-1, field)
			}
			if err := w.count(g); err != nil {
				return err
			}
		default:
			if i = skipUnknown(body, field, 5); i < 0 {
				return fmt.Errorf("%w: Request at byte %d has field %d, which a 2.0 request cannot have; is it a 1.0 message?", errMalformed, field, tag>>3)
			}
		}
	}
	for i := range b.Groups {
		if g := &b.Groups[i]; g.HasMetadata || g.Exemplars > 0 {
			checkReferences(b, g)
		}
	}
	return w.boundLabels()
}

// boundLabels bounds what the label sets of a request take when they are spelled out,
// as they are for a store: a long symbol can be referred to by every series. A request
// may hold as many bytes of labels as one of 1.0 could. Its labels are only counted
// where the longest symbol leaves a doubt.
func (w *walker) boundLabels() error {
	b := w.b
	refs, longest := 0, 0
	for i := range b.Groups {
		refs += int(b.Groups[i].Key.End - b.Groups[i].Key.Start) // a reference takes a byte at least
	}
	for _, s := range b.Symbols {
		longest = max(longest, int(s.End-s.Start))
	}
	limit := w.limits.DecodedBytes
	if refs == 0 || longest <= limit/refs {
		return nil
	}
	total := 0
	for i := range b.Groups {
		key := b.Bytes(b.Groups[i].Key)
		for at := 0; at < len(key); {
			var ref uint64
			if ref, at = receive.Uvarint(key, at); at < 0 {
				break // found to be malformed when it is routed
			}
			if ref < uint64(len(b.Symbols)) {
				s := b.Symbols[ref]
				total += int(s.End - s.Start)
			}
		}
		if total > limit {
			return fmt.Errorf("%w: the limit is %d", errTooManyLabelBytes, limit)
		}
	}
	return nil
}

// walkSeriesV2 walks one TimeSeries and leaves its packed label references in
// g.Key.
func walkSeriesV2(b *ingester.Batch, g *ingester.Group) bool {
	msg := b.Body[:g.Field.End]
	runs := 0
	for i := int(g.Message); i < len(msg); {
		switch msg[i] {
		case v2PackedTag:
			start, end := receive.Span(msg, i+1)
			if start < 0 {
				return false
			}
			g.Key = ingester.Span{Start: uint32(start), End: uint32(end)}
			runs++
			i = end
		case v2RefTag:
			_, i = receive.Uvarint(msg, i+1)
			runs = 2
		case sampleTag:
			i = walkSample(msg, i+1)
			g.Floats++
		case v2HistogramTag:
			i = walkMessage(msg, i+1, histogramShapes)
			g.Histograms++
		case v2ExemplarTag:
			i = walkMessage(msg, i+1, exemplarShapes[2])
			g.Exemplars++
		case v2MetadataTag:
			i = walkMessage(msg, i+1, metadataShapes)
			g.HasMetadata = true
		default:
			i = skipUnknown(msg, i, 5)
		}
		if i < 0 {
			return false
		}
	}
	if runs > 1 {
		gatherRefs(b, g)
	}
	if g.Floats == 0 && g.Histograms == 0 && g.Exemplars == 0 {
		g.Invalidate(ingester.ReasonEmptySeries)
	}
	return true
}

// gatherRefs copies the label references of a walked series, which do not lie in
// one piece, to the end of the body.
func gatherRefs(b *ingester.Batch, g *ingester.Group) {
	at := len(b.Body)
	for i := int(g.Message); i < int(g.Field.End); {
		tag, value := receive.Uvarint(b.Body, i)
		next := receive.Skip(b.Body[:g.Field.End], value, tag)
		switch tag {
		case v2RefTag:
			b.Body = append(b.Body, b.Body[value:next]...)
		case v2PackedTag:
			start, end := receive.Span(b.Body, value)
			b.Body = append(b.Body, b.Body[start:end]...)
		}
		i = next
	}
	g.Key = ingester.Span{Start: uint32(at), End: uint32(len(b.Body))}
}

// checkReferences makes a series invalid if its exemplars or its metadata refer
// to symbols that are not there.
func checkReferences(b *ingester.Batch, g *ingester.Group) {
	msg := b.Message(g)
	for i := 0; i < len(msg); {
		tag, at := receive.Uvarint(msg, i)
		i = receive.Skip(msg, at, tag)
		if tag != v2ExemplarTag && tag != v2MetadataTag {
			continue
		}
		start, end := receive.Span(msg, at)
		if !referencesHold(msg[start:end], tag, uint64(len(b.Symbols))) {
			g.Invalidate(ingester.ReasonBadSymbol)
			return
		}
	}
}

func referencesHold(msg []byte, outer, symbols uint64) bool {
	refs := 0
	for i := 0; i < len(msg); {
		tag, at := receive.Uvarint(msg, i)
		next := receive.Skip(msg, at, tag)
		switch {
		case outer == v2ExemplarTag && tag == v2PackedTag:
			for j, end := receive.Span(msg, at); j < end; refs++ {
				var ref uint64
				if ref, j = receive.Uvarint(msg, j); ref >= symbols {
					return false
				}
			}
		case outer == v2ExemplarTag && tag == v2RefTag, outer == v2MetadataTag && tag>>3 > 1 && tag&7 == receive.VarintType:
			ref, _ := receive.Uvarint(msg, at)
			if tag>>3 <= 4 && ref >= symbols {
				return false
			}
			refs++
		}
		i = next
	}
	return outer == v2MetadataTag || refs%2 == 0
}
