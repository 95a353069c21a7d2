package events

import (
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// kubernetesEvent is what is used of an Event of v1 or events.k8s.io/v1. Its texts
// are copies.
type kubernetesEvent struct {
	message, kind, reason, action string // kind is its type, Normal or Warning
	name, uid, namespace          string
	object                        map[string]string
	controller, instance, node    string
	count                         []byte
	time                          uint64
}

// kubernetes reads an Event object, or that in an object of a watch, and reports
// whether v is one.
func (d *decoder) kubernetes(v []byte) (*kubernetesEvent, bool) {
	e := kubernetesEvent{}
	isEvent, object := false, []byte(nil)
	for name, value := range receive.Fields(v) {
		switch d.json.Text(name) {
		case "kind":
			isEvent = d.json.Text(value) == "Event"
		case "object":
			object = value
		case "involvedObject", "regarding":
			isEvent = isEvent || receive.IsObject(value)
		}
	}
	if !isEvent {
		if object != nil && receive.IsObject(object) {
			return d.kubernetes(object)
		}
		return nil, false
	}
	for name, value := range receive.Fields(v) {
		if !receive.IsNull(value) {
			d.kubernetesField(&e, strings.Clone(d.json.Text(name)), value)
		}
	}
	return &e, true
}

func (d *decoder) kubernetesField(e *kubernetesEvent, name string, v []byte) {
	text := func(to *string) {
		if receive.IsString(v) && *to == "" {
			*to = strings.Clone(d.json.Text(v))
		}
	}
	switch name {
	case "message", "note":
		text(&e.message)
	case "type":
		text(&e.kind)
	case "reason":
		text(&e.reason)
	case "action":
		text(&e.action)
	case "reportingComponent", "reportingController":
		text(&e.controller)
	case "reportingInstance":
		text(&e.instance)
	case "count", "deprecatedCount":
		if receive.IsNumber(v) {
			e.count = v
		}
	case "eventTime", "lastTimestamp", "firstTimestamp", "deprecatedLastTimestamp", "deprecatedFirstTimestamp":
		d.latest(e, v)
	default:
		if receive.IsObject(v) {
			d.kubernetesObject(e, name, v)
		}
	}
}

// latest keeps the latest time: an event that happens again is sent again with its
// first and its last time.
func (d *decoder) latest(e *kubernetesEvent, v []byte) {
	if at, ok := receive.ParseTime(d.json.Text(v)); ok {
		e.time = max(e.time, at)
	}
}

// usedFields are those of the objects of an Event from which anything is taken.
func usedFields() []string {
	return []string{"apiVersion", "component", "creationTimestamp", "fieldPath", "host", "kind", "lastObservedTime", "name", "namespace", "uid"}
}

func (d *decoder) kubernetesObject(e *kubernetesEvent, name string, v []byte) {
	fields := map[string]string{}
	for key, value := range receive.Fields(v) {
		if i := slices.Index(usedFields(), d.json.Text(key)); i >= 0 && receive.IsString(value) {
			fields[usedFields()[i]] = strings.Clone(d.json.Text(value))
		}
	}
	switch name {
	case "involvedObject", "regarding":
		e.object = fields
	case "metadata":
		e.name, e.uid, e.namespace = fields["name"], fields["uid"], fields["namespace"]
		if at, ok := receive.ParseTime(fields["creationTimestamp"]); ok && e.time == 0 {
			e.time = at
		}
	case "source", "deprecatedSource":
		if e.controller == "" {
			e.controller = fields["component"]
		}
		e.node = fields["host"]
	case "series":
		if at, ok := receive.ParseTime(fields["lastObservedTime"]); ok {
			e.time = max(e.time, at)
		}
	}
}

// write adds the event, with the names of OpenTelemetry's conventions and those
// under which Datadog's users know them.
func (e *kubernetesEvent) write(out *receive.Records) error {
	namespace := e.object["namespace"]
	if namespace == "" {
		namespace = e.namespace
	}
	out.Time(e.time)
	out.Body(e.message)
	if e.kind == "Normal" {
		out.Severity("info")
	} else {
		out.Severity(strings.ToLower(e.kind))
	}
	if e.kind != "" {
		out.EventName(e.kind)
	}
	out.Resource.Text("k8s.namespace.name", namespace)
	out.Resource.Text("k8s.node.name", e.node)
	a := &out.Attributes
	for _, f := range [...]struct{ name, value string }{
		{"source", "kubernetes"}, {"eventType", e.kind}, {"kube_namespace", namespace},
		{"kube_kind", e.object["kind"]}, {"kube_name", e.object["name"]},
		{"k8s.event.reason", e.reason}, {"k8s.event.action", e.action}, {"k8s.event.name", e.name}, {"k8s.event.uid", e.uid},
		{"k8s.object.kind", e.object["kind"]}, {"k8s.object.name", e.object["name"]}, {"k8s.object.uid", e.object["uid"]},
		{"k8s.object.api_version", e.object["apiVersion"]}, {"k8s.object.fieldpath", e.object["fieldPath"]},
		{"k8s.event.reporting_controller", e.controller}, {"k8s.event.reporting_instance", e.instance},
	} {
		a.Text(f.name, f.value)
	}
	if n, err := strconv.ParseInt(string(e.count), 10, 64); err == nil {
		a.Int("k8s.event.count", n)
	}
	return out.Add()
}
