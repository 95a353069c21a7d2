package relabel

import (
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
	"gopkg.in/yaml.v3"
)

// Step is what one rule did to a label set.
type Step struct {
	// Rule is the rule as YAML on one line, without the fields that have their
	// default value.
	Rule string `json:"rule"`
	// Before and After are the labels on both sides of the rule; a rule that
	// drops leaves them as they were.
	Before  labels.Labels `json:"before"`
	After   labels.Labels `json:"after"`
	Dropped bool          `json:"dropped"`
	Changed bool          `json:"changed"`
	// Why says for what reason the rule dropped, or changed nothing. It is
	// empty where the rule changed something.
	Why string `json:"why,omitempty"`
}

// Explain runs the rules on ls one by one: a step for each, up to the one that
// drops. The last step tells what Apply makes of ls.
func (r *Rules) Explain(ls labels.Labels) []Step {
	b := labels.NewBuilder(ls)
	var steps []Step
	for _, c := range r.configs {
		s := Step{Rule: text(c), Before: snapshot(b)}
		s.Dropped = !relabel.ProcessBuilder(b, c)
		s.After = snapshot(b)
		s.Changed = !labels.Equal(s.Before, s.After)
		if !s.Changed {
			s.Why = why(c, s.Before)
		}
		steps = append(steps, s)
		if s.Dropped {
			break
		}
	}
	return steps
}

// snapshot copies what is in b. b.Labels would sort what is in b on the way,
// and with it change what a later labelmap does.
func snapshot(b *labels.Builder) labels.Labels {
	var copied labels.ScratchBuilder
	b.Range(func(l labels.Label) { copied.Add(l.Name, l.Value) })
	copied.Sort()
	return copied.Labels()
}

// why says what a rule that left the labels as they were found in them.
func why(c *relabel.Config, ls labels.Labels) string {
	source := sourceValue(c, ls)
	matches := c.Regex.MatchString(source)
	switch c.Action {
	case relabel.Keep, relabel.Drop:
		return sourceText(source, matches, c)
	case relabel.KeepEqual, relabel.DropEqual:
		return compared(source, c.TargetLabel, ls.Get(c.TargetLabel))
	case relabel.Replace:
		if !matches {
			return sourceText(source, false, c)
		}
		return unchangedTarget(c, source, ls)
	case relabel.LabelMap, relabel.LabelDrop, relabel.LabelKeep:
		return namesText(c, ls)
	default:
		return already(c.TargetLabel, ls)
	}
}

func sourceValue(c *relabel.Config, ls labels.Labels) string {
	values := make([]string, len(c.SourceLabels))
	for i, name := range c.SourceLabels {
		values[i] = ls.Get(string(name))
	}
	return strings.Join(values, c.Separator)
}

func sourceText(source string, matches bool, c *relabel.Config) string {
	if matches {
		return fmt.Sprintf("source value %q matches %#q", source, c.Regex)
	}
	return fmt.Sprintf("source value %q does not match %#q", source, c.Regex)
}

func compared(source, name, value string) string {
	if source == value {
		return fmt.Sprintf("source value %q equals label %q", source, name)
	}
	return fmt.Sprintf("source value %q is not the value %q of label %q", source, value, name)
}

// unchangedTarget is for a replace that matched.
func unchangedTarget(c *relabel.Config, source string, ls labels.Labels) string {
	at := c.Regex.FindStringSubmatchIndex(source)
	target := string(c.Regex.ExpandString(nil, c.TargetLabel, source, at))
	if !c.NameValidationScheme.IsValidLabelName(target) {
		return fmt.Sprintf("target label %q is not a label name", target)
	}
	return already(target, ls)
}

func already(target string, ls labels.Labels) string {
	if !ls.Has(target) {
		return fmt.Sprintf("label %q is absent already", target)
	}
	return fmt.Sprintf("label %q is %q already", target, ls.Get(target))
}

func namesText(c *relabel.Config, ls labels.Labels) string {
	matching := 0
	ls.Range(func(l labels.Label) {
		if c.Regex.MatchString(l.Name) {
			matching++
		}
	})
	switch {
	case c.Action == relabel.LabelKeep:
		return fmt.Sprintf("every label name matches %#q", c.Regex)
	case matching == 0:
		return fmt.Sprintf("no label name matches %#q", c.Regex)
	default:
		return fmt.Sprintf("the labels that names matching %#q lead to are the same already", c.Regex)
	}
}

// text is a rule as YAML on one line. Parse reads it back as an equal rule.
func text(c *relabel.Config) string {
	rule := yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	add := func(name string, value any) {
		var key, val yaml.Node
		key.SetString(name)
		// A string, a number or a list of strings is always representable.
		_ = val.Encode(value)
		val.Style |= yaml.FlowStyle
		rule.Content = append(rule.Content, &key, &val)
	}
	defaults := relabel.DefaultRelabelConfig
	add("action", string(c.Action))
	if len(c.SourceLabels) > 0 {
		add("source_labels", c.SourceLabels)
	}
	if c.Separator != defaults.Separator {
		add("separator", c.Separator)
	}
	if c.Regex.String() != defaults.Regex.String() {
		add("regex", c.Regex.String())
	}
	if c.Modulus != defaults.Modulus {
		add("modulus", c.Modulus)
	}
	if c.TargetLabel != defaults.TargetLabel {
		add("target_label", c.TargetLabel)
	}
	if c.Replacement != defaults.Replacement {
		add("replacement", c.Replacement)
	}
	line, _ := yaml.Marshal(&rule)
	return strings.TrimSuffix(string(line), "\n")
}
