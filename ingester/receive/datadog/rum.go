package datadog

import (
	"bytes"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// rum reads RUM events, one object per line.
func (d *decoder) rum(out *receive.Records, body []byte, c common) error {
	d.start(receive.Layout{
		Time:     []string{"date"},
		Resource: []string{"application"},
	})
	for line := range bytes.Lines(body) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		v, err := d.json.Check(line)
		if err != nil {
			d.reject(out, err)
			if err := out.Item(); err != nil {
				return err
			}
			continue
		}
		d.layout.Take = func(name string, v []byte) bool { return d.takeEvent(out, name, v) }
		if err := d.record(out, v, c); err != nil {
			return err
		}
	}
	return nil
}

// takeEvent takes the fields of a RUM event that are more than an attribute.
func (d *decoder) takeEvent(out *receive.Records, name string, v []byte) bool {
	switch name {
	case "type":
		if receive.IsString(v) {
			out.EventName(d.json.Text(v))
		}
	case "version":
		if receive.IsString(v) {
			out.Resource.Text("service.version", d.json.Text(v))
			return true
		}
	case "source":
		return d.takeText(&d.source, v)
	case "error":
		d.errorMessage(out, v)
	default:
		return d.takeReserved(name, v)
	}
	return false
}

// errorMessage makes the message of an error event its body, too.
func (d *decoder) errorMessage(out *receive.Records, v []byte) {
	if !receive.IsObject(v) {
		return
	}
	for name, value := range receive.Fields(v) {
		if d.json.Text(name) == "message" && receive.IsString(value) && !out.HasBody() {
			out.Body(d.json.Text(value))
		}
	}
}
