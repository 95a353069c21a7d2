package remotewrite

import (
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

func newWalker(s *system, data []byte) *walker {
	b := &ingester.Batch{Body: append([]byte(nil), data...), Size: len(data)}
	return &walker{b: b, guess: s.ingester.Guess(b), memory: s.ingester.Memory(), limits: testLimits}
}

// FuzzWalkV1 compares the walker with the Prometheus library: what it accepts,
// the library reads as the same series.
func FuzzWalkV1(f *testing.F) {
	for _, req := range []*prompb.WriteRequest{richV1(), bulk(3), {Metadata: []prompb.MetricMetadata{{Type: 1, MetricFamilyName: "up", Help: "h", Unit: "s"}}}} {
		data, err := req.Marshal()
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWalker(newSystem(t, "", ""), data)
		defer w.memory.Release()
		if w.walkV1() != nil {
			return
		}
		var want prompb.WriteRequest
		if err := want.Unmarshal(data); err != nil {
			// What a label holds is looked at when its set is first seen.
			require.True(t, malformedLabels(w.b), "the walker accepts what the library refuses: %v", err)
			return
		}
		require.Len(t, w.b.Groups, len(want.Timeseries))
		require.Len(t, w.b.Families, len(want.Metadata))
		for i, ts := range want.Timeseries {
			g := &w.b.Groups[i]
			require.EqualValues(t, len(ts.Samples), g.Floats)
			require.EqualValues(t, len(ts.Histograms), g.Histograms)
			require.EqualValues(t, len(ts.Exemplars), g.Exemplars)
			var set prompb.TimeSeries
			require.NoError(t, set.Unmarshal(w.b.Bytes(g.Key)))
			require.Equal(t, labelString(ts.Labels), labelString(set.Labels))
		}
	})
}

func malformedLabels(b *ingester.Batch) bool {
	for i := range b.Groups {
		var set prompb.TimeSeries
		if set.Unmarshal(b.Bytes(b.Groups[i].Key)) != nil {
			return true
		}
	}
	return false
}

// FuzzWalkV2 does the same for 2.0.
func FuzzWalkV2(f *testing.F) {
	for _, req := range []*prompb.WriteRequest{richV1(), bulk(3)} {
		v2 := toV2(req)
		v2.Timeseries[0].Metadata = writev2.Metadata{Type: 1, HelpRef: 1, UnitRef: 2}
		v2.Timeseries[0].Exemplars = []writev2.Exemplar{{LabelsRefs: []uint32{1, 2}, Value: 1, Timestamp: 1}}
		v2.Timeseries[0].Histograms = []writev2.Histogram{{Sum: 1, PositiveSpans: []writev2.BucketSpan{{Offset: 1, Length: 1}}, PositiveDeltas: []int64{1}, CustomValues: []float64{1}}}
		data, err := v2.Marshal()
		require.NoError(f, err)
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		w := newWalker(newSystem(t, "", ""), data)
		defer w.memory.Release()
		if w.walkV2() != nil {
			return
		}
		var want writev2.Request
		if err := want.Unmarshal(data); err != nil {
			// Label references are looked at when their set is first seen.
			require.True(t, malformedRefs(w.b), "the walker accepts what the library refuses: %v", err)
			return
		}
		require.Len(t, w.b.Symbols, len(want.Symbols))
		require.Len(t, w.b.Groups, len(want.Timeseries))
		for i, ts := range want.Timeseries {
			g := &w.b.Groups[i]
			require.EqualValues(t, len(ts.Samples), g.Floats)
			require.EqualValues(t, len(ts.Histograms), g.Histograms)
			require.EqualValues(t, len(ts.Exemplars), g.Exemplars)
			require.Equal(t, ts.LabelsRefs, refsOf(w.b.Bytes(g.Key)))
		}
	})
}

// refsOf reads packed references; nil if they are none.
func refsOf(packed []byte) (refs []uint32) {
	for len(packed) > 0 {
		v, n := protowire.ConsumeVarint(packed)
		if n < 0 {
			return nil
		}
		refs, packed = append(refs, uint32(v)), packed[n:]
	}
	return refs
}

func malformedRefs(b *ingester.Batch) bool {
	for i := range b.Groups {
		if key := b.Bytes(b.Groups[i].Key); len(key) > 0 && refsOf(key) == nil {
			return true
		}
	}
	return false
}

// FuzzRequest sends bytes through the whole data path, twice: nothing panics,
// the law of conservation holds, and a known series is judged as it was when it
// was new.
func FuzzRequest(f *testing.F) {
	data, err := richV1().Marshal()
	require.NoError(f, err)
	f.Add(snappy.Encode(nil, data), false)
	data, err = toV2(bulk(4)).Marshal()
	require.NoError(f, err)
	f.Add(snappy.Encode(nil, data), true)
	f.Fuzz(func(t *testing.T, packed []byte, v2 bool) {
		s := newSystem(t, "streams: {metrics: {rate: 1000000000, burst: 1000000000, classes: [{name: none, rate: 0}], rules: [{class: none, matchers: ['job=~\"a.*\"']}]}}", oracleRules)
		contentType := contentTypeV1
		if v2 {
			contentType = contentTypeV2
		}
		first := s.post(contentType, packed)
		stored := len(s.sink.series)
		second := s.post(contentType, packed)
		require.Equal(t, first.Code, second.Code)
		require.Equal(t, first.Body.String(), second.Body.String())
		require.Len(t, s.sink.series, 2*stored)
		s.requireConserved()
	})
}
