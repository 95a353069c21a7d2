package simulate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/ratecontrol"
)

// bins is how many points the curves of a report have.
const bins = 60

// window is the time over which a class has to keep its rate for a drop to be
// blamed on the burst: a guess at what a person means by "for long".
const window = time.Minute

// Report is what became of the traffic.
type Report struct {
	Stream    string  `json:"stream"`
	Ingesters int     `json:"ingesters"`
	Seconds   float64 `json:"seconds"`
	// BurstNow is the stream's burst, SmallestBurst the smallest with which no
	// class that a burst can help would have dropped anything, and WithinRate that
	// of the classes which kept their rate. They are 0 where there is no such class.
	BurstNow      int64         `json:"burst"`
	SmallestBurst int64         `json:"smallest_burst"`
	WithinRate    int64         `json:"smallest_burst_of_classes_within_their_rate"`
	Classes       []ClassReport `json:"classes"`
}

// ClassReport is what became of one class's items, over all ingesters.
type ClassReport struct {
	Name             string  `json:"name"`
	Configured       bool    `json:"configured"`
	Rate             float64 `json:"rate"`
	SharePercent     int64   `json:"share_percent"`
	RatePerIngester  float64 `json:"rate_per_ingester"`
	BurstPerIngester int64   `json:"burst_per_ingester"`
	ItemsPerGroup    int64   `json:"items_per_group"`

	Offered  int64 `json:"offered"`
	Admitted int64 `json:"admitted"`
	Dropped  Drops `json:"dropped"`
	// PeakRate is the highest rate of offered items in a bin of the curve.
	PeakRate float64 `json:"peak_rate"`

	// SmallestBurst is the smallest burst per ingester that would have dropped
	// nothing, SmallestCapBurst the stream's burst that gives it to the class. They
	// are 0 where no burst helps, and Why says why not.
	SmallestBurst    int64  `json:"smallest_burst_per_ingester"`
	SmallestCapBurst int64  `json:"smallest_burst"`
	Why              string `json:"why_no_burst_helps,omitempty"`

	// ByIngester are offered and dropped items of each ingester.
	ByIngester []IngesterReport `json:"by_ingester"`
	// Curve has bins of equal time, in items per second.
	Curve []Bin `json:"curve"`
}

// Drops are dropped items by reason; see the package's comment.
type Drops struct {
	Total      int64 `json:"total"`
	NoBudget   int64 `json:"no_budget"`
	GroupLarge int64 `json:"group_bigger_than_burst"`
	Rate       int64 `json:"rate"`
	Burst      int64 `json:"burst"`
}

// IngesterReport is one ingester's part.
type IngesterReport struct {
	Offered int64 `json:"offered"`
	Dropped int64 `json:"dropped"`
}

// Bin is a part of the time, in items per second.
type Bin struct {
	Admitted float64 `json:"admitted"`
	Dropped  float64 `json:"dropped"`
}

// Run replays the traffic, which is complete and valid for the policy's number of
// ingesters. It calls progress with the part that is done, 0 to 1.
func Run(set *policy.Set, ingesters int, t *Traffic, progress func(done float64)) (*Report, error) {
	p := set.Stream(t.Stream)
	if p == nil {
		return nil, fmt.Errorf("the policy does not limit the stream %s: everything would be admitted", t.Stream)
	}
	classes := p.Classes()
	if err := known(classes, t); err != nil {
		return nil, err
	}
	r := &Report{Stream: t.Stream, Ingesters: ingesters, Seconds: t.Duration.Seconds(), BurstNow: p.Burst()}
	done := 0
	for id, c := range classes {
		source, ok := t.Classes[c.Name]
		if !ok {
			continue
		}
		s := simulation{policy: p, id: id, class: c, source: source, ingesters: ingesters, stream: t.Stream, duration: t.Duration}
		report, err := s.run(func(part float64) { progress((float64(done) + part) / float64(len(t.Classes))) })
		if err != nil {
			return nil, fmt.Errorf("class %s: %w", c.Name, err)
		}
		r.Classes = append(r.Classes, report)
		done++
	}
	for _, c := range r.Classes {
		r.SmallestBurst = max(r.SmallestBurst, c.SmallestCapBurst)
		if c.Dropped.Rate == 0 {
			r.WithinRate = max(r.WithinRate, c.SmallestCapBurst)
		}
	}
	return r, nil
}

// known checks that the policy has every class of the traffic.
func known(classes []policy.Class, t *Traffic) error {
	var names []string
	for _, c := range classes {
		names = append(names, c.Name)
	}
	var unknown []string
	for _, name := range slices.Sorted(maps.Keys(t.Classes)) {
		if !slices.Contains(names, name) {
			unknown = append(unknown, name)
		}
	}
	if unknown != nil {
		return fmt.Errorf("the policy of %s has no class %s; it has: %s", t.Stream, strings.Join(unknown, ", "), strings.Join(names, ", "))
	}
	return nil
}

// simulation is one class on all ingesters.
type simulation struct {
	policy    *policy.Policy
	stream    string
	id        int
	class     policy.Class
	source    Source
	ingesters int
	duration  time.Duration
}

func (s *simulation) run(progress func(float64)) (ClassReport, error) {
	c := s.class
	r := ClassReport{
		Name: c.Name, Configured: c.Configured, SharePercent: c.SharePercent, BurstPerIngester: c.BurstPerIngester,
		ItemsPerGroup: s.source.ItemsPerGroup, Curve: make([]Bin, bins),
	}
	r.Rate, _ = c.Rate.Float64()
	r.RatePerIngester, _ = c.RatePerIngester.Float64()
	for i := range s.ingesters {
		sends := s.source.sends(i, s.ingesters, s.duration)
		limiter := ratecontrol.NewLimiter(s.policy, 0)
		s.play(&r, limiter, sends)
		if err := s.fitBurst(&r, sends); err != nil {
			return r, err
		}
		progress(float64(i+1) / float64(s.ingesters))
	}
	s.fitCap(&r)
	seconds := s.duration.Seconds() / bins
	for i := range r.Curve {
		r.Curve[i].Admitted /= seconds
		r.Curve[i].Dropped /= seconds
		r.PeakRate = max(r.PeakRate, r.Curve[i].Admitted+r.Curve[i].Dropped)
	}
	return r, nil
}

// play sends everything to one ingester and counts what becomes of it.
func (s *simulation) play(r *ClassReport, limiter *ratecontrol.Limiter, sends []send) {
	cost := s.source.ItemsPerGroup
	var part IngesterReport
	recent, oldest := int64(0), 0 // items of the last minute, and the first send of them
	for _, now := range sends {
		recent += now.groups * cost
		for sends[oldest].at <= now.at-window {
			recent -= sends[oldest].groups * cost
			oldest++
		}
		admitted := admit(limiter, s.id, cost, now)
		offered, dropped := now.groups*cost, (now.groups-admitted)*cost
		part.Offered += offered
		part.Dropped += dropped
		r.Admitted += admitted * cost
		bin := &r.Curve[min(bins-1, int((now.at-1)*bins/s.duration))]
		bin.Admitted += float64(admitted * cost)
		bin.Dropped += float64(dropped)
		*s.blame(r, recent, min(window, now.at)) += dropped
	}
	r.Offered += part.Offered
	r.Dropped.Total += part.Dropped
	r.ByIngester = append(r.ByIngester, part)
}

// admit asks for all groups of a send, and one by one only where not all of them
// fit. It returns how many did. They cost the same at the same instant, so after
// the first that does not fit none does.
func admit(limiter *ratecontrol.Limiter, class int, cost int64, s send) int64 {
	at := int64(s.at)
	if limiter.Take(class, s.groups*cost, at) {
		return s.groups
	}
	admitted := int64(0)
	for admitted < s.groups && limiter.Take(class, cost, at) {
		admitted++
	}
	return admitted
}

// blame chooses the count for what is dropped now, with recent the items of the
// time before it.
func (s *simulation) blame(r *ClassReport, recent int64, before time.Duration) *int64 {
	switch {
	case !s.class.Configured || s.class.Rate.Sign() == 0:
		return &r.Dropped.NoBudget
	case s.source.ItemsPerGroup > s.class.BurstPerIngester:
		return &r.Dropped.GroupLarge
	case float64(recent) > r.RatePerIngester*before.Seconds():
		return &r.Dropped.Rate
	default:
		return &r.Dropped.Burst
	}
}
