package policy

import (
	"fmt"
	"math/big"
)

// warnings returns what the stream's file allows but probably does not mean
// (P13). p is the policy made of s.
func (s *source) warnings(p *Policy) []Warning {
	w := warner{source: s}
	w.sum(p)
	for id, c := range p.classes {
		if c.Configured {
			w.budget(p.limits, c, s.classPath(id), s.classLine(id))
		}
	}
	w.unconfigured(p)
	w.rules(p)
	return w.out
}

func (s *source) classPath(id int) string {
	if id < len(s.budgets) {
		return fmt.Sprintf("%s.classes[%d]", s.path, id)
	}
	return s.path + ".default"
}

func (s *source) classLine(id int) int {
	if id < len(s.budgets) {
		return s.budgets[id].line
	}
	return s.defaultLine
}

type warner struct {
	*source
	out []Warning
}

func (w *warner) warn(path string, line int, format string, args ...any) {
	w.out = append(w.out, Warning{Path: path, Line: line, Message: fmt.Sprintf(format, args...)})
}

// sum warns of a part of the cap that belongs to nobody.
func (w *warner) sum(p *Policy) {
	left := new(big.Rat).Set(p.limits.rate)
	for _, c := range p.classes {
		left.Sub(left, c.Rate)
	}
	if left.Sign() == 0 {
		return
	}
	w.warn(w.path+".rate", w.line,
		"%s of the cap's %s items per second belong to no class and can never be used: raise a class, lower the cap, or leave default out and it gets them",
		decimal(left), decimal(p.limits.rate))
}

// budget warns of classes that lose more than their rate suggests.
func (w *warner) budget(l limits, c Class, path string, line int) {
	switch {
	case c.Rate.Sign() == 0:
		w.warn(path, line, "class %s has rate 0 and loses every item: give it a rate, unless it is meant as a filter", c.Name)
	case c.SharePercent == 0:
		w.warn(path, line,
			"class %s has share 0 (%s is less than 1%% of the cap's %s items per second), hence burst 1 on each ingester, and loses every group of 2 or more items: give it at least %s items per second, or lower the cap",
			c.Name, decimal(c.Rate), decimal(l.rate), decimal(new(big.Rat).Quo(l.rate, big.NewRat(100, 1))))
	case l.burstOf(c.SharePercent) == 0:
		w.warn(path, line,
			"class %s has burst 1 on each ingester (%d%% of the cap's burst %d over %d ingesters is less than 1), and loses every group of 2 or more items: raise the cap's burst to at least %s",
			c.Name, c.SharePercent, l.burst, l.ingesters, burstForOne(c.SharePercent, l.ingesters))
	}
}

// burstForOne is the smallest cap burst of which share percent over n ingesters
// is at least 1: ceil(100 n / share).
func burstForOne(share int64, n int) *big.Int {
	b := big.NewInt(int64(n))
	b.Mul(b, big.NewInt(100))
	b.Add(b, big.NewInt(share-1))
	return b.Quo(b, big.NewInt(share))
}

// unconfigured warns once for each class that only rules name (P7).
func (w *warner) unconfigured(p *Policy) {
	warned := map[string]bool{}
	for i, r := range w.rulesIn {
		if p.classes[p.rules[i].class].Configured || warned[r.class] {
			continue
		}
		warned[r.class] = true
		w.warn(w.rulePath(i), r.line,
			"class %s is not defined, and all that the rule matches is dropped: add it to %s.classes, or correct the name",
			r.class, w.path)
	}
}

// rules warns of rules that never win.
func (w *warner) rules(p *Policy) {
	cover := covering(p.rules)
	for i, r := range w.rulesIn {
		if name, found := p.rules[i].contradiction(); found {
			w.warn(w.rulePath(i), r.line,
				"matches nothing, as no value of the label %s satisfies all its matchers: correct it or remove it", shown(name))
			continue
		}
		if cover[i] >= 0 {
			w.warn(w.rulePath(i), r.line,
				"never takes anything, as rules[%d] matches all that it matches and comes first: move it before rules[%d], narrow rules[%d], or remove it",
				cover[i], cover[i], cover[i])
		}
	}
}

func (s *source) rulePath(i int) string { return fmt.Sprintf("%s.rules[%d]", s.path, i) }
