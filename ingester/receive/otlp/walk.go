package otlp

import (
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Errors of a walk.
var (
	errMalformed = errors.New("malformed protobuf")
	errTooMany   = errors.New("too many items in one request")
	errNoMemory  = errors.New("the budget of bytes in memory is used up")
	errOldItems  = errors.New("instrumentation libraries of OTLP before 0.15 are not spoken here; send scopes")
	errGroups    = errors.New("records that are allowed as one have to be in one scope of one resource")
)

// Tags that the three requests, and what they hold down to the items, have in common.
const (
	firstTag  = 1<<3 | receive.BytesType // resource_logs, resource, scope
	secondTag = 2<<3 | receive.BytesType // scope_logs, log_records, spans, metrics
	schemaTag = 3<<3 | receive.BytesType // schema_url
)

// oldItems is the field of a resource's message that held its items before scopes. Some
// decoders still look there, so what is in it must not pass unseen.
const oldItems = 1000

// walker walks one request. It is reused, with the names that it knows.
type walker struct {
	messages *messages
	options  *Options
	names    *names
	shapes   *shapes // of an item
	stream   ingester.Stream
	format   ingester.Format
	how      Grouping

	b      *ingester.Batch
	memory *ingester.Memory
	in     []byte // the message
	out    []byte // the message and the keys behind it

	resource, around, base labelList // labels of the resource, of it and its scope, of what is around an item
	item, wins             labelList
	recentKeys             [recentKeys]ingester.Span
	baseSpan               ingester.Span
	baseKnown              bool
	scratch, first         []byte
	enum                   uint64

	before    []byte          // the item before
	seen      []seenAttribute // of the item before; of this one up to where it is read
	beyond    seenAttribute
	itemKnown bool          // item is what came of seen, first and enum
	changed   bool          // item is not what it was for the item before
	itemKey   ingester.Span // of item on what is around it
	keyKnown  bool

	used, had int // bytes beside the message: needed, and taken from the budget
}

// Walk finds the items of the OTLP request in b.Body[:b.Size], whose kind b.Format
// names, and leaves them in b.Containers and b.Groups with their keys behind the
// message. memory gives what is needed beside the message.
//
// What is wrong with one item, or with what is around it, makes the item invalid. An
// error says that the frame of messages around the items cannot be read, or that a
// bound is exceeded.
func (rc *Receiver) Walk(b *ingester.Batch, memory *ingester.Memory, how Grouping) error {
	w := rc.borrow(b)
	defer rc.giveBack(w)
	w.memory, w.how = memory, how
	w.in, w.out = b.Body[:b.Size], b.Body[:b.Size]
	err := w.request()
	b.Body = w.out
	return err
}

// borrow returns a walker that knows the names under the view of the batch.
func (rc *Receiver) borrow(b *ingester.Batch) *walker {
	view := rc.front.Ingester.View(b.Origin, b.Stream)
	w, ok := rc.walkers[b.Stream].Get().(*walker)
	if !ok {
		w = &walker{messages: rc.messages, options: &rc.options}
	}
	if w.names == nil || w.names.view != view {
		w.names = newNames(&rc.options, view, b.Stream)
	}
	w.b, w.stream, w.format = b, b.Stream, b.Format
	w.shapes = rc.messages.logRecord
	if b.Format == ingester.OTLPTraces {
		w.shapes = rc.messages.span
	}
	return w
}

func (rc *Receiver) giveBack(w *walker) {
	clear(w.resource[:cap(w.resource)])
	clear(w.around[:cap(w.around)])
	clear(w.item[:cap(w.item)])
	clear(w.wins[:cap(w.wins)])
	clear(w.seen[:cap(w.seen)])
	stream := w.stream
	*w = walker{
		messages: w.messages, options: w.options, names: w.names,
		resource: w.resource[:0], around: w.around[:0], item: w.item[:0], wins: w.wins[:0], scratch: w.scratch[:0],
		seen: w.seen[:0],
	}
	rc.walkers[stream].Put(w)
}

// request walks an Export...ServiceRequest.
func (w *walker) request() error {
	for i := 0; i < len(w.in); {
		field := i
		if w.in[i] != firstTag {
			if i = skipUnknown(w.in, i, 1); i < 0 {
				return fmt.Errorf("%w: the request at byte %d", errMalformed, field)
			}
			continue
		}
		start, end := receive.Span(w.in, i+1)
		if start < 0 {
			return fmt.Errorf("%w: a resource at byte %d is cut off", errMalformed, field)
		}
		id, err := w.container(-1, field, start, end)
		if err != nil {
			return err
		}
		if err := w.ofResource(id, start, end); err != nil {
			return err
		}
		i = end
	}
	return nil
}

// container adds the message around items whose field starts at field.
func (w *walker) container(parent int32, field, start, end int) (int32, error) {
	if len(w.b.Containers) == w.options.Items {
		return 0, fmt.Errorf("%w: the limit is %d", errTooMany, w.options.Items)
	}
	if err := w.need(containerBytes); err != nil {
		return 0, err
	}
	w.b.Containers = append(w.b.Containers, ingester.Container{
		Parent:  parent,
		Field:   ingester.Span{Start: uint32(field), End: uint32(end)},
		Message: uint32(start),
	})
	return int32(len(w.b.Containers) - 1), nil
}

// describe finds the description and the schema URL in in[start:end], which may stand
// before or behind what they describe. Mostly the description comes first, and then
// the schema is looked for only if it is asked for.
func (w *walker) describe(start, end int, wantSchema bool) (description, schema []byte, err error) {
	msg := w.in[:end]
	for i := start; i < end; {
		tag := msg[i]
		if tag != firstTag && tag != secondTag && tag != schemaTag {
			if i = skipUnknown(msg, i, 3); i < 0 {
				return nil, nil, w.broken(start)
			}
			continue
		}
		from, to := receive.Span(msg, i+1)
		switch {
		case from < 0:
			return nil, nil, w.broken(start)
		case tag == schemaTag:
			schema = msg[from:to]
		case tag == firstTag && i == start && !wantSchema:
			return msg[from:to], nil, nil
		case tag == firstTag && description != nil:
			return nil, nil, w.broken(start)
		case tag == firstTag:
			description = msg[from:to:to]
		}
		i = to
	}
	return description, schema, nil
}

func (w *walker) broken(at int) error {
	return fmt.Errorf("%w: the message at byte %d", errMalformed, at)
}

// ofResource walks a ResourceLogs, ResourceSpans or ResourceMetrics.
func (w *walker) ofResource(id int32, start, end int) error {
	description, _, err := w.describe(start, end, false)
	if err != nil {
		return err
	}
	groups, bad := len(w.b.Groups), w.readResource(description)
	msg, descriptions := w.in[:end], 0
	for i := start; i < end; {
		field := i
		tag := msg[i]
		if tag != firstTag && tag != secondTag && tag != schemaTag {
			if number, _ := receive.Uvarint(msg, i); number>>3 == oldItems {
				return errOldItems
			}
			if i = skipUnknown(msg, i, 3); i < 0 {
				return w.broken(field)
			}
			continue
		}
		from, to := receive.Span(msg, i+1)
		if from < 0 {
			return w.broken(field)
		}
		switch tag {
		case firstTag:
			descriptions++
		case secondTag:
			if err := w.inScope(id, field, from, to); err != nil {
				return err
			}
		case schemaTag:
			bad = worse(bad, checkText(msg[from:to]))
		}
		i = to
	}
	if descriptions > 1 {
		return w.broken(start)
	}
	return w.condemn(groups, bad, start)
}

func (w *walker) inScope(parent int32, field, start, end int) error {
	id, err := w.container(parent, field, start, end)
	if err != nil {
		return err
	}
	return w.ofScope(id, start, end)
}

// ofScope walks a ScopeLogs, ScopeSpans or ScopeMetrics.
func (w *walker) ofScope(id int32, start, end int) error {
	wantSchema := w.names.metrics && w.options.Translation.PromoteScopeMetadata
	description, schema, err := w.describe(start, end, wantSchema)
	if err != nil {
		return err
	}
	groups, bad := len(w.b.Groups), w.readScope(description, schema)
	msg, descriptions := w.in[:end], 0
	for i := start; i < end; {
		field := i
		tag := msg[i]
		if tag != firstTag && tag != secondTag && tag != schemaTag {
			if i = skipUnknown(msg, i, 3); i < 0 {
				return w.broken(field)
			}
			continue
		}
		from, to := receive.Span(msg, i+1)
		if from < 0 {
			return w.broken(field)
		}
		switch {
		case tag == firstTag:
			descriptions++
		case tag == schemaTag:
			bad = worse(bad, checkText(msg[from:to]))
		case w.format == ingester.OTLPMetrics:
			err = w.metric(id, field, from, to)
		case w.how == OneGroup:
			err = w.another(id, field, from, to)
		default:
			err = w.record(id, field, from, to)
		}
		if err != nil {
			return err
		}
		i = to
	}
	if descriptions > 1 {
		return w.broken(start)
	}
	return w.condemn(groups, bad, start)
}

// condemn makes the items of a message that is bad itself invalid. Without items
// there would be nothing to answer for it.
func (w *walker) condemn(groups int, bad ingester.Reason, at int) error {
	if bad == noReason {
		return nil
	}
	if groups == len(w.b.Groups) {
		return w.broken(at)
	}
	for i := groups; i < len(w.b.Groups); i++ {
		w.b.Groups[i].Invalidate(bad)
	}
	return nil
}

func worse(a, b ingester.Reason) ingester.Reason {
	if a != noReason {
		return a
	}
	return b
}

// group adds the group of an item whose field starts at field.
func (w *walker) group(parent int32, field, start, end int) (*ingester.Group, error) {
	if len(w.b.Groups) == w.options.Items {
		return nil, fmt.Errorf("%w: the limit is %d", errTooMany, w.options.Items)
	}
	if err := w.need(groupBytes); err != nil {
		return nil, err
	}
	w.b.Groups = append(w.b.Groups, ingester.Group{
		Field:   ingester.Span{Start: uint32(field), End: uint32(end)},
		Parent:  parent,
		Message: uint32(start),
		Floats:  1,
	})
	return &w.b.Groups[len(w.b.Groups)-1], nil
}

// record walks a LogRecord or a Span.
func (w *walker) record(parent int32, field, start, end int) error {
	g, err := w.group(parent, field, start, end)
	if err != nil {
		return err
	}
	if why := w.walkItem(w.in[start:end], w.shapes); why != noReason {
		g.Invalidate(why)
		return nil
	}
	if w.changed {
		w.addOwn()
	}
	return w.setKey(g)
}

// setKey gives a group the key of the labels in w.item and around it.
func (w *walker) setKey(g *ingester.Group) error {
	if w.keyKnown && !w.changed {
		g.Key = w.itemKey
		return nil
	}
	before := len(w.out)
	g.Key = w.keyOf(w.item)
	w.itemKey, w.keyKnown = g.Key, true
	if len(w.out) > math.MaxUint32 {
		return errNoMemory
	}
	return w.need(len(w.out) - before)
}

// another walks a LogRecord of a request that is allowed as one.
func (w *walker) another(parent int32, field, start, end int) error {
	why := w.walkItem(w.in[start:end], w.shapes)
	if len(w.b.Groups) == 0 {
		g, err := w.group(parent, field, start, end)
		if err != nil {
			return err
		}
		w.item = w.item[:0]
		w.forget()
		if why != noReason {
			g.Invalidate(why)
		}
		return w.setKey(g)
	}
	g := &w.b.Groups[0]
	if g.Parent != parent {
		return errGroups
	}
	if why != noReason {
		g.Invalidate(why)
	}
	if int(g.Floats) == w.options.Items {
		return fmt.Errorf("%w: the limit is %d", errTooMany, w.options.Items)
	}
	g.Floats++
	g.Field.End = uint32(end)
	return nil
}

// chunk is how much the walker takes from the budget at a time.
const chunk = 256 << 10

const (
	groupBytes     = int(unsafe.Sizeof(ingester.Group{}))
	containerBytes = int(unsafe.Sizeof(ingester.Container{}))
)

// need accounts for n more bytes beside the message.
func (w *walker) need(n int) error {
	w.used += n
	if w.used <= w.had {
		return nil
	}
	grow := max(chunk, w.used-w.had)
	if !w.memory.Grow(int64(grow)) {
		return errNoMemory
	}
	w.had += grow
	return nil
}
