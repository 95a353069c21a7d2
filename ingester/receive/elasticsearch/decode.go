package elasticsearch

import (
	"bytes"
	"errors"
	"fmt"
	"strings"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// decoder turns bulk requests into log records and remembers an item for each
// action. It is reused by one goroutine at a time.
type decoder struct {
	json    receive.JSON
	items   []item
	invalid int
	// answerBytes is more than the answer of all items takes.
	answerBytes int
}

// item is what the answer says of one action.
type item struct {
	action    string
	index, id string
	// reason is why the document is invalid; empty for the records that went on.
	reason string
}

func layout() receive.Layout {
	return receive.Layout{
		Body:  []string{"message", "log", "msg"},
		Time:  []string{"@timestamp", "timestamp", "time"},
		Level: []string{"log.level", "level", "severity"},
		Resource: []string{"agent", "cloud", "container", "data_stream", "ecs", "host", "kubernetes", "observer",
			"orchestrator", "service"},
	}
}

// Errors of single actions.
var (
	errDelete     = errors.New("delete is no log line: this server stores logs only")
	errNoDocument = errors.New("the action has no document")
	errNoUpdate   = errors.New(`an update without "doc" or "upsert" is no log line`)
)

// decode reads a bulk body: lines of an action and, but for delete, its document. A
// line of action that cannot be read makes the whole body malformed, as in
// Elasticsearch, since it cannot be known what the next line is.
func (d *decoder) decode(out *receive.Records, body []byte, defaultIndex string) error {
	clear(d.items)
	d.items, d.invalid, d.answerBytes = d.items[:0], 0, 0
	l := layout()
	for number := 1; len(body) > 0; number++ {
		var line []byte
		if line, body = nextLine(body); len(line) == 0 {
			continue
		}
		it, err := d.action(line, defaultIndex)
		if err != nil {
			return fmt.Errorf("line %d of the bulk request: %w", number, err)
		}
		if err := out.Item(); err != nil {
			return err
		}
		err = errDelete
		if it.action != "delete" {
			number++
			var document []byte
			document, body = nextLine(body)
			err = d.document(out, &l, &it, document)
		}
		if err = d.keep(out, it, err); err != nil {
			return err
		}
	}
	return nil
}

// maxReason is how many bytes of what is wrong with a document are answered.
const maxReason = 300

// keep remembers an action and what is wrong with its document, nil for nothing. It takes
// the memory of its answer: once the records are stored it would be too late.
func (d *decoder) keep(out *receive.Records, it item, wrong error) (err error) {
	if receive.EndsRequest(wrong) {
		return wrong
	}
	if wrong != nil {
		d.invalid++
		it.reason = strings.ToValidUTF8(wrong.Error(), "?")
		it.reason = strings.Clone(it.reason[:min(len(it.reason), maxReason)])
	}
	n := it.answerBytes()
	d.answerBytes += n
	if err = out.Spend(n + len(it.reason) + len(it.id) + len(it.index)); err == nil {
		d.items, err = receive.Append(out, d.items, it)
	}
	return err
}

func nextLine(body []byte) (line, rest []byte) {
	line, rest, _ = bytes.Cut(body, []byte("\n"))
	return bytes.TrimRight(line, "\r"), rest
}

// action reads {"create": {"_index": ..., "_id": ...}}.
func (d *decoder) action(line []byte, defaultIndex string) (item, error) {
	it := item{index: defaultIndex}
	v, err := d.json.Check(line)
	if err != nil {
		return it, err
	}
	if !receive.IsObject(v) {
		return it, errors.New("an action is not an object")
	}
	for name, meta := range receive.Fields(v) {
		it.action = ""
		for _, known := range []string{"create", "index", "update", "delete"} {
			if d.json.Text(name) == known {
				it.action = known
			}
		}
		if it.action == "" || !receive.IsObject(meta) {
			return it, fmt.Errorf("unknown action or wrong parameters in %.100s", v)
		}
		for name, value := range receive.Fields(meta) {
			if !receive.IsString(value) {
				continue
			}
			switch d.json.Text(name) {
			case "_index":
				it.index = strings.Clone(d.json.Text(value))
			case "_id":
				it.id = strings.Clone(d.json.Text(value))
			}
		}
	}
	if it.action == "" {
		return it, errors.New("an action is empty")
	}
	return it, nil
}

// document adds a document to the records, or says why it is invalid.
func (d *decoder) document(out *receive.Records, l *receive.Layout, it *item, line []byte) error {
	if len(line) == 0 {
		return errNoDocument
	}
	v, err := d.json.Check(line)
	if err != nil {
		return err
	}
	if it.action == "update" {
		if v, err = d.updated(v); err != nil {
			return err
		}
	}
	out.Resource.Text("elasticsearch.index", it.index)
	out.Attributes.Text("elasticsearch.id", it.id)
	if err := d.json.Record(out, l, v); err != nil {
		out.Discard()
		return err
	}
	return out.Add()
}

// updated returns the document of an update, which is how Fluent Bit writes with
// Write_Operation upsert.
func (d *decoder) updated(v []byte) ([]byte, error) {
	if !receive.IsObject(v) {
		return nil, receive.ErrNotAnObject
	}
	var upsert []byte
	for name, value := range receive.Fields(v) {
		switch d.json.Text(name) {
		case "doc":
			return value, nil
		case "upsert":
			upsert = value
		}
	}
	if upsert == nil {
		return nil, errNoUpdate
	}
	return upsert, nil
}
