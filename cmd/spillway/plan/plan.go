package plan

import (
	"errors"
	"fmt"
	"math/big"
)

// Origin says where a number comes from.
type Origin string

// The origins, from the best to the worst.
const (
	Measured Origin = "measured"
	Read     Origin = "read"
	Given    Origin = "given"
	Assumed  Origin = "assumed"
)

// Number is a number with its origin. From says more, such as the name of a file.
type Number struct {
	Value  *big.Rat
	Origin Origin
	From   string
	Set    bool // false for a default
}

// Input is what a plan is made from.
type Input struct {
	// ItemsPerCPUSecond is m. Safe says that headroom has been taken off it.
	ItemsPerCPUSecond Number
	Safe              bool
	// Peak is in items per second over all ingesters. Forecast says that growth
	// has been added to it.
	Peak     Number
	Forecast bool
	Growth   Number // a fraction of the peak
	CPULimit Number // cores of one ingester
	Target   Number // the governor's fraction of the CPU limit
	Headroom Number // the fraction of the CPU limit that is not to be used on a good day
	Zones    Number
	// ZonesMayFail and IngestersMayFail are two different bad days, not one.
	ZonesMayFail     Number
	IngestersMayFail Number
	// Overlap is how many ingesters run beside those that they replace while a
	// rollout goes on.
	Overlap Number
	Sinks   []Sink
}

// Sink is a destination with a bound on connections.
type Sink struct {
	Name           string
	Endpoints      int
	PerEndpoint    int // connections of one ingester to one endpoint
	EndpointBudget int // what one endpoint can hold; 0 if not known
}

// Plan is the answer.
type Plan struct {
	Input Input

	FuturePeak *big.Rat // items per second
	OneUsable  *big.Rat // items per second of one ingester, at the governor's target
	Reserve    *big.Rat // h
	ReserveBy  string   // what it is: headroom, or the governor's target

	PerZone   int64
	Ingesters int64
	Scenarios []Scenario
}

// Scenario is one of the conditions.
type Scenario struct {
	Name string
	Left int64 // ingesters
	// Use is the part of the CPU limit that the peak takes on what is left, Bound
	// what it may take.
	Use, Bound *big.Rat
	// Needs is the smallest number of ingesters per zone that this scenario alone
	// would need.
	Needs int64
}

// Make finds the smallest plan, or says everything that is wrong with the input.
func Make(in Input) (*Plan, error) {
	if err := in.check(); err != nil {
		return nil, err
	}
	p := &Plan{Input: in, Reserve: in.Headroom.Value, ReserveBy: "headroom"}
	one := big.NewRat(1, 1)
	p.FuturePeak = new(big.Rat).Add(one, in.Growth.Value)
	p.FuturePeak.Mul(p.FuturePeak, in.Peak.Value)
	perIngester := new(big.Rat).Mul(in.ItemsPerCPUSecond.Value, in.CPULimit.Value)
	p.OneUsable = new(big.Rat).Mul(perIngester, in.Target.Value)
	if idle := new(big.Rat).Sub(one, in.Target.Value); !in.Safe && idle.Cmp(p.Reserve) > 0 {
		p.Reserve, p.ReserveBy = idle, "the governor's target"
	}
	target := in.Target.Value
	if in.Safe { // the figure is what an ingester may do, reserve and target included
		target, p.Reserve, p.ReserveBy, p.OneUsable = one, new(big.Rat), "in the safe figure", perIngester
	}
	zones, failing, some := whole(in.Zones), whole(in.ZonesMayFail), whole(in.IngestersMayFail)
	// The load in ingesters that use their whole limit.
	load := new(big.Rat).Quo(p.FuturePeak, perIngester)
	good := new(big.Rat).Sub(one, p.Reserve)
	add := func(name string, lostZones, lost int64, bound *big.Rat) {
		// Ingesters that have to be left, then ingesters per zone.
		left := ceil(new(big.Rat).Quo(load, bound))
		needs := max(1, ceil(big.NewRat(left+lost, zones-lostZones)))
		p.PerZone = max(p.PerZone, needs)
		p.Scenarios = append(p.Scenarios, Scenario{Name: name, Bound: bound, Needs: needs})
	}
	add("all is well", 0, 0, good)
	if failing > 0 {
		add(fmt.Sprintf("%d of %d zones lost", failing, zones), failing, 0, target)
	}
	if some > 0 {
		add(fmt.Sprintf("%d %s lost", some, map[bool]string{true: "ingester", false: "ingesters"}[some == 1]), 0, some, target)
	}
	p.Ingesters = p.PerZone * zones
	for i, s := range p.Scenarios {
		left := p.Ingesters
		switch {
		case i == 0:
		case failing > 0 && i == 1:
			left -= failing * p.PerZone
		default:
			left -= some
		}
		s.Left = left
		s.Use = new(big.Rat).Quo(load, new(big.Rat).SetInt64(max(1, left)))
		p.Scenarios[i] = s
	}
	return p, nil
}

func whole(n Number) int64 { return n.Value.Num().Int64() }

// ceil is the smallest whole number that is not below r.
func ceil(r *big.Rat) int64 {
	q, rest := new(big.Int).QuoRem(r.Num(), r.Denom(), new(big.Int))
	if rest.Sign() > 0 {
		q.Add(q, big.NewInt(1))
	}
	return q.Int64()
}

// largest bounds the answer: beyond it something in the input is wrong.
const largest = 1_000_000

func (in *Input) check() error {
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	one := big.NewRat(1, 1)
	above := func(n Number, name string) {
		if n.Value == nil || n.Value.Sign() <= 0 {
			complain("%s: must be given and above 0", name)
		}
	}
	above(in.ItemsPerCPUSecond, "--items-per-cpu-second")
	above(in.Peak, "--peak")
	above(in.CPULimit, "--cpu-limit")
	if in.Growth.Value.Sign() < 0 || in.Headroom.Value.Sign() < 0 || in.Headroom.Value.Cmp(one) >= 0 {
		complain("--growth and --headroom: must not be below 0 %%, and headroom is below 100 %%")
	}
	if in.Target.Value.Sign() <= 0 || in.Target.Value.Cmp(one) > 0 {
		complain("governor.model.target: %s is not above 0 and at most 1", in.Target.Value.FloatString(3))
	}
	if in.Forecast && in.Growth.Set && in.Growth.Value.Sign() > 0 {
		complain("--growth counts a reserve twice: --forecast-peak has the growth in it; leave --growth out, or give today's peak with --peak")
	}
	if in.Safe && in.Headroom.Set && in.Headroom.Value.Sign() > 0 {
		complain("--headroom counts a reserve twice: --safe-items-per-cpu-second has the headroom in it; leave --headroom out, or give the measured figure with --items-per-cpu-second")
	}
	if zones, failing := whole(in.Zones), whole(in.ZonesMayFail); zones < 1 || failing < 0 || failing >= zones {
		complain("--zones-may-fail: of %d zone(s) %d may fail, so none might be left; it is from 0 to one less than --zones", zones, failing)
	}
	if whole(in.IngestersMayFail) < 0 || whole(in.Overlap) < 0 {
		complain("--ingesters-may-fail and --rollout-overlap: must not be below 0")
	}
	if problems != nil {
		return errors.Join(problems...)
	}
	load := new(big.Rat).Quo(in.Peak.Value, new(big.Rat).Mul(in.ItemsPerCPUSecond.Value, in.CPULimit.Value))
	if load.Mul(load, new(big.Rat).Add(one, in.Growth.Value)).Cmp(big.NewRat(largest, 1)) > 0 {
		return fmt.Errorf("the peak would fill %s ingesters: is --items-per-cpu-second in items, and --peak in items per second?", load.FloatString(0))
	}
	return nil
}

// Connections is what a sink holds: from all ingesters, and at most while a rollout
// overlaps, over all endpoints and for each.
func (p *Plan) Connections(s Sink) (now, overlapping, each int64) {
	one := int64(s.PerEndpoint)
	most := p.Ingesters + whole(p.Input.Overlap)
	return p.Ingesters * one * int64(s.Endpoints), most * one * int64(s.Endpoints), most * one
}
