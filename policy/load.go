package policy

import (
	"fmt"
	"math/big"
	"regexp"
	"strings"

	"gopkg.in/yaml.v3"
)

// Load reads a policy file. filename is used in messages only. ingesters is N,
// the number of ingesters that the limits are divided by.
//
// A file that breaks a rule is refused as a whole: the error is then of type
// [Problems] and holds everything that is wrong, not only the first thing. An
// empty file is a policy that limits nothing.
func Load(data []byte, filename string, ingesters int) (*Set, error) {
	l := loader{reader: reader{file: filename}, ingesters: ingesters, parsed: matchers{}}
	if ingesters < 1 {
		l.note(nil, "ingesters", "is %d: limits are divided by the number of ingesters, which is at least 1", ingesters)
	}
	set := &Set{streams: map[string]*Policy{}}
	if root := l.root(data); root != nil && !isNull(root) {
		l.streams(root, set)
	}
	if len(l.problems) > 0 {
		sortProblems(l.problems)
		return nil, l.problems
	}
	sortWarnings(set.warnings)
	return set, nil
}

type loader struct {
	reader
	ingesters int
	parsed    matchers
}

// streams reads the top level of a file into set.
func (l *loader) streams(root *yaml.Node, set *Set) {
	top, _ := l.fields(root, "", "field", "streams")
	for _, f := range top {
		if isNull(f.value) {
			continue
		}
		streams, _ := l.fields(f.value, "streams", "stream", streamNames[:]...)
		for _, s := range streams {
			before := len(l.problems)
			source := l.stream(s.value, join("streams", s.name))
			// A bad N spoils the arithmetic, but not the search for more problems.
			if len(l.problems) > before || l.ingesters < 1 {
				continue
			}
			p := newPolicy(source)
			set.streams[s.name] = p
			set.warnings = append(set.warnings, source.warnings(p)...)
		}
	}
}

// source is a stream's policy as the file has it, with the lines that warnings
// need.
type source struct {
	path string
	line int // of the rate

	limits       limits
	budgets      []budget
	defaultRate  *big.Rat
	defaultGiven bool
	defaultLine  int // of the stream where the file leaves default out
	rulesIn      []namedRule
}

// budget is a class that the file defines.
type budget struct {
	name string
	rate *big.Rat // nil where the file does not say it properly
	line int
}

// namedRule is a rule whose class has no id yet.
type namedRule struct {
	class    string
	matchers []matcher
	line     int
}

func (l *loader) stream(n *yaml.Node, path string) source {
	s := source{path: path, line: n.Line, defaultLine: n.Line}
	if isNull(n) {
		l.note(n, path, "is empty: give it a rate and a burst, or remove it, and the stream is not limited")
		return s
	}
	fields, ok := l.fields(n, path, "field", "rate", "burst", "default", "classes", "rules")
	if !ok {
		return s
	}
	at := byName(fields)
	s.limits = limits{rate: l.capRate(n, at["rate"], path), burst: l.capBurst(n, at["burst"], path), ingesters: l.ingesters}
	if at["rate"] != nil {
		s.line = at["rate"].Line
	}
	s.budgets = l.classes(at["classes"], path+".classes", s.limits.rate)
	s.rulesIn = l.rules(at["rules"], path+".rules")
	if d := at["default"]; d != nil {
		s.defaultGiven, s.defaultLine = true, d.Line
		s.defaultRate = l.defaultClass(d, path+".default", s.limits.rate)
	}
	l.checkSum(&s)
	return s
}

func (l *loader) capRate(stream, n *yaml.Node, path string) *big.Rat {
	if n == nil {
		l.note(stream, path, "has no rate: write the items per second that the stream may take over all ingesters")
		return nil
	}
	rate, _ := l.number(n, path+".rate")
	return rate
}

func (l *loader) capBurst(stream, n *yaml.Node, path string) int64 {
	if n == nil {
		l.note(stream, path, "has no burst: write the items that may come at once over all ingesters")
		return 0
	}
	at := path + ".burst"
	v, ok := l.number(n, at)
	switch {
	case !ok:
		return 0
	case !v.IsInt():
		l.note(n, at, "is %s: a burst is a whole number of items", decimal(v))
		return 0
	case v.Sign() == 0:
		l.note(n, at, "is 0: a burst is at least 1 item; to drop everything write rate: 0")
		return 0
	case v.Cmp(big.NewRat(maxBurst, 1)) > 0:
		l.note(n, at, "is %s: a burst is at most %d items", decimal(v), int64(maxBurst))
		return 0
	}
	return v.Num().Int64()
}

// className is what a name may consist of: it becomes a label value of metrics
// and part of messages to senders.
var className = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// checkName reports whether name may be a class's name at all.
func (l *loader) checkName(n *yaml.Node, path, name string) bool {
	switch {
	case name == exemptClass:
		l.note(n, path, "is %s: that class is never limited and only exempt telemetry belongs to it, take another name", exemptClass)
	case !className.MatchString(name):
		l.note(n, path, "is %s: a class name consists of letters, digits and _ . -", shown(name))
	default:
		return true
	}
	return false
}

func (l *loader) classes(n *yaml.Node, path string, capRate *big.Rat) []budget {
	nodes, _ := l.items(n, path, "classes, each with a name and a rate or percent")
	budgets := make([]budget, 0, len(nodes))
	firstLine := map[string]int{}
	for i, c := range nodes {
		at := fmt.Sprintf("%s[%d]", path, i)
		fields, ok := l.fields(c, at, "field", "name", "rate", "percent")
		if !ok {
			continue
		}
		f := byName(fields)
		b := budget{name: l.newName(c, f["name"], at, firstLine), line: c.Line}
		b.rate = l.rateOrPercent(c, f, at, capRate)
		budgets = append(budgets, b)
	}
	return budgets
}

// newName reads the name of a class that the file defines, "" if it is bad.
func (l *loader) newName(class, n *yaml.Node, path string, firstLine map[string]int) string {
	if n == nil {
		l.note(class, path, "has no name")
		return ""
	}
	path += ".name"
	name, ok := l.text(n, path)
	if !ok || !l.checkName(n, path, name) {
		return ""
	}
	if name == defaultClass {
		l.note(n, path, "is default: give that class its rate under the stream's own field default")
		return ""
	}
	if first, repeated := firstLine[name]; repeated {
		l.note(n, path, "is %s, as the class on line %d: names are unique", name, first)
		return ""
	}
	firstLine[name] = n.Line
	return name
}

func (l *loader) defaultClass(n *yaml.Node, path string, capRate *big.Rat) *big.Rat {
	if isNull(n) {
		l.note(n, path, "is empty: give it a rate or percent, or leave it out and it gets what the classes leave of the cap")
		return nil
	}
	fields, ok := l.fields(n, path, "field", "rate", "percent")
	if !ok {
		return nil
	}
	return l.rateOrPercent(n, byName(fields), path, capRate)
}

// rateOrPercent reads a budget, of which a class has exactly one (P9). It is
// nil where the file is wrong, here or in the cap that the percentage is of.
func (l *loader) rateOrPercent(class *yaml.Node, f map[string]*yaml.Node, path string, capRate *big.Rat) *big.Rat {
	rate, percent := f["rate"], f["percent"]
	switch {
	case rate != nil && percent != nil:
		l.note(percent, path+".percent", "stands beside a rate: keep one of the two")
		return nil
	case rate != nil:
		v, _ := l.number(rate, path+".rate")
		return v
	case percent == nil:
		l.note(class, path, "has no rate: write rate, in items per second, or percent, of the cap's rate")
		return nil
	}
	v, ok := l.number(percent, path+".percent")
	if !ok {
		return nil
	}
	if hundred := big.NewRat(100, 1); v.Cmp(hundred) > 0 {
		l.note(percent, path+".percent", "is %s: a class has at most 100 percent of the cap", decimal(v))
		return nil
	}
	if capRate == nil {
		return nil
	}
	v.Mul(v, big.NewRat(1, 100))
	return v.Mul(v, capRate)
}

func (l *loader) rules(n *yaml.Node, path string) []namedRule {
	nodes, _ := l.items(n, path, "rules, each with a class and matchers")
	rules := make([]namedRule, 0, len(nodes))
	for i, node := range nodes {
		at := fmt.Sprintf("%s[%d]", path, i)
		fields, ok := l.fields(node, at, "field", "class", "matchers")
		if !ok {
			continue
		}
		f := byName(fields)
		rules = append(rules, namedRule{
			class:    l.ruleClass(node, f["class"], at),
			matchers: l.ruleMatchers(node, f["matchers"], at),
			line:     node.Line,
		})
	}
	return rules
}

func (l *loader) ruleClass(r, n *yaml.Node, path string) string {
	if n == nil {
		l.note(r, path, "has no class: name the class that it leads to")
		return ""
	}
	path += ".class"
	name, ok := l.text(n, path)
	if !ok || !l.checkName(n, path, name) {
		return ""
	}
	return name
}

func (l *loader) ruleMatchers(r, n *yaml.Node, path string) []matcher {
	at := path + ".matchers"
	nodes, ok := l.items(n, at, `matchers such as 'team="a"'`)
	if ok && len(nodes) == 0 {
		l.note(r, path, "has no matchers and would take every item: give it some, or leave the items to default")
		return nil
	}
	var out []matcher
	for i, node := range nodes {
		at := fmt.Sprintf("%s[%d]", at, i)
		s, ok := l.text(node, at)
		if !ok {
			continue
		}
		m, err := l.parsed.matcher(s)
		if err != nil {
			l.note(node, at, "is %s: %v", shown(s), err)
			continue
		}
		out = append(out, m)
	}
	return out
}

// checkSum compares the rates with the cap (P2), and gives default what is left
// where the file does not say. Rates that could not be read count as 0: they
// are a problem of their own and could only make the sum larger.
func (l *loader) checkSum(s *source) {
	if s.limits.rate == nil {
		return
	}
	sum := new(big.Rat)
	var terms []string
	add := func(name string, rate *big.Rat) {
		if rate == nil {
			return
		}
		sum.Add(sum, rate)
		terms = append(terms, name+" "+decimal(rate))
	}
	add(defaultClass, s.defaultRate)
	for _, b := range s.budgets {
		add(b.name, b.rate)
	}
	left := new(big.Rat).Sub(s.limits.rate, sum)
	if left.Sign() < 0 {
		const few = 8
		if len(terms) > few {
			terms = append(terms[:few-1], fmt.Sprintf("%d more", len(terms)-few+1))
		}
		l.problems = append(l.problems, Problem{File: l.file, Path: s.path + ".rate", Line: s.line, Message: fmt.Sprintf(
			"the classes have %s items per second, %s more than the cap's rate %s: %s; lower a class or raise the cap",
			decimal(sum), decimal(left.Neg(left)), decimal(s.limits.rate), strings.Join(terms, " + "))})
		return
	}
	if !s.defaultGiven {
		s.defaultRate = left
	}
}
