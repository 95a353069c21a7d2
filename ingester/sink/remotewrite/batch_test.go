package remotewrite

import (
	"bytes"
	"fmt"
	"testing"

	gosnappy "github.com/golang/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// This file is the only one in the tests that knows how a receiver fills a batch.

// newTestBatch makes the batch that a receiver would make of a
// *prompb.WriteRequest or a *writev2.Request.
func newTestBatch(tb testing.TB, request interface{ Marshal() ([]byte, error) }) *ingester.Batch {
	tb.Helper()
	raw, err := request.Marshal()
	if err != nil {
		tb.Fatal(err)
	}
	format := ingester.RemoteWrite1
	if _, ok := request.(*writev2.Request); ok {
		format = ingester.RemoteWrite2
	}
	b, err := walk(format, raw)
	if err != nil {
		tb.Fatal(err)
	}
	return b
}

// walk makes the batch of an encoded request. It reads the wire with protowire,
// so that it shares nothing with the code under test. Messages within a series are
// passed over unread, as the laxest receiver might.
func walk(format ingester.Format, raw []byte) (*ingester.Batch, error) {
	b := &ingester.Batch{Format: format, Body: bytes.Clone(raw), Size: len(raw), Packed: gosnappy.Encode(nil, raw)}
	err := eachField(raw, func(f wireField) error {
		span := ingester.Span{Start: uint32(f.body), End: uint32(f.end)}
		switch {
		case f.typ != protowire.BytesType:
		case format == ingester.RemoteWrite1 && f.num == 3:
			b.Families = append(b.Families, span)
		case format == ingester.RemoteWrite2 && f.num == 4:
			b.Symbols = append(b.Symbols, span)
		case format == ingester.RemoteWrite1 && f.num == 1, format == ingester.RemoteWrite2 && f.num == 5:
			b.Groups = append(b.Groups, ingester.Group{
				Field: ingester.Span{Start: uint32(f.start), End: uint32(f.end)}, Message: uint32(f.body),
			})
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	for i := range b.Groups {
		if format == ingester.RemoteWrite1 {
			err = walkSeries1(b, &b.Groups[i])
		} else {
			err = walkSeries2(b, &b.Groups[i])
		}
		if err != nil {
			return nil, fmt.Errorf("series %d: %w", i, err)
		}
	}
	return b, nil
}

func walkSeries1(b *ingester.Batch, g *ingester.Group) error {
	var labels []wireField
	err := eachField(b.Message(g), func(f wireField) error {
		if f.num <= 4 && f.typ != protowire.BytesType {
			return fmt.Errorf("field %d has wire type %d", f.num, f.typ)
		}
		switch f.num {
		case 1:
			labels = append(labels, f)
		case 2:
			g.Floats++
		case 3:
			g.Exemplars++
		case 4:
			g.Histograms++
		}
		return nil
	})
	if err != nil || len(labels) == 0 {
		g.Route = ingester.NewRoute(nil, nil)
		return err
	}
	base, first, last := g.Message, labels[0], labels[len(labels)-1]
	together := true
	for i, l := range labels {
		together = together && (i == 0 || labels[i-1].end == l.start)
		name, value, err := readLabel(b.Message(g)[l.body:l.end])
		if err != nil {
			return err
		}
		together = together && bytes.Equal(appendTestLabel(nil, name, value), b.Message(g)[l.start:l.end])
	}
	if together {
		g.Key = ingester.Span{Start: base + uint32(first.start), End: base + uint32(last.end)}
		g.Route = ingester.NewRoute(b.Bytes(g.Key), nil)
		return nil
	}
	start := len(b.Body)
	for _, l := range labels {
		name, value, _ := readLabel(b.Message(g)[l.body:l.end])
		b.Body = appendTestLabel(b.Body, name, value)
	}
	g.Key = ingester.Span{Start: uint32(start), End: uint32(len(b.Body))}
	g.Route = ingester.NewRoute(b.Bytes(g.Key), nil)
	return nil
}

func walkSeries2(b *ingester.Batch, g *ingester.Group) error {
	var refs []uint64
	err := eachField(b.Message(g), func(f wireField) error {
		if f.num >= 2 && f.num <= 5 && f.typ != protowire.BytesType {
			return fmt.Errorf("field %d has wire type %d", f.num, f.typ)
		}
		switch body := b.Message(g)[f.body:f.end]; f.num {
		case 1:
			if f.typ == protowire.VarintType {
				v, _ := protowire.ConsumeVarint(body)
				refs = append(refs, v)
				return nil
			}
			for len(body) > 0 {
				v, n := protowire.ConsumeVarint(body)
				if n < 0 {
					return protowire.ParseError(n)
				}
				refs, body = append(refs, v), body[n:]
			}
		case 2:
			g.Floats++
		case 3:
			g.Histograms++
		case 4:
			g.Exemplars++
		case 5:
			g.HasMetadata = true
		}
		return nil
	})
	if err != nil {
		return err
	}
	var set []byte
	for i := 0; i < len(refs); i += 2 {
		if i+1 == len(refs) || refs[i] >= uint64(len(b.Symbols)) || refs[i+1] >= uint64(len(b.Symbols)) {
			return fmt.Errorf("reference %d leads nowhere", i)
		}
		set = appendTestLabel(set, b.Bytes(b.Symbols[refs[i]]), b.Bytes(b.Symbols[refs[i+1]]))
	}
	g.Route = ingester.NewRoute(set, nil)
	return nil
}

// setLabels gives a group a route whose labels a rule changed.
func setLabels(g *ingester.Group, labels []prompb.Label) {
	var encoded []byte
	for _, l := range labels {
		encoded = appendTestLabel(encoded, []byte(l.Name), []byte(l.Value))
	}
	g.Route = ingester.NewRoute(g.Route.Sent(), encoded)
}

type wireField struct {
	num              protowire.Number
	typ              protowire.Type
	start, body, end int
}

func eachField(b []byte, visit func(wireField) error) error {
	for at := 0; at < len(b); {
		num, typ, n := protowire.ConsumeTag(b[at:])
		if n < 0 {
			return protowire.ParseError(n)
		}
		m := protowire.ConsumeFieldValue(num, typ, b[at+n:])
		if m < 0 {
			return protowire.ParseError(m)
		}
		f := wireField{num: num, typ: typ, start: at, body: at + n, end: at + n + m}
		if typ == protowire.BytesType {
			v, _ := protowire.ConsumeBytes(b[at+n:])
			f.body = f.end - len(v)
		}
		if err := visit(f); err != nil {
			return err
		}
		at = f.end
	}
	return nil
}

func readLabel(b []byte) (name, value []byte, err error) {
	err = eachField(b, func(f wireField) error {
		if f.typ == protowire.BytesType && f.num == 1 {
			name = b[f.body:f.end]
		}
		if f.typ == protowire.BytesType && f.num == 2 {
			value = b[f.body:f.end]
		}
		return nil
	})
	return name, value, err
}

func appendTestLabel(out, name, value []byte) []byte {
	var l []byte
	l = protowire.AppendTag(l, 1, protowire.BytesType)
	l = protowire.AppendBytes(l, name)
	l = protowire.AppendTag(l, 2, protowire.BytesType)
	l = protowire.AppendBytes(l, value)
	out = protowire.AppendTag(out, 1, protowire.BytesType)
	return protowire.AppendBytes(out, l)
}
