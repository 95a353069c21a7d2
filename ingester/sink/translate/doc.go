// Package translate stands before a sink that understands metrics in another form
// than they came in, and gives it the same metrics in its own.
//
//	OTLP          -> ToRemoteWrite -> tsdb, remote_write
//	remote write  -> ToOTLP        -> otlp, kafka, file
//
// Batches that need no translation pass. What the sink rejects is told as items of the
// batch that came in.
//
// # OTLP to remote write
//
// Prometheus' own translation, the one behind its OTLP endpoint, makes the series, so
// they are the same that a Prometheus would store: _bucket, _sum and _count of a
// histogram, one native histogram of an exponential one, target_info of a resource. It
// sees the admitted data points as they came. What the rules changed is then done to
// the labels of every series of the data point; a new __name__ takes the place of the
// old one in front of _bucket and its like. A data point of which a series is rejected
// counts as rejected, though others of it are stored. One that the translation does not
// know what to make of (delta temporality, say) is rejected as not_translatable.
//
// One token pays for a data point, whatever becomes of it. So a classic histogram with
// more explicit bounds, or a summary with more quantiles, than Options.MaxBuckets is
// rejected as too_many_buckets or too_many_quantiles before it is decoded. Series
// repeat the labels of their resource, so what is built of a small request may be
// large: about 8 MiB of series are built at a time, written, and then the next. A
// request of several such parts is written in several writes. When one of them fails,
// the sender repeats the whole request, and what is stored already is stored again with
// the same values and times. A part that the destination calls invalid is rejected as
// destination_rejected, and the others are stored.
//
// # Remote write to OTLP
//
//	__name__             the metric's name; the name is kept as it is
//	job                  service.name of the resource; with a slash, what is before the
//	                     first one is service.namespace
//	instance             service.instance.id of the resource
//	other labels         attributes of the data point
//	sample               a monotonic cumulative sum where the name ends in _total, else a
//	                     gauge: what receivers append to names by type (_total to other
//	                     sums) would change them. Classic histograms and summaries stay
//	                     the gauges that their series are.
//	stale marker         a data point with the flag for no recorded value
//	native histogram     an exponential histogram; one with custom buckets a histogram
//	start timestamp      start time
//	exemplar             an exemplar of the series' first data point; trace_id and span_id
//	                     become its ids
//
// Metric metadata (type, help, unit) is not sent: names carry what receivers need, and
// remote write 1.0 has it apart from its series. Histograms with counts that are no
// whole numbers, which OTLP cannot hold, are rejected as destination_unsupported.
package translate
