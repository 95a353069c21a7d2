package remotewrite

import (
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Tags of the messages that are walked; see prompb/types.proto, remote.proto
// and io/prometheus/write/v2/types.proto of Prometheus.
const (
	v1SeriesTag    = 1<<3 | receive.BytesType // WriteRequest.timeseries
	v1FamilyTag    = 3<<3 | receive.BytesType // WriteRequest.metadata
	v1LabelTag     = 1<<3 | receive.BytesType // TimeSeries.labels
	v1ExemplarTag  = 3<<3 | receive.BytesType
	v1HistogramTag = 4<<3 | receive.BytesType

	v2SymbolTag    = 4<<3 | receive.BytesType  // Request.symbols
	v2SeriesTag    = 5<<3 | receive.BytesType  // Request.timeseries
	v2PackedTag    = 1<<3 | receive.BytesType  // TimeSeries.labels_refs, packed
	v2RefTag       = 1<<3 | receive.VarintType // TimeSeries.labels_refs, one by one
	v2HistogramTag = 3<<3 | receive.BytesType
	v2ExemplarTag  = 4<<3 | receive.BytesType
	v2MetadataTag  = 5<<3 | receive.BytesType

	sampleTag = 2<<3 | receive.BytesType // TimeSeries.samples in both

	sampleValueTag = 1<<3 | receive.Fixed64Type
	sampleTimeTag  = 2<<3 | receive.VarintType
	sampleStartTag = 3<<3 | receive.VarintType // 2.0 only
)

// walkSample passes over a sample message, whose length stands at msg[i], and
// checks that it is well-formed. It returns the position behind it, or -1.
func walkSample(msg []byte, i int) (next int) {
	if next = usualSample(msg, i); next > 0 {
		return next
	}
	i, end := receive.Span(msg, i)
	for i >= 0 && i < end {
		switch tag := msg[i]; tag {
		case sampleValueTag:
			i += 9
		case sampleTimeTag, sampleStartTag:
			_, i = receive.Uvarint(msg[:end], i+1)
		default:
			i = skipUnknown(msg[:end], i, 3)
		}
	}
	if i != end {
		return -1
	}
	return end
}

// usualSample passes over a sample as every known sender writes it: a value, then
// a time of six bytes, which is any between 2004 and 2109. It returns 0 for others.
func usualSample(msg []byte, i int) (next int) {
	const size, value, time = 16, 1, 10 // places behind the length
	const last, stops = 0x80_80_80_80_80_80_00_00, 0x00_80_80_80_80_80_00_00
	if i+size >= len(msg) || msg[i] != size || msg[i+value] != sampleValueTag || msg[i+time] != sampleTimeTag {
		return 0
	}
	if binary.LittleEndian.Uint64(msg[i+time-1:])&last != stops {
		return 0
	}
	return i + 1 + size
}

// walkMessage passes over a message, whose length stands at msg[i], and checks
// its fields. It returns the position behind it, or -1.
func walkMessage(msg []byte, i int, shapes []shape) (next int) {
	start, end := receive.Span(msg, i)
	if start < 0 || !wellFormed(msg[start:end], shapes) {
		return -1
	}
	return end
}

// skipUnknown passes over a field whose number is above known. A known field
// that comes here has the wrong type, which is malformed: -1.
func skipUnknown(msg []byte, i int, known uint64) (next int) {
	tag, at := receive.Uvarint(msg, i)
	if at < 0 || tag>>3 <= known {
		return -1
	}
	return receive.Skip(msg, at, tag)
}

// walker walks one request. What it needs beside the message itself, for the
// groups and the symbols, is bounded too, since a few bytes can ask for many.
type walker struct {
	b         *ingester.Batch
	guess     ingester.Guess
	memory    *ingester.Memory
	limits    Limits
	items     int // samples, histograms and exemplars so far
	used, had int // bytes beside the message: needed, and taken from the budget
}

// errMalformed is the cause of every decoding error: the bytes are not the
// message that they are said to be.
var errMalformed = errors.New("malformed protobuf")

// Errors of the walk that do not lie in the bytes.
var (
	errTooManySeries     = errors.New("too many series in one request")
	errTooManySpans      = errors.New("too many symbols or metric families in one request")
	errTooManyItems      = errors.New("too many samples, histograms and exemplars in one request")
	errTooManyLabelBytes = errors.New("the labels of all series together, written out as 1.0 does, are larger than server.max_decoded_bytes")
	errNoMemory          = errors.New("the budget of bytes in memory is used up")
)

// chunk is how much the walker takes from the budget at a time.
const chunk = 1 << 20

// need accounts for n more bytes beside the message.
func (w *walker) need(n int) error {
	w.used += n
	if w.used <= w.had {
		return nil
	}
	grow := max(chunk, w.used-w.had)
	if !w.memory.Grow(int64(grow)) {
		return errNoMemory
	}
	w.had += grow
	return nil
}

// addGroup starts the group of a series whose field starts at field and whose
// message lies between start and end.
func (w *walker) addGroup(field, start, end int) (*ingester.Group, error) {
	if len(w.b.Groups) == w.limits.Series {
		return nil, fmt.Errorf("%w: the limit is %d", errTooManySeries, w.limits.Series)
	}
	if err := w.need(groupBytes); err != nil {
		return nil, err
	}
	w.b.Groups = append(w.b.Groups, ingester.Group{
		Field:   ingester.Span{Start: uint32(field), End: uint32(end)},
		Message: uint32(start),
	})
	return &w.b.Groups[len(w.b.Groups)-1], nil
}

// addSpan accounts for a symbol or a family beside the n that there are. A series
// has about a dozen labels, most of them shared with others.
func (w *walker) addSpan(n int) error {
	if limit := 16 * w.limits.Series; n == limit {
		return fmt.Errorf("%w: the limit is %d", errTooManySpans, limit)
	}
	return w.need(spanBytes)
}

// count bounds what a walked series holds. A few bytes can be a sample, and a sink
// may have to build each: what it takes at least comes from the budget, too.
func (w *walker) count(g *ingester.Group) error {
	w.items += int(g.Floats) + int(g.Histograms) + int(g.Exemplars)
	if w.items > w.limits.Items {
		return fmt.Errorf("%w: the limit is %d", errTooManyItems, w.limits.Items)
	}
	return w.need(int(g.Floats)*sampleBytes + int(g.Histograms)*histogramBytes + int(g.Exemplars)*exemplarBytes)
}

// About what the embedded store builds of each.
const (
	sampleBytes    = 40
	histogramBytes = 512
	exemplarBytes  = 128
)

const (
	groupBytes = int(unsafe.Sizeof(ingester.Group{}))
	spanBytes  = int(unsafe.Sizeof(ingester.Span{}))
)
