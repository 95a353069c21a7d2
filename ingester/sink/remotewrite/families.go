package remotewrite

import (
	"bytes"
	"encoding/binary"

	"github.com/spillway-telemetry/spillway/ingester"
)

// metadata is the Metadata message of a 2.0 series, with numbers of strings or
// references to them.
type metadata struct {
	typ, help, unit uint32
}

// merge decodes a Metadata message into m. As protobuf has it, a message that
// comes twice is merged, and numbers are cut to their 32 bits.
func (m *metadata) merge(b []byte) (ok bool) {
	for at := 0; at < len(b); {
		f, ok := nextField(b, at)
		if !ok {
			return false
		}
		if f.typ == wireVarint {
			switch v := uint32(f.value); f.num {
			case v2MetadataType:
				m.typ = v
			case v2MetadataHelp:
				m.help = v
			case v2MetadataUnit:
				m.unit = v
			}
		}
		at = f.end
	}
	return true
}

// appendTo appends the message as a field of a 2.0 series.
func (m metadata) appendTo(out []byte) []byte {
	const guess = 12
	out, start := openMessage(out, v2SeriesMetadata, guess)
	out = appendUint(out, v2MetadataType, m.typ)
	out = appendUint(out, v2MetadataHelp, m.help)
	out = appendUint(out, v2MetadataUnit, m.unit)
	return closeMessage(out, start, guess)
}

// appendUint appends a varint field; 0 is the default and takes no room.
func appendUint(out []byte, num int, v uint32) []byte {
	if v == 0 {
		return out
	}
	return binary.AppendUvarint(appendTag(out, num, wireVarint), uint64(v))
}

// The metric types, which have the same numbers in both versions.
const (
	typeCounter        = 1
	typeHistogram      = 3
	typeGaugeHistogram = 4
	typeSummary        = 5
	typeInfo           = 6
)

// familyMetadata is the metadata of one family of a 1.0 request. Its texts become
// symbols when the first series uses it.
type familyMetadata struct {
	typ        uint32
	help, unit []byte
	used       bool
	metadata   metadata
}

// families are the metric families of one request, by name.
type families struct {
	names symbols
	list  []familyMetadata
	// last is the latest series of which metadata was read; the series of one
	// family mostly follow each other.
	last struct {
		name   []byte
		typ    uint32
		native bool
	}
}

// reset starts the families of a request of about n of them.
func (f *families) reset(n int) {
	f.names.reset(nil, nil, false)
	f.list, f.last.name = f.list[:0], f.last.name[:0]
	f.names.expect = max(n, f.names.expect)
}

// release forgets the batch, whose memory goes back to its owner.
func (f *families) release() {
	f.names.release()
	clear(f.list)
	f.list = f.list[:0]
}

// unused is how many families no series used.
func (f *families) unused() int64 {
	var n int64
	for i := range f.list {
		if !f.list[i].used {
			n++
		}
	}
	return n
}

// of returns the family that a series with the given labels belongs to, nil if
// the request has none. The labels are those that the sender gave, since it named
// the family too.
func (f *families) of(labels []byte) *familyMetadata {
	if len(f.list) == 0 {
		return nil
	}
	name := metricName(labels)
	if n, ok := f.names.find(name); ok {
		return &f.list[n]
	}
	base, suffix := splitName(name)
	if n, ok := f.names.find(base); ok && hasSuffix(f.list[n].typ, suffix) {
		return &f.list[n]
	}
	return nil
}

// metricName is the value of the label __name__, nil if there is none.
func metricName(labels []byte) []byte {
	for len(labels) > 0 {
		name, value, n := nextLabel(labels)
		if n == 0 {
			return nil
		}
		if string(name) == "__name__" {
			return value
		}
		labels = labels[n:]
	}
	return nil
}

// splitName cuts a metric name before its last underscore.
func splitName(name []byte) (base, suffix []byte) {
	i := max(0, bytes.LastIndexByte(name, '_'))
	return name[:i], name[i:]
}

// hasSuffix reports whether the series of a family of this type are named after
// the family and this suffix, in the text format or in OpenMetrics.
func hasSuffix(typ uint32, suffix []byte) bool {
	switch string(suffix) {
	case "_bucket":
		return typ == typeHistogram || typ == typeGaugeHistogram
	case "_count", "_sum":
		return typ == typeHistogram || typ == typeSummary
	case "_gcount", "_gsum":
		return typ == typeGaugeHistogram
	case "_total":
		return typ == typeCounter
	case "_info":
		return typ == typeInfo
	}
	return false
}

// indexFamilies reads the families of a 1.0 batch for v1ToV2. Of two with the
// same name the first counts.
func (e *encoder) indexFamilies() {
	b := e.batch
	e.families.reset(len(b.Families))
	for _, span := range b.Families {
		name, f, ok := readFamily(b.Bytes(span))
		if !ok || len(name) == 0 {
			e.sent.families++
			continue
		}
		if n := e.families.names.number(name); int(n) == len(e.families.list) {
			e.families.list = append(e.families.list, f)
		}
	}
}

// readFamily decodes a MetricMetadata message.
func readFamily(b []byte) (name []byte, m familyMetadata, ok bool) {
	for at := 0; at < len(b); {
		f, ok := nextField(b, at)
		if !ok {
			return nil, m, false
		}
		at = f.end
		switch {
		case f.num == v1FamilyType && f.typ == wireVarint:
			m.typ = uint32(f.value)
		case f.typ != wireBytes:
		case f.num == v1FamilyName:
			name = b[f.body:f.end]
		case f.num == v1FamilyHelp:
			m.help = b[f.body:f.end]
		case f.num == v1FamilyUnit:
			m.unit = b[f.body:f.end]
		}
	}
	return name, m, true
}

// metadataOf is the Metadata message of the series of a family.
func (e *encoder) metadataOf(f *familyMetadata) metadata {
	if !f.used {
		f.used = true
		f.metadata = metadata{typ: f.typ, help: e.table.number(f.help), unit: e.table.number(f.unit)}
	}
	return f.metadata
}

// metadataV1 appends the metadata of a 2.0 series to the families of a 1.0
// request, once for each family. A series of native histograms has its family's
// name whatever that ends in, and so have counters and infos in the text format.
func (e *encoder) metadataV1(g *ingester.Group, labels []byte, m metadata) bool {
	if int(m.help) >= e.table.len() || int(m.unit) >= e.table.len() {
		return false
	}
	help, unit := e.table.string(m.help), e.table.string(m.unit)
	name := metricName(labels)
	if m.typ == 0 && len(help)+len(unit) == 0 || len(name) == 0 {
		return true
	}
	native, last := g.Histograms > 0, &e.families.last
	if native == last.native && m.typ == last.typ && bytes.Equal(name, last.name) {
		return true
	}
	last.name, last.typ, last.native = append(last.name[:0], name...), m.typ, native
	base, suffix := splitName(name)
	if !native && m.typ != typeCounter && m.typ != typeInfo && len(base) > 0 && hasSuffix(m.typ, suffix) {
		name = base
	}
	known := e.families.names.len()
	if int(e.families.names.number(name)) < known {
		return true
	}
	guess := 16 + len(name) + len(help) + len(unit)
	out, start := openMessage(e.tail, v1RequestMetadata, guess)
	out = appendUint(out, v1FamilyType, m.typ)
	out = appendBytesField(out, v1FamilyName, name)
	out = appendText(out, v1FamilyHelp, help)
	out = appendText(out, v1FamilyUnit, unit)
	e.tail = closeMessage(out, start, guess)
	return true
}

// appendText appends a string field; the empty string is the default and takes
// no room.
func appendText(out []byte, num int, text []byte) []byte {
	if len(text) == 0 {
		return out
	}
	return appendBytesField(out, num, text)
}
