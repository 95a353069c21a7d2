package sink

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// walk describes an OTLP request as a receiver does. Each record is a group of its
// own, admitted, with the label set that labels gives it.
func walk(tb testing.TB, format ingester.Format, request []byte, labels func(group int) []byte) *ingester.Batch {
	tb.Helper()
	w := walker{b: &ingester.Batch{Format: format, Body: request, Size: len(request)}}
	w.items = 2
	if format == ingester.OTLPMetrics {
		w.items = 4
	}
	require.True(tb, w.walk(0, 0, uint32(len(request)), -1))
	for i := range w.b.Groups {
		if labels != nil {
			w.b.Groups[i].Route = ingester.NewRoute(labels(i), nil)
		}
	}
	return w.b
}

type walker struct {
	b     *ingester.Batch
	items int // how deep the records lie
}

// walk walks what lies at depth, 0 for the request, and reports whether it is
// well-formed.
func (w *walker) walk(depth int, start, end uint32, parent int32) bool {
	for at := start; at < end; {
		num, typ, tag := protowire.ConsumeTag(w.b.Body[at:end])
		if tag < 0 {
			return false
		}
		n := protowire.ConsumeFieldValue(num, typ, w.b.Body[at+uint32(tag):end])
		if n < 0 {
			return false
		}
		field := ingester.Span{Start: at, End: at + uint32(tag+n)}
		at = field.End
		child := depth == 0 && num == 1 || depth > 0 && isChild(depth-1, num)
		if !child || typ != protowire.BytesType {
			continue
		}
		payload, _ := protowire.ConsumeBytes(w.b.Body[field.Start+uint32(tag) : field.End])
		message := field.End - uint32(len(payload))
		if depth == w.items {
			w.b.Groups = append(w.b.Groups, ingester.Group{Field: field, Parent: parent, Message: message, Floats: 1})
			continue
		}
		w.b.Containers = append(w.b.Containers, ingester.Container{Parent: parent, Field: field, Message: message})
		if !w.walk(depth+1, message, field.End, int32(len(w.b.Containers)-1)) {
			return false
		}
	}
	return true
}
