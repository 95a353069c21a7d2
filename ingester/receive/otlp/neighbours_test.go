package otlp

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// neighbour is an item that the next one is mostly like.
type neighbour struct {
	attributes [][]byte // messages
	text       string   // severity text, or a span's name
	enum       int      // severity number, or a span's kind
}

// attributeOf is an attribute as a message, in one of the ways to write it.
func (r random) attributeOf(key, value string) []byte {
	switch r.IntN(8) {
	case 0:
		return msg(2, msg(1, value), 1, key)
	case 1:
		return msg(1, key, 2, msg(3, r.IntN(3)))
	case 2:
		return msg(1, key, 2, msg(1, value), 9, "unknown")
	}
	return msg(1, key, 2, msg(1, value))
}

func (r random) anyAttribute() []byte {
	key := r.oneOf("a.b", "a_b", "a-b", "k8s.pod.name", "http.route", "severity", "span_name", "span_kind", "job", "x", "y", "z")
	return r.attributeOf(key, r.oneOf("", "v", "w", "value-1", "value-2", "a longer value"))
}

func (r random) badAttribute() []byte {
	bad := [][]byte{
		msg(1, "a.b", 2, msg(1, "\xff")), msg(1, "k\xff", 2, msg(1, "v")), msg(1, 7), {0x0a, 1, 'k', 0x12, 9},
		msg(1, "x", 2, msg(1, "v"), 2, msg(1, "w")), {0x0a, 3, 'a'},
	}
	return bad[r.IntN(len(bad))]
}

// next is an item that is like n but for a little.
func (r random) next(n neighbour) neighbour {
	a := slices.Clone(n.attributes)
	at := func() int { return r.IntN(len(a)) }
	change := r.IntN(12)
	if len(a) == 0 && change < 7 {
		change = 7
	}
	switch change {
	case 0: // another value of the same length
		i := at()
		a[i] = bytes.Clone(a[i])
		if last := len(a[i]) - 1; a[i][last] >= 'a' && a[i][last] < 'z' {
			a[i][last]++
		}
	case 1:
		i := at()
		a = slices.Delete(a, i, i+1)
	case 2:
		i, j := at(), at()
		a[i], a[j] = a[j], a[i]
	case 3: // the same attribute twice
		a = slices.Insert(a, at(), a[at()])
	case 4:
		a[at()] = r.anyAttribute()
	case 5: // bad behind those that are as before
		a[at()] = r.badAttribute()
	case 6:
		a = a[:at()]
	case 7:
		a = append(a, r.anyAttribute())
	case 8:
		n.text = r.oneOf("", "warn", "info", "GET /", "\xff")
	case 9:
		n.enum = r.IntN(27)
	}
	return neighbour{attributes: a, text: n.text, enum: n.enum}
}

// message is the item in a format, and the message around it if it is one data point of
// several.
func (n neighbour) message(f ingester.Format) []byte {
	attribute, head := 6, msg(2, n.enum, 3, n.text)
	switch f {
	case ingester.OTLPTraces:
		attribute, head = 9, msg(5, n.text, 6, n.enum)
	case ingester.OTLPMetrics:
		attribute, head = 7, msg(3, uint64(7))
	}
	for _, a := range n.attributes {
		head = append(head, msg(attribute, a)...)
	}
	return head
}

// requestOf is a request with the items in the scopes given; of metrics, each scope has a
// metric.
func requestOf(f ingester.Format, scopes []int, items [][]byte) []byte {
	resources := [][]byte{
		msg(1, msg(1, "service.name", 2, msg(1, "shop")), 1, msg(1, "a.b", 2, msg(1, "v"))),
		msg(1, msg(1, "service.name", 2, msg(1, "ship")), 1, msg(1, "a.b", 2, msg(1, "w"))),
		{},
	}
	var request []byte
	for i := 0; i < len(items); {
		scope, held := scopes[i], []byte(nil)
		for ; i < len(items) && scopes[i] == scope; i++ {
			if f == ingester.OTLPMetrics {
				held = append(held, msg(1, items[i])...)
			} else {
				held = append(held, msg(2, items[i])...)
			}
		}
		if f == ingester.OTLPMetrics {
			kind := []int{5, 7, 5}[scope%3] // gauges and sums
			held = msg(2, msg(1, "requests", kind, held))
		}
		request = append(request, msg(1, msg(1, resources[scope%3], 2, append(msg(1, msg(1, "scope")), held...)))...)
	}
	return request
}

// TestNeighboursDoNotMatter walks items that are almost like the one before, and each on
// its own: labels, verdict and route are the same.
func TestNeighboursDoNotMatter(t *testing.T) {
	views := map[string]string{
		"everything": everything, "some": some,
		"no field": `[{source_labels: [a_b, x], regex: nothing, action: drop}]`, "nothing": `[]`,
	}
	for name, rules := range views {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, setup{relabel: rules, options: func(o *Options) { o.Attributes = 6 }})
			r := random{rand.New(rand.NewPCG(5, 6))}
			for _, f := range []ingester.Format{ingester.OTLPLogs, ingester.OTLPTraces, ingester.OTLPMetrics} {
				for range 60 {
					s.requireAloneAsTogether(r, f)
				}
				s.requireConserved(streamOf(f))
			}
		})
	}
}

func (s *system) requireAloneAsTogether(r random, f ingester.Format) {
	s.t.Helper()
	var items [][]byte
	var scopes []int
	var n neighbour
	for i, scope := 0, 0; i < 40; i++ {
		next := r.next(n)
		if r.IntN(4) > 0 {
			n = next
		}
		if r.IntN(9) == 0 {
			scope++
		}
		items, scopes = append(items, next.message(f)), append(scopes, scope)
	}
	together := s.process(f, nil, requestOf(f, scopes, items))
	require.Len(s.t, together.Groups, len(items))
	buffer := make([]byte, 0, 64<<10) // of one request after the other, as in a server
	for i := range items {
		alone := s.process(f, buffer, requestOf(f, scopes[i:i+1], items[i:i+1]))
		want, got := &alone.Groups[0], &together.Groups[i]
		require.Equal(s.t, want.Verdict, got.Verdict, "item %d", i)
		if want.Verdict == ingester.Invalid {
			continue
		}
		key := labelMap(alone.Bytes(want.Key))
		require.Equal(s.t, key, labelMap(together.Bytes(got.Key)), "item %d", i)
		require.Equal(s.t, key, labelMap(got.Route.Sent()), "route of item %d", i)
	}
}

// process walks a message in a buffer and has it processed.
func (s *system) process(f ingester.Format, buffer, message []byte) *ingester.Batch {
	s.t.Helper()
	b := &ingester.Batch{Stream: streamOf(f), Format: f, Body: append(buffer, message...), Size: len(message), Received: time.Now()}
	memory := s.ingester.Memory()
	defer memory.Release()
	require.NoError(s.t, s.receiver.Walk(b, memory, EachRecord))
	require.NoError(s.t, s.ingester.Process(s.t.Context(), b).Err)
	return b
}

// TestMadeUpAttributesAreNotKept bounds what a walker remembers of an item with more
// attributes than any may have.
func TestMadeUpAttributesAreNotKept(t *testing.T) {
	s := newSystem(t, setup{relabel: everything})
	record := bytes.Repeat(msg(6, msg(1, "k", 2, msg(1, "v"))), 100_000)
	b := s.process(ingester.OTLPLogs, nil, requestOf(ingester.OTLPLogs, []int{0, 0}, [][]byte{record, msg(5, msg(1, "good"))}))
	require.Equal(t, ingester.Invalid, b.Groups[0].Verdict)
	require.True(t, b.Groups[1].Admitted())
	w := s.receiver.borrow(b)
	require.LessOrEqual(t, cap(w.seen), 2*s.receiver.options.Attributes)
	require.Empty(t, w.seen)
	require.Nil(t, w.before, "nothing of a request is kept")
}

// TestMadeUpNamesAreNotKept bounds what a walker remembers of names, in view or not.
func TestMadeUpNamesAreNotKept(t *testing.T) {
	for _, rules := range []string{everything, some} {
		s := newSystem(t, setup{relabel: rules})
		n := newNames(&s.receiver.options, s.ingester.View(ingester.Origin{}, ingester.Logs), ingester.Logs)
		for i := range 3 * knownNames {
			n.attribute([]byte("key." + strconv.Itoa(i)))
		}
		require.LessOrEqual(t, len(n.inView), knownNames)
		require.LessOrEqual(t, len(n.known), knownNames)
		require.Equal(t, "a_b", n.attribute([]byte("a.b")).label.name)
	}
}
