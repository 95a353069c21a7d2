package relabel

import (
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/relabel"
)

// Rules is a list of relabel rules. It never changes and may be used by any
// number of goroutines. The zero value has no rules.
type Rules struct {
	configs   []*relabel.Config
	footprint Footprint
}

// New makes Rules of configurations, which it copies. A missing Regex is the
// default one. Label names are checked as UTF-8 unless a configuration names
// another scheme. The error wraps a *RuleError for each bad one.
func New(configs []*relabel.Config) (*Rules, error) {
	r := &Rules{configs: make([]*relabel.Config, len(configs))}
	var errs []error
	for i, c := range configs {
		checked, err := check(c)
		if err != nil {
			errs = append(errs, &RuleError{Index: i, Err: err})
		}
		r.configs[i] = checked
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	r.footprint = footprintOf(r.configs)
	return r, nil
}

// check copies a configuration and validates the copy, since validation writes
// into it.
func check(c *relabel.Config) (*relabel.Config, error) {
	if c == nil {
		return nil, errors.New("the rule is empty")
	}
	checked := *c
	checked.SourceLabels = slices.Clone(c.SourceLabels)
	if checked.Regex.Regexp == nil {
		checked.Regex = relabel.DefaultRelabelConfig.Regex
	}
	return &checked, checked.Validate(model.UTF8Validation)
}

// RuleError says what is wrong with one rule.
type RuleError struct {
	Index int // of the rule, from 0
	Line  int // in the file, from 1; 0 where it is not known
	Err   error
}

func (e *RuleError) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("relabel_configs[%d]: %v", e.Index, e.Err)
	}
	return fmt.Sprintf("relabel_configs[%d] (line %d): %v", e.Index, e.Line, e.Err)
}

func (e *RuleError) Unwrap() error { return e.Err }

// Empty says that there are no rules.
func (r *Rules) Empty() bool { return len(r.configs) == 0 }

// Apply runs the rules on the labels in b and says whether to keep the item. If
// not, what is in b is of no use. It allocates what the rules' regular
// expressions and new values need, nothing else.
func (r *Rules) Apply(b *labels.Builder) (keep bool) {
	return relabel.ProcessBuilder(b, r.configs...)
}

// Footprint says which labels the rules look at and which they may change.
func (r *Rules) Footprint() Footprint { return r.footprint }

// Equal says that the rules of o are the same, in the same order.
func (r *Rules) Equal(o *Rules) bool {
	return slices.EqualFunc(r.configs, o.configs, equal)
}

func equal(a, b *relabel.Config) bool {
	return slices.Equal(a.SourceLabels, b.SourceLabels) &&
		a.Separator == b.Separator &&
		a.Regex.String() == b.Regex.String() &&
		a.Modulus == b.Modulus &&
		a.TargetLabel == b.TargetLabel &&
		a.Replacement == b.Replacement &&
		a.Action == b.Action &&
		a.NameValidationScheme == b.NameValidationScheme
}
