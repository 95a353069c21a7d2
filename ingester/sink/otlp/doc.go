// Package otlp is the sink that sends a batch to an OTLP receiver, over HTTP or gRPC,
// and waits for its answer.
//
//	Write(batch) = encode -> compress -> POST to one endpoint after the other -> read the answer
//
// A batch of which nothing was dropped or changed leaves as the very bytes it came in,
// still compressed, where the destination takes their encoding. Endpoints, their
// health and the encoding are those of package sink.
//
// gRPC is spoken by hand over the same HTTP client: a call without streams is a POST
// over HTTP/2 with five bytes before the message and the status in the trailers. So
// both protocols share connections' limits, TLS files that are read again, and
// credentials, and a message that is compressed already need not be compressed again.
//
// # Answers
//
//	HTTP                   gRPC                          what it means
//	200                    OK                            stored; partial_success says how many
//	                                                     items the receiver refuses for good
//	429                    RESOURCE_EXHAUSTED            the sender waits as long as the receiver
//	                                                     asks (Retry-After, RetryInfo)
//	401 403 404 405 415    UNAUTHENTICATED               our configuration is wrong, not the data:
//	                       PERMISSION_DENIED             the next endpoint is tried
//	                       UNIMPLEMENTED NOT_FOUND
//	5xx 408, no answer     all others                    the next endpoint; when none is left the
//	                                                     sender waits
//	other 4xx              INVALID_ARGUMENT, or a        final: sending the batch again cannot help
//	                       message that is too large
//
// A success whose response cannot be read (cut off, a page of some proxy) counts as all
// stored, as OTLP says of 2xx and OK, and the log says so, at most every 30 seconds for
// an endpoint: sending again could store everything twice. An empty response is a
// success, and one in JSON is read.
//
// OTLP calls more codes final (500, INTERNAL). They are retried here, since they speak
// of the receiver, and a batch thrown away does not come back.
//
// A write that is tried again at another endpoint, or by its sender, may store items
// twice: OTLP has no way to recognise them.
//
// The protocol is https://opentelemetry.io/docs/specs/otlp/.
package otlp
