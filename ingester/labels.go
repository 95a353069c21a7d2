package ingester

import (
	"unicode/utf8"
	"unsafe"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"google.golang.org/protobuf/encoding/protowire"
)

// LabelLimits bounds one label set. A series that exceeds one of them is
// invalid; its neighbours in the request are not touched.
type LabelLimits struct {
	Names      int // labels in a set
	NameBytes  int // bytes in a name
	ValueBytes int // bytes in a value
	SetBytes   int // bytes in the whole set as remote write 1.0 encodes it
}

// labelSet reads and checks label sets in the encoding of Group.Key. It is
// reused from one miss to the next by one goroutine.
type labelSet struct {
	limits  LabelLimits
	builder labels.ScratchBuilder
	// tidied says that the last set read differs from what its bytes say: it
	// was not sorted, or held labels with empty values, which are none.
	tidied bool
}

// read decodes a label set. The labels share no memory with key. A reason other
// than valid says what is wrong with the set.
func (s *labelSet) read(key []byte) (labels.Labels, Reason) {
	if len(key) > s.limits.SetBytes {
		return labels.EmptyLabels(), ReasonLabelsTooLarge
	}
	s.builder.Reset()
	s.tidied = false
	names, last, sorted := 0, "", true
	for len(key) > 0 {
		name, value, rest, ok := nextLabel(key)
		if !ok {
			return labels.EmptyLabels(), ReasonMalformedLabels
		}
		key = rest
		if why := s.check(name, value); why != valid {
			return labels.EmptyLabels(), why
		}
		if len(value) == 0 {
			s.tidied = true
			continue
		}
		if names++; names > s.limits.Names {
			return labels.EmptyLabels(), ReasonTooManyLabels
		}
		if view(name) == last {
			return labels.EmptyLabels(), ReasonDuplicateLabel
		}
		sorted = sorted && last < view(name)
		last = view(name)
		s.builder.Add(string(name), string(value))
	}
	if !sorted {
		s.builder.Sort()
		s.tidied = true
	}
	ls := s.builder.Labels()
	if _, dup := ls.HasDuplicateLabelNames(); dup {
		return ls, ReasonDuplicateLabel
	}
	return ls, valid
}

func (s *labelSet) check(name, value []byte) Reason {
	switch {
	case len(name) == 0:
		return ReasonEmptyLabelName
	case len(name) > s.limits.NameBytes:
		return ReasonLabelNameTooLong
	case len(value) > s.limits.ValueBytes:
		return ReasonLabelValueTooLong
	case !utf8.Valid(name) || !utf8.Valid(value):
		return ReasonInvalidUTF8
	}
	return valid
}

// checkNamed says what is wrong with the labels that the rules left. Only a series
// needs any: a log line without a label is a log line.
func checkNamed(stream Stream, ls labels.Labels) Reason {
	switch {
	case stream != Metrics:
	case ls.IsEmpty():
		return ReasonNoLabels
	case ls.Get(model.MetricNameLabel) == "":
		return ReasonNoMetricName
	}
	return valid
}

// nextLabel splits the first label off a label set. It reads the two fields in
// any order and skips unknown ones, as protobuf demands.
func nextLabel(set []byte) (name, value, rest []byte, ok bool) {
	field, wire, n := protowire.ConsumeTag(set)
	if n < 0 || field != labelField || wire != protowire.BytesType {
		return nil, nil, nil, false
	}
	msg, m := protowire.ConsumeBytes(set[n:])
	if m < 0 {
		return nil, nil, nil, false
	}
	rest = set[n+m:]
	for len(msg) > 0 {
		field, wire, n := protowire.ConsumeTag(msg)
		if n < 0 {
			return nil, nil, nil, false
		}
		m := protowire.ConsumeFieldValue(field, wire, msg[n:])
		if m < 0 || field <= valueField && wire != protowire.BytesType {
			return nil, nil, nil, false
		}
		switch field {
		case nameField:
			name, _ = protowire.ConsumeBytes(msg[n:])
		case valueField:
			value, _ = protowire.ConsumeBytes(msg[n:])
		}
		msg = msg[n+m:]
	}
	return name, value, rest, true
}

// spellOut writes the label set that references into the batch's symbols stand
// for in the encoding of remote write 1.0, so that a series has one route,
// whichever version brings it. The bytes are valid until the next call.
//
// 2.0 wants labels sorted, and a series whose labels are not is invalid. Those of
// 1.0 are sorted instead: vmagent, for one, does not sort what it scrapes.
func (w *work) spellOut(b *Batch, refs []byte, limit int) ([]byte, Reason) {
	out := w.spelt[:0]
	defer func() { w.spelt = out }()
	last := ""
	for len(refs) > 0 {
		name, n := protowire.ConsumeVarint(refs)
		value, m := uint64(0), -1
		if n > 0 {
			value, m = protowire.ConsumeVarint(refs[n:])
		}
		if count := uint64(len(b.Symbols)); m < 0 || name >= count || value >= count {
			return nil, ReasonBadSymbol
		}
		refs = refs[n+m:]
		text := view(b.Bytes(b.Symbols[name]))
		if text < last {
			return nil, ReasonUnsortedLabels
		}
		last = text
		content := view(b.Bytes(b.Symbols[value]))
		if len(out)+len(text)+len(content) > limit {
			return nil, ReasonLabelsTooLarge
		}
		out = AppendLabel(out, text, content)
	}
	return out, valid
}

// Field numbers of remote write 1.0's TimeSeries.labels and of Label.
const (
	labelField = 1
	nameField  = 1
	valueField = 2
)

// AppendLabel appends one label in the encoding of Group.Key.
func AppendLabel(dst []byte, name, value string) []byte {
	size := 2 + protowire.SizeBytes(len(name)) + protowire.SizeBytes(len(value))
	dst = protowire.AppendTag(dst, labelField, protowire.BytesType)
	dst = protowire.AppendVarint(dst, uint64(size))
	dst = protowire.AppendTag(dst, nameField, protowire.BytesType)
	dst = protowire.AppendString(dst, name)
	dst = protowire.AppendTag(dst, valueField, protowire.BytesType)
	return protowire.AppendString(dst, value)
}

// AppendLabels appends a label set in the encoding of Group.Key.
func AppendLabels(dst []byte, ls labels.Labels) []byte {
	ls.Range(func(l labels.Label) { dst = AppendLabel(dst, l.Name, l.Value) })
	return dst
}

// view reads bytes as a string without a copy. The string lives as long as the
// bytes stay as they are.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
