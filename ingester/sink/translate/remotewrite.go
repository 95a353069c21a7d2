package translate

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/storage/remote/otlptranslator/prometheusremotewrite"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// ToRemoteWrite gives OTLP metrics to a sink of remote write batches, as batches of
// remote write 2.0. It is safe for concurrent use.
type ToRemoteWrite struct {
	next     ingester.Sink
	settings prometheusremotewrite.Settings
	routes   routes
	encoders sync.Pool

	maxBuckets int
	partBytes  int
}

// Options say how OTLP metrics become series.
type Options struct {
	// Translation is what Prometheus has options for.
	Translation config.OTLPConfig
	// MaxBuckets is the most explicit bounds of a histogram's data point and the most
	// quantiles of a summary's: each becomes a series, and a data point with more is
	// rejected.
	MaxBuckets int
}

// ToRemoteWrite implements ingester.Sink.
var _ ingester.Sink = (*ToRemoteWrite)(nil)

// ReasonNotTranslatable is given to ingester.Batch.Reject: the translation makes no
// series of the data point.
const ReasonNotTranslatable = "not_translatable"

// NewToRemoteWrite makes a translation before next.
func NewToRemoteWrite(next ingester.Sink, options Options) *ToRemoteWrite {
	o := options.Translation
	t := &ToRemoteWrite{next: next, maxBuckets: options.MaxBuckets, partBytes: partBytes, settings: prometheusremotewrite.Settings{
		AddMetricSuffixes:                    o.TranslationStrategy.ShouldAddSuffixes(),
		AllowUTF8:                            !o.TranslationStrategy.ShouldEscape(),
		PromoteResourceAttributes:            prometheusremotewrite.NewPromoteResourceAttributes(o),
		KeepIdentifyingResourceAttributes:    o.KeepIdentifyingResourceAttributes,
		ConvertHistogramsToNHCB:              o.ConvertHistogramsToNHCB,
		PromoteScopeMetadata:                 o.PromoteScopeMetadata,
		LabelNameUnderscoreSanitization:      o.LabelNameUnderscoreSanitization,
		LabelNamePreserveMultipleUnderscores: o.LabelNamePreserveMultipleUnderscores,
		// Samples are not looked up again by the translation: five minutes is PromQL's
		// default, and decides how often target_info is repeated within one batch.
		LookbackDelta: lookback,
	}}
	t.encoders.New = func() any { return new(sink.Encoder) }
	return t
}

// Write implements ingester.Sink.
func (t *ToRemoteWrite) Write(ctx context.Context, b *ingester.Batch) error {
	if b.Format != ingester.OTLPMetrics {
		return t.next.Write(ctx, b)
	}
	md, taken, err := t.admitted(b)
	if err != nil {
		return &ingester.SinkError{Err: fmt.Errorf("translating OTLP metrics: %w", err)}
	}
	a := newAppender(b, taken.groups, parts{ctx: ctx, next: t.next, known: &t.routes, limit: t.partBytes})
	mark(md)
	// Its errors are about single data points, which make no series, or those of a
	// part that could not be written, which end tells.
	_, _ = prometheusremotewrite.NewPrometheusConverter(a).FromMetrics(ctx, md, t.settings)
	if err := a.end(); err != nil {
		return err
	}
	a.settle()
	for _, large := range taken.large {
		reject(b, large.group, large.reason)
	}
	return nil
}

// selection is what of a batch is translated: the groups, and those that are not since
// they are too large.
type selection struct {
	groups []int
	large  []largePoint
}

type largePoint struct {
	group  int
	reason string
}

// admitted decodes the admitted data points as they came, and lists their groups in
// the same order.
func (t *ToRemoteWrite) admitted(b *ingester.Batch) (pmetric.Metrics, selection, error) {
	raw := b.Body[:b.Size]
	var s selection
	for i := range b.Groups {
		if !b.Groups[i].Admitted() {
			continue
		}
		if reason := t.tooLarge(b, &b.Groups[i]); reason != "" {
			s.large = append(s.large, largePoint{i, reason})
			continue
		}
		s.groups = append(s.groups, i)
	}
	if len(s.groups) < len(b.Groups) {
		e := t.encoders.Get().(*sink.Encoder)
		defer t.encoders.Put(e)
		next := 0
		raw = e.Cut(b, func(i int) bool {
			// Groups are asked for in their order.
			for next < len(s.groups) && s.groups[next] < i {
				next++
			}
			return next < len(s.groups) && s.groups[next] == i
		})
	}
	md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(raw)
	return md, s, err
}

// marker is the attribute by which the series of a data point are recognised. Names
// that start with two underscores are kept by the translation.
const marker = "__spillway_data_point__"

// mark numbers the data points.
func mark(md pmetric.Metrics) {
	n := 0
	one := func(m pcommon.Map) {
		m.PutStr(marker, strconv.Itoa(n))
		n++
	}
	for _, rm := range md.ResourceMetrics().All() {
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				eachPoint(m, one)
			}
		}
	}
}

func eachPoint(m pmetric.Metric, yield func(pcommon.Map)) {
	switch m.Type() {
	case pmetric.MetricTypeGauge:
		for _, p := range m.Gauge().DataPoints().All() {
			yield(p.Attributes())
		}
	case pmetric.MetricTypeSum:
		for _, p := range m.Sum().DataPoints().All() {
			yield(p.Attributes())
		}
	case pmetric.MetricTypeHistogram:
		for _, p := range m.Histogram().DataPoints().All() {
			yield(p.Attributes())
		}
	case pmetric.MetricTypeExponentialHistogram:
		for _, p := range m.ExponentialHistogram().DataPoints().All() {
			yield(p.Attributes())
		}
	case pmetric.MetricTypeSummary:
		for _, p := range m.Summary().DataPoints().All() {
			yield(p.Attributes())
		}
	}
}

// appender collects the series that the translation makes.
type appender struct {
	from    *ingester.Batch
	groups  []int // of the data points, by their number
	symbols writev2.SymbolsTable
	builder *labels.Builder
	series  []series
	// made says which data points have a series.
	made  []bool
	body  []byte
	parts parts
}

// series is one series made, with one sample.
type series struct {
	point     int // -1: of a resource
	field     ingester.Span
	message   uint32
	key       ingester.Span
	labels    []byte
	histogram bool
	exemplars int
}

func newAppender(b *ingester.Batch, groups []int, p parts) *appender {
	p.reasons = make([]string, len(groups))
	return &appender{
		from: b, groups: groups, symbols: writev2.NewSymbolTable(), builder: labels.NewBuilder(labels.EmptyLabels()),
		made: make([]bool, len(groups)), parts: p,
	}
}

// Append implements storage.AppenderV2. What it is given is encoded at once, and
// written when it is much.
func (a *appender) Append(_ storage.SeriesRef, ls labels.Labels, st, at int64, v float64, h *histogram.Histogram, fh *histogram.FloatHistogram, o storage.AppendV2Options) (storage.SeriesRef, error) {
	if a.parts.failed != nil {
		return 0, a.parts.failed
	}
	point := -1
	if n, err := strconv.Atoi(ls.Get(marker)); err == nil && n < len(a.groups) {
		point = n
		a.made[n] = true
		ls = a.relabelled(ls, &a.from.Groups[a.groups[n]])
	}
	ts := writev2.TimeSeries{LabelsRefs: a.symbols.SymbolizeLabels(ls, nil)}
	switch {
	case fh != nil:
		ts.Histograms = []writev2.Histogram{writev2.FromFloatHistogram(st, at, fh)}
	case h != nil:
		ts.Histograms = []writev2.Histogram{writev2.FromIntHistogram(st, at, h)}
	default:
		ts.Samples = []writev2.Sample{{Value: v, Timestamp: at, StartTimestamp: st}}
	}
	for _, e := range o.Exemplars {
		ts.Exemplars = append(ts.Exemplars, writev2.Exemplar{LabelsRefs: a.symbols.SymbolizeLabels(e.Labels, nil), Value: e.Value, Timestamp: e.Ts})
	}
	ts.Metadata = writev2.Metadata{
		Type: writev2.FromMetadataType(o.Metadata.Type), HelpRef: a.symbols.Symbolize(o.Metadata.Help), UnitRef: a.symbols.Symbolize(o.Metadata.Unit),
	}
	return 0, a.add(&ts, series{point: point, labels: ingester.AppendLabels(nil, ls), histogram: h != nil || fh != nil, exemplars: len(ts.Exemplars)})
}

// Commit implements storage.AppenderV2.
func (a *appender) Commit() error { return nil }

// Rollback implements storage.AppenderV2.
func (a *appender) Rollback() error { return nil }

// relabelled does to a series what the rules did to the labels of its data point.
func (a *appender) relabelled(ls labels.Labels, g *ingester.Group) labels.Labels {
	a.builder.Reset(ls)
	a.builder.Del(marker)
	if !g.Route.Changed() {
		return a.builder.Labels()
	}
	sent, now := readLabels(g.Route.Sent()), readLabels(g.Route.Labels())
	sent.Range(func(l labels.Label) {
		if !now.Has(l.Name) {
			a.builder.Del(l.Name)
		}
	})
	now.Range(func(l labels.Label) {
		switch old := sent.Get(l.Name); {
		case old == l.Value:
		case l.Name == model.MetricNameLabel:
			suffix, ok := strings.CutPrefix(ls.Get(l.Name), old)
			if !ok {
				suffix = ""
			}
			a.builder.Set(l.Name, l.Value+suffix)
		default:
			a.builder.Set(l.Name, l.Value)
		}
	})
	return a.builder.Labels()
}

// readLabels reads a label set in the encoding of ingester.Group.Key.
func readLabels(set []byte) labels.Labels {
	b := labels.NewScratchBuilder(8)
	for len(set) > 0 {
		name, value, rest := sink.CutLabel(set)
		if name == nil {
			break
		}
		b.Add(string(name), string(value))
		set = rest
	}
	b.Sort()
	return b.Labels()
}

// add encodes a series behind the others.
func (a *appender) add(ts *writev2.TimeSeries, s series) error {
	message, err := ts.Marshal()
	if err != nil {
		return err
	}
	s.field.Start = uint32(len(a.body))
	a.body = protowire.AppendBytes(protowire.AppendTag(a.body, requestSeries, protowire.BytesType), message)
	s.field.End = uint32(len(a.body))
	s.message = s.field.End - uint32(len(message))
	// The references come first, packed.
	refs, n := protowire.ConsumeBytes(message[1:])
	s.key = ingester.Span{Start: s.message + 1 + uint32(n-len(refs)), End: s.message + 1 + uint32(n)}
	a.series = append(a.series, s)
	// A message is there twice when the part is put together.
	if a.parts.built += 2*len(message) + len(s.labels) + seriesBytes; a.parts.built >= a.parts.limit {
		return a.flush()
	}
	return nil
}

// Field numbers of io.prometheus.write.v2.Request.
const (
	requestSymbols = 4
	requestSeries  = 5
)

// batch makes a batch of the series: the symbols, then the series.
func (a *appender) batch(known *routes) *ingester.Batch {
	out := &ingester.Batch{
		Stream: a.from.Stream, Format: ingester.RemoteWrite2, Origin: a.from.Origin, Headers: a.from.Headers, Received: a.from.Received, Whole: true,
	}
	var body []byte
	for _, s := range a.symbols.Symbols() {
		body = protowire.AppendString(protowire.AppendTag(body, requestSymbols, protowire.BytesType), s)
		out.Symbols = append(out.Symbols, ingester.Span{Start: uint32(len(body) - len(s)), End: uint32(len(body))})
	}
	shift := uint32(len(body))
	out.Body = append(body, a.body...)
	out.Size = len(out.Body)
	for i := range a.series {
		s := &a.series[i]
		g := ingester.Group{
			Field: moved(s.field, shift), Message: s.message + shift, Key: moved(s.key, shift),
			Exemplars: uint32(s.exemplars), HasMetadata: true, Route: known.of(s.labels),
		}
		if s.histogram {
			g.Histograms = 1
		} else {
			g.Floats = 1
		}
		out.Groups = append(out.Groups, g)
	}
	return out
}

func moved(s ingester.Span, by uint32) ingester.Span {
	return ingester.Span{Start: s.Start + by, End: s.End + by}
}

// reject rejects a group of one item once.
func reject(b *ingester.Batch, group int, reason string) {
	if g := &b.Groups[group]; int64(g.Rejected) < g.Items() {
		b.Reject(g, uint32(g.Items())-g.Rejected, reason)
	}
}

// mainReason is the reason for which most items of a batch were rejected.
func mainReason(b *ingester.Batch) (reason string) {
	most := int64(0)
	for name, n := range b.Rejections() {
		if n > most || n == most && name < reason {
			reason, most = name, n
		}
	}
	return reason
}
