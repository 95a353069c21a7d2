package ingester

import (
	"net/http"
	"time"
)

// Stream is one of the five kinds of telemetry. Each has its own policy, rules
// and sink.
type Stream uint8

// The streams, in the order in which they are shown.
const (
	Metrics Stream = iota
	Logs
	Traces
	Events
	RUM
	streamCount
)

var streamNames = [streamCount]string{"metrics", "logs", "traces", "events", "rum"}

// String returns the stream's name as configuration and metrics write it.
func (s Stream) String() string { return streamNames[s] }

// Streams lists every stream.
func Streams() []Stream { return []Stream{Metrics, Logs, Traces, Events, RUM} }

// ParseStream finds a stream by its name.
func ParseStream(name string) (Stream, bool) {
	for i, n := range streamNames {
		if n == name {
			return Stream(i), true
		}
	}
	return 0, false
}

// Format names the messages in a batch's body.
type Format uint8

const (
	// RemoteWrite1 is prometheus.WriteRequest of remote write 1.0.
	RemoteWrite1 Format = iota + 1
	// RemoteWrite2 is io.prometheus.write.v2.Request of remote write 2.0.
	RemoteWrite2
	// OTLPMetrics is opentelemetry.proto.collector.metrics.v1.ExportMetricsServiceRequest.
	OTLPMetrics
	// OTLPLogs is ExportLogsServiceRequest. Logs, events and RUM events travel as it,
	// whatever protocol they came by.
	OTLPLogs
	// OTLPTraces is ExportTraceServiceRequest.
	OTLPTraces
)

// Span is a range of bytes in a batch's Body.
type Span struct{ Start, End uint32 }

// Batch is one request being processed. A receiver fills it, the ingester
// decides on every group, a sink reads what was admitted. Its memory belongs to
// the receiver, which takes it back when Process has returned: a sink keeps no
// part of it.
type Batch struct {
	Stream Stream
	Format Format
	// Origin says who sent the batch, and under which rules it came in.
	Origin
	// Body is the decompressed message in its first Size bytes. Behind them
	// stand keys that did not lie in one piece in the message.
	Body []byte
	Size int
	// Packed is the message as it was received, compressed as Encoding says: a
	// snappy block where that is empty, else by the content encoding of HTTP that it
	// names. A batch of which nothing was dropped or changed may leave as these bytes.
	Packed   []byte
	Encoding string
	// Headers are what the sink may pass on with the batch: those of the request
	// that the configuration lists, and those that the API key sets. Read only.
	Headers http.Header
	// Symbols are the strings of a remote write 2.0 request, in order.
	Symbols []Span
	// Containers are the messages of an OTLP request around its groups, each before
	// what it holds, in the order of the request.
	Containers []Container
	// Groups are the series of the request, in its order; of an OTLP request its
	// data points, log records or spans.
	Groups []Group
	// Families are the MetricMetadata messages of a remote write 1.0 request,
	// without field headers. They cost nothing and are stored with the batch.
	Families []Span
	// Received is the one clock reading that the batch uses. It has to come
	// from time.Now, since the buckets go by its monotonic part.
	Received time.Time

	// Whole says that every group was admitted unchanged, so that Packed (or
	// Body) may be passed on as it is. Set by the ingester before a sink sees
	// the batch.
	Whole bool

	rejected      map[string]int64 // items by reason
	lostExemplars int64
}

// Container is a message of an OTLP request that holds groups or containers: a
// ResourceLogs, a ScopeSpans, a Metric, the Sum in it.
type Container struct {
	// Parent is the place in Containers of the message around it, -1 for the request.
	Parent int32
	// Field is the whole field: tag, length and message.
	Field Span
	// Message is where the message starts; it ends at Field.End.
	Message uint32
}

// Group is one time series in one write, one data point, log record or span, or all
// records of a request that is allowed as one. It is allowed or dropped as a whole.
type Group struct {
	// Field is the whole field in the request: tag, length and message. A group of
	// several records of OTLP is a run of whole fields, one after the other.
	Field Span
	// Parent is the place in Containers of the message directly around the group.
	Parent int32
	// Message is where the message starts; it ends at Field.End.
	Message uint32
	// Key is where in Body the series says what its labels are. In a 1.0
	// message that is the label set itself, `0a len (0a len name 12 len
	// value)` repeated; in a 2.0 message it is the content of labels_refs,
	// varints that refer to Symbols. For OTLP it is built behind the request, in the
	// encoding of 1.0: the labels that some rule or matcher can see, sorted by name.
	Key Span
	// Floats, Histograms and Exemplars count what the series holds. OTLP's data
	// points, log records and spans count as Floats.
	Floats, Histograms, Exemplars uint32
	// HasMetadata says that a 2.0 series carries its metadata.
	HasMetadata bool

	// Route is what the rules make of the label set.
	Route Route
	// Verdict is what became of the group.
	Verdict Verdict
	// Rejected counts the items that the sink found invalid although the
	// group was admitted (a sample out of order, say). See Batch.Reject.
	Rejected uint32

	reason Reason // why the verdict is Invalid
	class  int32  // id of the class that pays; see streamRules
}

// Invalidate gives the group the verdict Invalid before it is routed.
func (g *Group) Invalidate(why Reason) { g.Verdict, g.reason = Invalid, why }

func (g *Group) bytes() int64 { return int64(g.Field.End - g.Field.Start) }

// Items is what the group costs: a token for each sample and each native
// histogram.
func (g *Group) Items() int64 { return int64(g.Floats) + int64(g.Histograms) }

// Admitted says that the group goes to the sink.
func (g *Group) Admitted() bool { return g.Verdict <= Exempt }

// Verdict is the one outcome of a group before the sink.
type Verdict uint8

const (
	// Admitted by its class's bucket.
	Admitted Verdict = iota
	// Exempt telemetry is never limited.
	Exempt
	// DroppedRelabel was dropped by a relabel rule.
	DroppedRelabel
	// DroppedRatelimit did not fit into its class's bucket.
	DroppedRatelimit
	// Invalid cannot be stored: its labels break the rules of the protocol.
	Invalid
)

// Bytes returns the part of the body that s names.
func (b *Batch) Bytes(s Span) []byte { return b.Body[s.Start:s.End] }

// Message returns the group's TimeSeries message without its field header.
func (b *Batch) Message(g *Group) []byte { return b.Body[g.Message:g.Field.End] }

// Labels returns an admitted group's label set after relabelling, encoded as
// remote write 1.0 does, whatever the batch's format. For OTLP that are the labels
// which the rules can see; what they changed is the difference to Route.Sent. The bytes
// may be shared: they must not be written to, and not be kept.
func (b *Batch) Labels(g *Group) []byte { return g.Route.Labels() }

// Reject records that the sink refuses n items of an admitted group for good,
// for a reason in one word, such as out_of_order.
func (b *Batch) Reject(g *Group, n uint32, reason string) {
	g.Rejected += n
	if b.rejected == nil {
		b.rejected = make(map[string]int64)
	}
	b.rejected[reason] += int64(n)
}

// Rejections counts the items given to Reject, by reason. Read only.
func (b *Batch) Rejections() map[string]int64 { return b.rejected }

// LoseExemplars records that the sink did not keep n exemplars of admitted groups.
// They are no items: the sender hears the exact number that was written, and it is
// no reason for another answer, as with Prometheus' own receiver.
func (b *Batch) LoseExemplars(n int64) { b.lostExemplars += n }

// Reset empties the batch for the next request and keeps its memory.
func (b *Batch) Reset() {
	clear(b.Groups)
	*b = Batch{Body: b.Body[:0], Symbols: b.Symbols[:0], Groups: b.Groups[:0], Containers: b.Containers[:0], Families: b.Families[:0]}
}
