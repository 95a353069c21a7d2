package remotewrite

import (
	"bytes"
	"fmt"
	"hash/maphash"
	"math/rand"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// eachCombination runs a test for every pair of formats.
func eachCombination(t *testing.T, test func(t *testing.T, from, to ingester.Format)) {
	for _, from := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
		for _, to := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
			t.Run(fmt.Sprintf("%d.0 to %d.0", from, to), func(t *testing.T) { test(t, from, to) })
		}
	}
}

// One encoder writes every batch, so that what one leaves behind would show in
// the next.
func TestEncodedRequestsHoldWhatTheOracleSays(t *testing.T) {
	eachCombination(t, func(t *testing.T, from, to ingester.Format) {
		e := newEncoder()
		for seed := range int64(400) {
			g := generator{rand.New(rand.NewSource(seed))}
			n := g.Intn(40)
			drop := []float64{0, 0.1, 0.5, 0.8, 0.95, 1}[g.Intn(6)]
			change := []float64{0, 0, 0.1, 0.5, 1}[g.Intn(5)]
			b := newTestBatch(t, g.request(from, n))
			before := slices.Clone(b.Body)
			requireEncoded(t, e, b, g.plans(n, drop, change), to)
			require.Equal(t, before, b.Body, "the encoder wrote to the batch")
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	})
}

// A table of symbols names no string twice and begins with the empty one, whatever
// was added; a compacted one holds nothing that is not referred to.
func TestSymbolsAreDistinctAndStartEmpty(t *testing.T) {
	for _, from := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
		e := newEncoder()
		for seed := range int64(200) {
			g := generator{rand.New(rand.NewSource(seed))}
			n := 1 + g.Intn(60)
			drop := []float64{0, 0.5, 0.9}[g.Intn(3)]
			b := newTestBatch(t, g.request(from, n))
			plans := g.plans(n, drop, 0.5)
			for i := range b.Groups {
				plans[i].apply(&b.Groups[i])
			}
			var r writev2.Request
			require.NoError(t, r.Unmarshal(e.encode(b, ingester.RemoteWrite2)))
			if len(r.Timeseries) == 0 {
				continue
			}
			require.Empty(t, r.Symbols[0])
			seen := make(map[string]bool)
			for _, s := range r.Symbols {
				require.False(t, seen[s], "seed %d: %q is there twice", seed, s)
				seen[s] = true
			}
			if e.table.compact || from == ingester.RemoteWrite1 {
				require.Len(t, used(&r), len(r.Symbols), "seed %d", seed)
			}
		}
	}
}

// used is the set of references in a request, with 0.
func used(r *writev2.Request) map[uint32]bool {
	refs := map[uint32]bool{0: true}
	for _, ts := range r.Timeseries {
		all := append(slices.Clone(ts.LabelsRefs), ts.Metadata.HelpRef, ts.Metadata.UnitRef)
		for _, x := range ts.Exemplars {
			all = append(all, x.LabelsRefs...)
		}
		for _, ref := range all {
			refs[ref] = true
		}
	}
	return refs
}

// The strings of dropped series stay until fewer than a quarter of the series do.
func TestSymbolsAreCompactedBelowAQuarter(t *testing.T) {
	for _, left := range []int{1, 24, 25, 26, 100} {
		g := generator{rand.New(rand.NewSource(7))}
		b := newTestBatch(t, g.v2(100))
		for i := range b.Groups {
			if i >= left {
				b.Groups[i].Verdict = ingester.DroppedRatelimit
			}
		}
		e := newEncoder()
		var r writev2.Request
		require.NoError(t, r.Unmarshal(e.encode(b, ingester.RemoteWrite2)))
		if left < 25 {
			require.Len(t, used(&r), len(r.Symbols), "%d of 100 series left", left)
			require.Less(t, len(r.Symbols), len(b.Symbols))
			continue
		}
		require.Len(t, r.Symbols, len(b.Symbols), "%d of 100 series left", left)
	}
}

// Bytes that did not change are copied, not written again: padding that no encoder
// would produce survives.
func TestUnchangedSeriesAreCopiedAsTheyCame(t *testing.T) {
	// A series whose sample holds a field that nobody knows.
	odd := []byte("\x0a\x14\x0a\x07\x0a\x01a\x12\x02bc\x12\x09\x09\x00\x00\x00\x00\x00\x00\xf0\x3f")
	odd = append(odd[:len(odd):len(odd)], 0x78, 0x01)
	odd[1] += 2
	plain, err := (&prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Labels: []prompb.Label{{Name: "__name__", Value: "up"}}, Samples: []prompb.Sample{{Value: 1, Timestamp: 2}}}}}).Marshal()
	require.NoError(t, err)
	b, err := walk(ingester.RemoteWrite1, slices.Concat(odd, plain, odd, odd))
	require.NoError(t, err)
	b.Groups[1].Verdict = ingester.DroppedRelabel
	require.Equal(t, slices.Concat(odd, odd, odd), newEncoder().encode(b, ingester.RemoteWrite1))
}

// Protobuf allows the same message to be written in many ways.
func TestUnusualEncodingsMeanTheSame(t *testing.T) {
	label := func(name, value string) []byte { return appendTestLabel(nil, []byte(name), []byte(value)) }
	sample := []byte("\x12\x0d\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x10\xe8\x07\x00")[:14]
	sample[1] = 12
	message := func(parts ...[]byte) []byte { return slices.Concat(parts...) }
	field := func(num byte, m []byte) []byte { return append([]byte{num<<3 | 2, byte(len(m))}, m...) }
	// A length in three bytes where one would do.
	long := func(num byte, m []byte) []byte { return append([]byte{num<<3 | 2, byte(len(m)) | 0x80, 0x80, 0}, m...) }

	scattered := field(1, message(label("__name__", "up"), sample, label("job", "a")))
	reversed := field(1, message(long(1, message(field(2, []byte("b")), field(1, []byte("job")))), sample))
	unlabelled := field(1, sample)
	v1 := message(scattered, reversed, unlabelled, long(1, message(label("a", "b"), sample)))

	symbols := message(field(4, nil), long(4, []byte("__name__")), field(4, []byte("up")), field(4, []byte("job")), long(4, []byte("a")))
	unpacked := field(5, message([]byte{0x08, 1, 0x08, 2}, sample, []byte{0x0a, 2, 3, 4}))
	metadata := field(5, message(field(5, []byte{0x08, 1}), []byte{0x0a, 2, 1, 2}, sample, field(5, []byte{0x18, 2})))
	v2 := message(symbols[:2], unpacked, symbols[2:], metadata, long(5, message([]byte{0x0a, 2, 1, 2}, sample)))

	for format, raw := range map[ingester.Format][]byte{ingester.RemoteWrite1: v1, ingester.RemoteWrite2: v2} {
		for _, to := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
			for _, dropped := range []int{-1, 0, 1} {
				for _, changed := range []int{-1, 0, 1, 2} {
					b, err := walk(format, raw)
					require.NoError(t, err)
					plans := make([]plan, len(b.Groups))
					if dropped >= 0 {
						plans[dropped].verdict = ingester.DroppedRelabel
					}
					if changed >= 0 {
						plans[changed].labels = []prompb.Label{{Name: "__name__", Value: "down"}, {Name: "job", Value: "a"}}
					}
					requireEncoded(t, newEncoder(), b, plans, to)
				}
			}
		}
	}
}

// A series whose bytes are not what its format says is refused, and nothing else.
func TestMalformedSeriesAreRefusedAlone(t *testing.T) {
	eachCombination(t, func(t *testing.T, from, to ingester.Format) {
		if from == to {
			return // What is only copied is the destination's to judge.
		}
		g := generator{rand.New(rand.NewSource(3))}
		b := newTestBatch(t, g.request(from, 12))
		in, err := decode(from, b.Body[:b.Size])
		require.NoError(t, err)
		bad := map[int]bool{0: true, 5: true, 11: true}
		for i := range bad {
			// The message ends within a field.
			b.Groups[i].Field.End--
		}
		e := newEncoder()
		got, err := decode(to, e.encode(b, to))
		require.NoError(t, err)
		want, _ := expected(in, make([]plan, 12), from, to, bad)
		require.Equal(t, want.Series, got.Series)
		refused := make(map[int]bool)
		for _, r := range e.sent.refused {
			if b.Groups[r.group].Items() == int64(r.items) && bad[int(r.group)] {
				refused[int(r.group)] = true
			}
		}
		require.Equal(t, bad, refused)
	})
}

func TestPartsThatDoNotFitAreCounted(t *testing.T) {
	b := newTestBatch(t, &prompb.WriteRequest{
		Timeseries: []prompb.TimeSeries{{Labels: []prompb.Label{{Name: "__name__", Value: "up"}}, Samples: []prompb.Sample{{Value: 1}}}},
		Metadata:   []prompb.MetricMetadata{{MetricFamilyName: "up"}, {MetricFamilyName: "down"}, {MetricFamilyName: ""}},
	})
	e := newEncoder()
	e.encode(b, ingester.RemoteWrite2)
	require.EqualValues(t, 2, e.sent.families)
	b.Groups[0].Verdict = ingester.DroppedRelabel
	require.Empty(t, e.encode(b, ingester.RemoteWrite2), "2.0 has no place for metadata alone")
	require.EqualValues(t, 3, e.sent.families)
	require.NotEmpty(t, e.encode(b, ingester.RemoteWrite1))
	require.Zero(t, e.sent.families)

	b = newTestBatch(t, &writev2.Request{Symbols: []string{"", "a", "b"}, Timeseries: []writev2.TimeSeries{
		{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: 5, StartTimestamp: 3}, {Value: 2, Timestamp: 6}}},
		{LabelsRefs: []uint32{1, 2}, Histograms: []writev2.Histogram{{Timestamp: 5, StartTimestamp: 3}}},
	}})
	e.encode(b, ingester.RemoteWrite1)
	require.EqualValues(t, 2, e.sent.starts)
	e.encode(b, ingester.RemoteWrite2)
	require.Zero(t, e.sent.starts)
}

// Encoding allocates for the batch, never for a series.
func TestEncodingDoesNotAllocatePerSeries(t *testing.T) {
	eachCombination(t, func(t *testing.T, from, to ingester.Format) {
		g := generator{rand.New(rand.NewSource(5))}
		b := newTestBatch(t, g.request(from, 500))
		for i, p := range g.plans(500, 0.3, 0.5) {
			p.apply(&b.Groups[i])
		}
		e := newEncoder()
		for range 3 {
			e.encode(b, to)
		}
		allocs := testing.AllocsPerRun(20, func() { e.encode(b, to) })
		require.LessOrEqual(t, allocs, 3.0)
	})
}

func TestWireCornerCases(t *testing.T) {
	for _, raw := range []string{
		"",                                 // nothing
		"\x0a",                             // a tag alone
		"\x0a\x01",                         // a length without the bytes
		"\x0a\x80",                         // half a length
		"\x08",                             // half a varint
		"\x09\x01\x02\x03\x04\x05\x06\x07", // half a double
		"\x0d\x01\x02\x03",                 // half a float
		"\x0b\x0c",                         // a group
		"\x02\x00",                         // field 0
		"\x82\x80\x80\x80\x10\x00",         // a field number above the largest
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f", // the longest length
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
		"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", // a varint that is too long
	} {
		_, ok := nextField([]byte(raw), 0)
		require.False(t, ok, "%q", raw)
		_, _, n := nextLabel([]byte(raw))
		require.Zero(t, n, "%q", raw)
	}
	for n := range 300 {
		for guess := range 300 {
			out, start := openMessage([]byte("head"), 1, guess)
			out = closeMessage(append(out, bytes.Repeat([]byte{7}, n)...), start, guess)
			require.Equal(t, appendBytesField([]byte("head"), 1, bytes.Repeat([]byte{7}, n)), out)
		}
	}
}

func TestFamilyNamesOf20Series(t *testing.T) {
	const gauge = 2
	series := func(name uint32, typ writev2.Metadata_MetricType, native bool) writev2.TimeSeries {
		ts := writev2.TimeSeries{LabelsRefs: []uint32{1, name}, Metadata: writev2.Metadata{Type: typ, HelpRef: 2}}
		if native {
			ts.Histograms = []writev2.Histogram{{Timestamp: 1}}
		} else {
			ts.Samples = []writev2.Sample{{Timestamp: 1}}
		}
		return ts
	}
	symbols := []string{"", "__name__", "help", "a_bucket", "a_total", "a_sum", "a_gsum", "a_info", "_sum"}
	for want, all := range map[string][]writev2.TimeSeries{
		"a":                {series(3, typeHistogram, false), series(5, typeHistogram, false)},
		"a_bucket":         {series(3, typeHistogram, true)},
		"a_bucket,a":       {series(3, typeHistogram, true), series(3, typeHistogram, false)},
		"a,a_bucket":       {series(3, typeHistogram, false), series(3, gauge, false)},
		"a_total":          {series(4, typeCounter, false), series(4, typeCounter, false)},
		"a_sum":            {series(5, gauge, false)},
		"a,a_bucket,a_sum": {series(5, typeSummary, false), series(3, typeSummary, false), series(5, typeGaugeHistogram, false)},
		"a_info,_sum":      {series(7, typeInfo, false), series(8, typeSummary, false)},
	} {
		b := newTestBatch(t, &writev2.Request{Symbols: symbols, Timeseries: all})
		got, err := decode(ingester.RemoteWrite1, newEncoder().encode(b, ingester.RemoteWrite1))
		require.NoError(t, err)
		var names []string
		for _, f := range got.Families {
			names = append(names, f.name)
			require.Equal(t, "help", f.help)
		}
		require.Equal(t, want, strings.Join(names, ","))
	}
}

// Numbers are taken from the sender's references only where they belong to the
// labels of the key one by one.
func TestLabelsThatTheKeyLeavesOut(t *testing.T) {
	b := newTestBatch(t, &writev2.Request{
		Symbols:    []string{"", "__name__", "up", "empty", "job", "a", "zone", "z"},
		Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{3, 0, 1, 2, 4, 5, 6, 7}, Samples: []writev2.Sample{{Value: 1, Timestamp: 2}}}},
	})
	// The receiver leaves out labels with an empty value.
	b.Groups[0].Key.Start += uint32(len(appendTestLabel(nil, []byte("empty"), nil)))
	labels := []prompb.Label{{Name: "__name__", Value: "up"}, {Name: "job", Value: "a"}, {Name: "team", Value: "t"}, {Name: "zone", Value: "z"}}
	setLabels(&b.Groups[0], labels)
	got, err := decode(ingester.RemoteWrite2, newEncoder().encode(b, ingester.RemoteWrite2))
	require.NoError(t, err)
	require.Equal(t, plainLabels(labels), got.Series[0].Labels)
}

// A series that is found broken only after some of it was written leaves nothing
// behind.
func TestBrokenSeriesLeaveNothingBehind(t *testing.T) {
	good := writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: 2}}}
	metadata, exemplar := good, good
	metadata.Metadata.HelpRef = 3
	exemplar.Exemplars = []writev2.Exemplar{{LabelsRefs: []uint32{1, 3}}}
	for name, broken := range map[string]writev2.TimeSeries{"metadata": metadata, "exemplar": exemplar} {
		r := &writev2.Request{Symbols: []string{"", "a", "b"}, Timeseries: []writev2.TimeSeries{good, broken, good}}
		for range 20 {
			r.Timeseries = append(r.Timeseries, good) // dropped, so that the table is compacted
		}
		for _, to := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
			b := newTestBatch(t, r)
			for i := 3; i < len(b.Groups); i++ {
				b.Groups[i].Verdict = ingester.DroppedRelabel
			}
			e := newEncoder()
			got, err := decode(to, e.encode(b, to))
			require.NoError(t, err)
			require.Len(t, got.Series, 2, "%s to %d.0", name, to)
			require.Equal(t, []refusal{{group: 1, items: 1}}, e.sent.refused)
			require.EqualValues(t, 2, e.sent.floats)
		}
	}

	scattered := newTestBatch(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{Samples: []prompb.Sample{{Value: 1, Timestamp: 300}}}}})
	setLabels(&scattered.Groups[0], []prompb.Label{{Name: "a", Value: "b"}})
	scattered.Groups[0].Field.End--
	e := newEncoder()
	require.Empty(t, e.encode(scattered, ingester.RemoteWrite1))
	require.Equal(t, []refusal{{items: 1}}, e.sent.refused)
}

// A receiver need not care where in the body an empty string stands.
func TestAnEmptySymbolMayPointAnywhere(t *testing.T) {
	r := &writev2.Request{Symbols: []string{"", "a", "b"}, Timeseries: []writev2.TimeSeries{{LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1}}}}}
	for at := range uint32(20) {
		b := newTestBatch(t, r)
		b.Symbols[0] = ingester.Span{Start: at, End: at}
		var got writev2.Request
		require.NoError(t, got.Unmarshal(newEncoder().encode(b, ingester.RemoteWrite2)))
		require.Equal(t, r.Symbols, got.Symbols, "at %d", at)
	}
}

func TestSymbolsOfOneHashAreToldApart(t *testing.T) {
	table := &newEncoder().table
	table.reset(nil, nil, false)
	require.EqualValues(t, 0, table.number([]byte("a")))
	hash := uint32(maphash.String(table.seed, "a"))
	number, slot := table.lookup(hash, []byte("a"))
	require.EqualValues(t, 0, number)
	require.Equal(t, -1, slot)
	_, slot = table.lookup(hash, []byte("b"))
	require.GreaterOrEqual(t, slot, 0)
}
