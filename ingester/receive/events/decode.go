package events

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// decoder turns bodies into log records. It is reused by one goroutine at a time.
type decoder struct {
	json    receive.JSON
	invalid int
	why     error

	// of the event being written
	text, title, name, source, host, service string
	tags                                     []string
	named                                    [][]byte // tags that are an object
}

// Errors of single events.
var (
	errEmpty   = errors.New("an event has neither title nor text")
	errTooMany = fmt.Errorf("an event has more than %d tags and attributes", receive.MaxAttributes)
)

// decode reads all events of a body.
func (d *decoder) decode(out *receive.Records, body []byte) error {
	d.invalid, d.why = 0, nil
	for v, err := range d.json.Lines(body) {
		if errors.Is(err, receive.ErrLine) {
			if err := d.broken(out, err); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("the body is %w", err)
		}
		if err := d.some(out, v); err != nil {
			return err
		}
	}
	return nil
}

// broken counts a line that is no JSON.
func (d *decoder) broken(out *receive.Records, why error) error {
	d.reject(out, why)
	return out.Item()
}

// some reads what stands at the top of a body: an event, or several.
func (d *decoder) some(out *receive.Records, v []byte) error {
	if receive.IsArray(v) {
		for e := range receive.Elements(v) {
			if err := d.one(out, e); err != nil {
				return err
			}
		}
		return nil
	}
	if receive.IsObject(v) {
		for name, value := range receive.Fields(v) {
			switch d.json.Text(name) {
			case "events":
				return d.ofAgent(out, value)
			case "items":
				if receive.IsArray(value) {
					return d.some(out, value)
				}
			}
		}
		if d.isMetadata(v) {
			return nil
		}
	}
	return d.one(out, v)
}

// isMetadata says that an object is what the Datadog Agent tells the same address
// about its host from time to time. It holds no event.
func (d *decoder) isMetadata(v []byte) bool {
	for name := range receive.Fields(v) {
		if d.json.Text(name) == "internalHostname" {
			return true
		}
	}
	return false
}

// ofAgent reads the Agent's events, which are grouped by source type.
func (d *decoder) ofAgent(out *receive.Records, v []byte) error {
	if !receive.IsObject(v) {
		return errors.New(`"events" is not an object of lists`)
	}
	for name, list := range receive.Fields(v) {
		if !receive.IsArray(list) {
			return errors.New(`"events" is not an object of lists`)
		}
		source := strings.Clone(d.json.Text(name))
		for e := range receive.Elements(list) {
			if err := d.write(out, e, source); err != nil {
				return err
			}
		}
	}
	return nil
}

// one reads an event of any kind.
func (d *decoder) one(out *receive.Records, v []byte) error {
	if receive.IsObject(v) {
		if k, ok := d.kubernetes(v); ok {
			if err := out.Item(); err != nil {
				return err
			}
			return k.write(out)
		}
	}
	return d.write(out, v, "")
}

func (d *decoder) layout() receive.Layout {
	return receive.Layout{
		Time:  []string{"time", "timestamp", "date_happened"},
		Level: []string{"alert_type", "level", "severity"},
		Take:  d.take,
	}
}

func (d *decoder) write(out *receive.Records, v []byte, source string) error {
	if err := out.Item(); err != nil {
		return err
	}
	d.text, d.title, d.name, d.host, d.service = "", "", "", "", ""
	d.source, d.tags, d.named = source, d.tags[:0], d.named[:0]
	l := d.layout()
	if err := d.json.Record(out, &l, v); err != nil {
		d.reject(out, err)
		return nil
	}
	if d.text == "" && d.title == "" {
		d.reject(out, errEmpty)
		return nil
	}
	if d.text != "" {
		out.Body(d.text)
	} else {
		out.Body(d.title)
	}
	out.Attributes.Text("title", d.title)
	out.Attributes.Text("source", d.source)
	if d.name != "" {
		out.EventName(d.name)
		out.Attributes.String("eventType", d.name)
	}
	out.Resource.Text("host.name", d.host)
	out.Resource.Text("service.name", d.service)
	return d.add(out)
}

// add puts the tags on the event and adds it.
func (d *decoder) add(out *receive.Records) error {
	if len(d.tags) > receive.MaxAttributes || len(d.named) > receive.MaxAttributes {
		d.reject(out, errTooMany)
		return nil
	}
	receive.Tags(&out.Attributes, d.tags)
	for _, object := range d.named {
		for name, value := range receive.Fields(object) {
			d.json.Attribute(&out.Attributes, strings.Clone(d.json.Text(name)), value)
		}
	}
	if out.Attributes.TooMany() {
		d.reject(out, errTooMany)
		return nil
	}
	return out.Add()
}

func (d *decoder) reject(out *receive.Records, why error) {
	out.Discard()
	d.invalid++
	if d.why == nil {
		d.why = why
	}
}

// take takes the fields of an event that are more than an attribute.
func (d *decoder) take(name string, v []byte) bool {
	switch name {
	case "tags":
		return d.takeTags(v)
	case "text", "message", "msg_text":
		return d.takeText(&d.text, v)
	case "title", "msg_title":
		return d.takeText(&d.title, v)
	case "eventType", "event_type", "type":
		return d.takeText(&d.name, v)
	case "source", "source_type_name":
		return d.takeText(&d.source, v)
	case "host", "hostname":
		return d.takeText(&d.host, v)
	case "service":
		return d.takeText(&d.service, v)
	}
	return false
}

// takeText takes a string. The first of several fields for the same counts, later
// ones stay attributes.
func (d *decoder) takeText(to *string, v []byte) bool {
	if !receive.IsString(v) || *to != "" {
		return false
	}
	*to = strings.Clone(d.json.Text(v))
	return true
}

// takeTags takes tags as far as to see that there are too many.
func (d *decoder) takeTags(v []byte) bool {
	switch {
	case receive.IsArray(v):
		d.tags = receive.TagsOf(d.tags, &d.json, v)
	case receive.IsString(v):
		d.tags = receive.SplitTags(d.tags, d.json.Text(v))
	case receive.IsObject(v):
		if len(d.named) <= receive.MaxAttributes {
			d.named = append(d.named, v)
		}
	default:
		return false
	}
	return true
}
