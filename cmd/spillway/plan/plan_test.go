package plan

import (
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
)

func number(num, den int64) Number {
	return Number{Value: big.NewRat(num, den), Origin: Given, Set: true}
}

func input() Input {
	return Input{
		ItemsPerCPUSecond: number(1000, 1), Peak: number(10_000, 1), Growth: number(0, 1), CPULimit: number(2, 1),
		Target: number(96, 100), Headroom: number(1, 5), Zones: number(3, 1), ZonesMayFail: number(1, 1), IngestersMayFail: number(0, 1), Overlap: number(1, 1),
	}
}

// TestAgainstBruteForce tries one number of ingesters after the other, each by
// counting what is left of them, and compares.
func TestAgainstBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 1000 {
		in := input()
		in.ItemsPerCPUSecond = number(3000+r.Int64N(5000), 1+r.Int64N(3))
		in.Peak = number(1+r.Int64N(100_000), 1)
		in.Growth = number(r.Int64N(200), 100)
		in.CPULimit = number(1+r.Int64N(16), 2)
		in.Target = number(50+r.Int64N(51), 100)
		in.Headroom = number(r.Int64N(90), 100)
		in.Zones = number(1+r.Int64N(5), 1)
		in.ZonesMayFail = number(r.Int64N(whole(in.Zones)), 1)
		in.IngestersMayFail = number(r.Int64N(4), 1)
		p, err := Make(in)
		require.NoError(t, err)
		perZone := int64(1)
		for !enough(in, perZone) {
			perZone++
		}
		require.Equal(t, perZone, p.PerZone)
		require.Equal(t, perZone*whole(in.Zones), p.Ingesters)
		tightest := int64(0)
		for _, s := range p.Scenarios {
			require.LessOrEqual(t, s.Use.Cmp(s.Bound), 0, "%s uses more than it may", s.Name)
			tightest = max(tightest, s.Needs)
		}
		require.Equal(t, p.PerZone, tightest, "some scenario decides")
	}
}

// enough says in float-free words whether every bad day is survived.
func enough(in Input, perZone int64) bool {
	peak := new(big.Rat).Mul(in.Peak.Value, new(big.Rat).Add(big.NewRat(1, 1), in.Growth.Value))
	carries := func(ingesters int64, fraction *big.Rat) bool {
		capacity := new(big.Rat).Mul(big.NewRat(ingesters, 1), in.ItemsPerCPUSecond.Value)
		capacity.Mul(capacity, in.CPULimit.Value).Mul(capacity, fraction)
		return ingesters > 0 && capacity.Cmp(peak) >= 0
	}
	good := new(big.Rat).Sub(big.NewRat(1, 1), in.Headroom.Value)
	if in.Target.Value.Cmp(good) < 0 {
		good = in.Target.Value
	}
	zones, all := whole(in.Zones), whole(in.Zones)*perZone
	ok := carries(all, good)
	if whole(in.ZonesMayFail) > 0 {
		ok = ok && carries((zones-whole(in.ZonesMayFail))*perZone, in.Target.Value)
	}
	if whole(in.IngestersMayFail) > 0 {
		ok = ok && carries(all-whole(in.IngestersMayFail), in.Target.Value)
	}
	return ok
}

// TestReservesCountOnce: headroom and the governor's target are the same CPU, and
// what is in a number already is refused beside it.
func TestReservesCountOnce(t *testing.T) {
	in := input()
	in.Zones, in.ZonesMayFail = number(1, 1), number(0, 1)
	in.Peak, in.Headroom, in.Target = number(9600, 1), number(2, 100), number(96, 100)
	p, err := Make(in)
	require.NoError(t, err)
	require.EqualValues(t, 5, p.Ingesters, "0.98 x 0.96 would take 6")
	require.Equal(t, "the governor's target", p.ReserveBy)

	in.Forecast, in.Growth = true, number(1, 2)
	_, err = Make(in)
	require.ErrorContains(t, err, "--growth counts a reserve twice")
	in.Growth.Set = false
	in.Growth.Value = new(big.Rat)
	_, err = Make(in)
	require.NoError(t, err)

	in.Safe = true
	_, err = Make(in)
	require.ErrorContains(t, err, "--headroom counts a reserve twice")
	in.Headroom.Set = false
	p, err = Make(in)
	require.NoError(t, err)
	require.EqualValues(t, 5, p.Ingesters, "9600 of 2000 each, with nothing taken off again")
	require.Zero(t, p.Reserve.Sign())
}

func TestConnections(t *testing.T) {
	p, err := Make(input()) // 10,000 of 2,000 each: two zones of 3, so 9
	require.NoError(t, err)
	require.EqualValues(t, 9, p.Ingesters)
	now, overlapping, each := p.Connections(Sink{Endpoints: 2, PerEndpoint: 64})
	require.Equal(t, []int64{9 * 128, 10 * 128, 10 * 64}, []int64{now, overlapping, each})
}

func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Input)
		want   string
	}{
		"no peak":       {func(in *Input) { in.Peak = Number{} }, "--peak: must be given"},
		"all zones":     {func(in *Input) { in.ZonesMayFail = number(3, 1) }, "none might be left"},
		"no zone":       {func(in *Input) { in.Zones, in.ZonesMayFail = number(0, 1), number(0, 1) }, "none might be left"},
		"all headroom":  {func(in *Input) { in.Headroom = number(1, 1) }, "headroom is below 100"},
		"wrong unit":    {func(in *Input) { in.ItemsPerCPUSecond = number(1, 1000) }, "is --items-per-cpu-second in items"},
		"target":        {func(in *Input) { in.Target = number(2, 1) }, "governor.model.target"},
		"overlap":       {func(in *Input) { in.Overlap = number(-1, 1) }, "--rollout-overlap"},
		"negative peak": {func(in *Input) { in.Peak = number(-5, 1) }, "--peak"},
	} {
		in := input()
		c.change(&in)
		_, err := Make(in)
		require.ErrorContains(t, err, c.want, name)
	}
}
