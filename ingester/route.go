package ingester

import "sync/atomic"

// Route is what the rules make of a label set.
type Route struct {
	e *entry
}

type entry struct {
	changed bool
	labels  []byte
	ref     atomic.Uint64
}

// Changed says that a rule or the API key altered the labels.
func (r Route) Changed() bool { return r.e != nil && r.e.changed }

// Labels returns the label set after relabelling where it changed, encoded as
// Group.Key. The bytes are shared: they must not be written to.
func (r Route) Labels() []byte { return r.e.labels }

// Ref is a number that the sink remembered with the route, 0 if none.
func (r Route) Ref() uint64 { return r.e.ref.Load() }

// SetRef remembers a number of the sink's with the route, so that the next
// write of the series need not look it up.
func (r Route) SetRef(ref uint64) { r.e.ref.Store(ref) }
