package simulate

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"
)

// Traffic is what is sent to all ingesters together:
//
//	stream: metrics
//	duration: 10m
//	classes:
//	  team-a: {rate: 400}
//	  team-b:
//	    rate:                   # straight lines between these points
//	      - {at: 0s, rate: 100}
//	      - {at: 5m, rate: 100}
//	      - {at: 5m, rate: 2000}
//	    items_per_group: 10
//	    every: 15s
//	    skew: [3, 1, 1, 1]
type Traffic struct {
	// Stream is metrics, logs, traces, events or rum. Default: metrics.
	Stream string `yaml:"stream"`
	// Duration is how long the traffic lasts.
	Duration time.Duration `yaml:"duration"`
	// Classes are the sources by class.
	Classes map[string]Source `yaml:"classes"`
}

// Source is the traffic of one class.
type Source struct {
	// Rate is in items per second over all ingesters.
	Rate Curve `yaml:"rate"`
	// ItemsPerGroup are allowed or dropped together. Default: 1.
	ItemsPerGroup int64 `yaml:"items_per_group"`
	// Every is the time between two sends: 15s for series that are scraped so
	// often and sent at once. Default: 1s.
	Every time.Duration `yaml:"every"`
	// Skew is how the rate is divided over the ingesters, as parts of their sum.
	// Default: evenly.
	Skew []float64 `yaml:"skew"`
	// Each, in place of Rate and Skew, is every ingester's own rate.
	Each []Curve `yaml:"-"`
}

// Point is a rate at a time since the start.
type Point struct {
	At   time.Duration `yaml:"at"`
	Rate float64       `yaml:"rate"`
}

// Curve is a rate over time: straight lines between its points, level before the
// first and after the last. Two points at the same time are a step.
type Curve []Point

// UnmarshalYAML reads a number, which is the rate all the time, or a list of points.
// It has the form in which a strict decoder stays strict.
func (c *Curve) UnmarshalYAML(unmarshal func(any) error) error {
	var level float64
	if unmarshal(&level) == nil {
		*c = Curve{{Rate: level}}
		return nil
	}
	var points []Point
	err := unmarshal(&points)
	*c = points
	return err
}

// most bounds one class's sends to one ingester, which are in memory at once.
const most = 20_000_000

// Complete fills in defaults.
func (t *Traffic) Complete() {
	if t.Stream == "" {
		t.Stream = "metrics"
	}
	for name, s := range t.Classes {
		if s.ItemsPerGroup == 0 {
			s.ItemsPerGroup = 1
		}
		if s.Every == 0 {
			s.Every = time.Second
		}
		t.Classes[name] = s
	}
}

// Validate reports every problem, each with the field as the user wrote it. It
// changes nothing.
func (t *Traffic) Validate(ingesters int) error {
	var problems []error
	if t.Duration <= 0 {
		problems = append(problems, errors.New("duration: must be above 0, such as 10m"))
	}
	if len(t.Classes) == 0 {
		problems = append(problems, errors.New("classes: names no class, so nothing would be sent"))
	}
	for _, name := range slices.Sorted(maps.Keys(t.Classes)) {
		s := t.Classes[name]
		for _, err := range s.problems(t.Duration, ingesters) {
			problems = append(problems, fmt.Errorf("classes.%s.%w", name, err))
		}
	}
	return errors.Join(problems...)
}

func (s *Source) problems(duration time.Duration, ingesters int) (p []error) {
	complain := func(format string, args ...any) { p = append(p, fmt.Errorf(format, args...)) }
	if len(s.Rate) == 0 && s.Each == nil {
		complain("rate: is missing; write a number of items per second, or points such as [{at: 0s, rate: 100}]")
	}
	for i, at := range s.Rate {
		if !(at.Rate >= 0) || math.IsInf(at.Rate, 0) || at.Rate > 1e12 {
			complain("rate[%d]: %g is not a rate from 0 to 1e12", i, at.Rate)
		}
		if i > 0 && at.At < s.Rate[i-1].At {
			complain("rate[%d].at: %s comes before the %s of the point above it", i, at.At, s.Rate[i-1].At)
		}
	}
	if s.ItemsPerGroup < 1 {
		complain("items_per_group: %d is below 1", s.ItemsPerGroup)
	}
	if s.Every < time.Millisecond {
		complain("every: %s is below 1ms", s.Every)
	} else if duration/s.Every > most {
		complain("every: %s in %s makes more than %d sends; raise it", s.Every, duration, most)
	}
	if s.Skew == nil {
		return p
	}
	sum := 0.0
	for i, part := range s.Skew {
		if !(part >= 0) || math.IsInf(part, 0) {
			complain("skew[%d]: %g is not a part", i, part)
		}
		sum += part
	}
	if len(s.Skew) != ingesters || !(sum > 0) {
		complain("skew: has %d parts with the sum %g; write one part for each of the %d ingesters", len(s.Skew), sum, ingesters)
	}
	return p
}

// at is the rate at a time.
func (c Curve) at(t time.Duration) float64 {
	i, _ := slices.BinarySearchFunc(c, t, func(p Point, t time.Duration) int {
		if p.At <= t {
			return -1
		}
		return 1
	})
	switch {
	case i == 0:
		return c[0].Rate
	case i == len(c):
		return c[i-1].Rate
	}
	a, b := c[i-1], c[i]
	return a.Rate + (b.Rate-a.Rate)*float64(t-a.At)/float64(b.At-a.At)
}

// items is how many come between two times: the area under the curve.
func (c Curve) items(from, to time.Duration) float64 {
	sum, last, rate := 0.0, from, c.at(from)
	area := func(until time.Duration, level float64) {
		sum += (rate + level) / 2 * (until - last).Seconds()
		last, rate = until, level
	}
	for _, p := range c {
		switch {
		case p.At <= from || p.At > to:
		case p.At == last:
			rate = p.Rate // the upper end of a step
		default:
			area(p.At, p.Rate)
		}
	}
	if last < to {
		area(to, c.at(to))
	}
	return sum
}

// send is what arrives at one ingester at one instant: groups of equal cost.
type send struct {
	at     time.Duration
	groups int64
}

// sends are those of one ingester. The first comes after Every.
func (s *Source) sends(ingester, ingesters int, duration time.Duration) []send {
	curve, part := s.Rate, 1/float64(ingesters)
	switch {
	case s.Each != nil:
		curve, part = s.Each[ingester], 1
	case s.Skew != nil:
		sum := 0.0
		for _, x := range s.Skew {
			sum += x
		}
		part = s.Skew[ingester] / sum
	}
	var all []send
	waiting := 0.0 // items that do not fill a group yet
	for from := time.Duration(0); from < duration; from += s.Every {
		to := min(from+s.Every, duration)
		waiting += curve.items(from, to) * part
		// An item that is nearly whole is whole: the areas are rounded.
		groups := math.Floor(waiting/float64(s.ItemsPerGroup) + 1e-9)
		waiting = math.Max(0, waiting-groups*float64(s.ItemsPerGroup))
		if groups > 0 {
			all = append(all, send{to, int64(groups)})
		}
	}
	return all
}
