// Package governor owns slots: it decides how many batches are worked on at
// once, from the CPU that the container really uses, and whose batch is next.
// It never drops an item. A batch waits fairly for a slot, or is told at once
// to come back later.
//
//	g, err := governor.New(governor.Defaults(), registerer, logger)
//	go g.Run(ctx)                        // samples, moves the capacity
//
//	slot, err := g.Acquire(ctx, apiKey)  // *Shed, or the context's error
//	defer slot.Release()
//
// # Capacity
//
// Three signals propose a capacity and the lowest wins (design G2):
//
//	capacity = max(1, min(P, ⌊M⌋, ⌊A⌋)),  each at most max_in_flight
//
//	M  the model: how many batches in flight bring CPU use to the target
//	P  the pressure step: crude and fast, halves on stalls, then +1 per 2 s
//	A  the latency limit: protects what lies behind the sink
//
// M and P need a CPU limit to refer to. Without one they stand aside.
//
// # The model
//
// A window is a sum of samples in which something ran. Over it, with
//
//	L  CPU limit, cores               U  CPU used, cores
//	B  background, cores: what is used when nothing is in flight
//	N  mean number of batches in flight = slot time / window
//	d  mean slot time of a batch = slot time / completions
//	d₀ the same when the CPU was far from its target
//
// the utilisation law of horizontal autoscaling, with batches in the role of
// replicas and the background set apart, is
//
//	r      = (target·L - B) / (U - B)
//	wanted = N·r
//
// N and not M, because N is what used the CPU. Six rules keep it honest
// (law.go, one mutation test each):
//
//  1. Evidence. No limit, a limit below 0.5 cores, an unreadable counter, a
//     window with nothing in flight or across a change of the limit move nothing.
//  2. Use. M rises only if the slots were used: slot time >= 0.9·∫capacity, or
//     batches waited for half of the window. The second proof is needed at small
//     capacities, where the gaps between two batches alone defeat the first.
//  3. Tolerance. |r - 1| <= tolerance moves nothing, unless the CPU is pinned
//     at its limit (U >= 0.98·L): there r says target whatever the excess.
//  4. Rise. At most 2·M. If less than 5% of L was used, ask for exactly that:
//     the ratio of two small numbers says nothing.
//  5. Fall. r >= 1 lowers nothing, r < 1 lowers to N·r, never below M/2 at once.
//  6. Bounds. 1 <= M <= ceiling, and a cut by the step pulls M down to what the
//     cut left.
//
// Two refinements of rule 5 answer what the plain law cannot see:
//
//   - Saturation hides demand. When pinned, U = L and the plain law falls by the
//     factor target per window however large the excess; from 32 slots to 9 that
//     takes minutes. But what the surplus does show in is time: by Little's law
//     the same throughput needs N·d₀/d in flight when nothing queues for the CPU.
//     So a pinned fall goes to N·r·min(1, d₀/d). Without a d₀ the share of
//     time spent throttled stands in for the excess.
//   - Below the target there is usually no harm to repair, so nothing falls. If
//     a tenth of the quota's periods were throttled all the same, bursts hit the
//     limit: M then comes down to N·r, the number that would carry a use of
//     target, if slots were free and N·r < 0.9·M. It costs no throughput: N are enough.
//
// A window ends after whole intervals (10 s) once it holds 20 completions, or
// after 30 intervals. One that holds 20 and calls for a move of half of M, or n and
// a move of ½·√(20/n), is acted on at once: precision is for the last few percent. M
// starts small, eight slots per core, so that d₀ is known before the limit is reached.
//
// # The step and the latency limit
//
// P halves the published capacity when the container stood still for CPU for more
// than 20% of the time (pressure, else throttled time) in two samples in a row, at
// most every 10 s, and grows by one slot in 2 s while it stands still for less than
// half of that. It needs no CPU use. Where use is known, a stall counts only if the
// limit was used up: below it a stall is a burst that met the end of a quota period, and fewer
// slots would waste what is left.
//
// A compares the best mean time of a batch with the current one, adds √A or
// multiplies by 0.5 to 0.9 once a window, and does neither unless it is the lowest
// of the limits and its slots are used: latency.go.
//
// # Between two slots
//
// M is a real number, and a target of 96% may need 9.4 slots: 9 waste CPU, with
// 10 the CPU parts of batches queue behind the quota. So M is honoured as a mean
// over time (G4). By Little's law a mean of M in flight is a rate of M/d starts:
//
//   - ¾·M slots are always open;
//   - above them a slot opens only when d/M has passed since the last start, so that
//     starts are spread evenly (one that comes late by half of d/M, or by 5 ms, is
//     made up for);
//   - at no instant are more than max(⌈M⌉, round(1.15·M)) in flight.
//
// Even starts are worth more than the fraction: they keep the CPU parts of
// batches from colliding inside one quota period. In the simulation of the
// reference load (sim_test.go) a mean of 9.4 slots carries 96% of half a core at 1.1
// times the unloaded wall time; alternating between 9 and 10 slots costs 1.9 times.
// While P, A or the ceiling is what binds, the capacity is a whole number and no
// slot is ever held back.
//
// # Origin of the constants
//
// Published for a controller governor of the same law: interval 10 s, 20
// completions, 30 intervals, rise 2, barely used 5%, minimum limit 0.5 cores, cut
// ½, recovery +1 per 2 s. Ours, from simulation: target 0.96 with tolerance 0.01
// (published: 0.9 with 0.05; a tolerance above (1 - target)/2 cannot tell a pinned
// container from a settled one and is refused), fall ½ (symmetry with the rise),
// use 0.9, pinned 0.98, ¾ and 1.15 for the pacing, the limit used up for a cut. Guesses that only decide how
// quickly estimates follow: 0.2 and 0.05 for mean slot times, 0.3 for B and d₀.
//
// # Whose batch is next
//
// A flow is a key: the API key, or the stream where there is none. Every flow
// with work is owed max(1, ⌊capacity / flows with work⌋) slots. A free slot goes
// to the owed flow with the lowest tag, else it is lent to the waiting flow with the lowest
// tag; nothing is preempted. Tags are the virtual start times of start-time fair
// queueing, charged by slot time:
//
//	start = max(tag, V),  tag = start + expected slot time,  settled at the end
//	V     = lowest tag of a waiting flow, never falls
//
// A flow that comes back resumes at max(tag, V), so idling earns nothing and
// being quick to empty earns nothing either. A flow without a past joins behind
// the highest waiting tag.
//
// # Who must not wait
//
// Waiting is bounded per flow, in all, and in time: a quarter of what is left of
// the batch's deadline, at most max_wait. A batch that would wait longer than that is shed at
// once. When the places in all are taken, a flow with fewer waiting batches
// takes the newest place of the flow with most. A queue that has stood for ten
// seconds is not a burst but overload, and waiting in it helps nobody: then a
// flow's batches wait for half a mean slot time at most, which is enough to keep
// the slots busy. Retry-After is booked like a place in a queue: each batch that
// is shed gets the next turn that the flow's share of the slots can serve.
package governor
