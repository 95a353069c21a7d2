package firehose

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// event is one line. Its texts lie in the decoder's buffer.
type event struct {
	message []byte // of a CloudWatch event a JSON string, else the line
	id      []byte // JSON string
	millis  int64
	source  int // which of the decoder's sources it is from
}

// source is what the events of one CloudWatch message have in common.
type source struct {
	owner, group, stream string
	filters              []string
	cloudWatch           bool
}

// request is what the decoder is given beside the body.
type request struct {
	common string // X-Amz-Firehose-Common-Attributes
	arn    string
	// limit is how many bytes the data of all records may have together when it is
	// decompressed; grow takes memory for them.
	limit int
	grow  func(n int64) bool
}

// decoder turns deliveries into log records. It is reused by one goroutine at a time.
type decoder struct {
	id      string // the request's, as its body says
	sources []source
	events  []event
	invalid int
	why     error

	out   *receive.Records
	plain int // the source of data that is not from CloudWatch, -1 before there is any
	json  receive.JSON
	data  []byte // all data of the request, decoded
	coded []byte // what base64 held
	gzip  gzip.Reader
	src   bytes.Reader
}

// Errors of single records.
var (
	errData    = errors.New("the data of a record is not base64")
	errFilters = fmt.Errorf("a CloudWatch Logs message has more than %d subscription filters", receive.MaxAttributes)
)

// read finds all events of a delivery.
func (d *decoder) read(out *receive.Records, body []byte, r *request) error {
	d.id, d.sources, d.events, d.invalid, d.why = "", d.sources[:0], d.events[:0], 0, nil
	d.data, d.out, d.plain = d.data[:0], out, -1
	v, err := d.json.Check(body)
	if err != nil {
		return fmt.Errorf("the body is %w", err)
	}
	if !receive.IsObject(v) {
		return errors.New("the body is not an object")
	}
	var records []byte
	for name, value := range receive.Fields(v) {
		switch d.json.Text(name) {
		case "requestId":
			d.id = strings.Clone(d.json.Text(value))
		case "records":
			records = value
		}
	}
	if records == nil || !receive.IsArray(records) {
		return errors.New(`the body has no array "records"`)
	}
	for record := range receive.Elements(records) {
		if err := out.Wanted(); err != nil {
			return err
		}
		if err := d.reject(d.record(record, r)); err != nil {
			return err
		}
	}
	return nil
}

// reject counts what is wrong with one record or event; nil is nothing. What is wrong
// with the request comes back.
func (d *decoder) reject(why error) error {
	if why == nil || receive.EndsRequest(why) {
		return why
	}
	d.invalid++
	if d.why == nil {
		d.why = why
	}
	return d.out.Item()
}

// record decodes the data of one record and finds its events.
func (d *decoder) record(record []byte, r *request) error {
	if !receive.IsObject(record) {
		return errors.New("a record is not an object")
	}
	var text []byte
	for name, value := range receive.Fields(record) {
		if d.json.Text(name) == "data" && receive.IsString(value) {
			text = []byte(d.json.Text(value))
		}
	}
	if text == nil {
		return errors.New("a record has no data")
	}
	d.coded = slices.Grow(d.coded[:0], base64.StdEncoding.DecodedLen(len(text)))
	n, err := base64.StdEncoding.Decode(d.coded[:cap(d.coded)], text)
	if err != nil {
		return errData
	}
	data, err := d.decompress(d.coded[:n], r)
	if err != nil {
		return err
	}
	return d.messages(data)
}

// decompress puts data, or what gzip holds in it, behind all other data of the
// request, so that events can point at it.
func (d *decoder) decompress(data []byte, r *request) ([]byte, error) {
	start := len(d.data)
	if len(data) < 2 || data[0] != 0x1f || data[1] != 0x8b {
		if start+len(data) > r.limit {
			return nil, receive.ErrTooLarge
		}
		if !r.grow(int64(len(data))) {
			return nil, receive.ErrNoMemory
		}
		d.data = append(d.data, data...)
		return d.data[start:len(d.data):len(d.data)], nil
	}
	d.src.Reset(data)
	if err := d.gzip.Reset(&d.src); err != nil {
		return nil, fmt.Errorf("the data of a record is not gzip: %w", err)
	}
	for {
		if len(d.data) == cap(d.data) {
			step := max(32<<10, len(d.data)/2)
			if !r.grow(int64(step)) {
				return nil, receive.ErrNoMemory
			}
			d.data = slices.Grow(d.data, step)
		}
		n, err := d.gzip.Read(d.data[len(d.data):min(cap(d.data), r.limit+1)])
		d.data = d.data[:len(d.data)+n]
		switch {
		case len(d.data) > r.limit:
			return nil, receive.ErrTooLarge
		case err == io.EOF:
			return d.data[start:len(d.data):len(d.data)], nil
		case err != nil:
			d.data = d.data[:start]
			return nil, fmt.Errorf("the data of a record is not gzip: %w", err)
		}
	}
}

// messages reads the CloudWatch messages that follow each other in data. Data that
// does not begin as one is lines.
func (d *decoder) messages(data []byte) error {
	if !bytes.HasPrefix(bytes.TrimSpace(data), []byte("{")) || !bytes.Contains(data, []byte(`"logEvents"`)) {
		return d.lines(data)
	}
	for v, err := range d.json.Values(data) {
		if err != nil {
			return fmt.Errorf("the data of a record is %w", err)
		}
		if err := d.out.Wanted(); err != nil {
			return err
		}
		if !receive.IsObject(v) {
			return errors.New("the data of a record is not a CloudWatch Logs message")
		}
		if err := d.message(v); err != nil {
			return err
		}
	}
	return nil
}

// lines takes data that is not from CloudWatch line by line.
func (d *decoder) lines(data []byte) (err error) {
	if d.plain < 0 {
		d.plain = len(d.sources)
		d.sources = append(d.sources, source{})
	}
	for line := range bytes.Lines(data) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			continue
		}
		if err := d.keep(event{message: line, source: d.plain}); err != nil {
			return err
		}
	}
	return nil
}

// keep remembers an event until all are known.
func (d *decoder) keep(e event) (err error) {
	if err = d.out.Item(); err == nil {
		d.events, err = receive.Append(d.out, d.events, e)
	}
	return err
}

// message reads one CloudWatch Logs message.
func (d *decoder) message(v []byte) error {
	s := source{cloudWatch: true}
	var events []byte
	control := false
	for name, value := range receive.Fields(v) {
		switch d.json.Text(name) {
		case "messageType":
			control = d.json.Text(value) == "CONTROL_MESSAGE"
		case "owner":
			s.owner = strings.Clone(d.json.Text(value))
		case "logGroup":
			s.group = strings.Clone(d.json.Text(value))
		case "logStream":
			s.stream = strings.Clone(d.json.Text(value))
		case "subscriptionFilters":
			if receive.IsArray(value) {
				for f := range receive.Elements(value) {
					if len(s.filters) == receive.MaxAttributes {
						return errFilters
					}
					s.filters = append(s.filters, strings.Clone(d.json.Text(f)))
				}
			}
		case "logEvents":
			events = value
		}
	}
	if control {
		return nil
	}
	if events == nil || !receive.IsArray(events) {
		return errors.New("a CloudWatch Logs message has no array logEvents")
	}
	var err error
	if d.sources, err = receive.Append(d.out, d.sources, s); err != nil {
		return err
	}
	before := len(d.events)
	for e := range receive.Elements(events) {
		if err := d.reject(d.event(e)); err != nil {
			return err
		}
	}
	if len(d.events) == before {
		d.sources = d.sources[:len(d.sources)-1] // of nothing
	}
	return nil
}

func (d *decoder) event(v []byte) error {
	if !receive.IsObject(v) {
		return errors.New("a log event is not an object")
	}
	e := event{source: len(d.sources) - 1}
	for name, value := range receive.Fields(v) {
		switch d.json.Text(name) {
		case "id":
			e.id = value
		case "timestamp":
			e.millis, _ = strconv.ParseInt(d.json.Text(value), 10, 64)
		case "message":
			e.message = value
		}
	}
	if e.message == nil || !receive.IsString(e.message) {
		return errors.New("a log event has no message")
	}
	return d.keep(e)
}

// write puts the events out as records. What all of them have in common describes
// the resource.
func (d *decoder) write(out *receive.Records, r *request) error {
	common, err := d.commonAttributes(r.common)
	if err != nil {
		return err
	}
	if len(d.events) == 0 {
		return nil
	}
	same := d.agreed()
	for _, c := range common {
		out.Resource.String(c[0], c[1])
	}
	out.Resource.String("cloud.provider", "aws")
	out.Resource.Text("aws.firehose.arn", r.arn)
	describe(&out.Resource, &d.sources[d.events[0].source], same, true)
	if out.Resource.TooMany() {
		return fmt.Errorf("%s has more than %d attributes", commonHeader, receive.MaxAttributes)
	}
	out.Hold()
	defer out.Release()
	for i := range d.events {
		if err := out.Wanted(); err != nil {
			return err
		}
		e := &d.events[i]
		describe(&out.Attributes, &d.sources[e.source], same, false)
		body := receive.ViewText(e.message)
		if d.sources[e.source].cloudWatch {
			body = d.json.Text(e.message)
		}
		out.Body(body)
		if e.id != nil {
			out.Attributes.Text("aws.log.event.id", d.json.Text(e.id))
		}
		if at, ok := receive.TimeOf(e.millis, time.Millisecond); ok {
			out.Time(at)
		} else if e.millis != 0 {
			out.Attributes.Int("timestamp", e.millis)
		}
		if err := out.Add(); err != nil {
			return err
		}
	}
	return nil
}

// labelCount is how many labels a source has, its filters left out.
const labelCount = 4

type label struct{ name, value string }

func (s *source) labels() [labelCount]label {
	kind := "firehose"
	if s.cloudWatch {
		kind = "cloudwatch"
	}
	return [labelCount]label{
		{"source", kind}, {"cloud.account.id", s.owner}, {"aws.log.group.name", s.group}, {"aws.log.stream.name", s.stream},
	}
}

// agreed says for each label whether all events have the same, and, last, whether
// they have the same filters.
func (d *decoder) agreed() (same [labelCount + 1]bool) {
	for j := range same {
		same[j] = true
	}
	if len(d.events) == 0 {
		return same
	}
	first := &d.sources[d.events[0].source]
	for i := range d.events {
		if i > 0 && d.events[i].source == d.events[i-1].source {
			continue
		}
		this := &d.sources[d.events[i].source]
		a, b := first.labels(), this.labels()
		for j := range a {
			same[j] = same[j] && a[j] == b[j]
		}
		same[labelCount] = same[labelCount] && slices.Equal(first.filters, this.filters)
	}
	return same
}

// describe says what a source has in common with all others, or what it has not.
func describe(to *receive.Attributes, s *source, same [labelCount + 1]bool, common bool) {
	for j, l := range s.labels() {
		if same[j] == common {
			to.Text(l.name, l.value)
		}
	}
	if len(s.filters) > 0 && same[labelCount] == common {
		to.Strings("aws.log.subscription_filters", s.filters)
	}
}

// commonAttributes reads the header that carries the attributes which the delivery
// stream is configured with: {"commonAttributes": {"name": "value"}}.
func (d *decoder) commonAttributes(header string) (common [][2]string, err error) {
	if header == "" {
		return nil, nil
	}
	v, err := d.json.Check([]byte(header))
	if err != nil || !receive.IsObject(v) {
		return nil, errors.New("X-Amz-Firehose-Common-Attributes is not a JSON object")
	}
	for name, value := range receive.Fields(v) {
		if d.json.Text(name) != "commonAttributes" || !receive.IsObject(value) {
			continue
		}
		for name, value := range receive.Fields(value) {
			key := strings.Clone(d.json.Text(name))
			common = append(common, [2]string{key, strings.Clone(d.json.Text(value))})
		}
	}
	return common, nil
}
