package translate

import (
	"math"

	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"go.opentelemetry.io/collector/pdata/pmetric"

	"github.com/spillway-telemetry/spillway/ingester"
)

// timeSeries is what both versions of remote write can say about a series.
type timeSeries struct {
	samples    []sample
	histograms []nativeHistogram
	exemplars  []exemplarOf
}

type sample struct {
	at, start int64 // milliseconds
	value     float64
}

type nativeHistogram struct {
	at, start int64
	histogram *histogram.FloatHistogram
}

type exemplarOf struct {
	labels labels.Labels
	value  float64
	at     int64
}

// decode reads a group with Prometheus' own code.
func decode(b *ingester.Batch, g *ingester.Group) (timeSeries, bool) {
	if b.Format == ingester.RemoteWrite1 {
		return decode1(b.Message(g))
	}
	return decode2(b, b.Message(g))
}

func decode1(message []byte) (out timeSeries, ok bool) {
	var ts prompb.TimeSeries
	if ts.Unmarshal(message) != nil {
		return out, false
	}
	for _, s := range ts.Samples {
		out.samples = append(out.samples, sample{at: s.Timestamp, value: s.Value})
	}
	for _, h := range ts.Histograms {
		out.histograms = append(out.histograms, nativeHistogram{at: h.Timestamp, histogram: h.ToFloatHistogram()})
	}
	for _, e := range ts.Exemplars {
		b := labels.NewScratchBuilder(len(e.Labels))
		for _, l := range e.Labels {
			b.Add(l.Name, l.Value)
		}
		b.Sort()
		out.exemplars = append(out.exemplars, exemplarOf{b.Labels(), e.Value, e.Timestamp})
	}
	return out, true
}

func decode2(from *ingester.Batch, message []byte) (out timeSeries, ok bool) {
	var ts writev2.TimeSeries
	if ts.Unmarshal(message) != nil {
		return out, false
	}
	for _, s := range ts.Samples {
		out.samples = append(out.samples, sample{at: s.Timestamp, start: s.StartTimestamp, value: s.Value})
	}
	for _, h := range ts.Histograms {
		out.histograms = append(out.histograms, nativeHistogram{at: h.Timestamp, start: h.StartTimestamp, histogram: h.ToFloatHistogram()})
	}
	for _, e := range ts.Exemplars {
		ls, ok := symbols(from, e.LabelsRefs)
		if !ok {
			return out, false
		}
		out.exemplars = append(out.exemplars, exemplarOf{ls, e.Value, e.Timestamp})
	}
	return out, true
}

// symbols reads labels by their references.
func symbols(from *ingester.Batch, refs []uint32) (labels.Labels, bool) {
	b := labels.NewScratchBuilder(len(refs) / 2)
	for i := 0; i+1 < len(refs); i += 2 {
		if int(refs[i]) >= len(from.Symbols) || int(refs[i+1]) >= len(from.Symbols) {
			return labels.EmptyLabels(), false
		}
		b.Add(string(from.Bytes(from.Symbols[refs[i]])), string(from.Bytes(from.Symbols[refs[i+1]])))
	}
	b.Sort()
	return b.Labels(), len(refs)%2 == 0
}

// wholeCounts are the counts of a histogram as whole numbers.
type wholeCounts struct {
	count, zero        uint64
	positive, negative buckets
}

// buckets are the counts of buckets that lie side by side from the one at first on.
type buckets struct {
	first  int
	counts []uint64
}

// mostBuckets bounds the buckets of one side: spans can ask for any gap between two.
const mostBuckets = 1 << 14

// whole returns the counts, if all are whole numbers and in reach.
func (h nativeHistogram) whole() (w wholeCounts, ok bool) {
	f := h.histogram
	if !histogram.IsCustomBucketsSchema(f.Schema) && (f.Schema < -10 || f.Schema > 20) {
		return w, false // beyond the scales of OTLP
	}
	count, okCount := wholeNumber(f.Count)
	zero, okZero := wholeNumber(f.ZeroCount)
	positive, okPositive := bucketsOf(f.PositiveSpans, f.PositiveBuckets)
	negative, okNegative := bucketsOf(f.NegativeSpans, f.NegativeBuckets)
	return wholeCounts{count, zero, positive, negative}, okCount && okZero && okPositive && okNegative
}

func wholeNumber(f float64) (uint64, bool) {
	if f != math.Trunc(f) || f < 0 || f >= 1<<63 {
		return 0, math.IsNaN(f) // stale markers hold no numbers
	}
	return uint64(f), true
}

func bucketsOf(spans []histogram.Span, counts []float64) (b buckets, ok bool) {
	at, next := 0, 0
	for i, s := range spans {
		at += int(s.Offset)
		if i == 0 {
			b.first = at
		}
		if at-b.first < len(b.counts) || at-b.first+int(s.Length) > mostBuckets || next+int(s.Length) > len(counts) {
			return b, false
		}
		for len(b.counts) < at-b.first {
			b.counts = append(b.counts, 0)
		}
		for range s.Length {
			n, whole := wholeNumber(counts[next])
			if !whole {
				return b, false
			}
			b.counts = append(b.counts, n)
			next++
		}
		at += int(s.Length)
	}
	return b, next == len(counts)
}

// dense are the counts of the buckets from the one at from on, n of them.
func (b buckets) dense(from, n int) []uint64 {
	out := make([]uint64, n)
	for i, c := range b.counts {
		if at := b.first + i - from; at >= 0 && at < n {
			out[at] = c
		}
	}
	return out
}

// fill writes the buckets of an exponential histogram. OTLP's bucket i ends at
// base^(i+1), Prometheus' at base^i.
func (b buckets) fill(to pmetric.ExponentialHistogramDataPointBuckets) {
	if len(b.counts) == 0 {
		return
	}
	to.SetOffset(int32(b.first - 1))
	to.BucketCounts().FromRaw(b.counts)
}
