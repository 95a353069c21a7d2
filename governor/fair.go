package governor

import (
	"math"
	"time"
)

// flowWeight is the weight of the newest batch in a flow's mean slot time, by
// which it is charged until the real time is known. It only has to order the
// batches that run at the same moment.
const flowWeight = 0.2

// lease is one slot in use.
type lease struct {
	flow    *flow
	start   time.Duration
	charged float64 // slot-seconds put on the flow's tag at the grant
}

// waiter is one batch that waits for a slot, an element of its flow's list.
type waiter struct {
	lease      *lease // filled at the grant
	flow       *flow
	arrived    time.Duration
	prev, next *waiter
	state      waitState
	shed       *Shed         // set when displaced
	ready      chan struct{} // closed once state is granted or displaced
}

type waitState uint8

const (
	stateWaiting waitState = iota
	stateGranted
	stateDisplaced // pushed out by a flow that waits with fewer batches
	stateLeft      // gave up by itself
)

// flow is one key's place in the fair order.
type flow struct {
	key string
	// tag is the virtual start time of the flow's next batch, slot-seconds:
	// what it was charged so far, not behind dispatcher.virtual when its queue
	// began. A flow that keeps waiting may fall behind it: it was charged too much.
	tag         float64
	guess       float64 // mean slot time of its batches, s; 0 before the first
	inFlight    int
	waiting     int
	first, last *waiter
	position    int           // in dispatcher.queued; -1 when nothing waits
	queueShare  float64       // of late, the share of time in which its queue was not empty
	queueNoted  time.Duration // up to when queueShare reaches
	standing    bool          // its queue is overload, not a burst
	idleSince   time.Duration
	booked      time.Duration // up to when its turns are promised to batches that were shed
	arrivals    uint64
	shed        uint64
}

func (f *flow) idle() bool { return f.inFlight == 0 && f.waiting == 0 }

// dispatcher decides whose batch is next. It has no clock, lock or goroutine:
// now is monotonic time since any fixed instant.
//
// Invariants, true after every method:
//
//	inFlight = grants - returns, over all flows and for each
//	waiting  = sum of the flows' waiting; queued lists exactly the flows with waiting > 0
//	waiting > 0  implies  no slot is free: see free
//	virtual and the totals never fall
type dispatcher struct {
	plan
	bounds   WaitConfig
	inFlight int
	waiting  int
	active   int // flows with work
	// queuedInFlight is the part of inFlight that belongs to flows in queued.
	queuedInFlight int
	queued         []*flow
	flows          map[string]*flow
	virtual        float64
	meanSlot       float64       // mean slot time of all batches, s
	due            time.Duration // when the even pace has its next start

	forgetAt time.Duration

	at     time.Duration // up to which the totals reach
	totals totals
}

// totals only grow; a sample is the difference of two.
type totals struct {
	slotTime    float64 // integral of slots in use, slot-seconds
	capTime     float64 // integral of the mean capacity, slot-seconds
	waitTime    float64 // seconds during which some batch waited
	servedTime  float64 // slot time of the batches that say what the work takes, s
	served      int     // their number
	completions int     // slots that came back used
	arrivals    int
}

func newDispatcher(p plan, bounds WaitConfig) *dispatcher {
	return &dispatcher{plan: p, bounds: bounds, flows: make(map[string]*flow)}
}

// advance brings the totals up to now. A reading older than one already seen
// counts as that one.
func (d *dispatcher) advance(now time.Duration) {
	dt := (now - d.at).Seconds()
	if dt <= 0 {
		return
	}
	d.at = now
	d.totals.slotTime += float64(d.inFlight) * dt
	d.totals.capTime += d.mean * dt
	if d.waiting > 0 {
		d.totals.waitTime += dt
	}
}

// setPlan moves the capacity and grants what a rise makes free. Slots in use
// above a lower capacity are not taken away; none is granted until they are back.
func (d *dispatcher) setPlan(now time.Duration, p plan) {
	d.advance(now)
	d.plan = p
	// A start that was due late under the old pace is not due later than that
	// under the new one.
	d.due = min(d.due, d.at+d.spacing())
	d.dispatch()
}

// tick grants what the passing of time has made free.
func (d *dispatcher) tick(now time.Duration) {
	d.advance(now)
	d.dispatch()
}

// find returns key's flow, a new one if it has no past.
func (d *dispatcher) find(key string) *flow {
	f := d.flows[key]
	if f == nil {
		f = &flow{key: key, position: -1, tag: d.entryTag(), idleSince: d.at, queueNoted: d.at}
		d.flows[key] = f
	}
	return f
}

// entryTag is where a flow without a past joins: one batch behind every waiting
// flow. At the virtual time itself, a stream of new flows would starve all
// that have been served once.
func (d *dispatcher) entryTag() float64 {
	if len(d.queued) == 0 {
		return d.virtual
	}
	top := d.virtual
	for _, f := range d.queued {
		top = math.Max(top, f.tag)
	}
	return top + d.meanSlot
}

// enqueue appends a batch to f's list.
func (d *dispatcher) enqueue(f *flow, l *lease) *waiter {
	w := &waiter{lease: l, flow: f, arrived: d.at, prev: f.last, ready: make(chan struct{})}
	if f.last != nil {
		f.last.next = w
	} else {
		f.first = w
	}
	f.last = w
	if f.idle() {
		d.active++
	}
	if f.waiting == 0 {
		d.noteQueue(f)
		f.tag = math.Max(f.tag, d.virtual)
		f.position = len(d.queued)
		d.queued = append(d.queued, f)
		d.queuedInFlight += f.inFlight
	}
	f.waiting++
	d.waiting++
	return w
}

// unlink takes w out of its flow's list.
func (d *dispatcher) unlink(w *waiter) {
	f := w.flow
	if w.prev != nil {
		w.prev.next = w.next
	} else {
		f.first = w.next
	}
	if w.next != nil {
		w.next.prev = w.prev
	} else {
		f.last = w.prev
	}
	w.prev, w.next = nil, nil
	if f.waiting == 1 {
		d.noteQueue(f)
	}
	f.waiting--
	d.waiting--
	if f.waiting == 0 {
		end := len(d.queued) - 1
		moved := d.queued[end]
		d.queued[f.position], moved.position = moved, f.position
		d.queued[end] = nil
		d.queued = d.queued[:end]
		f.position = -1
		d.queuedInFlight -= f.inFlight
	}
	d.settleIdle(f)
}

// settleIdle parks a flow that has no more work. Its tag stays, so that being
// quick to empty gains nothing. When no flow has work the busy period is over and
// what was used in it is forgiven: nobody waited for it.
func (d *dispatcher) settleIdle(f *flow) {
	if !f.idle() {
		return
	}
	d.active--
	f.idleSince = d.at
	if d.active == 0 {
		d.virtual = math.Max(d.virtual, f.tag)
	}
}

// leave removes a batch that stopped waiting by itself. It reports false when
// the batch was granted or displaced first, be it at this instant.
func (d *dispatcher) leave(now time.Duration, w *waiter) bool {
	d.tick(now)
	if w.state != stateWaiting {
		return false
	}
	w.state = stateLeft
	d.unlink(w)
	return true
}

// dispatch grants slots until none is free or nothing waits.
func (d *dispatcher) dispatch() {
	for d.waiting > 0 && d.free() {
		f := d.pick()
		w := f.first
		w.state = stateGranted
		d.grant(f, w.lease)
		d.unlink(w)
		close(w.ready)
	}
}

// guaranteed is how many slots every flow with work is owed.
func (d *dispatcher) guaranteed() int {
	return max(1, int(d.mean/float64(max(1, d.active))+epsilon))
}

// pick chooses the flow whose batch is next: the owed flow with the lowest tag,
// else the flow with the lowest tag. It costs one pass over the flows that wait,
// of which there are at most WaitConfig.MaxWaiting.
func (d *dispatcher) pick() *flow {
	owed := d.guaranteed()
	var best, bestOwed *flow
	lowest := math.Inf(1)
	for _, f := range d.queued {
		lowest = math.Min(lowest, f.tag)
		if f.before(best) {
			best = f
		}
		if f.inFlight < owed && f.before(bestOwed) {
			bestOwed = f
		}
	}
	// Every waiting flow can be served, so no stuck entry holds this back.
	d.virtual = math.Max(d.virtual, lowest)
	if bestOwed != nil {
		return bestOwed
	}
	return best
}

// before orders by tag, then by who waits longest, never by a name that a
// sender may choose.
func (f *flow) before(other *flow) bool {
	if other == nil || f.tag != other.tag {
		return other == nil || f.tag < other.tag
	}
	return f.first.arrived < other.first.arrived
}

// grant hands a slot to f and charges what a batch of this flow usually takes;
// giveBack settles the difference.
func (d *dispatcher) grant(f *flow, l *lease) {
	if f.idle() {
		d.active++
	}
	charge := f.guess
	if charge == 0 {
		charge = d.meanSlot
	}
	f.tag += charge
	f.inFlight++
	d.inFlight++
	if f.position >= 0 {
		d.queuedInFlight++
	}
	d.noteStart()
	*l = lease{flow: f, start: d.at, charged: charge}
}

// outcome is how the batch that held a slot ended.
type outcome uint8

const (
	completed outcome = iota // its time says what the work takes
	failed                   // its time says nothing of healthy work if it was short
	unused                   // the slot came back before the batch began
)

// giveBack returns a slot and passes it on.
func (d *dispatcher) giveBack(now time.Duration, l *lease, how outcome) {
	d.advance(now)
	f := l.flow
	took := (d.at - l.start).Seconds()
	f.tag += took - l.charged
	f.inFlight--
	d.inFlight--
	if f.position >= 0 {
		d.queuedInFlight--
	}
	if how != unused {
		d.totals.completions++
		// Slow failures count as samples, or the picture would freeze when
		// everything fails; quick refusals must not pass for health.
		if how == completed || took > d.meanSlot {
			d.totals.served++
			d.totals.servedTime += took
		}
		f.guess = smooth(f.guess, took, flowWeight)
		d.meanSlot = smooth(d.meanSlot, took, slotWeight)
	}
	d.settleIdle(f)
	d.dispatch()
}

// smooth is an exponentially weighted mean that starts at its first sample.
func smooth(mean, sample, weight float64) float64 {
	if mean == 0 {
		return sample
	}
	return mean + weight*(sample-mean)
}

// forget drops the flows that were idle for longer than they are remembered
// and, while there are too many, other idle ones. It looks at all flows, so it does
// that only ten times in the time that a flow is remembered for, or when there are too many.
func (d *dispatcher) forget(now time.Duration) {
	if now < d.forgetAt && len(d.flows) <= d.bounds.MaxFlows {
		return
	}
	d.forgetAt = now + d.bounds.FlowMemory/10
	for key, f := range d.flows {
		if f.idle() && (now-f.idleSince > d.bounds.FlowMemory || len(d.flows) > d.bounds.MaxFlows) {
			delete(d.flows, key)
		}
	}
}
