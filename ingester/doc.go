// Package ingester owns requests: it takes a batch from the wire to the sink and
// tells the sender what became of it.
//
// The path of a batch, numbered as in the code:
//
//	1 receive    receive/<protocol>: the body, within its limit and the budget of bytes in memory
//	2 slot       governor: wait fairly for the right to process a batch, or shed   -> refused (capacity)
//	3 decode     receive/<protocol>: walk the bytes, find the groups               -> invalid
//	4 relabel    rules.go: the stream's rules rewrite the labels or drop the group -> dropped (relabel)
//	5 exempt     rules.go: marked telemetry is never limited                       -> exempt
//	6 classify   rules.go: the first rule whose matchers all match names the class
//	7 take       pipeline.go: the group's tokens from the class's bucket, all or none -> dropped (ratelimit)
//	8 sink       sink/<destination>: what is left, as one write                    -> refused (sink)
//	9 answer     receive/<protocol>: only after the sink has taken it
//
// Steps 4 to 6 depend on the label set and the rules alone. Their result, the
// route, is remembered (route.go), so a known series costs a comparison of
// bytes. Read pipeline.go first: it is the hot path, top to bottom.
//
// # Conservation
//
// For each stream, in items:
//
//	received = invalid + dropped(relabel) + dropped(ratelimit) + exempt + admitted + refused
//
// Exempt and admitted are what a sink acknowledged. The law holds whenever no
// batch is in flight, whatever fails; settle.go is where it is kept. A batch
// that cannot be read has no items: it is counted as a batch only.
//
// # All or part
//
// A batch with items of several classes is admitted in part: what has a budget
// is stored, the rest is dropped for good and never asked for again. A failed
// sink refuses all that was admitted, and its tokens go back, so that a batch
// sent again pays once.
//
// # Concurrency
//
// A batch is processed on its request's goroutine. It uses one generation of the
// rules, one clock reading and, through both, one set of buckets from start to
// end. Reload makes a new generation beside the running one and swaps a pointer.
package ingester
