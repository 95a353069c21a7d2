package tsdb

import (
	"reflect"
	"testing"
	"time"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// This file alone knows how a receiver fills a batch.

// routes plays the ingester's cache: one route per label set.
type routes map[string]ingester.Route

// newTestBatch encodes req, a *prompb.WriteRequest or *writev2.Request, and
// walks it as a receiver does. Groups with equal labels share their route in rs.
func newTestBatch(t testing.TB, rs routes, req any) *ingester.Batch {
	t.Helper()
	b := &ingester.Batch{Stream: ingester.Metrics, Received: time.Now()}
	var err error
	switch r := req.(type) {
	case *prompb.WriteRequest:
		b.Format = ingester.RemoteWrite1
		b.Body, err = r.Marshal()
	case *writev2.Request:
		b.Format = ingester.RemoteWrite2
		b.Body, err = r.Marshal()
	}
	require.NoError(t, err)
	b.Size = len(b.Body)
	walkFields(t, b.Body[:b.Size], 0, func(num protowire.Number, field, value ingester.Span) {
		switch {
		case b.Format == ingester.RemoteWrite2 && num == 4:
			b.Symbols = append(b.Symbols, value)
		case b.Format == ingester.RemoteWrite1 && num == 3:
			b.Families = append(b.Families, value)
		case b.Format == ingester.RemoteWrite1 && num == 1, num == 5:
			b.Groups = append(b.Groups, ingester.Group{Field: field, Message: value.Start})
		}
	})
	for i := range b.Groups {
		fillGroup(t, b, &b.Groups[i])
		key := string(b.Bytes(b.Groups[i].Key))
		if _, ok := rs[key]; !ok {
			rs[key] = newTestRoute()
		}
		b.Groups[i].Route = rs[key]
	}
	return b
}

func fillGroup(t testing.TB, b *ingester.Batch, g *ingester.Group) {
	var key []byte
	var inPlace ingester.Span
	one := b.Format == ingester.RemoteWrite1
	walkFields(t, b.Message(g), g.Message, func(num protowire.Number, field, value ingester.Span) {
		switch {
		case num == 1 && one:
			if inPlace.End == 0 {
				inPlace.Start = field.Start
			}
			inPlace.End = field.End
		case num == 1:
			key = labelsOfRefs(b, b.Bytes(value))
		case num == 2:
			g.Floats++
		case num == 3 && one, num == 4 && !one:
			g.Exemplars++
		case num == 3, num == 4:
			g.Histograms++
		case num == 5:
			g.HasMetadata = true
		}
	})
	if one {
		g.Key = inPlace
		return
	}
	g.Key.Start = uint32(len(b.Body))
	b.Body = append(b.Body, key...)
	g.Key.End = uint32(len(b.Body))
}

func labelsOfRefs(b *ingester.Batch, refs []byte) []byte {
	var out []byte
	for len(refs) > 0 {
		var pair []byte
		for field := protowire.Number(1); field <= 2; field++ {
			ref, n := protowire.ConsumeVarint(refs)
			refs = refs[n:]
			pair = protowire.AppendTag(pair, field, protowire.BytesType)
			pair = protowire.AppendBytes(pair, b.Bytes(b.Symbols[ref]))
		}
		out = protowire.AppendTag(out, 1, protowire.BytesType)
		out = protowire.AppendBytes(out, pair)
	}
	return out
}

// walkFields calls each for the length-delimited fields of buf, which begins at
// base of the body: the whole field, and what is in it.
func walkFields(t testing.TB, buf []byte, base uint32, each func(num protowire.Number, field, value ingester.Span)) {
	for pos := 0; pos < len(buf); {
		num, typ, n := protowire.ConsumeField(buf[pos:])
		require.Positive(t, n)
		if typ == protowire.BytesType {
			_, _, tag := protowire.ConsumeTag(buf[pos:])
			_, length := protowire.ConsumeVarint(buf[pos+tag:])
			start, end := base+uint32(pos), base+uint32(pos+n)
			each(num, ingester.Span{Start: start, End: end}, ingester.Span{Start: start + uint32(tag+length), End: end})
		}
		pos += n
	}
}

// newTestRoute makes a route that remembers a reference, as the ingester's cache
// would.
func newTestRoute() ingester.Route {
	var r ingester.Route
	e := reflect.ValueOf(&r).Elem().Field(0)
	reflect.NewAt(e.Type(), e.Addr().UnsafePointer()).Elem().Set(reflect.New(e.Type().Elem()))
	return r
}

// newRelabelledRoute makes a route whose labels replace those of the sender.
func newRelabelledRoute(encoded []byte) ingester.Route {
	r := newTestRoute()
	e := reflect.ValueOf(&r).Elem().Field(0).Elem()
	set := func(name string, v any) {
		f := e.FieldByName(name)
		reflect.NewAt(f.Type(), f.Addr().UnsafePointer()).Elem().Set(reflect.ValueOf(v))
	}
	set("changed", true)
	set("labels", encoded)
	return r
}
