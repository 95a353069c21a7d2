package governor

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// generous lets every batch wait.
func generous() WaitConfig {
	w := Defaults().Wait
	w.MaxWaiting, w.MaxWaitingPerFlow, w.MaxWait, w.StandingAfter = 1<<20, 1<<20, time.Hour, 1000*time.Hour
	return w
}

// fairJob is one batch of a fairness scenario.
type fairJob struct {
	at, takes time.Duration
	sender    string // by whom its wait is reported
	flow      string // the key under which the governor sees it
	shard     string // the key under which the oracle sees it
	wait, end time.Duration
}

// discipline chooses the next of the waiting jobs for a free slot.
type discipline interface {
	arrive(now time.Duration, j *fairJob)
	// next removes and returns the job to start now, nil if none waits or no slot is free.
	next(now time.Duration) *fairJob
	done(now time.Duration, j *fairJob)
}

// runFair serves the jobs and returns when the last one ended.
func runFair(jobs []*fairJob, d discipline) time.Duration {
	slices.SortStableFunc(jobs, func(a, b *fairJob) int { return cmp.Compare(a.at, b.at) })
	var running []*fairJob
	var end time.Duration
	for i := 0; i < len(jobs) || len(running) > 0; {
		now := time.Duration(math.MaxInt64)
		if i < len(jobs) {
			now = jobs[i].at
		}
		for _, j := range running {
			now = min(now, j.end)
		}
		running = slices.DeleteFunc(running, func(j *fairJob) bool {
			if j.end > now {
				return false
			}
			d.done(now, j)
			return true
		})
		for ; i < len(jobs) && jobs[i].at <= now; i++ {
			d.arrive(now, jobs[i])
		}
		for j := d.next(now); j != nil; j = d.next(now) {
			j.wait, j.end = now-j.at, now+j.takes
			end = max(end, j.end)
			running = append(running, j)
		}
	}
	return end
}

// governed is the dispatcher under test.
type governed struct {
	d       *dispatcher
	leases  map[*fairJob]*lease
	waiters map[*waiter]*fairJob
	order   []*waiter
	ready   []*fairJob
}

func newGoverned(slots int) *governed {
	return &governed{
		d: newDispatcher(wholePlan(float64(slots)), generous()), leases: map[*fairJob]*lease{}, waiters: map[*waiter]*fairJob{},
	}
}

func (g *governed) arrive(now time.Duration, j *fairJob) {
	l := &lease{}
	g.leases[j] = l
	w, _, shed := g.d.admit(now, j.flow, l, -1, 0)
	switch {
	case shed != nil:
		panic("shed in a fairness scenario")
	case w == nil:
		g.ready = append(g.ready, j)
	default:
		g.waiters[w] = j
		g.order = append(g.order, w)
	}
}

func (g *governed) next(time.Duration) *fairJob {
	g.order = slices.DeleteFunc(g.order, func(w *waiter) bool {
		if w.state != stateGranted {
			return false
		}
		g.ready = append(g.ready, g.waiters[w])
		return true
	})
	if len(g.ready) == 0 {
		return nil
	}
	j := g.ready[0]
	g.ready = g.ready[1:]
	return j
}

func (g *governed) done(now time.Duration, j *fairJob) { g.d.giveBack(now, g.leases[j], completed) }

// sfq is the oracle: start-time fair queueing with unit cost, as published. A
// key's tag is max(its clock, the floor); serving adds 1; the floor is the
// lowest clock of a key with work and never falls.
type sfq struct {
	slots, inUse int
	clock        map[string]float64
	queues       map[string][]*fairJob
	floor        float64
}

func (s *sfq) arrive(_ time.Duration, j *fairJob) { s.queues[j.shard] = append(s.queues[j.shard], j) }
func (s *sfq) done(time.Duration, *fairJob)       { s.inUse-- }
func (s *sfq) next(time.Duration) *fairJob {
	if s.inUse == s.slots {
		return nil
	}
	best, lowest := "", math.Inf(1)
	tag := func(key string) float64 { return math.Max(s.clock[key], s.floor) }
	for key, queue := range s.queues {
		if len(queue) == 0 {
			continue
		}
		lowest = math.Min(lowest, tag(key))
		if best == "" || tag(key) < tag(best) || tag(key) == tag(best) &&
			(queue[0].at < s.queues[best][0].at || queue[0].at == s.queues[best][0].at && key < best) {
			best = key
		}
	}
	if best == "" {
		return nil
	}
	j := s.queues[best][0]
	s.clock[best], s.queues[best] = tag(best)+1, s.queues[best][1:]
	s.floor = math.Max(s.floor, lowest)
	s.inUse++
	return j
}

// fifo is what senders get without a governor's fairness.
type fifo struct {
	slots, inUse int
	queue        []*fairJob
}

func (f *fifo) arrive(_ time.Duration, j *fairJob) { f.queue = append(f.queue, j) }
func (f *fifo) done(time.Duration, *fairJob)       { f.inUse-- }
func (f *fifo) next(time.Duration) *fairJob {
	if f.inUse == f.slots || len(f.queue) == 0 {
		return nil
	}
	j := f.queue[0]
	f.queue = f.queue[1:]
	f.inUse++
	return j
}

// scenario returns the published scenarios' jobs: four slots, 20 ms a batch.
func scenario(name string, rng *rand.Rand) []*fairJob {
	var jobs []*fairJob
	add := func(sender, flow, shard string, n int, at, every time.Duration) {
		for i := range n {
			// Distinct ages, or ties would make an order by name look like a result.
			jitter := time.Duration(rng.Int64N(int64(time.Millisecond)))
			jobs = append(jobs, &fairJob{
				at: at + time.Duration(i)*every + jitter, takes: 20 * time.Millisecond, sender: sender, flow: flow, shard: shard,
			})
		}
	}
	switch name {
	case "one heavy flow":
		add("heavy", "heavy", "heavy", 400, 0, 0)
		add("light", "light", "light", 20, 50*time.Millisecond, 70*time.Millisecond)
	case "trickle":
		add("heavy", "heavy", "heavy", 400, 0, 4*time.Millisecond)
		add("light", "light", "light", 12, 0, 150*time.Millisecond)
	case "twenty shards of one tenant":
		for i := range 20 {
			add("heavy", "tenant", fmt.Sprintf("tenant-%02d", i), 20, 0, 0)
		}
		add("light", "light", "light", 20, 50*time.Millisecond, 70*time.Millisecond)
	case "heavy alone":
		add("heavy", "heavy", "heavy", 250, 0, 0)
	}
	return jobs
}

func meanWait(jobs []*fairJob, sender string) time.Duration {
	var sum time.Duration
	n := 0
	for _, j := range jobs {
		if j.sender == sender {
			sum += j.wait
			n++
		}
	}
	return sum / time.Duration(max(1, n))
}

// The light flow waits no longer than under start-time fair queueing, also when
// the oracle sees the shards as one flow, and the last batch ends when it ends
// without any order.
func TestG6PublishedScenarios(t *testing.T) {
	const slots = 4
	var report strings.Builder
	fmt.Fprintf(&report, "light flow's mean wait, ms, and makespan, ms; %d slots, 20 ms a batch, mean of 3 seeds\n\n", slots)
	fmt.Fprintf(&report, "%-28s %10s %10s %10s %14s %14s\n", "scenario", "governor", "SFQ", "FIFO", "makespan", "FIFO makespan")
	for _, name := range []string{"one heavy flow", "trickle", "twenty shards of one tenant", "heavy alone"} {
		var wait, sfqWait, fifoWait, end, fifoEnd time.Duration
		for seed := range uint64(3) {
			jobs := func() []*fairJob { return scenario(name, rand.New(rand.NewPCG(seed, 7))) }
			a, b, c, e := jobs(), jobs(), jobs(), jobs()
			endA := runFair(a, newGoverned(slots))
			runFair(b, &sfq{slots: slots, clock: map[string]float64{}, queues: map[string][]*fairJob{}})
			endC := runFair(c, &fifo{slots: slots})
			for _, j := range e {
				j.shard = j.flow
			}
			runFair(e, &sfq{slots: slots, clock: map[string]float64{}, queues: map[string][]*fairJob{}})
			require.LessOrEqual(t, meanWait(a, "light"), meanWait(b, "light"), "%s, seed %d", name, seed)
			require.LessOrEqual(t, meanWait(a, "light"), meanWait(e, "light"), "%s, seed %d, shards seen as one flow", name, seed)
			// Ages differ by less than a millisecond, so the ends may too.
			require.InDelta(t, endC, endA, float64(time.Millisecond), "%s, seed %d: makespan", name, seed)
			wait, sfqWait, fifoWait = wait+meanWait(a, "light")/3, sfqWait+meanWait(b, "light")/3, fifoWait+meanWait(c, "light")/3
			end, fifoEnd = end+endA/3, fifoEnd+endC/3
		}
		ms := func(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
		fmt.Fprintf(&report, "%-28s %10.1f %10.1f %10.1f %14.1f %14.1f\n", name, ms(wait), ms(sfqWait), ms(fifoWait), ms(end), ms(fifoEnd))
	}
	golden(t, "fairness.txt", report.String())
}

// Charged by slot time: a flow of long batches and one of short ones get the
// same slot time, not the same number of batches.
func TestG6ChargesSlotTime(t *testing.T) {
	var jobs []*fairJob
	for i := range 3000 {
		jobs = append(jobs, &fairJob{at: time.Duration(i), takes: 10 * time.Millisecond, flow: "short", sender: "short"})
		if i < 300 {
			jobs = append(jobs, &fairJob{at: time.Duration(i), takes: 100 * time.Millisecond, flow: "long", sender: "long"})
		}
	}
	// More flows than slots, so that tags alone decide.
	for i := range 3000 {
		jobs = append(jobs, &fairJob{at: time.Duration(i), takes: 20 * time.Millisecond, flow: "other", sender: "other"})
	}
	runFair(jobs, newGoverned(2))
	served := map[string]time.Duration{}
	for _, j := range jobs {
		if j.end < 20*time.Second {
			served[j.sender] += j.takes
		}
	}
	for sender, time := range served {
		require.InEpsilon(t, served["other"], time, 0.03, sender)
	}
}

// With as many slots as it takes, every flow has its guaranteed share, and what
// the light one leaves is lent evenly to the deep ones (and not to one of them).
func TestG6GuaranteedShareAndLending(t *testing.T) {
	d := newDispatcher(wholePlan(10), generous())
	for _, key := range []string{"a", "b"} {
		for range 50 {
			d.admit(0, key, &lease{}, -1, 0)
		}
	}
	require.Equal(t, 10, d.flows["a"].inFlight, "a flow alone is lent everything")

	leases := map[string][]*lease{}
	d = newDispatcher(wholePlan(10), generous())
	submit := func(now time.Duration, key string, n int) {
		for range n {
			l := &lease{}
			leases[key] = append(leases[key], l)
			d.admit(now, key, l, -1, 0)
		}
	}
	submit(0, "a", 200)
	submit(0, "b", 200)
	now := time.Duration(0)
	finish := func() { // the oldest slot in use comes back
		now += 10 * time.Millisecond
		var oldest *lease
		for _, all := range leases {
			for _, l := range all {
				if l.flow != nil && (oldest == nil || l.start < oldest.start) {
					oldest = l
				}
			}
		}
		d.giveBack(now, oldest, completed)
		*oldest = lease{}
	}
	for range 30 {
		finish()
	}
	require.Equal(t, 5, d.flows["a"].inFlight)
	require.Equal(t, 5, d.flows["b"].inFlight)
	require.Equal(t, 5, d.guaranteed())

	submit(now, "light", 1)
	require.Equal(t, 3, d.guaranteed(), "three flows share ten slots")
	finish()
	require.Equal(t, 1, d.flows["light"].inFlight, "the next free slot is the owed flow's")
	for range 60 {
		finish()
	}
	a, b := d.flows["a"].inFlight, d.flows["b"].inFlight
	require.LessOrEqual(t, max(a, b)-min(a, b), 1, "lent slots go round: %d and %d", a, b)
}

// A trickle that empties its queue each time gains nothing over a standing
// backlog, and neither does a stream of flows without a past.
func TestG6ForgettingGainsNothing(t *testing.T) {
	for name, key := range map[string]func(int) string{
		"a flow that comes back": func(int) string { return "trickle" },
		"a new flow each time":   func(i int) string { return fmt.Sprint("fresh-", i) },
	} {
		var jobs []*fairJob
		for i := range 1000 {
			jobs = append(jobs, &fairJob{at: 0, takes: 10 * time.Millisecond, flow: "backlog", sender: "backlog"})
			jobs = append(jobs, &fairJob{at: time.Duration(i) * 10 * time.Millisecond, takes: 10 * time.Millisecond, flow: key(i), sender: "trickle"})
		}
		runFair(jobs, newGoverned(1))
		n := map[string]int{}
		for _, j := range jobs {
			if j.end <= 2*time.Second {
				n[j.sender]++
			}
		}
		require.GreaterOrEqual(t, n["backlog"], 95, "%s: %v of 200 serves", name, n)
	}
}

// Idling does not save up: a flow that comes back after a long time does not
// keep everyone else out.
func TestG6IdlingDoesNotSaveUp(t *testing.T) {
	var jobs []*fairJob
	for i := range 2000 {
		jobs = append(jobs, &fairJob{at: time.Duration(i), takes: 10 * time.Millisecond, flow: "steady", sender: "steady"})
	}
	jobs = append(jobs, &fairJob{at: 0, takes: 10 * time.Millisecond, flow: "returning", sender: "early"})
	for i := range 400 {
		jobs = append(jobs, &fairJob{at: 10*time.Second + time.Duration(i), takes: 10 * time.Millisecond, flow: "returning", sender: "returning"})
	}
	runFair(jobs, newGoverned(1))
	n := map[string]int{}
	for _, j := range jobs {
		if j.end > 10*time.Second && j.end <= 12*time.Second {
			n[j.sender]++
		}
	}
	require.InDelta(t, n["steady"], n["returning"], 3, "%v", n)
}

func TestG6FlowsAreForgottenWhenIdle(t *testing.T) {
	bounds := generous()
	bounds.FlowMemory, bounds.MaxFlows = time.Minute, 3
	d := newDispatcher(wholePlan(2), bounds)
	var busy, l lease
	d.admit(0, "busy", &busy, -1, 0)
	d.admit(0, "idle", &l, -1, 0)
	d.giveBack(time.Second, &l, completed)
	d.forget(61 * time.Second)
	require.Contains(t, d.flows, "idle", "remembered for a minute")
	d.forget(62 * time.Second)
	require.Contains(t, d.flows, "idle", "looking costs, so not at every sample")
	d.forget(67 * time.Second)
	require.NotContains(t, d.flows, "idle")
	require.Contains(t, d.flows, "busy")
	for i := range 10 {
		d.admit(70*time.Second, fmt.Sprint(i), &l, -1, 0)
		d.giveBack(70*time.Second, &l, completed)
	}
	d.forget(70 * time.Second)
	require.LessOrEqual(t, len(d.flows), 3)
	require.Contains(t, d.flows, "busy")
}
