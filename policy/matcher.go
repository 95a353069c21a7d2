package policy

import (
	"errors"
	"fmt"
	"slices"
	"unicode/utf8"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// matcher is one condition on a label, with what can be said of the values it
// accepts without asking it about each.
//
// At most one of only and allBut is set. Neither is for a regular expression
// that is no plain list of values.
type matcher struct {
	*labels.Matcher
	// only holds every value that the matcher accepts; empty but not nil, it
	// accepts none.
	only []string
	// allBut holds every value that the matcher does not accept; empty but not
	// nil, it accepts all.
	allBut []string
}

// matcherForm tells users what a matcher looks like.
const matcherForm = `write one label name (in quotes if it has other characters than letters, digits and _), ` +
	`one of = != =~ !~, and one value in quotes, as in 'team="a"'`

// parseMatcher reads one Prometheus matcher, such as `team="a"` (P10).
func parseMatcher(s string) (matcher, error) {
	if err := checkShape(s); err != nil {
		return matcher{}, err
	}
	ms, err := parser.NewParser(parser.Options{}).ParseMetricSelector("{" + s + "}")
	if err != nil {
		// The parser's own text counts columns from the brace added above.
		var list parser.ParseErrors
		if errors.As(err, &list) && len(list) > 0 {
			err = list[0].Err
		}
		return matcher{}, err
	}
	m := ms[0]
	if m.Name == "" || !utf8.ValidString(m.Name) {
		return matcher{}, fmt.Errorf("the label name %q is empty or not valid UTF-8; %s", m.Name, matcherForm)
	}
	return newMatcher(m), nil
}

// matchers are the matchers parsed so far, by their text. Rules tend to repeat
// them, and what rules share stays in the processor's cache.
type matchers map[string]matcher

func (ms matchers) matcher(s string) (matcher, error) {
	if m, known := ms[s]; known {
		return m, nil
	}
	m, err := parseMatcher(s)
	if err == nil {
		ms[s] = m
	}
	return m, err
}

// checkShape accepts exactly `name op "value"`. A selector may hold more, such
// as several matchers, a bare metric name, or a comment behind its closing
// brace, that nobody means to write in a list of matchers.
func checkShape(s string) error {
	shape := [...][]parser.ItemType{
		{parser.LEFT_BRACE},
		{parser.IDENTIFIER, parser.STRING},
		{parser.EQL, parser.NEQ, parser.EQL_REGEX, parser.NEQ_REGEX},
		{parser.STRING},
		{parser.RIGHT_BRACE},
		{parser.EOF},
	}
	lexer := parser.Lex("{" + s + "}")
	for _, allowed := range shape {
		var item parser.Item
		lexer.NextItem(&item)
		if item.Typ == parser.ERROR {
			return fmt.Errorf("%s; %s", item.Val, matcherForm)
		}
		if !slices.Contains(allowed, item.Typ) {
			return errors.New(matcherForm)
		}
	}
	return nil
}

// newMatcher works out the values of m. Regular expressions are anchored and
// their dot matches every character, hence `.*` is any value and `.+` any but
// the empty one.
func newMatcher(m *labels.Matcher) matcher {
	out := matcher{Matcher: m}
	switch m.Type {
	case labels.MatchEqual:
		out.only = []string{m.Value}
	case labels.MatchNotEqual:
		out.allBut = []string{m.Value}
	case labels.MatchRegexp:
		out.only, out.allBut = regexpValues(m)
	case labels.MatchNotRegexp:
		out.allBut, out.only = regexpValues(m)
	}
	return out
}

func regexpValues(m *labels.Matcher) (only, allBut []string) {
	switch m.Value {
	case "":
		return []string{""}, nil
	case ".*":
		return nil, []string{}
	case ".+":
		return nil, []string{""}
	}
	return m.SetMatches(), nil
}

func (m *matcher) equal(o *matcher) bool {
	return m.Type == o.Type && m.Value == o.Value && m.Name == o.Name
}

// rule leads the label sets that all its matchers accept to a class.
type rule struct {
	class    int
	matchers []matcher
}

func (r rule) equal(o rule) bool {
	sameMatcher := func(a, b matcher) bool { return a.equal(&b) }
	return r.class == o.class && slices.EqualFunc(r.matchers, o.matchers, sameMatcher)
}
