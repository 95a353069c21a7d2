package otlp

import (
	"bytes"
	"slices"

	semconv "go.opentelemetry.io/otel/semconv/v1.26.0"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// readResource collects the labels in view that a resource gives to its items, and
// says what is wrong with it.
func (w *walker) readResource(msg []byte) ingester.Reason {
	w.resource = w.resource[:0]
	if !w.names.metrics {
		why := w.walkAround(msg, w.messages.resource)
		w.resource = append(w.resource, w.item...)
		if l := w.names.serviceName; l != nil && why == noReason {
			if value, found := findAttribute(msg, string(semconv.ServiceNameKey)); found {
				w.resource.set(labelled{label: l, value: w.keptText(value)})
			}
		}
		return why
	}
	return w.readTarget(msg)
}

// walkAround is walkItem for what is around items and none itself. The labels in w.item
// outlive the next item.
func (w *walker) walkAround(msg []byte, s *shapes) ingester.Reason {
	w.forget()
	why := w.walkItem(msg, s)
	if why != noReason {
		w.item = w.item[:0]
	}
	w.scratch = nil
	w.forget()
	return why
}

// readTarget is readResource for metrics: the Prometheus translation makes job and
// instance of a resource, and labels of the attributes that are promoted.
func (w *walker) readTarget(msg []byte) ingester.Reason {
	if why := w.checkPart(msg, w.messages.resource); why != noReason {
		return why
	}
	o := &w.options.Translation
	for a := range attributesOf(msg, w.messages.resource) {
		key, value := a.key, a.value
		listed := o.PromoteResourceAttributes
		if o.PromoteAllResourceAttributes {
			listed = o.IgnoreResourceAttributes
		}
		if slices.Contains(listed, string(key)) == o.PromoteAllResourceAttributes {
			continue
		}
		name := w.names.promoted("", key)
		if name.wrong != noReason {
			return name.wrong
		}
		if name.label != nil {
			w.resource.set(labelled{label: name.label, value: w.keptText(value)})
		}
	}
	if l := w.names.job; l != nil {
		w.winning(&w.resource, l, w.jobOf(msg))
	}
	if l := w.names.instance; l != nil {
		if value, found := findAttribute(msg, string(semconv.ServiceInstanceIDKey)); found {
			w.winning(&w.resource, l, w.keptText(value))
		}
	}
	return noReason
}

// winning sets a label that no attribute of an item replaces, unless it is empty.
func (w *walker) winning(ls *labelList, l *label, value []byte) {
	if len(value) > 0 {
		ls.set(labelled{label: l, value: value, wins: true})
	}
}

// jobOf is the job label of a resource: namespace/name of the service, or its name.
func (w *walker) jobOf(msg []byte) []byte {
	value, found := findAttribute(msg, string(semconv.ServiceNameKey))
	if !found {
		return nil
	}
	job := w.keptText(value)
	if space, found := findAttribute(msg, string(semconv.ServiceNamespaceKey)); found {
		job = slices.Concat(w.keptText(space), []byte("/"), job)
	}
	return job
}

// readScope collects the labels in view of a scope on top of those of its resource,
// and says what is wrong with it.
func (w *walker) readScope(msg, schema []byte) ingester.Reason {
	if w.names.metrics {
		why := w.readTargetScope(msg, schema)
		w.setBase(w.around)
		return why
	}
	why := w.walkAround(msg, w.messages.scope)
	w.around = merge(w.around[:0], w.resource, w.item)
	w.setBase(w.around)
	return why
}

// readTargetScope is readScope for metrics: a scope with a name gives its name,
// version, schema URL and attributes, if the translation promotes them.
func (w *walker) readTargetScope(msg, schema []byte) ingester.Reason {
	w.around = append(w.around[:0], w.resource...)
	if why := w.checkPart(msg, w.messages.scope); why != noReason {
		return why
	}
	name, version := findText(msg, 1), findText(msg, 2)
	if !w.options.Translation.PromoteScopeMetadata || len(name) == 0 {
		return noReason
	}
	scope := w.wins[:0]
	for a := range attributesOf(msg, w.messages.scope) {
		name := w.names.promoted("otel_scope_", a.key)
		if name.wrong != noReason {
			return name.wrong
		}
		if name.label != nil {
			text := w.keptText(a.value)
			scope.set(labelled{label: name.label, value: text, wins: len(text) > 0})
		}
	}
	for _, own := range [...]labelled{
		{label: w.names.scopeName, value: name}, {label: w.names.scopeVersion, value: version}, {label: w.names.scopeSchema, value: schema},
	} {
		if own.label != nil {
			own.wins = true
			scope.set(own)
		}
	}
	w.around = merge(w.around[:0], w.resource, scope)
	w.wins = scope
	return noReason
}

// keptText is a value as a label that outlives the scratch buffer.
func (w *walker) keptText(value []byte) []byte {
	text, _ := valueText(value, nil)
	return text
}

// keyValue is an attribute of a checked message.
type keyValue struct{ key, value []byte }

// attributesOf walks the attributes of a checked message.
func attributesOf(msg []byte, s *shapes) func(yield func(keyValue) bool) {
	return func(yield func(keyValue) bool) {
		for i := 0; i < len(msg); {
			tag, at := receive.Uvarint(msg, i)
			i = receive.Skip(msg, at, tag)
			if tag >= 128 || s[tag] != attribute {
				continue
			}
			start, end := receive.Span(msg, at)
			key, value, _ := splitPair(msg[start:end])
			if !yield(keyValue{key, value}) {
				return
			}
		}
	}
}

// findAttribute returns the value of an attribute of a checked resource; of several
// with one key it is the first, as pdata has it.
func findAttribute(msg []byte, key string) (value []byte, found bool) {
	if !bytes.Contains(msg, []byte(key)) {
		return nil, false
	}
	for i := 0; i < len(msg); {
		tag, at := receive.Uvarint(msg, i)
		i = receive.Skip(msg, at, tag)
		if tag != firstTag {
			continue
		}
		start, end := receive.Span(msg, at)
		if have, value, _ := splitPair(msg[start:end]); string(have) == key {
			return value, true
		}
	}
	return nil, false
}

// findText returns a string field of a checked message, the last one if there are
// several.
func findText(msg []byte, number uint64) (text []byte) {
	for i := 0; i < len(msg); {
		tag, at := receive.Uvarint(msg, i)
		i = receive.Skip(msg, at, tag)
		if tag == number<<3|receive.BytesType {
			start, end := receive.Span(msg, at)
			text = msg[start:end]
		}
	}
	return text
}
