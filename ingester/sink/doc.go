// Package sink holds what several destinations have in common. A destination
// itself is a package below it, ingester/sink/<destination>.
//
// # Endpoints
//
// A destination may have several endpoints, which lead to the same storage. A
// batch goes to the endpoint with the least writes in flight. One that fails is
// left out for a while that doubles with each failure, then tried again with one
// real batch. A batch that an endpoint failed to take goes to the next in the same
// write:
//
//	Deliver = pick an endpoint -> POST -> read the answer
//	              ^                          |
//	              '-- the next endpoint, if this one failed
//
// health.go is what is known of one endpoint, balancer.go picks, http.go sends, and
// a destination says what an answer means.
//
// # OTLP
//
// Encoder makes one message of what was admitted of an OTLP batch, in one pass: what
// did not change is copied as it came, messages that hold nothing any more are left
// out, and what a rule changed is written back as attributes (see writeback.go).
package sink
