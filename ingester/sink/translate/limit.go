package translate

import (
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Given to ingester.Batch.Reject: the data point would become more series than
// Options.MaxBuckets allows. One token has paid for all of them.
const (
	ReasonTooManyBuckets   = "too_many_buckets"
	ReasonTooManyQuantiles = "too_many_quantiles"
)

// DefaultMaxBuckets is far above what histograms have: 15 bounds by default in
// OpenTelemetry's SDKs, 11 in Prometheus' libraries, some hundreds where people chose
// them finely.
const DefaultMaxBuckets = 1000

// Field numbers of Metric, HistogramDataPoint and SummaryDataPoint.
const (
	metricHistogram   = 9
	metricSummary     = 11
	explicitBounds    = 7
	quantileValues    = 6
	boundBytes        = 8 // an explicit bound is a double
	leastQuantileSize = 2 // the tag and length of an empty message
)

// tooLarge says why a data point is not translated, "" if it is. It reads the bytes,
// since decoding alone would make each of them larger.
func (t *ToRemoteWrite) tooLarge(b *ingester.Batch, g *ingester.Group) (reason string) {
	if len(b.Message(g)) <= leastQuantileSize*t.maxBuckets || int(g.Parent) >= len(b.Containers) || g.Parent < 0 {
		return ""
	}
	kind, _, _ := protowire.ConsumeTag(b.Bytes(b.Containers[g.Parent].Field))
	switch {
	case kind == metricHistogram && !t.settings.ConvertHistogramsToNHCB && countBounds(b.Message(g)) > t.maxBuckets:
		return ReasonTooManyBuckets
	case kind == metricSummary && countQuantiles(b.Message(g)) > t.maxBuckets:
		return ReasonTooManyQuantiles
	}
	return ""
}

// countBounds counts the explicit bounds of a HistogramDataPoint, packed or not.
func countBounds(point []byte) (n int) {
	eachField(point, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num != explicitBounds {
			return
		}
		if typ == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(value)
		}
		n += len(value) / boundBytes
	})
	return n
}

// countQuantiles counts the quantiles of a SummaryDataPoint.
func countQuantiles(point []byte) (n int) {
	eachField(point, func(num protowire.Number, _ protowire.Type, _ []byte) {
		if num == quantileValues {
			n++
		}
	})
	return n
}

// eachField calls yield for every field of a message up to the first that cannot be
// read.
func eachField(message []byte, yield func(num protowire.Number, typ protowire.Type, value []byte)) {
	for len(message) > 0 {
		num, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return
		}
		n := protowire.ConsumeFieldValue(num, typ, message[tag:])
		if n < 0 {
			return
		}
		yield(num, typ, message[tag:tag+n])
		message = message[tag+n:]
	}
}
