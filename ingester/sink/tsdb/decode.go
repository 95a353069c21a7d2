package tsdb

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
	"unsafe"

	"github.com/prometheus/prometheus/model/exemplar"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// maxAhead is how far in the future a sample may be. Prometheus' receiver draws
// the line there too (maxAheadTime in storage/remote/write_handler.go): one
// sample of next year would close the database for everything older.
const maxAhead = 10 * time.Minute

var errMalformed = errors.New("malformed message")

// point is one item as the database takes it: a float, or a native histogram
// in h or fh. Times are milliseconds since 1970; st is the start timestamp, 0
// if unknown.
type point struct {
	st, t int64
	v     float64
	h     *histogram.Histogram
	fh    *histogram.FloatHistogram
}

// series is one admitted group: its points and exemplars are ranges of those
// of its batch.
type series struct {
	group                   *ingester.Group
	points, pointsEnd       int
	exemplars, exemplarsEnd int
	ref                     uint64 // of the database; 0 until it is known
	labels                  labels.Labels
	labelsBuilt             bool
}

// rejection is what Batch.Reject will be told, once the rest is stored.
type rejection struct {
	group  *ingester.Group
	reason string
}

// staged is one batch, read and waiting for its round. It is read on the
// goroutine that brought it, so that the lane does nothing that can run at the
// same time as others.
type staged struct {
	batch         *ingester.Batch
	series        []series
	points        []point
	exemplars     []exemplar.Exemplar
	metadata      []metadata
	rejected      []rejection
	lostExemplars int
	maxTime       int64
	hasHistograms bool
	builder       labels.ScratchBuilder
}

// reset lets go of everything that belongs to the batch or the database.
func (w *staged) reset() {
	w.batch = nil
	clear(w.series)
	if w.hasHistograms {
		clear(w.points)
	}
	clear(w.exemplars)
	clear(w.metadata)
	clear(w.rejected)
	w.series, w.points, w.exemplars = w.series[:0], w.points[:0], w.exemplars[:0]
	w.metadata, w.rejected = w.metadata[:0], w.rejected[:0]
	w.lostExemplars, w.hasHistograms = 0, false
}

// read takes the admitted groups of b off the wire. An error says that b is not
// what its receiver took it for; no part of it may be stored then.
func (w *staged) read(b *ingester.Batch) error {
	w.batch = b
	w.maxTime = b.Received.Add(maxAhead).UnixMilli()
	for i := range b.Groups {
		g := &b.Groups[i]
		if !g.Admitted() {
			continue
		}
		s := series{group: g, points: len(w.points), exemplars: len(w.exemplars)}
		if err := w.readMessage(b, g); err != nil {
			return fmt.Errorf("time series %d of the batch: %w", i, err)
		}
		s.pointsEnd, s.exemplarsEnd = len(w.points), len(w.exemplars)
		if s.exemplarsEnd-s.exemplars > 1 {
			slices.SortFunc(w.exemplars[s.exemplars:s.exemplarsEnd], exemplar.Compare)
		}
		if s.pointsEnd > s.points || s.exemplarsEnd > s.exemplars {
			w.series = append(w.series, s)
		}
	}
	return w.readFamilies(b)
}

// The tags of TimeSeries messages: field number << 3 | wire type.
const (
	tagSample     = 2<<3 | 2 // both formats
	tagExemplar1  = 3<<3 | 2
	tagHistogram1 = 4<<3 | 2
	tagHistogram2 = 3<<3 | 2
	tagExemplar2  = 4<<3 | 2
	tagMetadata2  = 5<<3 | 2
)

// readMessage walks one TimeSeries message. Labels are passed over: who needs
// them builds them from the batch.
func (w *staged) readMessage(b *ingester.Batch, g *ingester.Group) error {
	c := cursor{buf: b.Message(g)}
	two := b.Format == ingester.RemoteWrite2
	if !two && g.Key.Start == g.Message && g.Key.End <= g.Field.End {
		c.pos = int(g.Key.End - g.Key.Start)
	}
	for c.pos < len(c.buf) {
		tag := c.buf[c.pos]
		if tag != tagSample && !(tag == tagHistogram1 || tag == tagExemplar1 || two && tag == tagMetadata2) {
			if !c.skip() {
				return errMalformed
			}
			continue
		}
		c.pos++
		m, ok := c.bytes()
		if !ok {
			return errMalformed
		}
		switch {
		case tag == tagSample:
			p, ok := readSample(m)
			if !ok {
				return fmt.Errorf("sample: %w", errMalformed)
			}
			w.points = append(w.points, p)
		case two && tag == tagMetadata2:
			w.readMetadata(b, g, m)
		case (tag == tagHistogram2) == two:
			w.readHistogram(b, g, m)
		default:
			w.readExemplar(b, m)
		}
	}
	return nil
}

// readSample reads a Sample message. Version 2.0 adds field 3 to what 1.0 has,
// so one reader does for both.
func readSample(m []byte) (p point, ok bool) {
	c := cursor{buf: m}
	for c.pos < len(m) {
		switch m[c.pos] {
		case 1<<3 | 1:
			if len(m)-c.pos < 9 {
				return p, false
			}
			p.v = math.Float64frombits(binary.LittleEndian.Uint64(m[c.pos+1:]))
			c.pos += 9
		case 2 << 3: // a varint
			c.pos++
			v, ok := c.varint()
			if !ok {
				return p, false
			}
			p.t = int64(v)
		case 3 << 3: // a varint
			c.pos++
			v, ok := c.varint()
			if !ok {
				return p, false
			}
			p.st = int64(v)
		default:
			if !c.skip() {
				return p, false
			}
		}
	}
	return p, true
}

// cursor reads protobuf from front to back.
type cursor struct {
	buf []byte
	pos int
}

func (c *cursor) varint() (uint64, bool) {
	if c.pos < len(c.buf) && c.buf[c.pos] < 0x80 {
		c.pos++
		return uint64(c.buf[c.pos-1]), true
	}
	v, n := protowire.ConsumeVarint(c.buf[c.pos:])
	if n < 0 {
		return 0, false
	}
	c.pos += n
	return v, true
}

func (c *cursor) bytes() ([]byte, bool) {
	n, ok := c.varint()
	if !ok || n > uint64(len(c.buf)-c.pos) {
		return nil, false
	}
	c.pos += int(n)
	return c.buf[c.pos-int(n) : c.pos], true
}

// skip passes over one field of any kind.
func (c *cursor) skip() bool {
	_, _, n := protowire.ConsumeField(c.buf[c.pos:])
	if n < 0 {
		return false
	}
	c.pos += n
	return true
}

// nextLabel reads one pair of a label set as remote write 1.0 encodes it.
func (c *cursor) nextLabel() (name, value []byte, ok bool) {
	if c.pos >= len(c.buf) || c.buf[c.pos] != 1<<3|2 {
		return nil, nil, false
	}
	c.pos++
	m, ok := c.bytes()
	if !ok {
		return nil, nil, false
	}
	pair := cursor{buf: m}
	for pair.pos < len(m) {
		tag := m[pair.pos]
		if tag != 1<<3|2 && tag != 2<<3|2 {
			if !pair.skip() {
				return nil, nil, false
			}
			continue
		}
		pair.pos++
		s, ok := pair.bytes()
		if !ok {
			return nil, nil, false
		}
		if tag == 1<<3|2 {
			name = s
		} else {
			value = s
		}
	}
	return name, value, true
}

// buildLabels makes a label set of its encoding. It copies what it keeps. Empty
// values are left out: to Prometheus they are no label.
func buildLabels(b *labels.ScratchBuilder, encoded []byte) (labels.Labels, bool) {
	b.Reset()
	c := cursor{buf: encoded}
	for c.pos < len(encoded) {
		name, value, ok := c.nextLabel()
		if !ok {
			return labels.EmptyLabels(), false
		}
		if len(value) > 0 {
			b.Add(view(name), view(value))
		}
	}
	b.Sort()
	return b.Labels(), true
}

// view is b as a string that lives as long as b does.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
