package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// decodeStrict reads YAML and refuses what it does not know. Each problem has a
// line of its own.
func decodeStrict(data []byte, path string, into any) error {
	problems, err := decodeFields(data, path, into)
	return errors.Join(append(problems, err)...)
}

// decodeFields reads YAML. Problems are those of single fields, beside which the
// rest was read; with an error nothing was.
func decodeFields(data []byte, path string, into any) (problems []error, err error) {
	dec := yaml.NewDecoder(bytes.NewReader(data))
	dec.KnownFields(true)
	err = dec.Decode(into)
	if errors.Is(err, io.EOF) {
		return nil, nil
	}
	var typeErr *yaml.TypeError
	if !errors.As(err, &typeErr) {
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: only one YAML document is expected", path)
		}
		return nil, nil
	}
	names := fieldNames{}
	names.add(reflect.TypeOf(into))
	for _, line := range typeErr.Errors {
		problems = append(problems, fmt.Errorf("%s: %s", path, names.explain(line)))
	}
	return problems, nil
}

// fieldNames are the names that each type's fields have in a file, by the name that
// yaml.v3 uses for the type in its errors.
type fieldNames map[string][]string

// add adds a type and those of its fields.
func (n fieldNames) add(t reflect.Type) {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		n.add(t.Elem())
		return
	case reflect.Struct:
	default:
		return
	}
	if _, known := n[t.String()]; known || t == reflect.TypeFor[yaml.Node]() {
		return
	}
	n[t.String()] = nil
	var names []string
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if !f.IsExported() || name == "-" {
			continue
		}
		n.add(f.Type)
		switch {
		case strings.Contains(options, "inline"):
			names = append(names, n[f.Type.String()]...)
		case name == "":
			names = append(names, strings.ToLower(f.Name))
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	n[t.String()] = names
}

// How yaml.v3 words its errors. Go types say nothing to a user.
var (
	unknownField = regexp.MustCompile(`^(line \d+: )field (.+) not found in type (\S+)$`)
	wrongValue   = regexp.MustCompile(`^(line \d+: cannot unmarshal .*) into (\S+)$`)
)

// explain turns an error of yaml.v3 into one that says what may stand there.
func (n fieldNames) explain(line string) string {
	if m := unknownField.FindStringSubmatch(line); m != nil {
		return fmt.Sprintf("%sunknown field %s%s", m[1], m[2], n.list(": the names are ", m[3]))
	}
	if m := wrongValue.FindStringSubmatch(line); m != nil {
		if list := n.list("; fields are expected: ", m[2]); list != "" || strings.Contains(m[2], "main.") {
			return m[1] + list
		}
	}
	return line
}

// list names a type's fields. A type that was declared to decode another one without
// its method is called like it, but for the case of its first letter and "Fields".
func (n fieldNames) list(prefix, typeName string) string {
	names, ok := n[typeName]
	if !ok {
		folder, name, _ := strings.Cut(strings.TrimSuffix(typeName, "Fields"), ".")
		if name != "" {
			for _, first := range []string{strings.ToUpper(name[:1]), strings.ToLower(name[:1])} {
				names = append(names, n[folder+"."+first+name[1:]]...)
			}
		}
	}
	if len(names) == 0 {
		return ""
	}
	return prefix + strings.Join(names, ", ")
}
