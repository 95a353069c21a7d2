package governor

import "math"

const (
	// latencySamples is how many batches a mean is taken over at least.
	latencySamples = 10
	// latencyPatience is after how many seconds fewer are judged: under
	// collapse little completes, and that must not hide it.
	latencyPatience = 30.0
	// bestFall and bestRise are the weights of the newest mean in the best
	// time. A mean, not a minimum: the luckiest batch is no baseline.
	bestFall = 0.3
	bestRise = 0.1
	// latencyFall and latencySteep bound one decrease.
	latencyFall  = 0.9
	latencySteep = 0.5
	// floorWindows at the floor, still slow, make the current time the new
	// best: with so few in flight it is the work that has become slower.
	floorWindows = 10
	// restShare of the capacity in use, nothing waiting, is a time at which
	// batches do not hinder each other.
	restShare = 0.5
)

// latency is A: additive increase while the mean time of a batch is healthy,
// multiplicative decrease while it is not, once per window, and neither unless
// A is the limit that binds. The gradient best / current tells which:
//
//	g >= threshold   A + √A        (the same headroom at every size)
//	g <  threshold   A · clamp(g / threshold, 0.5, 0.9)
//
// The best time falls quickly towards a better mean and rises only while slots
// stand free, so that it cannot drift upwards in a long overload.
type latency struct {
	a       float64 // slots
	best    float64 // s; 0 before the first window
	current float64 // s, mean of the last window
	atFloor int     // windows in a row at the floor and slow
	served  int     // of the window that is filling
	time    float64 // s
	seconds float64
	slots   float64 // slot-seconds
	caps    float64 // slot-seconds
	waited  float64 // s
	bound   float64 // seconds during which A was the lowest limit
}

// observe folds in one sample; binding says that A was the lowest limit in it.
func (l *latency) observe(cfg LatencyConfig, ceiling float64, w window, served int, servedTime float64, binding bool) {
	l.served += served
	l.time += servedTime
	l.seconds += w.seconds
	l.slots += w.slotTime
	l.caps += w.capTime
	l.waited += w.waitTime
	if binding {
		l.bound += w.seconds
	}
	if l.served == 0 || l.served < latencySamples && l.seconds < latencyPatience {
		return
	}
	l.current = l.time / float64(l.served)
	used := l.slots >= usedShare*l.caps || l.waited >= waitedShare*l.seconds
	binds := used && l.bound >= 0.5*l.seconds
	resting := l.waited == 0 && l.slots < restShare*l.caps
	l.served, l.time, l.seconds, l.slots, l.caps, l.waited, l.bound = 0, 0, 0, 0, 0, 0, 0
	l.learn(resting)
	if binds {
		l.move(cfg, ceiling)
	}
}

// learn moves the best time.
func (l *latency) learn(resting bool) {
	switch {
	case l.best == 0:
		l.best = l.current
	case l.current < l.best:
		l.best += bestFall * (l.current - l.best)
	case resting:
		l.best += bestRise * (l.current - l.best)
	}
}

// gradient is best / current, 1 while nothing is known.
func (l *latency) gradient() float64 {
	if l.current <= 0 {
		return 1
	}
	return math.Min(1, l.best/l.current)
}

func (l *latency) move(cfg LatencyConfig, ceiling float64) {
	floor := float64(cfg.MinInFlight)
	g := l.gradient()
	unhealthy := cfg.Unhealthy > 0 && l.current > cfg.Unhealthy.Seconds()
	if g >= cfg.Threshold && !unhealthy {
		l.atFloor = 0
		l.a = clamp(l.a+math.Sqrt(l.a), floor, ceiling)
		return
	}
	if l.a > floor {
		l.atFloor = 0
		l.a = clamp(l.a*clamp(g/cfg.Threshold, latencySteep, latencyFall), floor, ceiling)
		return
	}
	if l.atFloor++; l.atFloor >= floorWindows && !unhealthy {
		l.atFloor, l.best = 0, l.current
	}
}
