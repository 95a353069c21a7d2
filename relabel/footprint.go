package relabel

import (
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/relabel"
)

// Footprint is what can be known about rules without labels. Its slices are
// shared and must not be written to.
type Footprint struct {
	// All says that some rule looks at every label: labelmap, labeldrop or
	// labelkeep.
	All bool
	// Names are the labels that rules look at by name, sorted, each once.
	Names []string
	// Targets are the labels that rules may set or remove.
	Targets []Target
}

// Target names labels that a rule may set or remove.
type Target struct {
	// Name is the only label; "" where Pattern says which.
	Name string
	// Pattern is an RE2 expression for whole names, Except turns it round: all
	// names but those.
	Pattern string
	Except  bool

	pattern relabel.Regexp
}

// Reads says whether some rule may look at a label: if not, a change of it
// changes neither the decision nor another label.
func (f Footprint) Reads(name string) bool {
	if f.All {
		return true
	}
	_, found := slices.BinarySearch(f.Names, name)
	return found
}

// Writes says whether some rule may set or remove a label.
func (f Footprint) Writes(name string) bool {
	return slices.ContainsFunc(f.Targets, func(t Target) bool { return t.matches(name) })
}

func (t Target) matches(name string) bool {
	if t.pattern.Regexp == nil {
		return t.Name == name
	}
	return t.pattern.MatchString(name) != t.Except
}

func footprintOf(configs []*relabel.Config) Footprint {
	var f Footprint
	for _, c := range configs {
		for _, name := range c.SourceLabels {
			f.Names = append(f.Names, string(name))
		}
		switch c.Action {
		case relabel.KeepEqual, relabel.DropEqual:
			f.Names = append(f.Names, c.TargetLabel)
		case relabel.Replace:
			f.Targets = append(f.Targets, expanded(c.TargetLabel))
		case relabel.HashMod, relabel.Lowercase, relabel.Uppercase:
			f.Targets = append(f.Targets, Target{Name: c.TargetLabel})
		case relabel.LabelMap:
			f.All = true
			f.Targets = append(f.Targets, expanded(c.Replacement))
		case relabel.LabelDrop, relabel.LabelKeep:
			f.All = true
			f.Targets = append(f.Targets, Target{Pattern: c.Regex.String(), pattern: c.Regex, Except: c.Action == relabel.LabelKeep})
		}
	}
	slices.Sort(f.Names)
	f.Names = slices.Compact(f.Names)
	return f
}

// expanded is where a template for a label name can lead: anything may come
// from its first $ on.
func expanded(template string) Target {
	literal, _, found := strings.Cut(template, "$")
	if !found {
		return Target{Name: template}
	}
	pattern := regexp.QuoteMeta(literal) + ".*"
	return Target{Pattern: pattern, pattern: relabel.MustNewRegexp(pattern)}
}
