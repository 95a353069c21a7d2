package receive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
)

// nestedLevels is how many levels of objects and arrays of a value are taken
// apart. What lies deeper stays JSON text, so that a value nested to thousands of
// levels costs no more than its bytes, and readers of protobuf with a recursion
// limit of their own (100 is usual) can read all that is written.
const nestedLevels = 16

// JSON reads JSON texts. A library checks the grammar; what passed the check is
// walked in place, without a copy or a tree. The zero value is ready. It is reused
// by one goroutine at a time.
type JSON struct {
	dec  jsontext.Decoder
	in   bytes.Buffer
	text []byte // an unquoted string
	path []byte // the name of a nested field

	layout *Layout // of the record being written
	level  string  // its level, and how far behind in layout.Level that was found
	rank   int
}

// ErrJSON is what every error of Check wraps.
var ErrJSON = errors.New("not valid JSON")

// start makes the decoder read data. Invalid UTF-8 is replaced later, and repeated
// names are left to the receiver: both occur in what log shippers send, and are no
// reason to lose a line.
func (j *JSON) start(data []byte) {
	j.in = *bytes.NewBuffer(data)
	j.dec.Reset(&j.in, jsontext.AllowInvalidUTF8(true), jsontext.AllowDuplicateNames(true))
}

// Check returns the one JSON value that data holds, without the space around it.
func (j *JSON) Check(data []byte) ([]byte, error) {
	j.start(data)
	v, err := j.dec.ReadValue()
	if err == nil {
		if _, err = j.dec.ReadToken(); err == io.EOF {
			return v, nil
		}
		if err == nil {
			err = errors.New("more follows behind the value")
		}
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return nil, fmt.Errorf("%w: %w", ErrJSON, err)
}

// Values yields the JSON values that follow each other in data, with or without
// space between them, and ends with an error where one is not valid.
func (j *JSON) Values(data []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		if _, err := j.values(data, func(v []byte) bool { return yield(v, nil) }); err != nil {
			yield(nil, fmt.Errorf("%w: %w", ErrJSON, err))
		}
	}
}

// ErrLine is what every error of Lines wraps that is about one line.
var ErrLine = errors.New("a line is not valid JSON")

// Lines yields the JSON values that follow each other in data, as Values does, but goes
// on where one is not valid: from there on every line stands for itself, and one that is
// not valid is yielded as ErrLine. Data that starts as an array ends with ErrJSON where
// that is not valid, and so does data in which there is no valid value.
func (j *JSON) Lines(data []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		read := false
		rest, failed := j.values(data, func(v []byte) bool { read = true; return yield(v, nil) })
		if failed == nil {
			return
		}
		first := fmt.Errorf("%w: %w", ErrJSON, failed)
		if bytes.HasPrefix(skipSpace(data), []byte("[")) {
			yield(nil, first)
			return
		}
		for line := range bytes.Lines(rest) {
			more := true
			_, failed := j.values(line, func(v []byte) bool { read, more = true, yield(v, nil); return more })
			if failed != nil {
				more = yield(nil, fmt.Errorf("%w: %w", ErrLine, failed))
			}
			if !more {
				return
			}
		}
		if !read {
			yield(nil, first)
		}
	}
}

// values calls do for the values that follow each other in data until it returns false,
// or to the first that is not valid, at which rest starts.
func (j *JSON) values(data []byte, do func(v []byte) bool) (rest []byte, err error) {
	for {
		j.start(data)
		v, err := j.dec.ReadValue()
		switch {
		case err == io.EOF:
			return nil, nil
		case err != nil:
			return data, err
		}
		// The decoder may be used for another text before the next value.
		data = data[j.dec.InputOffset():]
		if !do(v) {
			return data, nil
		}
	}
}

// Elements yields the elements of an array that was checked.
func Elements(array []byte) iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		rest := skipSpace(array[1:])
		for rest[0] != ']' {
			n := valueEnd(rest)
			if !yield(rest[:n]) {
				return
			}
			if rest = skipSpace(rest[n:]); rest[0] == ',' {
				rest = skipSpace(rest[1:])
			}
		}
	}
}

// Fields yields the names, in quotes as they are written, and the values of an
// object that was checked.
func Fields(object []byte) iter.Seq2[[]byte, []byte] {
	return func(yield func(name, value []byte) bool) {
		rest := skipSpace(object[1:])
		for rest[0] != '}' {
			n := stringEnd(rest)
			name := rest[:n]
			rest = skipSpace(skipSpace(rest[n:])[1:]) // the colon
			n = valueEnd(rest)
			if !yield(name, rest[:n]) {
				return
			}
			if rest = skipSpace(rest[n:]); rest[0] == ',' {
				rest = skipSpace(rest[1:])
			}
		}
	}
}

// IsObject, IsArray, IsString and IsNull say what a checked value is.
func IsObject(v []byte) bool { return v[0] == '{' }

// IsArray reports whether a checked value is an array.
func IsArray(v []byte) bool { return v[0] == '[' }

// IsString reports whether a checked value is a string.
func IsString(v []byte) bool { return v[0] == '"' }

// IsNumber reports whether a checked value is a number.
func IsNumber(v []byte) bool { return v[0] == '-' || v[0] >= '0' && v[0] <= '9' }

// IsNull reports whether a checked value is null.
func IsNull(v []byte) bool { return v[0] == 'n' }

// Text returns a checked string without quotes and escapes, and any other value as
// it is written. It is valid until the next call, and as long as v.
func (j *JSON) Text(v []byte) string {
	if !IsString(v) {
		return ViewText(v)
	}
	inner := v[1 : len(v)-1]
	if bytes.IndexByte(inner, '\\') < 0 && utf8.Valid(inner) {
		return ViewText(inner)
	}
	// The error tells of invalid UTF-8, which has been replaced.
	j.text, _ = jsontext.AppendUnquote(j.text[:0], v)
	return ViewText(j.text)
}

// Attribute adds a checked value. An object is taken apart: its fields become
// attributes of their own, with the names of the levels joined by dots, as in
// kubernetes.pod_name, so that rules can see them. null is no attribute.
func (j *JSON) Attribute(to *Attributes, key string, v []byte) {
	j.path = append(j.path[:0], key...)
	j.attribute(to, v, 0)
}

// attribute adds v under the name that stands in path.
func (j *JSON) attribute(to *Attributes, v []byte, level int) {
	switch {
	case IsNull(v):
	case IsObject(v) && level < nestedLevels && skipSpace(v[1:])[0] != '}':
		outer := len(j.path)
		for name, field := range Fields(v) {
			j.path = append(j.path, '.')
			j.path = append(j.path, j.Text(name)...)
			j.attribute(to, field, level+1)
			j.path = j.path[:outer]
			if to.tooMany {
				return
			}
		}
	case IsString(v):
		text := j.Text(v)
		j.heed(text)
		to.String(ViewText(j.path), text)
	default:
		j.heed(ViewText(v))
		if at, ok := to.open(ViewText(j.path)); ok {
			to.value = j.appendValue(to.value[:0], v, level)
			to.close(at)
		}
	}
}

// appendValue appends the fields of the AnyValue that a checked value becomes.
func (j *JSON) appendValue(dst, v []byte, level int) []byte {
	switch {
	case IsNull(v):
		return dst
	case IsString(v):
		return appendStringValue(dst, j.Text(v))
	case IsNumber(v):
		return appendNumber(dst, v)
	case IsArray(v) && level < nestedLevels:
		return j.appendArray(dst, v, level)
	case IsObject(v) && level < nestedLevels:
		return j.appendMap(dst, v, level)
	case v[0] == 't' || v[0] == 'f':
		return appendBoolValue(dst, v[0] == 't')
	}
	return appendStringValue(dst, ViewText(v))
}

func (j *JSON) appendArray(dst, v []byte, level int) []byte {
	dst, list := openMessage(dst, fieldArray)
	for e := range Elements(v) {
		var at int
		dst, at = openMessage(dst, fieldValues)
		dst = j.appendValue(dst, e, level+1)
		dst = closeMessage(dst, at)
	}
	return closeMessage(dst, list)
}

func (j *JSON) appendMap(dst, v []byte, level int) []byte {
	dst, list := openMessage(dst, fieldMap)
	for name, field := range Fields(v) {
		var entry, value int
		dst, entry = openMessage(dst, fieldValues)
		dst = protowire.AppendTag(dst, fieldKey, protowire.BytesType)
		dst = appendText(dst, j.Text(name))
		dst, value = openMessage(dst, fieldValue)
		dst = j.appendValue(dst, field, level+1)
		dst = closeMessage(dst, value)
		dst = closeMessage(dst, entry)
	}
	return closeMessage(dst, list)
}

// appendNumber keeps every digit: what neither an int64 nor a double can hold
// exactly enough, such as an unsigned 64-bit id, stays text.
func appendNumber(dst, v []byte) []byte {
	text := ViewText(v)
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return appendIntValue(dst, n)
	}
	f, err := strconv.ParseFloat(text, 64)
	if err != nil || math.IsInf(f, 0) || !bytes.ContainsAny(v, ".eE") {
		return appendStringValue(dst, text)
	}
	return appendDoubleValue(dst, f)
}

// skipSpace returns b from its first byte that is no space of JSON.
func skipSpace(b []byte) []byte {
	for len(b) > 0 && (b[0] == ' ' || b[0] == '\n' || b[0] == '\r' || b[0] == '\t') {
		b = b[1:]
	}
	return b
}

// valueEnd returns where the checked value that b starts with ends.
func valueEnd(b []byte) int {
	switch b[0] {
	case '"':
		return stringEnd(b)
	case '{', '[':
		return nestedEnd(b)
	}
	for i, c := range b {
		switch c {
		case ',', ']', '}', ' ', '\n', '\r', '\t':
			return i
		}
	}
	return len(b)
}

// stringEnd returns where the checked string that b starts with ends.
func stringEnd(b []byte) int {
	for i := 1; ; {
		quote := i + bytes.IndexByte(b[i:], '"')
		slashes := 0
		for b[quote-1-slashes] == '\\' {
			slashes++
		}
		if slashes%2 == 0 {
			return quote + 1
		}
		i = quote + 1
	}
}

// nestedEnd returns where the checked object or array that b starts with ends.
func nestedEnd(b []byte) int {
	depth := 0
	for i := 0; ; {
		switch b[i] {
		case '"':
			i += stringEnd(b[i:])
			continue
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return i + 1
			}
		}
		i++
	}
}
