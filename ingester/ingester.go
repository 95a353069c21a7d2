package ingester

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ratecontrol"
)

// Settings is what a generation of the rules is made from.
type Settings struct {
	Streams [streamCount]StreamSettings
	Exempt  ExemptLabel
	Keys    *Keys
	Limits  LabelLimits
	// RouteBytes bounds the memory of each stream's remembered routes.
	RouteBytes int64
}

// Ingester decides on batches. Its rules can be replaced while it works.
type Ingester struct {
	start      time.Time // what the buckets' clock counts from
	generation atomic.Pointer[generation]
	metrics    *metricSet
	budget     budget
	governor   *governor.Governor
	counters   [streamCount]*streamCounters

	reload sync.Mutex // one Reload at a time
}

// generation is one whole set of rules. A batch keeps the one it began with.
type generation struct {
	streams [streamCount]*streamRules
	keys    *Keys
}

// New makes an ingester with its first rules. requestBytes bounds the bytes of
// requests in memory, g the batches in work; g may be nil where no Slot is asked for.
func New(s Settings, requestBytes int64, g *governor.Governor) (*Ingester, error) {
	in := &Ingester{start: time.Now(), budget: budget{limit: requestBytes}, metrics: newMetricSet(), governor: g}
	for i := range in.counters {
		in.counters[i] = newStreamCounters(Stream(i))
	}
	in.generation.Store(&generation{})
	return in, in.Reload(s)
}

// at turns a clock reading into the buckets' time: monotonic nanoseconds since
// the ingester was made.
func (in *Ingester) at(t time.Time) int64 { return int64(t.Sub(in.start)) }

func (in *Ingester) now() int64 { return in.at(time.Now()) }

// Reload replaces the rules as a whole. Batches being processed keep the old
// ones. A class that stays keeps its tokens (P11), a stream whose rules stay the
// same keeps its routes.
func (in *Ingester) Reload(s Settings) error {
	in.reload.Lock()
	defer in.reload.Unlock()
	for i, st := range s.Streams {
		if st.Sink == nil {
			return fmt.Errorf("stream %s has no sink", Stream(i))
		}
	}
	old := in.generation.Load()
	next := &generation{keys: s.Keys}
	now := in.now()
	for i := range s.Streams {
		next.streams[i] = in.prepare(Stream(i), s, old.streams[i], now)
	}
	in.generation.Store(next)
	return nil
}

// prepare makes one stream's rules from the settings and from what its
// predecessor, nil at the start, hands on.
func (in *Ingester) prepare(stream Stream, s Settings, old *streamRules, now int64) *streamRules {
	st := &streamRules{
		StreamSettings: s.Streams[stream],
		stream:         stream,
		exempt:         s.Exempt,
		keys:           s.Keys,
		limits:         s.Limits,
		counters:       in.counters[stream],
	}
	if st.Policy != nil {
		st.budgets = st.Policy.Classes()
	}
	st.view = newView(st)
	st.names = classNames(st.budgets)
	st.exemptID = int32(len(st.names) - 1)
	for _, name := range st.names {
		st.classes = append(st.classes, st.counters.class(name))
	}
	switch {
	case st.Policy == nil:
	case old != nil && old.limiter != nil:
		st.limiter = old.limiter.Next(st.Policy, now)
	default:
		st.limiter = ratecontrol.NewLimiter(st.Policy, now)
	}
	if old != nil && old.sameRoutes(st) {
		st.routes = old.routes
	} else {
		st.routes = newRoutes(s.RouteBytes, &in.counters[stream].routesEvicted)
	}
	return st
}

// RouteBytes is what the remembered routes of all streams take, in bytes.
func (in *Ingester) RouteBytes() (n int64) {
	for _, st := range in.generation.Load().streams {
		n += st.routes.size()
	}
	return n
}

// Own is the origin of Spillway's own telemetry, with the exempt label that it
// has to carry under these rules.
func (in *Ingester) Own() (Origin, ExemptLabel) {
	g := in.generation.Load()
	return Origin{Sender: ownSender(), rules: g}, g.streams[Metrics].exempt
}

// Slot waits fairly for the right to process a batch. The flow is the API key,
// or the stream where there is none. The caller releases the slot when it has
// answered. An error is a *governor.Shed, or the context's when the sender left.
func (in *Ingester) Slot(ctx context.Context, sender *Sender, stream Stream) (*governor.Slot, error) {
	flow := "stream " + stream.String()
	if sender != nil {
		flow = "key " + sender.Name
	}
	return in.governor.Acquire(ctx, flow)
}

// CountUnread counts a batch that ended before its items were known: refused for
// want of capacity, or not to be read at all.
func (in *Ingester) CountUnread(stream Stream, capacity bool) {
	if capacity {
		in.counters[stream].refusedCapacity.Add(1)
		return
	}
	in.counters[stream].malformed.Add(1)
}
