package remotewrite

import "encoding/binary"

// Field numbers of the messages, from prompb/remote.proto, prompb/types.proto
// and prompb/io/prometheus/write/v2/types.proto of Prometheus v0.316.
const (
	v1RequestSeries   = 1 // WriteRequest.timeseries
	v1RequestMetadata = 3 // WriteRequest.metadata
	v1SeriesLabels    = 1 // TimeSeries.labels
	v1SeriesSamples   = 2
	v1SeriesExemplars = 3
	v1SeriesHistogram = 4
	v1LabelName       = 1 // Label.name
	v1LabelValue      = 2
	v1FamilyType      = 1 // MetricMetadata.type
	v1FamilyName      = 2
	v1FamilyHelp      = 4
	v1FamilyUnit      = 5

	v2RequestSymbols  = 4 // Request.symbols
	v2RequestSeries   = 5
	v2SeriesRefs      = 1 // TimeSeries.labels_refs
	v2SeriesSamples   = 2
	v2SeriesHistogram = 3
	v2SeriesExemplars = 4
	v2SeriesMetadata  = 5
	v2MetadataType    = 1 // Metadata.type
	v2MetadataHelp    = 3
	v2MetadataUnit    = 4

	exemplarLabels     = 1  // Exemplar: labels in 1.0, labels_refs in 2.0
	sampleStart        = 3  // Sample.start_timestamp, 2.0 only
	histogramSchema    = 4  // Histogram.schema
	histogramStart     = 17 // Histogram.start_timestamp, 2.0 only
	customBucketSchema = -53
)

// Wire types of protobuf.
const (
	wireVarint  = 0
	wireFixed64 = 1
	wireBytes   = 2
	wireFixed32 = 5
)

// field is one field of a message. All offsets are within the slice that it was
// read from.
type field struct {
	num uint32
	typ uint8
	// start is where the tag starts, body where the payload does, end where the
	// field ends.
	start, body, end int
	// value is the payload of a varint field.
	value uint64
}

// nextField reads the field at offset at. It reports false where the bytes are
// not a field; groups, which proto3 does not have, are none.
func nextField(b []byte, at int) (field, bool) {
	// Nearly every field that is met has a tag and a length of one byte each.
	if at+1 < len(b) && b[at]&0x87 == wireBytes && b[at] >= 8 && b[at+1] < 0x80 {
		end := at + 2 + int(b[at+1])
		return field{num: uint32(b[at] >> 3), typ: wireBytes, start: at, body: at + 2, end: end}, end <= len(b)
	}
	return anyField(b, at)
}

func anyField(b []byte, at int) (field, bool) {
	f := field{start: at}
	tag, at := uvarint(b, at)
	if at < 0 || tag>>3 == 0 || tag>>3 > 1<<29-1 {
		return f, false
	}
	f.num, f.typ, f.body = uint32(tag>>3), uint8(tag&7), at
	switch f.typ {
	case wireVarint:
		f.value, f.end = uvarint(b, at)
		return f, f.end >= 0
	case wireFixed64:
		f.end = at + 8
	case wireFixed32:
		f.end = at + 4
	case wireBytes:
		n, at := uvarint(b, at)
		if at < 0 || n > uint64(len(b)-at) {
			return f, false
		}
		f.body, f.end = at, at+int(n)
	default:
		return f, false
	}
	return f, f.end <= len(b)
}

// uvarint reads the varint at offset at and returns where it ends, -1 if it
// does not.
func uvarint(b []byte, at int) (uint64, int) {
	if at < len(b) && b[at] < 0x80 {
		return uint64(b[at]), at + 1
	}
	return longUvarint(b, at)
}

func longUvarint(b []byte, at int) (uint64, int) {
	if at+1 < len(b) && b[at+1] < 0x80 {
		return uint64(b[at]&0x7f) | uint64(b[at+1])<<7, at + 2
	}
	if at > len(b) {
		return 0, -1
	}
	v, n := binary.Uvarint(b[at:])
	if n <= 0 {
		return 0, -1
	}
	return v, at + n
}

// uvarintLen is the number of bytes that v takes as a varint.
func uvarintLen(v uint64) int {
	n := 1
	for ; v >= 0x80; v >>= 7 {
		n++
	}
	return n
}

// unzigzag turns the wire form of a sint32 into its value.
func unzigzag(v uint64) int32 { return int32(uint32(v)>>1) ^ -int32(v&1) }

// appendBytesField appends a field of wire type bytes.
func appendBytesField(out []byte, num int, payload []byte) []byte {
	out = appendTag(out, num, wireBytes)
	out = binary.AppendUvarint(out, uint64(len(payload)))
	return append(out, payload...)
}

// appendTag appends the tag of a field whose number is below 16.
func appendTag(out []byte, num, typ int) []byte { return append(out, byte(num<<3|typ)) }

// openMessage appends the tag of a field that holds a message, and room for the
// length of a message of about guess bytes. It returns where the message starts,
// for closeMessage.
func openMessage(out []byte, num, guess int) ([]byte, int) {
	out = appendTag(out, num, wireBytes)
	for range uvarintLen(uint64(guess)) {
		out = append(out, 0)
	}
	return out, len(out)
}

// closeMessage writes the length of the message that began at start into the room
// that openMessage left for guess, and moves the message where its length needs
// other room than that.
func closeMessage(out []byte, start, guess int) []byte {
	n := len(out) - start
	room, need := uvarintLen(uint64(guess)), uvarintLen(uint64(n))
	if need > room {
		for range need - room {
			out = append(out, 0)
		}
	}
	if need != room {
		copy(out[start-room+need:], out[start:start+n])
		out = out[:start-room+need+n]
	}
	binary.PutUvarint(out[start-room:start-room+need], uint64(n))
	return out
}

// nextLabel reads the label field at the start of labels, a label set as
// ingester.Group.Key describes it, and returns the length of the whole field;
// 0 means that it is not a label.
func nextLabel(labels []byte) (name, value []byte, n int) {
	// Name before value, all lengths of one byte: the form that is nearly always met.
	if end := labelLen(labels); end <= len(labels) && end > 3 && labels[0] == v1SeriesLabels<<3|wireBytes &&
		labels[2] == v1LabelName<<3|wireBytes && labels[3] < 0x80 {
		v := 4 + int(labels[3])
		if v+1 < end && labels[v] == v1LabelValue<<3|wireBytes && v+2+int(labels[v+1]) == end {
			return labels[4:v], labels[v+2 : end], end
		}
	}
	return anyLabel(labels)
}

func anyLabel(labels []byte) (name, value []byte, n int) {
	f, ok := nextField(labels, 0)
	if !ok || f.num != v1SeriesLabels || f.typ != wireBytes {
		return nil, nil, 0
	}
	label := labels[f.body:f.end]
	for at := 0; at < len(label); {
		l, ok := nextField(label, at)
		if !ok {
			return nil, nil, 0
		}
		if l.typ == wireBytes {
			switch l.num {
			case v1LabelName:
				name = label[l.body:l.end]
			case v1LabelValue:
				value = label[l.body:l.end]
			}
		}
		at = l.end
	}
	return name, value, f.end
}

// labelLen is the length of the label field at the start of labels if it is short
// enough for a length of one byte; else it is more than there is.
func labelLen(labels []byte) int {
	if len(labels) < 2 || labels[1] >= 0x80 {
		return len(labels) + 1
	}
	return 2 + int(labels[1])
}

// countLabels is the number of labels in a label set.
func countLabels(labels []byte) int {
	count := 0
	for ; len(labels) > 0; count++ {
		n := labelLen(labels)
		if n > len(labels) {
			f, ok := nextField(labels, 0)
			if !ok {
				break
			}
			n = f.end
		}
		labels = labels[n:]
	}
	return count
}
