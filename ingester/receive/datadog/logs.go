package datadog

import (
	"bytes"
	"errors"
	"fmt"
	"net/url"
	"strings"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// common is what the address of a request says of all that is in it.
type common struct {
	service, host, source string
	tags                  []string
}

func commonOf(query url.Values) common {
	host := query.Get("hostname")
	if host == "" {
		host = query.Get("host")
	}
	return common{
		service: query.Get("service"), host: host, source: query.Get("ddsource"), tags: splitTags(query["ddtags"]...),
	}
}

func splitTags(lists ...string) (tags []string) {
	for _, list := range lists {
		tags = receive.SplitTags(tags, list)
	}
	return tags
}

// decoder turns bodies into log records. It is reused by one goroutine at a time.
type decoder struct {
	json    receive.JSON
	invalid int
	why     error

	// of the record being written
	common
	said   []string // tags that the record itself has
	layout receive.Layout
}

// errTooMany says that a record has more tags than it may have attributes.
var errTooMany = fmt.Errorf("a record has more than %d tags", receive.MaxAttributes)

// logs reads all logs of a body.
func (d *decoder) logs(out *receive.Records, body []byte, c common, plain bool) error {
	d.start(receive.Layout{
		Body:  []string{"message", "msg", "log"},
		Time:  []string{"timestamp", "@timestamp", "date"},
		Level: []string{"status", "level", "severity"},
		Take:  d.takeLog,
	})
	if plain && !startsAsJSON(body) {
		return d.lines(out, body, c)
	}
	for v, err := range d.json.Lines(body) {
		if errors.Is(err, receive.ErrLine) {
			d.reject(out, err)
			if err := out.Item(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("the body is %w", err)
		}
		if !receive.IsArray(v) {
			if err := d.record(out, v, c); err != nil {
				return err
			}
			continue
		}
		for record := range receive.Elements(v) {
			if err := d.record(out, record, c); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *decoder) start(l receive.Layout) { d.invalid, d.why, d.layout = 0, nil, l }

func startsAsJSON(body []byte) bool {
	body = bytes.TrimSpace(body)
	return len(body) > 0 && (body[0] == '{' || body[0] == '[')
}

// lines takes each line of plain text as a log.
func (d *decoder) lines(out *receive.Records, body []byte, c common) error {
	for line := range bytes.Lines(body) {
		if line = bytes.TrimRight(line, "\r\n"); len(line) == 0 {
			continue
		}
		if err := out.Item(); err != nil {
			return err
		}
		d.common, d.said = c, d.said[:0]
		out.Body(receive.ViewText(line))
		if err := d.finish(out); err != nil {
			return err
		}
	}
	return nil
}

// record adds one object. What is wrong with it alone makes it invalid.
func (d *decoder) record(out *receive.Records, v []byte, c common) error {
	if err := out.Item(); err != nil {
		return err
	}
	d.common, d.said = c, d.said[:0]
	if err := d.json.Record(out, &d.layout, v); err != nil {
		d.reject(out, err)
		return nil
	}
	return d.finish(out)
}

// finish puts the common attributes on the record and adds it.
func (d *decoder) finish(out *receive.Records) error {
	if len(d.said)+len(d.tags) > receive.MaxAttributes {
		d.reject(out, errTooMany)
		return nil
	}
	tags := append(d.said, d.tags...)
	d.said = tags[:len(d.said)]
	out.Resource.Text("service.name", d.service)
	out.Resource.Text("host.name", d.host)
	out.Resource.Text("source", d.source)
	receive.Tags(&out.Resource, tags)
	if out.Resource.TooMany() {
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

// takeLog takes the fields that Datadog reserves.
func (d *decoder) takeLog(name string, v []byte) bool {
	switch name {
	case "hostname", "host":
		return d.takeText(&d.host, v)
	default:
		return d.takeReserved(name, v)
	}
}

func (d *decoder) takeReserved(name string, v []byte) bool {
	switch name {
	case "service":
		return d.takeText(&d.service, v)
	case "ddsource":
		return d.takeText(&d.source, v)
	case "ddtags":
		return d.takeTags(v)
	}
	return false
}

func (d *decoder) takeText(to *string, v []byte) bool {
	if !receive.IsString(v) {
		return false
	}
	*to = strings.Clone(d.json.Text(v))
	return true
}

// takeTags takes a list of tags, in an array or as one text with commas.
func (d *decoder) takeTags(v []byte) bool {
	switch {
	case receive.IsString(v):
		d.said = receive.SplitTags(d.said, d.json.Text(v))
	case receive.IsArray(v):
		d.said = receive.TagsOf(d.said, &d.json, v)
	default:
		return false
	}
	return true
}
