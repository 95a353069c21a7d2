package tsdb

import (
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
	switch r := req.(type) {
	case *prompb.WriteRequest:
		body, err := r.Marshal()
		require.NoError(t, err)
		return walkBatch(t, rs, ingester.RemoteWrite1, body)
	case *writev2.Request:
		body, err := r.Marshal()
		require.NoError(t, err)
		return walkBatch(t, rs, ingester.RemoteWrite2, body)
	}
	t.Fatalf("no request: %T", req)
	return nil
}

// newRawBatch walks a body that no encoder makes.
func newRawBatch(t testing.TB, f ingester.Format, body []byte) *ingester.Batch {
	t.Helper()
	return walkBatch(t, routes{}, f, body)
}

func walkBatch(t testing.TB, rs routes, f ingester.Format, body []byte) *ingester.Batch {
	b := &ingester.Batch{Stream: ingester.Metrics, Received: time.Now(), Format: f, Body: body, Size: len(body)}
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
		set := fillGroup(t, b, &b.Groups[i])
		key := string(set)
		if _, ok := rs[key]; !ok {
			rs[key] = ingester.NewRoute(set, nil)
		}
		b.Groups[i].Route = rs[key]
	}
	return b
}

// fillGroup walks a series and returns its label set as 1.0 encodes it.
func fillGroup(t testing.TB, b *ingester.Batch, g *ingester.Group) []byte {
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
			inPlace = value
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
	g.Key = inPlace
	if one {
		return b.Bytes(g.Key)
	}
	return labelsOfRefs(b, b.Bytes(g.Key))
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
