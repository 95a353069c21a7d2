package relabel

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/relabel"
	"gopkg.in/yaml.v3"
)

// Parse reads a YAML list of relabel rules. nil, an empty node and null are no
// rules. It is strict: a field that does not exist is an error. All problems
// are reported at once; the error wraps a *RuleError for each, with the line in
// the file that node was read from.
func Parse(node *yaml.Node) (*Rules, error) {
	list := content(node)
	if list == nil {
		return &Rules{}, nil
	}
	if list.Kind != yaml.SequenceNode {
		return nil, fmt.Errorf("relabel_configs (line %d): want a list of rules", list.Line)
	}
	var configs []*relabel.Config
	var errs []error
	for i, item := range list.Content {
		c, problems := parseRule(item)
		slices.SortStableFunc(problems, func(a, b *RuleError) int { return a.Line - b.Line })
		for _, p := range problems {
			p.Index = i
			errs = append(errs, p)
		}
		configs = append(configs, c)
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return New(configs)
}

// content is the node that holds a value: what a document or an alias stands
// for, nil where there is no value.
func content(n *yaml.Node) *yaml.Node {
	switch {
	case n == nil || n.IsZero() || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null":
		return nil
	case n.Kind == yaml.DocumentNode:
		return content(n.Content[0])
	case n.Kind == yaml.AliasNode:
		return content(n.Alias)
	}
	return n
}

func parseRule(item *yaml.Node) (*relabel.Config, []*RuleError) {
	rule := content(item)
	if rule == nil {
		return nil, []*RuleError{{Line: item.Line, Err: errors.New("the rule is empty")}}
	}
	if rule.Kind != yaml.MappingNode {
		return nil, []*RuleError{{Line: item.Line, Err: errors.New("a rule is a mapping, such as {source_labels: [a], target_label: b}")}}
	}
	problems := unknownFields(rule, map[*yaml.Node]bool{})
	var c relabel.Config
	if err := rule.Decode(&c); err != nil {
		return nil, append(problems, locate(rule, err)...)
	}
	if len(problems) == 0 {
		if _, err := check(&c); err != nil {
			problems = append(problems, &RuleError{Line: rule.Line, Err: err})
		}
	}
	return &c, problems
}

// known says whether a rule has such a field.
func known(field string) bool {
	switch field {
	case "source_labels", "separator", "regex", "modulus", "target_label", "replacement", "action":
		return true
	}
	return false
}

// unknownFields looks for them in a mapping and in what is merged into it.
// visited ends it where a mapping is merged into itself.
func unknownFields(rule *yaml.Node, visited map[*yaml.Node]bool) (problems []*RuleError) {
	if rule == nil || visited[rule] {
		return nil
	}
	visited[rule] = true
	for i := 0; i+1 < len(rule.Content); i += 2 {
		key, value := rule.Content[i], content(rule.Content[i+1])
		switch {
		case key.ShortTag() == "!!merge" && value != nil && value.Kind == yaml.SequenceNode:
			for _, merged := range value.Content {
				problems = append(problems, unknownFields(content(merged), visited)...)
			}
		case key.ShortTag() == "!!merge":
			problems = append(problems, unknownFields(value, visited)...)
		case !known(key.Value):
			problems = append(problems, &RuleError{Line: key.Line, Err: fmt.Errorf("there is no field %q", key.Value)})
		}
	}
	return problems
}

// locate finds the fields for which a rule cannot be decoded, by decoding each
// alone: the library's errors name neither line nor field.
func locate(rule *yaml.Node, whole error) (problems []*RuleError) {
	for i := 0; i+1 < len(rule.Content); i += 2 {
		key := rule.Content[i]
		alone := yaml.Node{Kind: yaml.MappingNode, Content: rule.Content[i : i+2]}
		if err := alone.Decode(new(relabel.Config)); err != nil {
			problems = append(problems, &RuleError{Line: key.Line, Err: fmt.Errorf("%s: %s", key.Value, plain(err))})
		}
	}
	if len(problems) == 0 {
		problems = append(problems, &RuleError{Line: rule.Line, Err: errors.New(plain(whole))})
	}
	return problems
}

// plain is an error's text without what the YAML library puts before it.
func plain(err error) string {
	var types *yaml.TypeError
	if !errors.As(err, &types) {
		return err.Error()
	}
	texts := make([]string, len(types.Errors))
	for i, text := range types.Errors {
		if line, rest, ok := strings.Cut(text, ": "); ok && strings.HasPrefix(line, "line ") {
			text = rest
		}
		texts[i] = text
	}
	return strings.Join(texts, "; ")
}
