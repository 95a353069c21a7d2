package main

import (
	"fmt"
	"io"
	"os"
	"time"
)

// count writes a number of things; more than one of them have an s.
func count[N int | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// painter colours texts where w is a terminal whose user has not asked for none
// (NO_COLOR, TERM=dumb); elsewhere it leaves them as they are. Kinds are good, bad,
// dim and bold.
func painter(w io.Writer) func(text, kind string) string {
	if !isTerminal(w) || os.Getenv("NO_COLOR") != "" || os.Getenv("TERM") == "dumb" {
		return func(text, _ string) string { return text }
	}
	return func(text, kind string) string {
		code := map[string]string{"good": "32", "bad": "31", "dim": "2", "bold": "1"}[kind]
		return "\x1b[" + code + "m" + text + "\x1b[0m"
	}
}

// progress is one line on a terminal that says how far a long work is. Elsewhere
// it says nothing.
type progress struct {
	w     io.Writer
	on    bool
	shown bool
	last  time.Time
}

func newProgress(w io.Writer) *progress { return &progress{w: w, on: isTerminal(w)} }

// show writes what is being done and the part that is done, 0 to 1, at most ten
// times a second, and nothing for what is over sooner.
func (p *progress) show(what string, done float64) {
	now := time.Now()
	if p.last.IsZero() {
		p.last = now
	}
	if !p.on || now.Sub(p.last) < 100*time.Millisecond {
		return
	}
	p.last, p.shown = now, true
	fmt.Fprintf(p.w, "\r\x1b[K%s %.0f %%", what, 100*done)
}

// clear takes the line away.
func (p *progress) clear() {
	if p.shown {
		fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}
