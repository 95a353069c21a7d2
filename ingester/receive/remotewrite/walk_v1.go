package remotewrite

import (
	"fmt"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// walkV1 finds the series and metric families of a WriteRequest in b.Body and
// leaves them in b.Groups and b.Families. Nothing is copied but the label sets
// that do not lie in one piece; everything that a sink will read is checked to
// be well-formed, the content of labels apart, which is checked when the label
// set is first seen.
func (w *walker) walkV1() error {
	b := w.b
	b.Format = ingester.RemoteWrite1
	body := b.Body[:b.Size]
	for i := 0; i < len(body); {
		field := i
		tag, at := receive.Uvarint(body, i)
		if at < 0 {
			return fmt.Errorf("%w: WriteRequest ends within a tag at byte %d", errMalformed, field)
		}
		switch tag {
		case v1SeriesTag, v1FamilyTag:
			start, end := receive.Span(body, at)
			if start < 0 {
				return fmt.Errorf("%w: field %d of WriteRequest at byte %d is cut off", errMalformed, tag>>3, field)
			}
			i = end
			if tag == v1FamilyTag {
				if !wellFormed(body[start:end], familyShapes) {
					return fmt.Errorf("%w: metric metadata at byte %d", errMalformed, field)
				}
				if err := w.addSpan(len(b.Families)); err != nil {
					return err
				}
				b.Families = append(b.Families, ingester.Span{Start: uint32(start), End: uint32(end)})
				continue
			}
			g, err := w.addGroup(field, start, end)
			if err != nil {
				return err
			}
			if !w.walkSeriesV1(g) {
				return fmt.Errorf("%w: time series %d at byte %d", errMalformed, len(b.Groups)-1, field)
			}
			if err := w.count(g); err != nil {
				return err
			}
		default:
			// Mimir and Cortex use field 2 for themselves.
			if i = receive.Skip(body, at, tag); i < 0 || tag>>3 == 1 || tag>>3 == 3 {
				return fmt.Errorf("%w: WriteRequest at byte %d", errMalformed, field)
			}
		}
	}
	return nil
}

// walkSeriesV1 walks one TimeSeries. Its labels come first and in one piece from
// every known sender; those of others are put together behind the message. Labels
// that are the expected ones are not read.
func (w *walker) walkSeriesV1(g *ingester.Group) bool {
	b := w.b
	msg := b.Body[:g.Field.End]
	i := int(g.Message) + w.guess.Match(g, msg[g.Message:])
	guessed := i > int(g.Message) && (i == len(msg) || msg[i] != v1LabelTag)
	if !guessed {
		if i = labelRun(msg, int(g.Message)); i < 0 {
			return false
		}
	}
	g.Key = ingester.Span{Start: g.Message, End: uint32(i)}
	scattered := false
	for i < len(msg) {
		switch msg[i] {
		case sampleTag:
			i = walkSample(msg, i+1)
			g.Floats++
		case v1HistogramTag:
			i = walkMessage(msg, i+1, histogramShapes)
			g.Histograms++
		case v1ExemplarTag:
			i = walkMessage(msg, i+1, exemplarShapes[1])
			g.Exemplars++
		case v1LabelTag:
			_, i = receive.Span(msg, i+1)
			scattered = true
		default:
			i = skipUnknown(msg, i, 4)
		}
		if i < 0 {
			return false
		}
	}
	if scattered {
		gatherLabels(b, g)
	}
	if scattered || !guessed {
		w.guess.Find(g, b.Bytes(g.Key))
	}
	if g.Floats == 0 && g.Histograms == 0 && g.Exemplars == 0 {
		g.Invalidate(ingester.ReasonEmptySeries)
	}
	return true
}

// labelRun returns the position behind the label fields that start at msg[i],
// or -1 if one of them is cut off. What a label holds is not looked at.
func labelRun(msg []byte, i int) int {
	for i+1 < len(msg) && msg[i] == v1LabelTag {
		n := int(msg[i+1])
		if n >= 0x80 {
			_, i = receive.Span(msg, i+1)
			if i < 0 {
				return -1
			}
			continue
		}
		i += 2 + n
	}
	if i > len(msg) {
		return -1
	}
	return i
}

// gatherLabels copies the label fields of a walked series, which do not lie in
// one piece, to the end of the body.
func gatherLabels(b *ingester.Batch, g *ingester.Group) {
	start := len(b.Body)
	for i := int(g.Message); i < int(g.Field.End); {
		tag, at := receive.Uvarint(b.Body, i)
		next := receive.Skip(b.Body[:g.Field.End], at, tag)
		if tag == v1LabelTag {
			b.Body = append(b.Body, b.Body[i:next]...)
		}
		i = next
	}
	g.Key = ingester.Span{Start: uint32(start), End: uint32(len(b.Body))}
}
