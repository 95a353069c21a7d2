package receive

import (
	"encoding/binary"
	"math"
	"strings"
	"unicode/utf8"
	"unsafe"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of KeyValue and AnyValue in opentelemetry.proto.common.v1.
const (
	fieldKey   = 1
	fieldValue = 2

	fieldString = 1
	fieldBool   = 2
	fieldInt    = 3
	fieldDouble = 4
	fieldArray  = 5
	fieldMap    = 6

	fieldValues = 1 // ArrayValue.values and KeyValueList.values
)

// MaxAttributes is how many attributes a record or its resource may have, as for
// those that come as OTLP. More are the mark of a mistake or an attack; Elasticsearch
// refuses documents with more than 1000 fields, Datadog logs with more than 256.
const MaxAttributes = 1024

// maxNameBytes is how many bytes the names of these may have together. The names of
// nested fields repeat those of the levels above, so that without a bound a single long
// name grows with the number of fields below it.
const maxNameBytes = 1 << 20

// Attributes is the list of attributes of a record or of its resource. OTLP demands
// that keys differ: the first value of a key counts, others are left out and
// counted.
type Attributes struct {
	encoded  []byte
	field    protowire.Number
	names    []byte              // the keys, one after the other
	ends     []int               // where each ends in names
	index    map[string]struct{} // the keys, once there are many
	repeated int
	tooMany  bool
	value    []byte // a value of which the length has to be known first
}

func (a *Attributes) reset(field protowire.Number) {
	a.encoded, a.field, a.names, a.ends = a.encoded[:0], field, a.names[:0], a.ends[:0]
	a.repeated, a.tooMany = 0, false
	if len(a.index) > 0 {
		clear(a.index)
	}
}

// bytes is how much memory is held.
func (a *Attributes) bytes() int { return cap(a.encoded) + cap(a.names) + cap(a.value) }

// Len is how many attributes there are.
func (a *Attributes) Len() int { return len(a.ends) }

// TooMany reports whether there were more than MaxAttributes, or their names were
// longer than any sender's; the record should then be discarded.
func (a *Attributes) TooMany() bool { return a.tooMany }

// String adds a text. Invalid UTF-8 in it is replaced, since protobuf has no place
// for it.
func (a *Attributes) String(key, value string) {
	at, ok := a.open(key)
	if !ok {
		return
	}
	value = ValidText(value)
	a.encoded = protowire.AppendTag(a.encoded, fieldValue, protowire.BytesType)
	a.encoded = protowire.AppendVarint(a.encoded, uint64(1+protowire.SizeBytes(len(value))))
	a.encoded = appendStringValue(a.encoded, value)
	a.encoded = closeMessage(a.encoded, at)
}

// Text adds a text unless it is empty.
func (a *Attributes) Text(key, value string) {
	if value != "" {
		a.String(key, value)
	}
}

// Int adds a whole number.
func (a *Attributes) Int(key string, value int64) {
	if at, ok := a.open(key); ok {
		a.value = appendIntValue(a.value[:0], value)
		a.close(at)
	}
}

// Strings adds a list of texts.
func (a *Attributes) Strings(key string, values []string) {
	at, ok := a.open(key)
	if !ok {
		return
	}
	var list, element int
	a.value, list = openMessage(a.value[:0], fieldArray)
	for _, v := range values {
		a.value, element = openMessage(a.value, fieldValues)
		a.value = appendStringValue(a.value, v)
		a.value = closeMessage(a.value, element)
	}
	a.value = closeMessage(a.value, list)
	a.close(at)
}

// open starts a KeyValue. It reports false where the key is there already, or
// there are too many.
func (a *Attributes) open(key string) (start int, ok bool) {
	key = ValidText(key)
	if a.has(key) {
		a.repeated++
		return 0, false
	}
	if len(a.ends) >= MaxAttributes || len(a.names)+len(key) > maxNameBytes {
		a.tooMany = true
		return 0, false
	}
	a.encoded, start = openMessage(a.encoded, a.field)
	a.encoded = protowire.AppendTag(a.encoded, fieldKey, protowire.BytesType)
	a.encoded = protowire.AppendString(a.encoded, key)
	a.remember(key)
	return start, true
}

// close ends a KeyValue with what stands in value.
func (a *Attributes) close(start int) {
	a.encoded = protowire.AppendTag(a.encoded, fieldValue, protowire.BytesType)
	a.encoded = protowire.AppendBytes(a.encoded, a.value)
	a.encoded = closeMessage(a.encoded, start)
}

// fewKeys is up to how many keys a comparison with each is cheaper than a map.
const fewKeys = 24

// remember notes a key.
func (a *Attributes) remember(key string) {
	a.names = append(a.names, key...)
	a.ends = append(a.ends, len(a.names))
	switch {
	case len(a.ends) == fewKeys:
		if a.index == nil {
			a.index = make(map[string]struct{}, 2*fewKeys)
		}
		start := 0
		for _, end := range a.ends {
			a.index[string(a.names[start:end])] = struct{}{}
			start = end
		}
	case len(a.ends) > fewKeys:
		a.index[strings.Clone(key)] = struct{}{}
	}
}

// has reports whether a key is there.
func (a *Attributes) has(key string) bool {
	if len(a.ends) >= fewKeys {
		_, ok := a.index[key]
		return ok
	}
	start := 0
	for _, end := range a.ends {
		if string(a.names[start:end]) == key {
			return true
		}
		start = end
	}
	return false
}

func appendStringValue(dst []byte, text string) []byte {
	dst = protowire.AppendTag(dst, fieldString, protowire.BytesType)
	return appendText(dst, text)
}

func appendIntValue(dst []byte, n int64) []byte {
	dst = protowire.AppendTag(dst, fieldInt, protowire.VarintType)
	return protowire.AppendVarint(dst, uint64(n))
}

func appendDoubleValue(dst []byte, f float64) []byte {
	dst = protowire.AppendTag(dst, fieldDouble, protowire.Fixed64Type)
	return binary.LittleEndian.AppendUint64(dst, math.Float64bits(f))
}

func appendBoolValue(dst []byte, b bool) []byte {
	dst = protowire.AppendTag(dst, fieldBool, protowire.VarintType)
	return protowire.AppendVarint(dst, protowire.EncodeBool(b))
}

// appendText appends a length and a text that is valid UTF-8.
func appendText(dst []byte, text string) []byte {
	return protowire.AppendString(dst, ValidText(text))
}

// ValidText returns text as valid UTF-8, with the replacement character for what is
// not. It allocates only then.
func ValidText(text string) string {
	if utf8.ValidString(text) {
		return text
	}
	return strings.ToValidUTF8(text, "\uFFFD")
}

// ViewText reads bytes as a string without a copy. The string lives as long as
// the bytes stay as they are.
func ViewText(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }
