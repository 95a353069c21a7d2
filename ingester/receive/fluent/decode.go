package fluent

import (
	"errors"
	"fmt"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// decoder turns bodies into log records. It is reused by one goroutine at a time.
type decoder struct {
	json    receive.JSON
	invalid int
}

// layout is what the fields of Fluent Bit's and Fluentd's usual inputs mean: log is
// what tail and the container parsers write, message what forward and most parsers
// write, MESSAGE and PRIORITY come from the systemd journal.
func layout() receive.Layout {
	return receive.Layout{
		Body:     []string{"log", "message", "msg", "MESSAGE"},
		Time:     []string{"date", "@timestamp", "timestamp", "time"},
		Level:    []string{"level", "severity", "loglevel", "log_level", "log.level", "PRIORITY"},
		Resource: []string{"kubernetes"},
	}
}

// decode reads all records of a body.
func (d *decoder) decode(out *receive.Records, body []byte, tag string) error {
	d.invalid = 0
	l := layout()
	// An array of records and records one behind the other can be told by the first
	// byte; the content type cannot be relied on.
	for v, err := range d.json.Lines(body) {
		if errors.Is(err, receive.ErrLine) {
			d.invalid++
			if err := out.Item(); err != nil {
				return err
			}
			continue
		}
		if err != nil {
			return fmt.Errorf("the body is %w", err)
		}
		if !receive.IsArray(v) {
			if err := d.record(out, &l, v, tag); err != nil {
				return err
			}
			continue
		}
		for record := range receive.Elements(v) {
			if err := d.record(out, &l, record, tag); err != nil {
				return err
			}
		}
	}
	return nil
}

func (d *decoder) record(out *receive.Records, l *receive.Layout, v []byte, tag string) error {
	if err := out.Item(); err != nil {
		return err
	}
	out.Resource.Text("fluent.tag", tag)
	if err := d.json.Record(out, l, v); err != nil {
		out.Discard()
		d.invalid++
		return nil
	}
	return out.Add()
}
