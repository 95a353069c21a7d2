package sink

import (
	"bytes"
	"encoding/binary"
	"strings"

	"github.com/prometheus/otlptranslator"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// What the rules changed is written back as the item's attributes. An attribute
// belongs to a label if its key is the label's name, or becomes it when normalised
// as the OTLP translation of Prometheus does (k8s.pod.name is k8s_pod_name).
//
//	label set      the item's attribute that belongs to it gets the value and keeps
//	               its key; further ones go. Without one, the item gets an attribute
//	               under the label's name. It wins over the resource's.
//	label removed  the attributes that belong to it go: the item's own, and those of
//	               its resource and scope.
//
// Some labels are no attributes:
//
//	service_name   (logs, events, RUM, traces) service.name of the resource
//	severity       (logs, events, RUM) severity_text; severity_number follows where
//	               the text is one of trace, debug, info, warn, error, fatal, with 2
//	               to 4 behind it or not, and is unspecified otherwise
//	span_name      (traces) the span's name
//	span_kind      (traces) the span's kind where the value is one of unspecified,
//	               internal, server, client, producer, consumer; else an attribute
//	__name__       (metrics) the metric's name
//	job            (metrics) service.name of the resource, without service.namespace
//	instance       (metrics) service.instance.id of the resource
//	otel_scope_name, otel_scope_version, otel_scope_… (metrics) when removed: the
//	               scope's name, version and attributes
//
// A change of a resource, scope or metric concerns one group only: the group gets
// copies of its own, and its neighbours keep theirs.

// change is one label that the rules set or removed.
type change struct {
	name, value []byte
	removed     bool
	// done is used while an item is written: its attribute has the value already.
	done bool
}

// plan is what has to be done to a group. It is kept from one group to the next,
// since neighbours tend to have one route.
type plan struct {
	route  ingester.Route
	parent int32
	valid  bool
	// item are the changes to the item itself, above those to what is around it.
	item, above []change
}

func (p *plan) reset() {
	clear(p.item[:cap(p.item)])
	clear(p.above[:cap(p.above)])
	*p = plan{item: p.item[:0], above: p.above[:0]}
}

func (p *plan) nothing() bool { return len(p.item)+len(p.above) == 0 }

// read finds out what has to be done to a group.
func (p *plan) read(e *Encoder, g *ingester.Group) {
	if p.valid && p.route == g.Route && p.parent == g.Parent {
		return
	}
	p.route, p.parent, p.valid = g.Route, g.Parent, true
	p.item, p.above = p.item[:0], p.above[:0]
	sent, now := g.Route.Sent(), g.Route.Labels()
	for rest := now; len(rest) > 0; {
		var name, value []byte
		if name, value, rest = CutLabel(rest); name == nil {
			break
		}
		if old, ok := findLabel(sent, name); !ok || !bytes.Equal(old, value) {
			p.add(e, g, change{name: name, value: value})
		}
	}
	for rest := sent; len(rest) > 0; {
		var name, value []byte
		if name, value, rest = CutLabel(rest); name == nil {
			break
		}
		if _, ok := findLabel(now, name); !ok && len(value) > 0 {
			p.add(e, g, change{name: name, removed: true})
		}
	}
}

func (p *plan) add(e *Encoder, g *ingester.Group, c change) {
	p.item = append(p.item, c)
	if aboveOnly(e.batch.Format, c.name) || c.removed && e.standsAbove(g, c.name) {
		p.above = append(p.above, c)
	}
}

// aboveOnly says that a label is made of what is around the item.
func aboveOnly(f ingester.Format, name []byte) bool {
	switch string(name) {
	case "service_name":
		return f != ingester.OTLPMetrics
	case "__name__", "job", "instance":
		return f == ingester.OTLPMetrics
	}
	return false
}

// standsAbove says that an attribute of the group's resource or scope belongs to
// the label.
func (e *Encoder) standsAbove(g *ingester.Group, name []byte) bool {
	found := false
	for i := g.Parent; i >= 0 && !found; i = e.batch.Containers[i].Parent {
		depth := int(e.containers[i].depth)
		if depth > 1 {
			continue
		}
		c := &e.batch.Containers[i]
		fields(e.batch.Body[c.Message:c.Field.End], func(num protowire.Number, typ protowire.Type, _, owner []byte) {
			if num != ownerField || typ != protowire.BytesType {
				return
			}
			fields(owner, func(num protowire.Number, _ protowire.Type, _, payload []byte) {
				found = found || e.ownerFieldBelongs(depth, num, payload, name)
			})
		})
	}
	return found
}

// ownerFieldBelongs says that a field of a resource (depth 0) or scope (depth 1) is
// what a label was made of.
func (e *Encoder) ownerFieldBelongs(depth int, num protowire.Number, payload, name []byte) bool {
	if depth == 0 {
		return num == resourceAttribute && e.names.belongs(keyOf(payload), name)
	}
	inScope, ok := bytes.CutPrefix(name, []byte("otel_scope_"))
	ok = ok && e.batch.Format == ingester.OTLPMetrics
	switch num {
	case scopeAttribute:
		key := keyOf(payload)
		return e.names.belongs(key, name) || ok && e.names.belongs(key, inScope)
	case scopeName:
		return ok && string(inScope) == "name"
	case scopeVersion:
		return ok && string(inScope) == "version"
	}
	return false
}

// appendRecords appends the records of a group, each with the changes to it.
func (e *Encoder) appendRecords(dst []byte, g *ingester.Group) ([]byte, bool) {
	num := e.attributeField(g)
	ok := true
	well := fields(e.batch.Bytes(g.Field), func(field protowire.Number, typ protowire.Type, _, record []byte) {
		ok = ok && typ == protowire.BytesType
		dst = appendMessage(dst, field, func(dst []byte) []byte {
			var whole bool
			dst, whole = e.appendRecord(dst, num, record)
			ok = ok && whole
			return dst
		})
	})
	return dst, ok && well
}

// attributeField is the number of the field of attributes in a group's records.
func (e *Encoder) attributeField(g *ingester.Group) protowire.Number {
	switch e.batch.Format {
	case ingester.OTLPLogs:
		return logAttribute
	case ingester.OTLPTraces:
		return spanAttribute
	}
	if g.Parent < 0 {
		return pointAttribute(0)
	}
	kind, _, _ := protowire.ConsumeTag(e.tag(int(g.Parent)))
	return pointAttribute(kind)
}

// appendRecord appends the fields of a record with the changes to it.
func (e *Encoder) appendRecord(dst []byte, attributes protowire.Number, record []byte) ([]byte, bool) {
	for i := range e.plan.item {
		e.plan.item[i].done = false
	}
	ok := fields(record, func(num protowire.Number, typ protowire.Type, whole, payload []byte) {
		if num == attributes && typ == protowire.BytesType {
			dst = e.appendOldAttribute(dst, num, whole, payload)
			return
		}
		if !e.replaces(num) {
			dst = append(dst, whole...)
		}
	})
	for i := range e.plan.item {
		dst = e.appendChange(dst, attributes, &e.plan.item[i])
	}
	return dst, ok
}

// appendOldAttribute appends an attribute of the record as the changes leave it.
func (e *Encoder) appendOldAttribute(dst []byte, num protowire.Number, whole, attribute []byte) []byte {
	key := keyOf(attribute)
	for i := range e.plan.item {
		c := &e.plan.item[i]
		if !e.names.belongs(key, c.name) {
			continue
		}
		if c.removed || c.done || aboveOnly(e.batch.Format, c.name) || e.derived(c) != 0 {
			return dst
		}
		c.done = true
		return appendAttribute(dst, num, key, c.value)
	}
	return append(dst, whole...)
}

// derived is the number of the field of a record that a label is made of, 0 if it
// is an attribute.
func (e *Encoder) derived(c *change) protowire.Number {
	switch {
	case e.batch.Format == ingester.OTLPLogs && string(c.name) == "severity":
		return logSeverityText
	case e.batch.Format != ingester.OTLPTraces:
	case string(c.name) == "span_name":
		return spanName
	case string(c.name) == "span_kind":
		if _, known := kindOf(c.value); known || c.removed {
			return spanKind
		}
	}
	return 0
}

// replaces says that a field of a record is written anew by one of the changes.
func (e *Encoder) replaces(num protowire.Number) bool {
	for i := range e.plan.item {
		d := e.derived(&e.plan.item[i])
		if d != 0 && (d == num || d == logSeverityText && num == logSeverityNumber && e.batch.Format == ingester.OTLPLogs) {
			return true
		}
	}
	return false
}

// appendChange appends what a change adds to a record.
func (e *Encoder) appendChange(dst []byte, attributes protowire.Number, c *change) []byte {
	if c.removed || c.done || aboveOnly(e.batch.Format, c.name) {
		return dst
	}
	switch num := e.derived(c); {
	case num == 0:
		return appendAttribute(dst, attributes, c.name, c.value)
	case num == spanKind && e.batch.Format == ingester.OTLPTraces:
		kind, _ := kindOf(c.value)
		return protowire.AppendVarint(protowire.AppendTag(dst, spanKind, protowire.VarintType), kind)
	case num == logSeverityText && e.batch.Format == ingester.OTLPLogs:
		if n := severityOf(c.value); n > 0 {
			dst = protowire.AppendVarint(protowire.AppendTag(dst, logSeverityNumber, protowire.VarintType), n)
		}
		return appendString(dst, num, c.value)
	default:
		return appendString(dst, num, c.value)
	}
}

// kindOf reads a SpanKind: server, SERVER or SPAN_KIND_SERVER.
func kindOf(value []byte) (kind uint64, known bool) {
	name := strings.TrimPrefix(strings.ToLower(string(value)), "span_kind_")
	for i, n := range [...]string{"unspecified", "internal", "server", "client", "producer", "consumer"} {
		if name == n {
			return uint64(i), true
		}
	}
	return 0, false
}

// severityOf is the SeverityNumber of a text, 0 if it has none.
func severityOf(text []byte) uint64 {
	name := strings.ToLower(string(text))
	for i, n := range [...]string{"trace", "debug", "info", "warn", "error", "fatal"} {
		rest, ok := strings.CutPrefix(name, n)
		switch {
		case !ok:
		case rest == "", n == "warn" && rest == "ing":
			return uint64(4*i + 1)
		case len(rest) == 1 && rest[0] >= '2' && rest[0] <= '4':
			return uint64(4*i+1) + uint64(rest[0]-'1')
		}
	}
	return 0
}

// names remembers how keys of attributes are normalised.
type names struct {
	namer      otlptranslator.LabelNamer
	normalised map[string]string
}

// rememberedNames bounds how many keys are remembered.
const rememberedNames = 4096

// belongs says that an attribute's key leads to a label's name.
func (n *names) belongs(key, label []byte) bool {
	if len(key) == 0 || len(label) == 0 {
		return false
	}
	if bytes.Equal(key, label) {
		return true
	}
	// What cannot be in a label's name becomes an underscore, all else stays, so the
	// last bytes tell most of them apart.
	if end := label[len(label)-1]; end != '_' && end != key[len(key)-1] {
		return false
	}
	name, ok := n.normalised[string(key)]
	if !ok {
		name, _ = n.namer.Build(string(key))
		if n.normalised == nil || len(n.normalised) >= rememberedNames {
			n.normalised = make(map[string]string)
		}
		n.normalised[string(key)] = name
	}
	// An underscore in front becomes key_ unless the translation is told otherwise.
	return name != "" && (name == string(label) || name[0] == '_' && "key"+name == string(label))
}

// CutLabel takes the first label off a set in the encoding of remote write 1.0. name
// is nil if there is none.
func CutLabel(set []byte) (name, value, rest []byte) {
	_, _, n := protowire.ConsumeTag(set)
	if n < 0 {
		return nil, nil, nil
	}
	label, m := protowire.ConsumeBytes(set[n:])
	if m < 0 {
		return nil, nil, nil
	}
	name = label[:0]
	fields(label, func(num protowire.Number, _ protowire.Type, _, payload []byte) {
		if num == 1 {
			name = payload
		} else if num == 2 {
			value = payload
		}
	})
	return name, value, set[n+m:]
}

// findLabel finds the value of a label. Sets are short.
func findLabel(set, name []byte) (value []byte, ok bool) {
	for len(set) > 0 {
		var have []byte
		if have, value, set = CutLabel(set); have == nil {
			return nil, false
		}
		if bytes.Equal(have, name) {
			return value, true
		}
	}
	return nil, false
}

// appendSignature appends what tells one list of changes from another.
func appendSignature(dst []byte, changes []change) []byte {
	for _, c := range changes {
		dst = binary.AppendUvarint(dst, uint64(len(c.name)))
		dst = append(dst, c.name...)
		if c.removed {
			dst = append(dst, 0)
			continue
		}
		dst = binary.AppendUvarint(dst, uint64(len(c.value))+1)
		dst = append(dst, c.value...)
	}
	return dst
}
