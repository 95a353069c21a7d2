package governor

import (
	"fmt"
	"math"
	"time"
)

// Reasons for which a batch is shed: the values of Shed.Reason.
const (
	// ReasonFlowFull: as many batches of the flow wait as may.
	ReasonFlowFull = "flow_full"
	// ReasonFull: as many batches wait as may, and no flow holds more places
	// than this one.
	ReasonFull = "full"
	// ReasonDisplaced: the place was given to a flow that waits with fewer.
	ReasonDisplaced = "displaced"
	// ReasonDeadline: the expected wait is longer than the batch can wait.
	ReasonDeadline = "deadline"
	// ReasonTimeout: the batch waited as long as it could.
	ReasonTimeout = "timeout"
)

func reasons() []string {
	return []string{ReasonFlowFull, ReasonFull, ReasonDisplaced, ReasonDeadline, ReasonTimeout}
}

const (
	// deadlineShare is the part of what is left of a deadline that may be spent
	// waiting; the rest is for the work.
	deadlineShare = 0.25
	// A queue becomes standing when it was not empty for nearly all of the last
	// StandingAfter, and stays so until it was empty for a good part of it: with
	// short waits, a queue in overload is empty for moments.
	standingEnter = 1 - 1/(math.E*math.E) // what StandingAfter without a gap amounts to
	standingLeave = 0.6
	// standingShare of a mean slot time is how long a batch waits in a
	// standing queue: enough to keep the slots busy.
	standingShare = 0.5
	// retryJitter is by how much the time that a batch is told may be off its
	// turn, as a fraction to either side, so that senders which were turned away
	// together do not return together.
	retryJitter = 0.1
	// unknownSlot stands for a slot time before the first batch is through.
	unknownSlot = 1.0
)

// Shed says that a batch must not wait: nothing of it was processed, and the
// sender should send it again after RetryAfter.
type Shed struct {
	// Flow is the key whose batch it was.
	Flow string
	// RetryAfter is when the flow's share of the slots is expected to have room
	// for this batch, with jitter. It is above 0 and not rounded.
	RetryAfter time.Duration
	// Reason is one of the Reason constants.
	Reason string
	// Waited is how long the batch waited before it was shed.
	Waited time.Duration
	// Waiting and InFlight are the flow's batches at that moment.
	Waiting, InFlight int
}

func (s *Shed) Error() string {
	return fmt.Sprintf("at capacity (%s): %d batches of this sender in progress, %d waiting; send again in %.1fs",
		s.Reason, s.InFlight, s.Waiting, s.RetryAfter.Seconds())
}

// noteQueue brings f's queueShare up to date: a mean over time that forgets with
// a time constant of half of StandingAfter. It is called before the queue
// becomes empty or ceases to be.
func (d *dispatcher) noteQueue(f *flow) {
	elapsed := float64(d.at-f.queueNoted) / float64(d.bounds.StandingAfter)
	f.queueNoted = d.at
	now := 0.0
	if f.waiting > 0 {
		now = 1
	}
	f.queueShare = now + (f.queueShare-now)*math.Exp(-2*elapsed)
	switch {
	case f.queueShare >= standingEnter-epsilon:
		f.standing = true
	case f.queueShare < standingLeave:
		f.standing = false
	}
}

// turn is the time between two grants to f while it and the flows that wait
// now are served, in seconds: they share what the others leave of the capacity.
func (d *dispatcher) turn(f *flow) float64 {
	flows, held := len(d.queued), d.inFlight-d.queuedInFlight
	if f.waiting == 0 {
		flows++
		held -= f.inFlight
	}
	guess := f.guess
	if guess == 0 {
		guess = d.meanSlot
	}
	if guess == 0 {
		guess = unknownSlot
	}
	available := math.Max(1, d.mean-float64(held))
	return guess * float64(flows) / available
}

// expectedWait is how long the next batch of f would wait, in seconds.
func (d *dispatcher) expectedWait(f *flow) float64 {
	if d.meanSlot == 0 {
		return 0
	}
	excess := math.Max(0, float64(d.inFlight)-d.mean) / d.mean * d.meanSlot
	return excess + float64(f.waiting+1)*d.turn(f)
}

// waitLimit is how long the next batch of f may wait. left is what is left of
// its deadline, negative for none.
func (d *dispatcher) waitLimit(f *flow, left time.Duration) time.Duration {
	limit := d.bounds.MaxWait
	if left >= 0 {
		limit = min(limit, time.Duration(deadlineShare*float64(left)))
	}
	if d.noteQueue(f); f.standing {
		limit = min(limit, time.Duration(standingShare*d.meanSlot*float64(time.Second)))
	}
	return limit
}

// admit gives the batch a slot (w and shed are nil), a place in its flow's
// queue with the longest time that it may stay there, or neither. left is what
// is left of the batch's deadline, negative for none; jitter is random in [0, 1).
func (d *dispatcher) admit(now time.Duration, key string, l *lease, left time.Duration, jitter float64) (w *waiter, limit time.Duration, shed *Shed) {
	d.advance(now)
	d.totals.arrivals++
	f := d.find(key)
	f.arrivals++
	d.dispatch() // this may be the instant at which the pace has a start
	if d.waiting == 0 && d.free() {
		f.tag = math.Max(f.tag, d.virtual)
		d.virtual = f.tag
		d.grant(f, l)
		return nil, 0, nil
	}
	limit = d.waitLimit(f, left)
	if reason := d.refusal(f, limit); reason != "" {
		return nil, 0, d.shed(f, reason, 0, jitter)
	}
	if d.waiting >= d.bounds.MaxWaiting {
		d.displace(d.longest(), jitter)
	}
	return d.enqueue(f, l), limit, nil
}

// refusal names why the next batch of f must not wait, "" if it may.
func (d *dispatcher) refusal(f *flow, limit time.Duration) string {
	if f.waiting >= d.bounds.MaxWaitingPerFlow {
		return ReasonFlowFull
	}
	if limit <= 0 || d.expectedWait(f) > limit.Seconds() {
		return ReasonDeadline
	}
	if d.waiting >= d.bounds.MaxWaiting {
		// The newcomer must still be the shorter one once it has the place.
		if longest := d.longest(); longest == nil || longest.waiting <= f.waiting+1 {
			return ReasonFull
		}
	}
	return ""
}

// longest is the flow with most batches waiting.
func (d *dispatcher) longest() *flow {
	var longest *flow
	for _, f := range d.queued {
		if longest == nil || f.waiting > longest.waiting {
			longest = f
		}
	}
	return longest
}

// displace sheds the newest batch of f.
func (d *dispatcher) displace(f *flow, jitter float64) {
	w := f.last
	w.state = stateDisplaced
	d.unlink(w)
	w.shed = d.shed(f, ReasonDisplaced, d.at-w.arrived, jitter)
	close(w.ready)
}

// shed books the next turn that f's share of the slots can serve and tells the
// batch to come back then. Bookings spread the batches that were shed in one
// moment over the time that it takes to serve them.
func (d *dispatcher) shed(f *flow, reason string, waited time.Duration, jitter float64) *Shed {
	f.shed++
	turn := d.turn(f)
	drained := d.at + seconds(d.expectedWait(f))
	f.booked = max(f.booked, drained) + seconds(turn)
	f.booked = min(f.booked, d.at+d.bounds.MaxRetryAfter)
	after := float64(f.booked-d.at) * (1 + retryJitter*(2*jitter-1))
	return &Shed{
		Flow: f.key, Reason: reason, RetryAfter: max(time.Millisecond, time.Duration(after)),
		Waited: waited, Waiting: f.waiting, InFlight: f.inFlight,
	}
}

// seconds converts without overflow.
func seconds(s float64) time.Duration {
	return time.Duration(math.Min(s, 1e6) * float64(time.Second))
}
