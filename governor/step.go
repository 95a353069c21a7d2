package governor

import "math"

const (
	// stepSamples above the threshold in a row make a cut: one sample may hold
	// a burst that is over.
	stepSamples = 2
	// stepRecovery is P's rise in slots per second, one per 2 s.
	stepRecovery = 0.5
	// calmShare of the threshold is below which P recovers.
	calmShare = 0.5
)

// step is P: it halves the capacity when the container is stalled for CPU, and
// recovers slowly. It needs no CPU use, only the stall, so it works where the
// model cannot.
type step struct {
	p        float64 // slots
	above    int     // samples in a row above the threshold
	sinceCut float64 // seconds
}

func newStep(ceiling float64, cfg StepConfig) step {
	return step{p: ceiling, sinceCut: cfg.Cooldown.Seconds()}
}

// observe folds in one sample: the share of its time for which the container
// was stalled, if known. published is the capacity during the sample. A stall that cannot
// be read is no stall.
func (s *step) observe(cfg StepConfig, ceiling, seconds, stall float64, known bool, published float64) (cut bool) {
	s.sinceCut += seconds
	if !known {
		stall = 0
	}
	if stall > cfg.Threshold {
		s.above++
	} else {
		s.above = 0
	}
	if s.above >= stepSamples && s.sinceCut >= cfg.Cooldown.Seconds()-epsilon {
		s.above, s.sinceCut = 0, 0
		s.p = math.Max(1, math.Floor(published/2+epsilon))
		return true
	}
	if stall < calmShare*cfg.Threshold {
		s.p = math.Min(ceiling, s.p+stepRecovery*seconds)
	}
	return false
}
