package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester/sink/file"
	"github.com/spillway-telemetry/spillway/ingester/sink/kafka"
	"github.com/spillway-telemetry/spillway/ingester/sink/otlp"
	"github.com/spillway-telemetry/spillway/ingester/sink/remotewrite"
	"github.com/spillway-telemetry/spillway/ingester/sink/tsdb"
)

// Config is the whole configuration file. A field's comment is its entry in
// CONFIG.md, which a test makes; its default is what defaultConfig sets.
type Config struct {
	// Where requests come in, and how large they may be. Needs a restart.
	Server   ServerConfig   `yaml:"server"`
	Ingester IngesterConfig `yaml:"ingester"`
	// The policy. Empty: nothing is limited. A relative path starts at the
	// configuration file's folder.
	PolicyFile string `yaml:"policy_file"`
	// The API keys that may send. Empty: everybody may.
	APIKeysFile string `yaml:"api_keys_file"`
	// Telemetry that is never limited.
	Exempt ExemptConfig `yaml:"exempt"`
	// Spillway's own metrics, written through its own pipeline.
	Telemetry TelemetryConfig `yaml:"telemetry"`
	// How OTLP becomes labels. Needs a restart.
	OTLP OTLPConfig `yaml:"otlp"`
	// Who may send from browsers. Needs a restart.
	RUM RUMConfig `yaml:"rum"`
	// The capacity governor: how many batches are processed at once, and whose. Needs
	// a restart.
	Governor GovernorConfig `yaml:"governor"`
	// Destinations by name. Where a stream names none, metrics go to an embedded TSDB in
	// ./data/metrics, the others to files in ./data/files. Needs a restart.
	Sinks map[string]SinkConfig `yaml:"sinks"`
	// What each of metrics, logs, traces, events and rum does.
	Streams map[string]StreamConfig `yaml:"streams"`
	Log     LogConfig               `yaml:"log"`
}

// ServerConfig says where requests come in.
type ServerConfig struct {
	// Address of the one port that serves everything.
	HTTPListenAddress string `yaml:"http_listen_address"`
	// Address for OTLP over gRPC. Empty: none. If it is the default one and another
	// program has it, a warning says so and the program starts without.
	OTLPGRPCListenAddress string `yaml:"otlp_grpc_listen_address"`
	// Address for OTLP over HTTP, which http_listen_address serves, too. Empty: none.
	// Like otlp_grpc_listen_address if it is taken.
	OTLPHTTPListenAddress string `yaml:"otlp_http_listen_address"`
	// Largest request body as it is sent. Larger ones are answered 413.
	MaxBodyBytes ByteSize `yaml:"max_body_bytes"`
	// Largest request body when decompressed. Larger ones are answered 413.
	MaxDecodedBytes ByteSize `yaml:"max_decoded_bytes"`
	// Bytes of requests that may be in memory at once, compressed and
	// decompressed. What does not fit is refused and sent again; a request that needs
	// more than this alone is answered 413. OTLP as JSON takes 8 times its size.
	MaxRequestBytes ByteSize `yaml:"max_request_bytes"`
	// Memory that the whole process is to stay below; the garbage collector works
	// harder as it comes close. 0: max_request_bytes, route_cache_bytes for each
	// stream that receives anything, and 96MiB for the program and its connections;
	// none where an embedded TSDB, whose memory grows with its series, is a sink. Never
	// more than nine tenths of what the container may have. The environment variable
	// GOMEMLIMIT wins.
	MemoryLimit ByteSize `yaml:"memory_limit"`
	// Series in one request. More are answered 413.
	MaxSeriesPerRequest int `yaml:"max_series_per_request"`
	// Samples, histograms and exemplars in one request; data points, log records or
	// spans of OTLP; lines, documents or events of all others, those that cannot be read
	// as well. More are answered 413.
	MaxItemsPerRequest int `yaml:"max_items_per_request"`
	// Request headers that sinks may pass on, such as X-Scope-OrgID.
	ForwardHeaders []string `yaml:"forward_headers"`
	// How long a sender may take to send a request.
	ReadTimeout time.Duration `yaml:"read_timeout"`
	// How long a connection may stay open without a request.
	IdleTimeout time.Duration `yaml:"idle_timeout"`
	// How long requests in flight may take to finish when the program stops.
	ShutdownTimeout time.Duration `yaml:"shutdown_timeout"`
	// TLS on all ports; off while cert_file is empty.
	TLS TLSConfig `yaml:"tls"`
}

// TLSConfig is the server's certificate.
type TLSConfig struct {
	// Certificate chain, PEM.
	CertFile string `yaml:"cert_file"`
	// Private key, PEM.
	KeyFile string `yaml:"key_file"`
	// Authorities that client certificates must come from, PEM. Empty: no client
	// certificate is asked for.
	ClientCAFile string `yaml:"client_ca_file"`
}

// IngesterConfig is the ingester's own part.
type IngesterConfig struct {
	// N, the number of ingesters that every policy is divided by. Read at start.
	ReplicaCount int `yaml:"replica_count"`
	// Memory for remembered routes, for each stream that receives anything.
	// About 400 bytes a series of 12 labels, and 100 more where it comes by remote
	// write 2.0.
	RouteCacheBytes ByteSize `yaml:"route_cache_bytes"`
	// Bounds of one series. A series beyond one is invalid; its neighbours are
	// stored.
	Limits LimitsConfig `yaml:"limits"`
}

// LimitsConfig bounds label sets.
type LimitsConfig struct {
	// Labels of one series.
	LabelNames int `yaml:"label_names"`
	// Bytes of a label name.
	LabelNameBytes ByteSize `yaml:"label_name_bytes"`
	// Bytes of a label value.
	LabelValueBytes ByteSize `yaml:"label_value_bytes"`
	// Bytes of all labels of a series, encoded.
	LabelSetBytes ByteSize `yaml:"label_set_bytes"`
}

// ExemptConfig says what is never limited.
type ExemptConfig struct {
	// Name of the label that marks exempt telemetry.
	Label string `yaml:"label"`
	// Its value.
	Value string `yaml:"value"`
	// Let every sender use the label. Otherwise, once API keys are configured,
	// only keys with exempt: true may; on other data it means nothing.
	AnySender bool `yaml:"any_sender"`
}

// TelemetryConfig is about Spillway's own metrics.
type TelemetryConfig struct {
	// How often they are written. 0 switches it off.
	Interval time.Duration `yaml:"interval"`
	// Labels to put on them, beside the exempt one, job=spillway and instance.
	Labels map[string]string `yaml:"labels"`
}

// GovernorConfig bounds how many batches are processed at once.
type GovernorConfig struct {
	governor.Config `yaml:",inline"`

	// What remote write is answered for want of capacity: 503, or 429 for senders
	// that retry on it. Prometheus throws a batch away on 429 unless
	// retry_on_http_429 is set.
	ShedStatus int `yaml:"shed_status"`
}

// LogConfig is about the program's own log on standard error.
type LogConfig struct {
	// debug, info, warn or error.
	Level string `yaml:"level"`
	// logfmt or json.
	Format string `yaml:"format"`
}

// SinkConfig is one destination; exactly one of the fields is set.
type SinkConfig struct {
	TSDB        *tsdb.Options        `yaml:"tsdb"`
	RemoteWrite *remotewrite.Options `yaml:"remote_write"`
	OTLP        *otlp.Options        `yaml:"otlp"`
	Kafka       *kafka.Options       `yaml:"kafka"`
	File        *file.Options        `yaml:"file"`
	Discard     *struct{}            `yaml:"discard"`
}

// StreamConfig is what one stream does.
type StreamConfig struct {
	// Name of the sink.
	Sink string `yaml:"sink"`
	// Prometheus relabel rules, applied before anything else.
	RelabelConfigs yaml.Node `yaml:"relabel_configs"`
	// silent: remote write 2.0 is answered as if nothing had been dropped.
	// Otherwise it hears 400 with exact counts.
	RateLimitResponse string `yaml:"rate_limit_response"`
}

func defaultConfig() Config {
	return Config{
		Server: ServerConfig{
			HTTPListenAddress:     "127.0.0.1:9900",
			OTLPGRPCListenAddress: "127.0.0.1:4317",
			OTLPHTTPListenAddress: "127.0.0.1:4318",
			MaxBodyBytes:          16 << 20,
			MaxDecodedBytes:       64 << 20,
			MaxRequestBytes:       256 << 20,
			MaxSeriesPerRequest:   500_000,
			MaxItemsPerRequest:    2_000_000,
			ReadTimeout:           30 * time.Second,
			IdleTimeout:           5 * time.Minute,
			ShutdownTimeout:       30 * time.Second,
		},
		Ingester: IngesterConfig{
			ReplicaCount:    1,
			RouteCacheBytes: 512 << 20,
			Limits:          LimitsConfig{LabelNames: 128, LabelNameBytes: 1 << 10, LabelValueBytes: 16 << 10, LabelSetBytes: 32 << 10},
		},
		Exempt:    ExemptConfig{Label: "kfuse", Value: "true"},
		Telemetry: TelemetryConfig{Interval: 15 * time.Second},
		OTLP:      defaultOTLPConfig(),
		Governor:  GovernorConfig{Config: governor.Defaults(), ShedStatus: 503},
		Log:       LogConfig{Level: "info", Format: "logfmt"},
	}
}

// The embedded sinks where none is configured: of metrics, and of the other streams.
const (
	defaultSink     = "embedded"
	defaultFileSink = "embedded_files"
)

// ByteSize is a number of bytes, written as 1048576, 1MiB or 1MB.
type ByteSize int64

// UnmarshalYAML reads a size with or without a unit.
func (b *ByteSize) UnmarshalYAML(node *yaml.Node) error {
	text := strings.TrimSpace(node.Value)
	units := []struct {
		suffix string
		factor int64
	}{
		{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40},
		{"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"B", 1}, {"", 1},
	}
	for _, u := range units {
		digits, ok := strings.CutSuffix(text, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(digits), 10, 64)
		if err != nil || n < 0 || n > 1<<50/u.factor {
			break
		}
		*b = ByteSize(n * u.factor)
		return nil
	}
	// An error of another type would end the reading of the file.
	return &yaml.TypeError{Errors: []string{fmt.Sprintf("line %d: %q is not a size: write a whole number of bytes, or one with KiB, MiB or GiB", node.Line, node.Value)}}
}

// MarshalYAML writes the size with the largest unit that leaves it whole.
func (b ByteSize) MarshalYAML() (any, error) { return b.String(), nil }

func (b ByteSize) String() string {
	for _, u := range []struct {
		suffix string
		factor ByteSize
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if b >= u.factor && b%u.factor == 0 {
			return fmt.Sprintf("%d%s", b/u.factor, u.suffix)
		}
	}
	return strconv.FormatInt(int64(b), 10)
}

// UnmarshalYAML reads a sink's options on top of their defaults. It has the form
// of yaml.v2, since with that of v3 unknown options would not be refused.
func (s *SinkConfig) UnmarshalYAML(unmarshal func(any) error) error {
	var set map[string]yaml.Node
	if err := unmarshal(&set); err != nil {
		return err
	}
	type sinkConfigFields SinkConfig
	db, rw, ot, kf, fl := tsdb.DefaultOptions(""), remotewrite.DefaultOptions(), otlp.DefaultOptions(), kafka.DefaultOptions(), file.DefaultOptions("")
	p := sinkConfigFields{TSDB: &db, RemoteWrite: &rw, OTLP: &ot, Kafka: &kf, File: &fl}
	err := unmarshal(&p) // beside a wrong field, the others are read
	if _, ok := set["tsdb"]; !ok {
		p.TSDB = nil
	}
	if _, ok := set["remote_write"]; !ok {
		p.RemoteWrite = nil
	}
	if _, ok := set["otlp"]; !ok {
		p.OTLP = nil
	}
	if _, ok := set["kafka"]; !ok {
		p.Kafka = nil
	}
	if _, ok := set["file"]; !ok {
		p.File = nil
	}
	*s = SinkConfig(p)
	return err
}

// kinds lists the destinations that a sink's configuration sets.
func (s SinkConfig) kinds() []string {
	var kinds []string
	if s.TSDB != nil {
		kinds = append(kinds, "tsdb")
	}
	if s.RemoteWrite != nil {
		kinds = append(kinds, "remote_write")
	}
	if s.OTLP != nil {
		kinds = append(kinds, "otlp")
	}
	if s.Kafka != nil {
		kinds = append(kinds, "kafka")
	}
	if s.File != nil {
		kinds = append(kinds, "file")
	}
	if s.Discard != nil {
		kinds = append(kinds, "discard")
	}
	return kinds
}

func (s SinkConfig) validate() error {
	switch {
	case s.TSDB != nil:
		return s.TSDB.Validate()
	case s.RemoteWrite != nil:
		return s.RemoteWrite.Validate()
	case s.OTLP != nil:
		return s.OTLP.Validate()
	case s.Kafka != nil:
		return s.Kafka.Validate()
	case s.File != nil:
		return s.File.Validate()
	}
	return nil
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
