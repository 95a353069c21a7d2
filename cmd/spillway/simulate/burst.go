package simulate

import (
	"fmt"
	"math"
	"math/big"

	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/ratecontrol"
)

// largestBurst is the largest that a policy may have.
const largestBurst = 1 << 53

// fitBurst raises r.SmallestBurst to the smallest that drops nothing of one
// ingester's sends.
func (s *simulation) fitBurst(r *ClassReport, sends []send) error {
	switch {
	case !s.class.Configured:
		r.Why = "the policy does not define the class"
		return nil
	case s.class.Rate.Sign() == 0:
		r.Why = "its rate is 0"
		return nil
	case len(sends) == 0:
		r.SmallestBurst = max(r.SmallestBurst, 1)
		return nil
	}
	// The search is by the real bucket; the estimate only makes it short.
	fits := func(burst int64) (bool, error) { return s.dropsNothing(burst, sends) }
	burst, err := smallest(s.estimate(sends), largestBurst/int64(s.ingesters), fits)
	if err != nil {
		return err
	}
	if burst == 0 {
		r.Why = "it would have to be larger than a policy allows"
	}
	r.SmallestBurst = max(r.SmallestBurst, burst)
	return nil
}

// estimate is the largest q of the package's comment, rounded up.
func (s *simulation) estimate(sends []send) int64 {
	rate, _ := s.class.RatePerIngester.Float64()
	owed, largest, last := 0.0, 0.0, sends[0].at
	for _, x := range sends {
		owed = math.Max(0, owed-rate*(x.at-last).Seconds()) + float64(x.groups*s.source.ItemsPerGroup)
		largest, last = math.Max(largest, owed), x.at
	}
	return int64(math.Ceil(math.Min(largest, largestBurst)))
}

// smallest finds the smallest number from 1 to limit that fits, where all above one
// that fits do, too: 0 if none does. It starts at a guess and doubles its steps
// away from it, so a good guess takes two trials.
func smallest(guess, limit int64, fits func(int64) (bool, error)) (int64, error) {
	guess = min(max(guess, 1), limit)
	good, bad := limit+1, int64(0) // the smallest known to fit, the largest known not to
	at, step := guess, int64(1)
	for good-bad > 1 {
		ok, err := fits(at)
		if err != nil {
			return 0, err
		}
		if ok {
			good = at
			at = max(good-step, bad+1)
		} else {
			bad = at
			at = min(bad+step, good-1)
		}
		if bad > 0 && good <= limit {
			at = bad + (good-bad)/2
		}
		step *= 2
	}
	if good > limit {
		return 0, nil
	}
	return good, nil
}

// dropsNothing replays the sends with a real bucket of the class's rate and another
// burst per ingester.
func (s *simulation) dropsNothing(burst int64, sends []send) (bool, error) {
	p, err := withBurst(s.stream, s.class.Rate, burst, s.ingesters)
	if err != nil {
		return false, err
	}
	limiter := ratecontrol.NewLimiter(p, 0)
	for _, x := range sends {
		if !limiter.Take(p.Default(), x.groups*s.source.ItemsPerGroup, int64(x.at)) {
			return false, nil
		}
	}
	return true, nil
}

// withBurst is a policy with one class, which has all of the cap: so its burst on
// one of n ingesters is exactly what is asked for.
func withBurst(stream string, rate *big.Rat, burst int64, n int) (*policy.Policy, error) {
	digits, exact := rate.FloatPrec()
	if !exact {
		return nil, fmt.Errorf("the rate %s has no exact decimal form", rate)
	}
	text := fmt.Sprintf("streams: {%s: {rate: %s, burst: %d}}", stream, rate.FloatString(digits), burst*int64(n))
	set, err := policy.Load([]byte(text), "the policy with another burst", n)
	if err != nil {
		return nil, err
	}
	return set.Stream(stream), nil
}

// fitCap says which burst of the stream gives the class what it needs: the smallest
// B with floor(B x share / (100 N)) >= burst (P5).
func (s *simulation) fitCap(r *ClassReport) {
	if r.Why != "" {
		r.SmallestBurst = 0
		return
	}
	if r.SmallestBurst <= 1 {
		r.SmallestCapBurst = 1 // P5 gives everybody 1
		return
	}
	if r.SharePercent == 0 {
		r.Why = "its share of the cap is 0 %, so its burst is 1 whatever the stream's burst is; raise its rate to 1 % of the cap"
		return
	}
	need := new(big.Int).Mul(big.NewInt(r.SmallestBurst), big.NewInt(100*int64(s.ingesters)))
	need.Add(need, big.NewInt(r.SharePercent-1))
	need.Quo(need, big.NewInt(r.SharePercent))
	if need.Cmp(big.NewInt(largestBurst)) > 0 {
		r.Why = "the stream's burst would have to be larger than a policy allows"
		return
	}
	r.SmallestCapBurst = need.Int64()
}
