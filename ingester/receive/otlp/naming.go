package otlp

import (
	"strings"
	"unicode/utf8"
	"unsafe"

	"github.com/prometheus/common/model"
	"github.com/prometheus/otlptranslator"

	"github.com/spillway-telemetry/spillway/ingester"
)

// label is a label in view. There is one for each name, so that two of them are the
// same label if they are the same pointer.
type label struct {
	name string
	// field is the name as a field of a Label message: tag, length and name.
	field []byte
	// rank orders the labels of a view that is not open; -1 asks for the name.
	rank int32
}

// before orders labels by name.
func (l *label) before(o *label) bool {
	if l.rank >= 0 && o.rank >= 0 {
		return l.rank < o.rank
	}
	return l.name < o.name
}

// attributeName is what the key of an attribute stands for.
type attributeName struct {
	key   string
	label *label // nil: not in view
	// wrong says why no item can have it. For metrics that is, too, that no label name
	// can be made of it; what is no series keeps such an attribute.
	wrong ingester.Reason
}

// Sizes of what a walker remembers of names. Both are full of what senders use:
// beyond that they would only hold what somebody made up.
const (
	quickNames = 512
	knownNames = 4096
)

// names translates names under one view, for one walker, and remembers them.
type names struct {
	view    *ingester.View
	metrics bool
	labels  otlptranslator.LabelNamer
	metric  otlptranslator.MetricNamer

	quick   [quickNames]*attributeName
	known   map[string]*attributeName
	inView  map[string]*label // by label name
	byName  map[string]metricName
	scratch []byte

	// Labels that come from elsewhere than from attributes; nil: not in view.
	metricName, job, instance, scopeName, scopeVersion, scopeSchema *label
	serviceName, severity, spanName, spanKind                       *label
	// fromFields says that one of them comes from a field of an item.
	fromFields bool
}

// metricName is what a metric's name, unit and kind translate to.
type metricName struct {
	text []byte
	bad  bool
}

func newNames(o *Options, view *ingester.View, stream ingester.Stream) *names {
	strategy := o.Translation.TranslationStrategy
	n := &names{
		view:    view,
		metrics: stream == ingester.Metrics,
		labels: otlptranslator.LabelNamer{
			UTF8Allowed: !strategy.ShouldEscape(),
			//lint:ignore SA1019 it is still the only way to what the Prometheus library does by default
			UnderscoreLabelSanitization: o.Translation.LabelNameUnderscoreSanitization,
			PreserveMultipleUnderscores: o.Translation.LabelNamePreserveMultipleUnderscores,
		},
		metric: otlptranslator.NewMetricNamer("", strategy),
		known:  map[string]*attributeName{},
		inView: map[string]*label{},
		byName: map[string]metricName{},
	}
	if !n.metrics {
		n.labels.UTF8Allowed = n.labels.UTF8Allowed || o.UTF8Names
		n.serviceName, n.severity = n.seen("service_name"), n.seen("severity")
		n.spanName, n.spanKind = n.seen("span_name"), n.seen("span_kind")
		n.fromFields = n.severity != nil || n.spanName != nil || n.spanKind != nil
		return n
	}
	n.metricName, n.job, n.instance = n.seen(model.MetricNameLabel), n.seen(model.JobLabel), n.seen(model.InstanceLabel)
	n.scopeName, n.scopeVersion, n.scopeSchema = n.seen("otel_scope_name"), n.seen("otel_scope_version"), n.seen("otel_scope_schema_url")
	return n
}

// seen returns the label of a name, nil if it is not in view. The name of a metric
// always is: without one, a data point is invalid.
func (n *names) seen(name string) *label {
	if l, known := n.inView[name]; known {
		return l
	}
	var l *label
	if n.view.Sees(name) || n.metrics && name == model.MetricNameLabel {
		l = &label{name: strings.Clone(name), rank: -1}
		l.field = append(appendUvarint([]byte{1<<3 | 2}, uint64(len(name))), name...)
		if !n.view.Open {
			l.rank = n.rank(name)
		}
	}
	if len(n.inView) >= knownNames && (n.view.Open || l == nil) {
		return l // one in view is equal by name only; see same
	}
	n.inView[strings.Clone(name)] = l
	return l
}

// rank is the place of a name among those in view, leaving room for the metric's
// name, which may not be one of them.
func (n *names) rank(name string) int32 {
	rank := int32(0)
	for _, other := range n.view.Names {
		if other < name {
			rank += 2
		}
	}
	if name != model.MetricNameLabel {
		rank++
	}
	return rank
}

// same says that two labels have one name.
func same(a, b *label) bool { return a == b || a.rank < 0 && a.name == b.name }

// attribute returns what the key of an item's attribute stands for.
func (n *names) attribute(key []byte) *attributeName {
	slot := &n.quick[quickSlot(key)]
	if a := *slot; a != nil && a.key == string(key) {
		return a
	}
	a, known := n.known[string(key)]
	if !known {
		a = n.learn(string(key))
	}
	*slot = a
	return a
}

// quickSlot spreads keys by their length and by the bytes at both their ends.
func quickSlot(key []byte) uint64 {
	const spread = 0x9e3779b97f4a7c15
	var a, b uint64
	switch n := len(key); {
	case n >= 8:
		a, b = load64(key, 0), load64(key, n-8)
	case n >= 4:
		a, b = load32(key, 0), load32(key, n-4)
	case n > 0:
		a, b = uint64(key[0]), uint64(key[n-1])
	}
	h := (a ^ b*spread ^ uint64(len(key))) * spread
	return h >> 55
}

func load64(b []byte, i int) uint64 {
	return *(*uint64)(unsafe.Pointer(unsafe.SliceData(b[i : i+8])))
}

func load32(b []byte, i int) uint64 {
	return uint64(*(*uint32)(unsafe.Pointer(unsafe.SliceData(b[i : i+4]))))
}

// promoted returns what an attribute of a resource or scope becomes as a label of
// metrics: its key behind a prefix, such as otel_scope_.
func (n *names) promoted(prefix string, key []byte) *attributeName {
	// No key of an item begins so in the same map.
	n.scratch = append(append(append(n.scratch[:0], "promoted\x00"...), prefix...), key...)
	if a, known := n.known[string(n.scratch)]; known {
		return a
	}
	a := &attributeName{}
	name, err := n.labels.Build(prefix + string(key))
	if err != nil {
		a.wrong = ingester.ReasonEmptyLabelName
	} else {
		a.label = n.seen(name)
	}
	n.remember(string(n.scratch), a)
	return a
}

// learn translates the key of an item's attribute and remembers it.
func (n *names) learn(key string) *attributeName {
	a := &attributeName{key: key}
	name, err := key, error(nil)
	if !n.labels.UTF8Allowed {
		name, err = n.labels.Build(key)
	}
	switch {
	case !utf8.ValidString(key):
		a.wrong = ingester.ReasonInvalidUTF8
	case err != nil || name == "":
		if n.metrics {
			a.wrong = ingester.ReasonEmptyLabelName
		}
	case n.metrics && key == model.MetricNameLabel:
		// A metric is called what its own field says.
	default:
		a.label = n.seen(name)
	}
	n.remember(key, a)
	return a
}

// remember keeps a translated name. Keys that fill the map are made up.
func (n *names) remember(key string, a *attributeName) {
	if len(n.known) >= knownNames {
		clear(n.known)
	}
	n.known[key] = a
}

// ofMetric translates a metric's name.
func (n *names) ofMetric(name, unit []byte, kind otlptranslator.MetricType) metricName {
	n.scratch = append(append(append(append(n.scratch[:0], byte(kind)), unit...), 0), name...)
	if m, known := n.byName[string(n.scratch)]; known {
		return m
	}
	text, err := n.metric.Build(otlptranslator.Metric{Name: string(name), Unit: string(unit), Type: kind})
	m := metricName{text: []byte(text), bad: err != nil || text == ""}
	if len(n.byName) >= knownNames {
		clear(n.byName)
	}
	n.byName[string(n.scratch)] = m
	return m
}
