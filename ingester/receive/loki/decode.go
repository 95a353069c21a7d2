package loki

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Field numbers of logproto.PushRequest and what it holds.
const (
	fieldStreams = 1 // PushRequest.streams

	fieldLabels  = 1 // StreamAdapter.labels, a Prometheus selector as text
	fieldEntries = 2 // StreamAdapter.entries

	fieldTimestamp = 1 // EntryAdapter.timestamp, google.protobuf.Timestamp
	fieldLine      = 2 // EntryAdapter.line
	fieldMetadata  = 3 // EntryAdapter.structuredMetadata

	fieldSeconds = 1 // Timestamp.seconds
	fieldNanos   = 2 // Timestamp.nanos

	fieldName  = 1 // LabelPairAdapter.name
	fieldValue = 2 // LabelPairAdapter.value
)

// decoder turns push requests into log records. It is reused by one goroutine at a
// time.
type decoder struct {
	out    *receive.Records
	json   receive.JSON
	labels []label // of the stream being read
	stream heard   // the level that they say
	level  heard   // of the entry being read
	// invalid counts the entries that cannot be read, why says it of the first one.
	invalid int
	why     error
}

type label struct{ name, value string }

// heard is a level, and how good a source of it was found.
type heard struct {
	text string
	rank int
}

// errMalformed says that the request as a whole is not protobuf.
var errMalformed = errors.New("the body is not a PushRequest in protobuf")

// maxLabelBytes is how many bytes the labels of one stream may have, as they are written.
// Loki itself takes 15 labels of 3 KiB by default.
const maxLabelBytes = 1 << 20

// Errors of all entries of a stream, and of one.
var (
	errLong     = fmt.Errorf("the labels of a stream have more than %d bytes", maxLabelBytes)
	errLabels   = fmt.Errorf("a stream has more than %d labels", receive.MaxAttributes)
	errMetadata = fmt.Errorf("an entry has more than %d metadata", receive.MaxAttributes)
)

// fields yields the fields of a message.
func fields(msg []byte, yield func(field protowire.Number, wire protowire.Type, value []byte) error) error {
	for len(msg) > 0 {
		field, wire, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return errMalformed
		}
		m := protowire.ConsumeFieldValue(field, wire, msg[n:])
		if m < 0 {
			return errMalformed
		}
		value := msg[n : n+m]
		if wire == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		if err := yield(field, wire, value); err != nil {
			return err
		}
		msg = msg[n+m:]
	}
	return nil
}

// proto reads a PushRequest.
func (d *decoder) proto(body []byte) error {
	return fields(body, func(field protowire.Number, wire protowire.Type, stream []byte) error {
		if field != fieldStreams || wire != protowire.BytesType {
			return nil
		}
		return d.protoStream(stream)
	})
}

// protoStream reads a stream. Its labels may stand behind its entries.
func (d *decoder) protoStream(stream []byte) error {
	var text string
	err := fields(stream, func(field protowire.Number, wire protowire.Type, value []byte) error {
		if field == fieldLabels && wire == protowire.BytesType {
			text = receive.ViewText(value)
		}
		return nil
	})
	if err != nil {
		return err
	}
	var bad error
	d.labels, bad = parseLabels(d.labels[:0], text)
	bad = d.open(bad)
	defer d.out.Release()
	return fields(stream, func(field protowire.Number, wire protowire.Type, entry []byte) error {
		if field != fieldEntries || wire != protowire.BytesType {
			return nil
		}
		if err := d.out.Item(); err != nil {
			return err
		}
		if bad != nil {
			d.reject(bad)
			return fields(entry, func(protowire.Number, protowire.Type, []byte) error { return nil })
		}
		return d.protoEntry(entry)
	})
}

func (d *decoder) protoEntry(entry []byte) error {
	d.level = d.stream
	err := fields(entry, func(field protowire.Number, wire protowire.Type, value []byte) error {
		if wire != protowire.BytesType {
			return nil
		}
		switch field {
		case fieldTimestamp:
			return d.protoTime(value)
		case fieldLine:
			d.out.Body(receive.ViewText(value))
		case fieldMetadata:
			return d.protoMetadata(value)
		}
		return nil
	})
	if err != nil {
		d.out.Discard()
		return err
	}
	if !d.out.HasBody() {
		d.out.Body("") // protobuf leaves an empty line out
	}
	return d.add()
}

func (d *decoder) protoTime(msg []byte) error {
	var seconds, nanos int64
	err := fields(msg, func(field protowire.Number, wire protowire.Type, value []byte) error {
		n, _ := binary.Uvarint(value)
		switch {
		case wire != protowire.VarintType:
		case field == fieldSeconds:
			seconds = int64(n)
		case field == fieldNanos:
			nanos = int64(int32(n))
		}
		return nil
	})
	if at, ok := receive.TimeOf(seconds, time.Second); ok && nanos >= 0 && nanos < 1e9 {
		d.out.Time(at + uint64(nanos))
	}
	return err
}

func (d *decoder) protoMetadata(msg []byte) error {
	var name, value string
	err := fields(msg, func(field protowire.Number, wire protowire.Type, text []byte) error {
		switch {
		case wire != protowire.BytesType:
		case field == fieldName:
			name = receive.ViewText(text)
		case field == fieldValue:
			value = receive.ViewText(text)
		}
		return nil
	})
	if name != "" {
		d.metadata(name, value)
	}
	return err
}

// jsonRequest reads the JSON form: {"streams": [{"stream": {labels}, "values": [[time, line, {metadata}]]}]}.
func (d *decoder) jsonRequest(body []byte) error {
	v, err := d.json.Check(body)
	if err != nil {
		return fmt.Errorf("the body is %w", err)
	}
	if !receive.IsObject(v) {
		return errors.New(`the body is not an object with "streams"`)
	}
	for name, streams := range receive.Fields(v) {
		if d.json.Text(name) != "streams" || receive.IsNull(streams) {
			continue
		}
		if !receive.IsArray(streams) {
			return errors.New(`"streams" is not an array`)
		}
		for stream := range receive.Elements(streams) {
			if !receive.IsObject(stream) {
				return errors.New(`"streams" holds something that is not an object`)
			}
			if err := d.jsonStream(stream); err != nil {
				return err
			}
		}
	}
	return nil
}

// jsonStream reads a stream. Its labels may stand behind its entries, and there may be
// several lists of these.
func (d *decoder) jsonStream(stream []byte) error {
	d.labels = d.labels[:0]
	var bad error
	for name, value := range receive.Fields(stream) {
		if d.json.Text(name) == "stream" {
			bad = cmp.Or(bad, d.jsonLabels(value))
		}
	}
	bad = d.open(bad)
	defer d.out.Release()
	for name, values := range receive.Fields(stream) {
		if d.json.Text(name) != "values" || receive.IsNull(values) {
			continue
		}
		if !receive.IsArray(values) {
			return errors.New(`"values" is not an array`)
		}
		if err := d.jsonEntries(values, bad); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) jsonEntries(values []byte, bad error) error {
	for entry := range receive.Elements(values) {
		if err := d.out.Item(); err != nil {
			return err
		}
		if bad != nil {
			d.reject(bad)
			continue
		}
		if err := d.jsonEntry(entry); err != nil {
			return err
		}
	}
	return nil
}

func (d *decoder) jsonLabels(v []byte) error {
	if !receive.IsObject(v) {
		return errors.New(`"stream" is not an object of labels`)
	}
	if len(v) > maxLabelBytes {
		return errLong
	}
	for name, value := range receive.Fields(v) {
		if !receive.IsString(value) {
			return fmt.Errorf("label %.200s is not a string", name)
		}
		if len(d.labels) > receive.MaxAttributes {
			return errLabels
		}
		key := strings.Clone(d.json.Text(name))
		d.labels = append(d.labels, label{key, strings.Clone(d.json.Text(value))})
	}
	return nil
}

func (d *decoder) jsonEntry(entry []byte) error {
	d.level = d.stream
	if err := d.jsonParts(entry); err != nil {
		d.out.Discard()
		d.reject(err)
		return nil
	}
	return d.add()
}

func (d *decoder) jsonParts(entry []byte) error {
	if !receive.IsArray(entry) {
		return errors.New("an entry is not [time, line, metadata]")
	}
	n := 0
	for part := range receive.Elements(entry) {
		switch n++; n {
		case 1:
			nanos, err := strconv.ParseInt(d.json.Text(part), 10, 64)
			if err != nil {
				return fmt.Errorf("the time %.200s of an entry is not a number of nanoseconds", part)
			}
			d.out.Time(uint64(max(nanos, 0)))
		case 2:
			if !receive.IsString(part) {
				return errors.New("the line of an entry is not a string")
			}
			d.out.Body(d.json.Text(part))
		case 3:
			if err := d.jsonMetadata(part); err != nil {
				return err
			}
		}
	}
	if n < 2 {
		return errors.New("an entry has no line")
	}
	return nil
}

func (d *decoder) jsonMetadata(v []byte) error {
	if !receive.IsObject(v) {
		return errors.New("the metadata of an entry is not an object")
	}
	for name, value := range receive.Fields(v) {
		if !receive.IsString(value) {
			return fmt.Errorf("metadata %.200s of an entry is not a string", name)
		}
		key := strings.Clone(d.json.Text(name))
		d.metadata(key, strings.Clone(d.json.Text(value)))
	}
	return nil
}

// How good a source of the level a label is; metadata is better than any label.
const metadataRank = 10

// levelRank is 0 for what says nothing about the level.
func levelRank(name string) int {
	switch name {
	case "level":
		return 4
	case "severity":
		return 3
	case "severity_text":
		return 2
	case "detected_level":
		return 1
	}
	return 0
}

// open makes the labels of a stream those of all entries to come, until the records are
// released, and says what is wrong with them, if nothing was wrong before.
func (d *decoder) open(bad error) error {
	d.stream = heard{}
	if bad != nil {
		return bad
	}
	for _, l := range d.labels {
		d.out.Resource.String(l.name, l.value)
		d.stream.heed(l.name, l.value, 0)
	}
	if len(d.labels) > receive.MaxAttributes || d.out.Resource.TooMany() {
		return errLabels
	}
	d.out.Hold()
	return nil
}

func (d *decoder) metadata(name, value string) {
	d.out.Attributes.String(name, value)
	d.level.heed(name, value, metadataRank)
}

// heed takes the level from a label or from metadata.
func (h *heard) heed(name, value string, bonus int) {
	if rank := levelRank(name); rank > 0 && rank+bonus > h.rank {
		h.text, h.rank = value, rank+bonus
	}
}

func (d *decoder) add() error {
	if d.out.Attributes.TooMany() {
		d.out.Discard()
		d.reject(errMetadata)
		return nil
	}
	d.out.Severity(d.level.text)
	return d.out.Add()
}

func (d *decoder) reject(why error) {
	d.invalid++
	if d.why == nil {
		d.why = why
	}
}
