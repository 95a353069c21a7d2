package remotewrite

import (
	"encoding/binary"
	"hash/maphash"
	"slices"

	"github.com/spillway-telemetry/spillway/ingester"
)

// encoder turns the admitted groups of a batch into a request. It keeps its
// buffers from one batch to the next and is not safe for concurrent use. It
// never changes the batch.
//
// A group is written by one of four functions, named after the format it comes
// in and the one it leaves in. Each appends the series to out and reports false
// where the bytes of the group are not what their format says; then the series is
// taken back and its items are refused for good.
type encoder struct {
	batch *ingester.Batch
	// out is the request, or its series while the symbols are still unknown.
	out []byte
	// tail is what comes behind the series (families of 1.0), or the whole of a
	// 2.0 request, whose symbols come first but are known last.
	tail []byte

	table    symbols
	families families
	// numbers and previous are the numbers of label strings: of the label set
	// being written and of one that resembles it. previousLabels is that one, for
	// a batch of format 1.0.
	numbers, previous []uint32
	previousLabels    []byte
	// relabelled is the label set being written and the one before, where rules
	// changed them.
	relabelled [2][]byte

	sent sent
}

// sent says what a request holds.
type sent struct {
	floats, histograms, exemplars int64
	// refused are items of admitted groups that are not in the request.
	refused []refusal
	// families and starts count what the destination's version has no place for.
	families, starts int64
}

// refusal says that n items of a group cannot be sent.
type refusal struct {
	group, items uint32
}

func newEncoder() *encoder {
	e := &encoder{}
	e.table.seed = maphash.MakeSeed()
	e.families.names.seed = e.table.seed
	return e
}

// compactBelow decides whether a 2.0 request gets a table of symbols of its own:
// when less than one in compactBelow of the series is left. Until then the
// sender's table is copied whole, with the strings that nothing refers to any more.
// Measured on a scrape of 2000 series: with a tenth of them left the own table
// halves the request (9 KB for 17 KB) and spares the receiver the strings, for
// 0.2us per series that is left; with half of them left it would save 8%.
const compactBelow = 4

// encode returns the request for the batch in the given format, uncompressed; it
// is valid until the next call. It is empty if there is nothing to send. What it
// holds is in e.sent.
func (e *encoder) encode(b *ingester.Batch, to ingester.Format) []byte {
	e.batch = b
	e.out, e.tail = e.out[:0], e.tail[:0]
	e.sent = sent{refused: e.sent.refused[:0]}
	defer e.release()
	if to == ingester.RemoteWrite1 {
		return e.encode1()
	}
	return e.encode2()
}

// release forgets the batch, whose memory goes back to its owner.
func (e *encoder) release() {
	e.batch, e.previousLabels = nil, nil
	e.table.release()
	e.families.release()
}

func (e *encoder) encode1() []byte {
	b := e.batch
	e.out = slices.Grow(e.out, b.Size)
	if b.Format == ingester.RemoteWrite1 {
		e.copyOr(e.v1ToV1)
		for _, f := range b.Families {
			e.out = appendBytesField(e.out, v1RequestMetadata, b.Bytes(f))
		}
		return e.out
	}
	e.table.reset(b.Body, b.Symbols, false)
	e.families.reset(0)
	e.each(e.v2ToV1)
	e.out = append(e.out, e.tail...)
	return e.out
}

func (e *encoder) encode2() []byte {
	b := e.batch
	admitted, changed := 0, false
	for i := range b.Groups {
		if g := &b.Groups[i]; g.Admitted() {
			admitted++
			changed = changed || g.Route.Changed()
		}
	}
	if admitted == 0 {
		e.sent.families = int64(len(b.Families))
		return nil
	}
	e.out = slices.Grow(e.out, b.Size)
	if b.Format == ingester.RemoteWrite1 {
		e.table.reset(b.Body, nil, false)
		e.table.number(nil)
		e.previous = e.previous[:0]
		e.indexFamilies()
		e.each(e.v1ToV2)
		e.sent.families += e.families.unused()
		return e.symbolsFirst()
	}
	compact := admitted*compactBelow < len(b.Groups)
	e.table.reset(b.Body, b.Symbols, compact)
	switch {
	case compact:
		e.each(e.v2ToV2)
	case changed:
		e.copyOr(e.v2ToV2)
	default:
		e.out = e.table.appendTo(e.out)
		e.copyOr(nil)
		return e.out
	}
	return e.symbolsFirst()
}

// symbolsFirst puts the symbols before the series in out: receivers that read a
// request as a stream need them first.
func (e *encoder) symbolsFirst() []byte {
	if e.sent.empty() {
		return nil
	}
	e.tail = append(e.table.appendTo(e.tail), e.out...)
	return e.tail
}

func (s *sent) empty() bool { return s.floats+s.histograms+s.exemplars == 0 }

// copyOr copies the admitted groups whose labels did not change as they came,
// neighbours in one piece, and gives the others to write.
func (e *encoder) copyOr(write func(*ingester.Group) bool) {
	b := e.batch
	var start, end uint32
	for i := range b.Groups {
		g := &b.Groups[i]
		if !g.Admitted() {
			continue
		}
		if g.Route.Changed() {
			e.out = append(e.out, b.Body[start:end]...)
			start, end = 0, 0
			e.one(i, g, write)
			continue
		}
		e.sent.add(g)
		if g.Field.Start != end {
			e.out = append(e.out, b.Body[start:end]...)
			start = g.Field.Start
		}
		end = g.Field.End
	}
	e.out = append(e.out, b.Body[start:end]...)
}

// each gives every admitted group to write.
func (e *encoder) each(write func(*ingester.Group) bool) {
	for i := range e.batch.Groups {
		if g := &e.batch.Groups[i]; g.Admitted() {
			e.one(i, g, write)
		}
	}
}

// one lets write append the group, and takes back what it appended if it fails.
func (e *encoder) one(i int, g *ingester.Group, write func(*ingester.Group) bool) {
	out, tail, before := len(e.out), len(e.tail), len(e.sent.refused)
	if write(g) {
		e.sent.add(g)
		for j := before; j < len(e.sent.refused); j++ {
			e.sent.refused[j].group = uint32(i)
			e.sent.histograms -= int64(e.sent.refused[j].items)
		}
		return
	}
	e.out, e.tail = e.out[:out], e.tail[:tail]
	e.sent.refused = append(e.sent.refused[:before], refusal{group: uint32(i), items: uint32(g.Items())})
}

func (s *sent) add(g *ingester.Group) {
	s.floats += int64(g.Floats)
	s.histograms += int64(g.Histograms)
	s.exemplars += int64(g.Exemplars)
}

// labels returns the label set of a group as the rules left it. It is valid until
// the next but one call.
func (e *encoder) labels(g *ingester.Group) []byte {
	if !g.Route.Changed() {
		return g.Route.Sent()
	}
	e.relabelled[0], e.relabelled[1] = g.Route.AppendLabels(e.relabelled[1][:0]), e.relabelled[0]
	return e.relabelled[0]
}

// v1ToV1 writes a 1.0 series with other labels: the new labels, then every other
// field of the message.
func (e *encoder) v1ToV1(g *ingester.Group) bool {
	b := e.batch
	if g.Key.Start >= g.Message && g.Key.End <= g.Field.End {
		// All labels lie in one piece in the message.
		before, after := b.Body[g.Message:g.Key.Start], b.Body[g.Key.End:g.Field.End]
		e.out = appendTag(e.out, v1RequestSeries, wireBytes)
		e.out = binary.AppendUvarint(e.out, uint64(g.Route.LabelBytes()+len(before)+len(after)))
		e.out = append(append(g.Route.AppendLabels(e.out), before...), after...)
		return true
	}
	message := b.Message(g)
	guess := g.Route.LabelBytes() + len(message)
	out, start := openMessage(e.out, v1RequestSeries, guess)
	out, ok := appendWithout(g.Route.AppendLabels(out), message, v1SeriesLabels)
	e.out = closeMessage(out, start, guess)
	return ok
}

// v2ToV2 writes a 2.0 series with other labels, with other references, or both.
func (e *encoder) v2ToV2(g *ingester.Group) bool {
	message := e.batch.Message(g)
	var rest int
	var ok bool
	if e.previous, rest, ok = e.readRefs(e.previous[:0], message, v2SeriesRefs); !ok {
		return false
	}
	if !g.Route.Changed() {
		e.numbers = append(e.numbers[:0], e.previous...)
	} else {
		key := g.Route.Sent()
		if 2*countLabels(key) != len(e.previous) {
			// The numbers do not belong to these labels one by one.
			e.previous = e.previous[:0]
		}
		if !e.labelNumbers(e.labels(g), key) {
			return false
		}
	}
	guess := len(message) + 2*len(e.numbers)
	out, start := openMessage(e.out, v2RequestSeries, guess)
	out = e.appendRefs(out, v2SeriesRefs)
	switch {
	case e.table.compact:
		out, ok = e.renumber(out, message)
	case rest > 0:
		out = append(out, message[rest:]...)
	default:
		out, ok = appendWithout(out, message, v2SeriesRefs)
	}
	e.out = closeMessage(out, start, guess)
	return ok
}

// appendWithout appends the fields of a message that do not have the number num.
func appendWithout(out, message []byte, num uint32) ([]byte, bool) {
	kept := 0
	for at := 0; at < len(message); {
		f, ok := nextField(message, at)
		if !ok {
			return out, false
		}
		if f.num == num {
			out = append(out, message[kept:at]...)
			kept = f.end
		}
		at = f.end
	}
	return append(out, message[kept:]...), true
}

// renumber appends the fields of a 2.0 series but for its labels, with their
// references translated.
func (e *encoder) renumber(out, message []byte) ([]byte, bool) {
	for at := 0; at < len(message); {
		f, ok := nextField(message, at)
		if !ok {
			return out, false
		}
		switch body := message[f.body:f.end]; {
		case f.num == v2SeriesRefs:
		case f.num == v2SeriesExemplars && f.typ == wireBytes:
			out, ok = e.renumberExemplar(out, body)
		case f.num == v2SeriesMetadata && f.typ == wireBytes:
			out, ok = e.renumberMetadata(out, body)
		default:
			out = append(out, message[f.start:f.end]...)
		}
		if !ok {
			return out, false
		}
		at = f.end
	}
	return out, true
}

func (e *encoder) renumberExemplar(out, exemplar []byte) ([]byte, bool) {
	var ok bool
	if e.numbers, _, ok = e.readRefs(e.numbers[:0], exemplar, exemplarLabels); !ok {
		return out, false
	}
	out, start := openMessage(out, v2SeriesExemplars, len(exemplar))
	out = e.appendRefs(out, exemplarLabels)
	out, ok = appendWithout(out, exemplar, exemplarLabels)
	return closeMessage(out, start, len(exemplar)), ok
}

func (e *encoder) renumberMetadata(out, message []byte) ([]byte, bool) {
	var m metadata
	if !m.merge(message) || int(m.help) >= len(e.table.own) || int(m.unit) >= len(e.table.own) {
		return out, false
	}
	m.help, m.unit = e.table.ref(m.help), e.table.ref(m.unit)
	return m.appendTo(out), true
}
