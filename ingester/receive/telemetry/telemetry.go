// Package telemetry lets Spillway send its own metrics through its own
// pipeline: gathered, marked with the exempt label, processed like anybody's
// batch. So the history of what was dropped is in the store that it was dropped
// before.
package telemetry

import (
	"context"
	"fmt"
	"math"
	"sort"
	"strconv"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Writer writes what a Gatherer gathers. It is used by one goroutine.
type Writer struct {
	Ingester *ingester.Ingester
	Gatherer prometheus.Gatherer
	// Labels are put on every series, beside the exempt label: job, instance.
	// They win over a metric's own label of the same name.
	Labels map[string]string

	exempt ingester.ExemptLabel
	batch  ingester.Batch
	labels []pair
}

type pair struct{ name, value string }

// Write gathers all metrics and processes them as one batch with the given
// time. It blocks until the sink has answered.
func (w *Writer) Write(ctx context.Context, now time.Time) error {
	families, err := w.Gatherer.Gather()
	if err != nil {
		return fmt.Errorf("gathering own metrics: %w", err)
	}
	b := &w.batch
	b.Reset()
	b.Format, b.Received = ingester.RemoteWrite1, now
	b.Origin, w.exempt = w.Ingester.Own()
	for _, f := range families {
		w.family(f, now.UnixMilli())
	}
	b.Size = len(b.Body)
	b.Packed = snappy.Encode(nil, b.Body)
	res := w.Ingester.Process(ctx, b)
	if res.Err != nil {
		return fmt.Errorf("writing own metrics: %w", res.Err)
	}
	return nil
}

// family appends every series of a metric family, as the text format has them.
func (w *Writer) family(f *dto.MetricFamily, ms int64) {
	name := f.GetName()
	for _, m := range f.GetMetric() {
		switch {
		case m.Counter != nil:
			w.series(name, m, "", "", m.Counter.GetValue(), ms)
		case m.Gauge != nil:
			w.series(name, m, "", "", m.Gauge.GetValue(), ms)
		case m.Untyped != nil:
			w.series(name, m, "", "", m.Untyped.GetValue(), ms)
		case m.Summary != nil:
			for _, q := range m.Summary.GetQuantile() {
				w.series(name, m, "quantile", number(q.GetQuantile()), q.GetValue(), ms)
			}
			w.series(name+"_sum", m, "", "", m.Summary.GetSampleSum(), ms)
			w.series(name+"_count", m, "", "", float64(m.Summary.GetSampleCount()), ms)
		case m.Histogram != nil:
			w.histogram(name, m, ms)
		}
	}
}

func (w *Writer) histogram(name string, m *dto.Metric, ms int64) {
	h := m.Histogram
	infinite := false
	for _, bucket := range h.GetBucket() {
		infinite = infinite || math.IsInf(bucket.GetUpperBound(), 1)
		w.series(name+"_bucket", m, "le", number(bucket.GetUpperBound()), float64(bucket.GetCumulativeCount()), ms)
	}
	if !infinite {
		w.series(name+"_bucket", m, "le", "+Inf", float64(h.GetSampleCount()), ms)
	}
	w.series(name+"_sum", m, "", "", h.GetSampleSum(), ms)
	w.series(name+"_count", m, "", "", float64(h.GetSampleCount()), ms)
}

func number(v float64) string {
	if math.IsInf(v, 1) {
		return "+Inf"
	}
	return strconv.FormatFloat(v, 'g', -1, 64)
}

// Field numbers of remote write 1.0.
const (
	seriesField = 1
	sampleField = 2
	valueField  = 1
	timeField   = 2
)

// series appends one series with one sample. extra names a label beside the
// metric's own ones, empty for none.
func (w *Writer) series(name string, m *dto.Metric, extra, extraValue string, v float64, ms int64) {
	var set []byte
	for _, l := range w.sorted(name, m, extra, extraValue) {
		set = ingester.AppendLabel(set, l.name, l.value)
	}
	var sample []byte
	sample = protowire.AppendTag(sample, valueField, protowire.Fixed64Type)
	sample = protowire.AppendFixed64(sample, math.Float64bits(v))
	sample = protowire.AppendTag(sample, timeField, protowire.VarintType)
	sample = protowire.AppendVarint(sample, uint64(ms))

	b := &w.batch
	g := ingester.Group{Floats: 1}
	g.Field.Start = uint32(len(b.Body))
	b.Body = protowire.AppendTag(b.Body, seriesField, protowire.BytesType)
	b.Body = protowire.AppendVarint(b.Body, uint64(len(set)+1+protowire.SizeBytes(len(sample))))
	g.Message = uint32(len(b.Body))
	b.Body = append(b.Body, set...)
	g.Key = ingester.Span{Start: g.Message, End: uint32(len(b.Body))}
	b.Body = protowire.AppendTag(b.Body, sampleField, protowire.BytesType)
	b.Body = protowire.AppendBytes(b.Body, sample)
	g.Field.End = uint32(len(b.Body))
	b.Groups = append(b.Groups, g)
}

func (w *Writer) sorted(name string, m *dto.Metric, extra, extraValue string) []pair {
	w.labels = append(w.labels[:0], pair{"__name__", name})
	for _, l := range m.GetLabel() {
		if _, ours := w.Labels[l.GetName()]; !ours && l.GetName() != w.exempt.Label && l.GetValue() != "" {
			w.labels = append(w.labels, pair{l.GetName(), l.GetValue()})
		}
	}
	for n, v := range w.Labels {
		if n != w.exempt.Label {
			w.labels = append(w.labels, pair{n, v})
		}
	}
	w.labels = append(w.labels, pair{w.exempt.Label, w.exempt.Value})
	if extra != "" {
		w.labels = append(w.labels, pair{extra, extraValue})
	}
	sort.Slice(w.labels, func(i, j int) bool { return w.labels[i].name < w.labels[j].name })
	return w.labels
}
