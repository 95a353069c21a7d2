package otlp

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/spillway-telemetry/spillway/ingester"
)

// FuzzWalk holds the walker against pdata on any bytes: nothing panics, groups lie in
// what is around them, and of a request that the walker calls valid in all its parts,
// pdata can read every item and finds the same labels. So a sink or a destination that
// is handed such bytes has no surprise.
func FuzzWalk(f *testing.F) {
	r := random{rand.New(rand.NewPCG(3, 4))}
	for range 20 {
		f.Add(uint8(0), must((&plog.ProtoMarshaler{}).MarshalLogs(r.logs())))
		f.Add(uint8(1), must((&ptrace.ProtoMarshaler{}).MarshalTraces(r.traces())))
		f.Add(uint8(2), must((&pmetric.ProtoMarshaler{}).MarshalMetrics(r.metrics())))
	}
	f.Add(uint8(0), nested(40))
	for _, b := range badItems() {
		f.Add(uint8(0), b.request())
	}
	s := newSystem(f, setup{relabel: everything})
	s.settings.Limits = ingester.LabelLimits{Names: 1 << 20, NameBytes: 1 << 20, ValueBytes: 1 << 20, SetBytes: 1 << 20}
	formats := []ingester.Format{ingester.OTLPLogs, ingester.OTLPTraces, ingester.OTLPMetrics}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		format := formats[int(kind)%len(formats)]
		b, err := s.walk(streamOf(format), format, body, EachRecord)
		if err != nil {
			return
		}
		require.Equal(t, string(body), string(b.Body[:b.Size]), "the message is left as it was")
		valid := requireNested(t, b)
		if !valid {
			return
		}
		sets, items, err := decodeSlowly(format, body)
		require.NoError(t, err, "pdata reads what the walker calls valid")
		require.Equal(t, items, len(b.Groups))
		for i := range sets {
			require.Equal(t, sets[i], labelMap(b.Bytes(b.Groups[i].Key)), "item %d", i)
		}
	})
}

// requireNested checks that every message lies in the one around it, and reports
// whether all items are valid.
func requireNested(t *testing.T, b *ingester.Batch) (valid bool) {
	within := func(parent int32, field ingester.Span, message uint32) {
		outer := ingester.Span{Start: 0, End: uint32(b.Size)}
		if parent >= 0 {
			outer = ingester.Span{Start: b.Containers[parent].Message, End: b.Containers[parent].Field.End}
		}
		require.True(t, outer.Start <= field.Start && field.Start < message && message <= field.End && field.End <= outer.End)
	}
	for i, c := range b.Containers {
		require.Less(t, int(c.Parent), i, "a container comes before what it holds")
		within(c.Parent, c.Field, c.Message)
	}
	valid = true
	for i := range b.Groups {
		g := &b.Groups[i]
		within(g.Parent, g.Field, g.Message)
		require.LessOrEqual(t, int(g.Key.End), len(b.Body))
		valid = valid && g.Admitted()
	}
	return valid
}

// decodeSlowly decodes a request with pdata, and works out the labels of what is no
// metric, whose have a test with names that can be translated.
func decodeSlowly(format ingester.Format, body []byte) (sets []map[string]string, items int, err error) {
	slow := newSlowly(DefaultOptions())
	switch format {
	case ingester.OTLPLogs:
		r := plogotlp.NewExportRequest()
		if err = r.UnmarshalProto(body); err == nil {
			sets, items = slow.logs(r.Logs()), r.Logs().LogRecordCount()
		}
	case ingester.OTLPTraces:
		r := ptraceotlp.NewExportRequest()
		if err = r.UnmarshalProto(body); err == nil {
			sets, items = slow.traces(r.Traces()), r.Traces().SpanCount()
		}
	default:
		r := pmetricotlp.NewExportRequest()
		if err = r.UnmarshalProto(body); err == nil {
			items = r.Metrics().DataPointCount()
		}
	}
	return sets, items, err
}

// FuzzJSON turns any JSON into protobuf, which the walker reads.
func FuzzJSON(f *testing.F) {
	r := random{rand.New(rand.NewPCG(5, 6))}
	for range 5 {
		f.Add(uint8(0), must((&plog.JSONMarshaler{}).MarshalLogs(r.logs())))
		f.Add(uint8(1), must((&ptrace.JSONMarshaler{}).MarshalTraces(r.traces())))
		f.Add(uint8(2), must((&pmetric.JSONMarshaler{}).MarshalMetrics(r.metrics())))
	}
	s := newSystem(f, setup{})
	formats := []ingester.Format{ingester.OTLPLogs, ingester.OTLPTraces, ingester.OTLPMetrics}
	f.Fuzz(func(t *testing.T, kind uint8, body []byte) {
		format := formats[int(kind)%len(formats)]
		message, err := convert(body, format)
		if err != nil {
			return
		}
		b, err := s.walk(streamOf(format), format, message, EachRecord)
		require.NoError(t, err)
		requireNested(t, b)
	})
}

// FuzzUnframe takes the message out of any body of a gRPC call.
func FuzzUnframe(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0, 1, 7})
	f.Add([]byte{1, 0, 0, 0, 0})
	f.Add([]byte(strings.Repeat("x", 9)))
	s := newSystem(f, setup{})
	f.Fuzz(func(t *testing.T, body []byte) {
		req := grpcRequest(body)
		message, _, refusal := unframe(req, body)
		if refusal == nil {
			require.Equal(t, len(body)-frameHeader, len(message))
		}
		s.receiver.GRPC(func() bool { return false }).ServeHTTP(&nowhere{req.Header.Clone()}, req)
	})
}
