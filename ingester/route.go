package ingester

import "sync/atomic"

// Route is what the rules make of a label set: dropped by relabel, exempt, or
// relabelled labels and a class. The zero Route belongs to a group that was not
// routed yet.
type Route struct {
	seg *segment
	idx uint16
}

// NewRoute makes a route that no cache remembers, of the label set that was sent
// and the one that the rules made of it; nil if they changed nothing. It keeps
// copies. A sink can be tried with it, without an ingester.
func NewRoute(sent, relabelled []byte) Route {
	return loneRoute(verdict{}, sent, relabelled != nil, relabelled)
}

// loneRoute is a route that nobody finds again.
func loneRoute(v verdict, key []byte, changed bool, labels []byte) Route {
	seg := &segment{entries: make([]entry, 1), data: make([]byte, len(key)+len(labels))}
	seg.add(0, key, v, changed, labels)
	return Route{seg: seg}
}

// Changed says that a rule, the API key or tidying altered the labels.
func (r Route) Changed() bool { return r.seg != nil && r.entry().changed }

// Labels returns the label set after relabelling, encoded as remote write 1.0
// does. The bytes may be shared: they must not be written to.
func (r Route) Labels() []byte {
	if !r.entry().changed {
		return r.Sent()
	}
	return r.AppendLabels(nil)
}

// AppendLabels appends what Labels returns to dst.
func (r Route) AppendLabels(dst []byte) []byte {
	e, sent := r.entry(), r.Sent()
	if !e.changed {
		return append(dst, sent...)
	}
	dst = append(dst, sent[:e.prefix]...)
	dst = append(dst, r.seg.data[e.key.End:e.end]...)
	return append(dst, sent[len(sent)-int(e.suffix):]...)
}

// LabelBytes is the length of what Labels returns.
func (r Route) LabelBytes() int {
	e := r.entry()
	if !e.changed {
		return int(e.key.End - e.key.Start)
	}
	return int(e.prefix + e.end - e.key.End + e.suffix)
}

// Sent returns the label set as the sender sent it, encoded likewise.
func (r Route) Sent() []byte { return r.seg.bytes(r.entry().key) }

// locator names the route; noLocator if nobody finds it again.
func (r Route) locator() uint64 {
	if r.seg == nil || r.seg.seq == 0 {
		return noLocator
	}
	return locator(r.seg.seq, r.idx)
}

// Ref is a number that the sink remembered with the route, 0 if none.
func (r Route) Ref() uint64 {
	if r.seg == nil {
		return 0
	}
	return r.entry().ref.Load()
}

// SetRef remembers a number of the sink's with the route, so that the next
// write of the series need not look it up.
func (r Route) SetRef(ref uint64) {
	if r.seg != nil {
		r.entry().ref.Store(ref)
	}
}

func (r Route) entry() *entry { return &r.seg.entries[r.idx] }

// verdict is what is known of the route before any token is taken.
type verdict struct {
	outcome Verdict
	reason  Reason // why it is Invalid
	class   int32
}

// entry is one remembered route. It holds no pointer, so the garbage collector
// does not walk the cache however many series there are.
//
// Rules change little of a label set, so relabelled labels are remembered as an
// edit: the first prefix bytes of the key, the bytes between key.End and end, the
// last suffix bytes of the key.
type entry struct {
	verdict        verdict
	changed        bool
	scope          uint32 // whose series: the same labels can mean something else to another API key
	key            Span   // into the segment's data
	end            uint32
	prefix, suffix uint32
	// used is set by a hit and cleared when the entry survives its segment.
	used atomic.Uint32
	ref  atomic.Uint64
	next atomic.Uint64 // locator of the route that followed this one in a request
}

// touch marks the entry as used. It writes only once, as all cores read it.
func (e *entry) touch() {
	if e.used.Load() == 0 {
		e.used.Store(1)
	}
}

// segment holds the routes that were made at about the same time. Segments are
// filled one after the other and leave as a whole, oldest first. Once an entry
// has been published it never changes but for used, ref and next, so readers need
// no lock, and a reader that still holds a segment keeps it alive.
type segment struct {
	seq     uint32
	entries []entry
	data    []byte
	// How many entries and bytes are in use; only the writer looks.
	used, filled int
}

func (s *segment) bytes(r Span) []byte { return s.data[r.Start:r.End] }

func (s *segment) size() int64 { return int64(len(s.entries)*entryBytes + len(s.data)) }

// add appends an entry. The caller has made sure that there is room.
func (s *segment) add(scope uint32, key []byte, v verdict, changed bool, labels []byte) uint16 {
	e := &s.entries[s.used]
	e.scope, e.verdict, e.changed = scope, v, changed
	e.key = s.keep(key)
	e.end = e.key.End
	if changed {
		prefix, suffix := shared(key, labels)
		e.prefix, e.suffix = uint32(prefix), uint32(suffix)
		e.end = s.keep(labels[prefix : len(labels)-suffix]).End
	}
	s.used++
	return uint16(s.used - 1)
}

// copyOf appends an entry of another segment with all that it has learnt.
func (s *segment) copyOf(o *segment, idx int) uint16 {
	from, e := &o.entries[idx], &s.entries[s.used]
	e.scope, e.verdict, e.changed = from.scope, from.verdict, from.changed
	e.prefix, e.suffix = from.prefix, from.suffix
	all := s.keep(o.data[from.key.Start:from.end])
	e.key = Span{all.Start, all.Start + from.key.End - from.key.Start}
	e.end = all.End
	e.ref.Store(from.ref.Load())
	e.next.Store(from.next.Load())
	s.used++
	return uint16(s.used - 1)
}

func (s *segment) keep(b []byte) Span {
	start := s.filled
	s.filled += copy(s.data[start:], b)
	return Span{uint32(start), uint32(s.filled)}
}

// shared is how many bytes two label sets have in common at their start and,
// behind that, at their end.
func shared(a, b []byte) (prefix, suffix int) {
	n := min(len(a), len(b))
	for prefix < n && a[prefix] == b[prefix] {
		prefix++
	}
	for suffix < n-prefix && a[len(a)-1-suffix] == b[len(b)-1-suffix] {
		suffix++
	}
	return prefix, suffix
}
