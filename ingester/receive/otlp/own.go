package otlp

import "github.com/spillway-telemetry/spillway/ingester"

// addOwn adds the labels that come from the fields of a log record or span itself.
// They stand for what they say: an attribute of the same name does not replace them.
func (w *walker) addOwn() {
	n := w.names
	if w.format == ingester.OTLPLogs {
		if n.severity == nil {
			return
		}
		severity := w.first
		if len(severity) == 0 {
			severity = severityName(w.enum)
		}
		w.own(n.severity, severity)
		return
	}
	if n.spanName != nil {
		w.own(n.spanName, w.first)
	}
	if n.spanKind != nil {
		w.own(n.spanKind, spanKindName(w.enum))
	}
}

func (w *walker) own(l *label, value []byte) {
	if len(value) > 0 {
		w.item.set(labelled{label: l, value: value})
	}
}

// severityName names the range that a severity number lies in
// (https://opentelemetry.io/docs/specs/otel/logs/data-model/#field-severitynumber).
func severityName(number uint64) []byte {
	const names = "TRACEDEBUGINFO WARN ERRORFATAL"
	if number < 1 || number > 24 {
		return nil
	}
	at := int(number-1) / 4 * 5
	name := names[at : at+5]
	if name[4] == ' ' {
		name = name[:4]
	}
	return []byte(name)
}

// spanKindName is the name of a span's kind in lower case; of an unspecified one
// there is none.
func spanKindName(kind uint64) []byte {
	switch kind {
	case 1:
		return []byte("internal")
	case 2:
		return []byte("server")
	case 3:
		return []byte("client")
	case 4:
		return []byte("producer")
	case 5:
		return []byte("consumer")
	}
	return nil
}
