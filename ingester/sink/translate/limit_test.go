package translate

import (
	"context"
	"errors"
	"fmt"
	"math/rand"
	"sort"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// classic adds a histogram's data point with so many bounds.
func classic(ms pmetric.MetricSlice, name string, bounds int) pmetric.HistogramDataPoint {
	m := ms.AppendEmpty()
	m.SetName(name)
	m.SetEmptyHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := m.Histogram().DataPoints().AppendEmpty()
	p.SetTimestamp(1e18)
	p.SetSum(1)
	for i := range bounds {
		p.ExplicitBounds().Append(float64(i))
		p.BucketCounts().Append(1)
	}
	p.BucketCounts().Append(1)
	p.SetCount(uint64(bounds + 1))
	return p
}

func summary(ms pmetric.MetricSlice, name string, quantiles int) {
	m := ms.AppendEmpty()
	m.SetName(name)
	p := m.SetEmptySummary().DataPoints().AppendEmpty()
	p.SetTimestamp(1e18)
	for i := range quantiles {
		p.QuantileValues().AppendEmpty().SetQuantile(float64(i) / float64(quantiles))
	}
}

func exponential(ms pmetric.MetricSlice, name string, buckets int) {
	m := ms.AppendEmpty()
	m.SetName(name)
	m.SetEmptyExponentialHistogram().SetAggregationTemporality(pmetric.AggregationTemporalityCumulative)
	p := m.ExponentialHistogram().DataPoints().AppendEmpty()
	p.SetTimestamp(1e18)
	p.SetCount(uint64(buckets))
	for range buckets {
		p.Positive().BucketCounts().Append(1)
	}
}

// A data point pays one token, so it may not become any number of series.
func TestDataPointsOfManySeriesAreRejected(t *testing.T) {
	for _, limit := range []int{10, DefaultMaxBuckets} {
		md := pmetric.NewMetrics()
		ms := md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics()
		classic(ms, "just", limit)
		classic(ms, "over", limit+1)
		classic(ms, "far_over", 100*limit)
		summary(ms, "just_summary", limit)
		summary(ms, "over_summary", limit+1)
		exponential(ms, "exponential", 2*limit)
		o := usual()
		o.MaxBuckets = limit
		r := &recorder{t: t}
		b := otlpBatch(t, md)
		require.NoError(t, NewToRemoteWrite(r, o).Write(t.Context(), b))
		require.Equal(t, map[string]int64{ReasonTooManyBuckets: 2, ReasonTooManyQuantiles: 1}, b.Rejections())
		require.Equal(t, []uint32{0, 1, 1, 0, 1, 0}, rejectedOf(b))
		require.Len(t, r.lines, limit+3+limit+2+1)
		require.NotContains(t, strings.Join(r.lines, "\n"), "over")

		// As one native histogram, any number of buckets is one series.
		o.Translation.ConvertHistogramsToNHCB = true
		b = otlpBatch(t, md)
		require.NoError(t, NewToRemoteWrite(&recorder{t: t}, o).Write(t.Context(), b))
		require.Equal(t, map[string]int64{ReasonTooManyQuantiles: 1}, b.Rejections())
	}
}

func TestOnlyDataPointsOfManySeries(t *testing.T) {
	md := pmetric.NewMetrics()
	classic(md.ResourceMetrics().AppendEmpty().ScopeMetrics().AppendEmpty().Metrics(), "over", DefaultMaxBuckets+1)
	r := &recorder{t: t}
	b := otlpBatch(t, md)
	require.NoError(t, NewToRemoteWrite(r, usual()).Write(t.Context(), b))
	require.Zero(t, r.batches)
	require.Equal(t, map[string]int64{ReasonTooManyBuckets: 1}, b.Rejections())
}

// Bounds may come one by one, and in several lists.
func TestBoundsAreCountedHoweverTheyAreWritten(t *testing.T) {
	var point []byte
	for range 3 {
		point = protowire.AppendFixed64(protowire.AppendTag(point, explicitBounds, protowire.Fixed64Type), 1)
		point = protowire.AppendBytes(protowire.AppendTag(point, explicitBounds, protowire.BytesType), make([]byte, 5*8))
		point = protowire.AppendBytes(protowire.AppendTag(point, quantileValues, protowire.BytesType), make([]byte, 2*8))
	}
	require.Equal(t, 18, countBounds(point))
	require.Equal(t, 3, countQuantiles(point))
	require.Equal(t, 18, countBounds(append(point, 0xff)))
}

// parted is a sink that keeps what several batches of one write hold.
type parted struct {
	recorder
	largest int
	write   func(part int, b *ingester.Batch) error
}

func (p *parted) Write(ctx context.Context, b *ingester.Batch) error {
	p.largest = max(p.largest, b.Size)
	if p.write != nil {
		if err := p.write(p.batches, b); err != nil {
			p.batches++
			return err
		}
	}
	return p.recorder.Write(ctx, b)
}

// However large what is made of a request, only a part of it is there at a time, and
// all parts together are what Prometheus makes of it.
func TestALargeTranslationIsWrittenInParts(t *testing.T) {
	md := everyKind(rand.New(rand.NewSource(1)), 40)
	p := &parted{recorder: recorder{t: t}}
	to := NewToRemoteWrite(p, usual())
	to.partBytes = 32 << 10
	require.NoError(t, to.Write(t.Context(), otlpBatch(t, md)))
	require.Greater(t, p.batches, 5)
	require.Less(t, p.largest, 32<<10)
	sort.Strings(p.lines)
	require.Equal(t, translated(t, md), p.lines)
}

// The labels of a resource stand in every series.
func TestLabelsOfAResourceDoNotMultiply(t *testing.T) {
	md := pmetric.NewMetrics()
	rm := md.ResourceMetrics().AppendEmpty()
	rm.Resource().Attributes().PutStr("service.name", strings.Repeat("x", 100<<10))
	classic(rm.ScopeMetrics().AppendEmpty().Metrics(), "h", 400)
	labels := 0
	p := &parted{recorder: recorder{t: t}, write: func(_ int, b *ingester.Batch) error {
		now := 0
		for i := range b.Groups {
			now += len(b.Labels(&b.Groups[i]))
		}
		require.Less(t, now, partBytes+200<<10)
		labels += now
		return nil
	}}
	b := otlpBatch(t, md)
	require.NoError(t, NewToRemoteWrite(p, usual()).Write(t.Context(), b))
	require.Greater(t, labels, 5*partBytes-partBytes/2)
	require.Greater(t, p.batches, 3)
	require.Empty(t, b.Rejections())
}

// Parts that fail: the sender repeats the whole, or hears which items are invalid.
func TestPartsThatAreNotStored(t *testing.T) {
	down := errors.New("down")
	write := func(t *testing.T, fail func(part int, b *ingester.Batch) error) (*ingester.Batch, *parted, error) {
		p := &parted{recorder: recorder{t: t}, write: fail}
		to := NewToRemoteWrite(p, usual())
		to.partBytes = 8 << 10
		b := otlpBatch(t, everyKind(rand.New(rand.NewSource(1)), 20))
		return b, p, to.Write(t.Context(), b)
	}
	t.Run("for now", func(t *testing.T) {
		b, p, err := write(t, func(part int, _ *ingester.Batch) error {
			if part == 2 {
				return down
			}
			return nil
		})
		require.ErrorIs(t, err, down)
		require.Equal(t, 3, p.batches, "the rest is not tried")
		require.Empty(t, b.Rejections())
	})
	t.Run("one for good", func(t *testing.T) {
		series := 0
		b, _, err := write(t, func(part int, out *ingester.Batch) error {
			if part == 2 {
				series = len(out.Groups)
				return &ingester.SinkError{Err: down, Final: true}
			}
			return nil
		})
		require.NoError(t, err)
		require.Positive(t, b.Rejections()[sink.ReasonRejected])
		require.LessOrEqual(t, b.Rejections()[sink.ReasonRejected], int64(series))
	})
	t.Run("all for good", func(t *testing.T) {
		b, _, err := write(t, func(int, *ingester.Batch) error { return &ingester.SinkError{Err: down, Final: true} })
		var said *ingester.SinkError
		require.ErrorAs(t, err, &said)
		require.True(t, said.Final)
		require.Empty(t, b.Rejections())
	})
	t.Run("items of several", func(t *testing.T) {
		b, _, err := write(t, func(part int, out *ingester.Batch) error {
			if part < 2 {
				out.Reject(&out.Groups[0], 1, fmt.Sprint("reason", part))
			}
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, map[string]int64{"reason0": 1, "reason1": 1}, b.Rejections())
	})
}

// Nobody is told that an item is invalid since the request ended early.
func TestAnEndedRequestRejectsNothing(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	b := otlpBatch(t, everyKind(rand.New(rand.NewSource(1)), 100))
	require.ErrorIs(t, NewToRemoteWrite(&recorder{t: t}, usual()).Write(ctx, b), context.Canceled)
	require.Empty(t, b.Rejections())
}
