package ingester

import "bytes"

// Guess follows a sender through its request: a sender repeats its series in the
// same order, so the series that came next the last time is the first guess, and a
// receiver that asks for it before it reads the labels need not read them.
//
// A Guess belongs to one batch and one goroutine.
type Guess struct {
	routes *routes
	scope  uint32
	last   Route
	next   uint64 // locator of the guess
}

// Guess starts to follow b, whose Stream and Origin have been set.
func (in *Ingester) Guess(b *Batch) Guess {
	rules := b.rules
	if rules == nil {
		rules = in.generation.Load()
	}
	b.rules = rules // what is guessed now holds for Process, too
	return Guess{routes: rules.streams[b.Stream].routes, scope: b.Sender.routeScope()}
}

// Match says how many bytes at the start of msg are the label set of the series
// that is expected here, and gives g its route; 0 if msg starts otherwise. Whether
// more labels follow is for the caller to see, who then has to call Find.
func (q *Guess) Match(g *Group, msg []byte) (n int) {
	r, ok := q.routes.at(q.next)
	if !ok {
		return 0
	}
	e := r.entry()
	n = int(e.key.End - e.key.Start)
	if n > len(msg) || e.scope != q.scope || !bytes.Equal(r.Sent(), msg[:n]) {
		return 0
	}
	g.Route = r
	q.last, q.next = r, e.next.Load()
	return n
}

// Find looks up a label set that was not the expected one. If it is known, g gets
// its route, and the next guess is what follows it.
func (q *Guess) Find(g *Group, key []byte) {
	r, ok := q.routes.find(q.routes.hash(key), q.scope, key)
	if !ok {
		g.Route = Route{}
		return
	}
	g.Route = r
	q.routes.follow(q.last, r)
	q.last, q.next = r, r.entry().next.Load()
}
