// Package remotewrite is the sink that forwards a batch to another remote write
// receiver and waits for its answer.
//
// One batch in, one request out:
//
//	Write(batch) = encode -> pick an endpoint -> POST -> read the answer
//	                              ^                          |
//	                              '-- the next endpoint, if this one failed
//
// # Encoding
//
// The admitted groups of a batch become one message, in one pass over them. What
// did not change is copied as it came: neighbours that both stay leave in one
// copy, and a batch of which nothing was dropped or changed leaves as the very
// bytes that were received, still compressed. For 2.0 the table of symbols is
// the sender's, with the strings that a rule added behind it, so that every
// reference of an unchanged series stays true.
//
// The destination may speak the other version than the sender. What the two
// versions have in common arrives unchanged, to the bit. What they do not:
//
//	1.0 -> 2.0  Metadata of a family goes to the series of that family in the same
//	            request, found by name (family, or family plus the suffix that its
//	            type allows). A family without a series in the request is not sent:
//	            2.0 has no place for it. A series with samples and histograms
//	            becomes two, since 2.0 forbids the mixture.
//	2.0 -> 1.0  Start timestamps are not sent: 1.0 has no field for them. Metadata
//	            becomes one entry per family, named after the first of its series,
//	            without _bucket, _sum, _count and their like where the type calls
//	            for it; counters keep _total, as the text format names them.
//	            Histograms with custom buckets are refused for good, with the
//	            reason destination_unsupported, as Prometheus refuses to send them:
//	            the 1.0 message does not define them, and a receiver that does not
//	            know them refuses the whole request.
//
// Parts that are not sent and cost no token are counted in
// spillway_sink_unsent_parts_total.
//
// # Delivery
//
// Endpoints share the load and stand in for each other as package sink says. A batch
// that one of them failed to take goes to the next in the same Write. That is
// harmless even where the first one stored it before it failed: a sample is named
// by its series and timestamp, and storing the same one twice is storing it once.
//
// # Answers
//
//	2xx                     stored. A 2.0 receiver counts what it wrote; the rest is
//	                        refused for good.
//	400 with 2.0 counts     what was counted is stored, the rest refused for good
//	401 403 404 405 407 415 our configuration is wrong, not the sender's data: the
//	3xx                     sender keeps the batch; the next endpoint is tried
//	429                     the sender waits as long as the destination asks; other
//	                        endpoints are not asked, since they share the limit
//	5xx 408 425, no answer  the next endpoint; when none is left the sender waits
//	other 4xx               final: sending the batch again cannot help
//
// The protocols are https://prometheus.io/docs/specs/prw/remote_write_spec/ and
// https://prometheus.io/docs/specs/prw/remote_write_spec_2_0/.
package remotewrite
