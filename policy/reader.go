package policy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gopkg.in/yaml.v3"
)

// reader takes a YAML tree apart and collects every problem on the way. Its
// methods report whether the value was usable; where it was not, a problem has
// been noted and the caller goes on with the rest of the file.
//
// The tree is walked by hand, since decoding into structs would lose lines and
// digits, stop at the first problem, and follow aliases.
type reader struct {
	file     string
	problems Problems
}

// note adds a problem with the value at n; nil is a problem outside the file.
func (r *reader) note(n *yaml.Node, path, format string, args ...any) {
	line := 0
	if n != nil {
		line = n.Line
	}
	r.problems = append(r.problems, Problem{
		File: r.file, Path: path, Message: fmt.Sprintf(format, args...), Line: line,
	})
}

// syntaxError is how the YAML library words its errors.
var syntaxError = regexp.MustCompile(`(?s)^yaml: (?:line ([0-9]+): )?(.*)$`)

func (r *reader) noteSyntax(err error) {
	p := Problem{File: r.file, Message: "is not YAML: " + err.Error()}
	if m := syntaxError.FindStringSubmatch(err.Error()); m != nil {
		p.Line, _ = strconv.Atoi(m[1])
		p.Message = "is not YAML: " + m[2]
	}
	r.problems = append(r.problems, p)
}

// root returns the value of the only document in data, nil if there is none.
func (r *reader) root(data []byte) *yaml.Node {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc, second yaml.Node
	if err := dec.Decode(&doc); err != nil {
		if !errors.Is(err, io.EOF) {
			r.noteSyntax(err)
		}
		return nil
	}
	switch err := dec.Decode(&second); {
	case err == nil:
		r.note(&second, "", "is a second document: a policy file has one, put all streams there")
	case !errors.Is(err, io.EOF):
		r.noteSyntax(err)
	}
	return doc.Content[0]
}

// field is one entry of a mapping.
type field struct {
	name  string
	value *yaml.Node
}

// fields returns the entries of a mapping in the order of the file, but for
// those that are not among known or repeat another. what says what the known
// names are, for messages.
func (r *reader) fields(n *yaml.Node, path, what string, known ...string) ([]field, bool) {
	if n.Kind != yaml.MappingNode || n.Tag != "!!map" {
		r.note(n, path, "is %s: write a mapping with %s", describe(n), list(known))
		return nil, false
	}
	var out []field
	firstLine := map[string]int{}
	for i := 0; i < len(n.Content); i += 2 {
		key, value := n.Content[i], n.Content[i+1]
		at := join(path, key.Value)
		switch first, repeated := firstLine[key.Value]; {
		case key.Kind != yaml.ScalarNode:
			r.note(key, path, "has %s as the name of a %s: the names are %s", describe(key), what, list(known))
		case key.Tag == "!!merge":
			r.note(key, at, "merging is not supported: write the fields out")
		case !slices.Contains(known, key.Value):
			r.note(key, at, "unknown %s: the names are %s", what, list(known))
		case repeated:
			r.note(key, at, "is already on line %d: keep one of the two", first)
		default:
			firstLine[key.Value] = key.Line
			out = append(out, field{key.Value, value})
		}
	}
	return out, true
}

// byName makes fields addressable; a field that is not there is nil.
func byName(fs []field) map[string]*yaml.Node {
	m := make(map[string]*yaml.Node, len(fs))
	for _, f := range fs {
		m[f.name] = f.value
	}
	return m
}

// items returns the elements of a list. Nothing, or null, is an empty list.
func (r *reader) items(n *yaml.Node, path, of string) ([]*yaml.Node, bool) {
	if n == nil || isNull(n) {
		return nil, true
	}
	if n.Kind != yaml.SequenceNode || n.Tag != "!!seq" {
		r.note(n, path, "is %s: write a list of %s", describe(n), of)
		return nil, false
	}
	return n.Content, true
}

func (r *reader) text(n *yaml.Node, path string) (string, bool) {
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		r.note(n, path, "is %s: write text", describe(n))
	case n.Tag != "!!str":
		r.note(n, path, "is %s, which YAML does not read as text: put it in quotes", shown(n.Value))
	default:
		return n.Value, true
	}
	return "", false
}

func (r *reader) number(n *yaml.Node, path string) (*big.Rat, bool) {
	switch {
	case n.Kind != yaml.ScalarNode || isNull(n):
		r.note(n, path, "is %s: write a number", describe(n))
		return nil, false
	case n.Tag == "!!str" && n.Style != 0:
		r.note(n, path, "is the text %s: write a number, without quotes", shown(n.Value))
		return nil, false
	}
	v, err := parseDecimal(n.Value)
	if err != nil {
		r.note(n, path, "%v", err)
		return nil, false
	}
	return v, true
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.Tag == "!!null" }

func describe(n *yaml.Node) string {
	switch {
	case n.Kind == yaml.AliasNode:
		return "an alias (*" + n.Value + "), which is not supported"
	case isNull(n):
		return "empty"
	case n.Kind == yaml.ScalarNode:
		return shown(n.Value)
	case n.Tag != "!!map" && n.Tag != "!!seq":
		return "of the unknown type " + shown(n.Tag)
	case n.Kind == yaml.MappingNode:
		return "a mapping"
	default:
		return "a list"
	}
}

// bareName is a field name that needs no quotes in a path.
var bareName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,60}$`)

func join(path, name string) string {
	if !bareName.MatchString(name) {
		name = shown(name)
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func list(names []string) string { return strings.Join(names, ", ") }
