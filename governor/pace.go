package governor

import (
	"math"
	"time"
)

// epsilon absorbs the rounding of sums of real numbers.
const epsilon = 1e-9

const (
	// slotWeight is the weight of the newest batch in the mean slot time of all
	// batches, which sets the pace.
	slotWeight = 0.05
	// openShare of the mean capacity is open at every instant.
	openShare = 0.75
	// saved is how many starts that came late may be made up for.
	saved = 0.5
	// peakShare is how many times the mean capacity may be in flight at once.
	peakShare = 1.15
)

// catchUp is how late a start may always be without being lost, however close
// to each other starts are: timers and busy processors are late by about that much.
const catchUp = 5 * time.Millisecond

// plan is a capacity: on average, and at one instant.
type plan struct {
	mean float64 // slots, >= 1
	peak int     // slots that may be in use at one instant, >= 1
	// paced says that mean is to be honoured over time by even starts; else
	// peak slots are always open.
	paced bool
}

// wholePlan opens ⌊capacity⌋ slots.
func wholePlan(capacity float64) plan {
	capacity = math.Max(1, math.Floor(capacity+epsilon))
	return plan{mean: capacity, peak: int(capacity)}
}

// pacedPlan honours the fraction of capacity over time.
func pacedPlan(capacity float64) plan {
	capacity = math.Max(1, capacity)
	peak := math.Max(math.Ceil(capacity-epsilon), math.Round(peakShare*capacity))
	return plan{mean: capacity, peak: int(peak), paced: true}
}

// open is how many slots the pace does not hold back.
func (p plan) open() int {
	if !p.paced {
		return p.peak
	}
	return max(1, int(openShare*p.mean))
}

// free reports whether a slot may be granted at this instant.
func (d *dispatcher) free() bool {
	return d.inFlight < d.open() || d.inFlight < d.peak && d.at >= d.due
}

// wake is when a slot opens by the mere passing of time; ok is false when no
// batch waits for that.
func (d *dispatcher) wake() (at time.Duration, ok bool) {
	return d.due, d.waiting > 0 && d.inFlight < d.peak
}

// spacing is the time between two starts that keeps mean batches in flight.
func (d *dispatcher) spacing() time.Duration {
	return time.Duration(d.meanSlot / d.mean * float64(time.Second))
}

// noteStart moves the pace on by one start. A burst into open slots does not
// hold the next start back by more than one spacing.
func (d *dispatcher) noteStart() {
	if !d.paced {
		return
	}
	spacing := d.spacing()
	earliest := d.at - max(catchUp, time.Duration(saved*float64(spacing)))
	d.due = min(max(d.due, earliest), d.at) + spacing
}
