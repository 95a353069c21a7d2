package policy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Problem is one reason why a file is refused.
type Problem struct {
	// File is the name that Load was given.
	File string
	// Path names the place in the file, such as streams.logs.classes[1].rate.
	// It is empty where the file is not YAML.
	Path string
	// Message says what is wrong, with the numbers involved, and what to do.
	Message string
	// Line counts from 1; 0 where the problem is not in the file.
	Line int
}

// String returns the problem on one line, as in
// "policy.yaml:12: streams.logs.burst: is 0: a burst is at least 1".
func (p Problem) String() string {
	var b strings.Builder
	b.WriteString(p.File)
	if p.Line > 0 {
		fmt.Fprintf(&b, ":%d", p.Line)
	}
	b.WriteString(": ")
	if p.Path != "" {
		b.WriteString(p.Path + ": ")
	}
	b.WriteString(p.Message)
	return b.String()
}

// Problems are all reasons why a file is refused, sorted by line.
type Problems []Problem

// Error returns one problem per line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "\n")
}

// Warning is something that is allowed but probably not meant.
type Warning struct {
	// Path names the place in the file, such as streams.logs.rules[1].
	Path string
	// Message says what it leads to and what to do.
	Message string
	// Line counts from 1.
	Line int
}

// String returns path and message.
func (w Warning) String() string { return w.Path + ": " + w.Message }

func sortProblems(ps Problems) {
	slices.SortStableFunc(ps, func(a, b Problem) int { return cmp.Compare(a.Line, b.Line) })
}

func sortWarnings(ws []Warning) {
	slices.SortStableFunc(ws, func(a, b Warning) int { return cmp.Compare(a.Line, b.Line) })
}
