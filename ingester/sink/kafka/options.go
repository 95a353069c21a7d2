package kafka

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/sasl"
	"github.com/segmentio/kafka-go/sasl/plain"
	"github.com/segmentio/kafka-go/sasl/scram"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Options is the configuration of one sink of this kind:
//
//	kafka:
//	  brokers: [kafka-1:9093, kafka-2:9093]
//	  topics: {logs: telemetry.logs}
//	  create_topics: {partitions: 24, replication_factor: 3}
//	  tls_config: {ca_file: /etc/spillway/ca.pem}
//	  sasl: {mechanism: scram-sha-512, username: spillway, password_file: /etc/spillway/password}
//
// Decode it strictly over DefaultOptions, and call Validate.
type Options struct {
	// Brokers are some brokers of the cluster, as host:port; the others are found
	// through them. At least one. No default.
	Brokers []string `yaml:"brokers"`
	// Topics are the topics by stream. Default: otlp_metrics, otlp_logs, otlp_spans,
	// otlp_events and otlp_rum; the first three are the Collector's.
	Topics map[string]string `yaml:"topics"`
	// CreateTopics makes topics that are missing at the start with so many partitions
	// and replicas. partitions: 0 makes none: a missing topic ends the start.
	// replication_factor: -1 is the cluster's own. Default: 12 partitions, -1.
	CreateTopics CreateTopics `yaml:"create_topics"`
	// Compression is what messages are compressed with: zstd, lz4, snappy, gzip or
	// none. Default: zstd.
	Compression string `yaml:"compression"`
	// MaxMessageBytes is how large a message may be, uncompressed. It must not be
	// above the topics' max.message.bytes. What is larger is split; an item that is
	// larger alone is rejected. Default: 1000000, a little below Kafka's 1048588.
	MaxMessageBytes int `yaml:"max_message_bytes"`
	// Timeout is how long a batch may take until all in-sync replicas have it, tries
	// included, as a Prometheus duration. Keep it below the senders' own. Default:
	// 10s.
	Timeout model.Duration `yaml:"timeout"`
	// MaxConnectionsPerBroker is the most connections from this ingester to one broker,
	// beside one for metadata. Default: 32.
	MaxConnectionsPerBroker int `yaml:"max_connections_per_broker"`
	// TLSConfig switches TLS on, with the fields that Prometheus has for it: ca_file,
	// cert_file, key_file, server_name, insecure_skip_verify, min_version, max_version.
	// Default: no TLS.
	TLSConfig *config.TLSConfig `yaml:"tls_config,omitempty"`
	// SASL authenticates: mechanism (plain, scram-sha-256 or scram-sha-512), username,
	// and password or password_file. Default: none.
	SASL *SASL `yaml:"sasl,omitempty"`
}

// CreateTopics says how missing topics are made.
type CreateTopics struct {
	Partitions        int `yaml:"partitions"`
	ReplicationFactor int `yaml:"replication_factor"`
}

// SASL are the credentials of the connections.
type SASL struct {
	Mechanism    string        `yaml:"mechanism"`
	Username     string        `yaml:"username"`
	Password     config.Secret `yaml:"password,omitempty"`
	PasswordFile string        `yaml:"password_file,omitempty"`
}

// DefaultOptions are the options of which nothing was set.
func DefaultOptions() Options {
	return Options{
		Topics: map[string]string{
			"metrics": "otlp_metrics", "logs": "otlp_logs", "traces": "otlp_spans", "events": "otlp_events", "rum": "otlp_rum",
		},
		CreateTopics:            CreateTopics{Partitions: 12, ReplicationFactor: -1},
		Compression:             "zstd",
		MaxMessageBytes:         1_000_000,
		Timeout:                 model.Duration(10 * time.Second),
		MaxConnectionsPerBroker: 32,
	}
}

// SetDirectory makes the relative names of files relative to dir, the directory
// of the configuration file.
func (o *Options) SetDirectory(dir string) {
	if o.TLSConfig != nil {
		o.TLSConfig.SetDirectory(dir)
	}
	if o.SASL != nil {
		o.SASL.PasswordFile = config.JoinDir(dir, o.SASL.PasswordFile)
	}
}

// Validate reports every problem of the options, each with the field as the user
// wrote it. It changes nothing.
func (o *Options) Validate() error {
	var errs []error
	problem := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(o.Brokers) == 0 {
		problem("brokers is empty: name at least one, such as kafka-1:9092")
	}
	for i, b := range o.Brokers {
		if _, port, err := net.SplitHostPort(b); err != nil || port == "" {
			problem("brokers[%d] is %q: it must be host:port", i, b)
		}
	}
	errs = append(errs, o.topicErrors()...)
	if o.CreateTopics.Partitions < 0 {
		problem("create_topics.partitions is %d: it must be 0, for none, or more", o.CreateTopics.Partitions)
	}
	if f := o.CreateTopics.ReplicationFactor; f < 1 && f != -1 {
		problem("create_topics.replication_factor is %d: it must be at least 1, or -1 for the cluster's own", f)
	}
	if _, ok := o.compression(); !ok {
		problem("compression is %q: it must be zstd, lz4, snappy, gzip or none", o.Compression)
	}
	if o.MaxMessageBytes < 1<<10 {
		problem("max_message_bytes is %d: it must be at least 1024", o.MaxMessageBytes)
	}
	if o.Timeout <= 0 {
		problem("timeout is %s: it must be above 0", o.Timeout)
	}
	if o.MaxConnectionsPerBroker < 1 {
		problem("max_connections_per_broker is %d: it must be at least 1", o.MaxConnectionsPerBroker)
	}
	if o.TLSConfig != nil {
		if err := o.TLSConfig.Validate(); err != nil {
			problem("tls_config: %w", err)
		}
	}
	if o.SASL != nil {
		errs = append(errs, o.SASL.problems()...)
	}
	return errors.Join(errs...)
}

func (o *Options) topicErrors() (errs []error) {
	seen := make(map[string]string)
	for _, stream := range ingester.Streams() {
		topic := o.Topics[stream.String()]
		if topic == "" {
			errs = append(errs, fmt.Errorf("topics.%s is empty: name a topic, or leave the line out", stream))
			continue
		}
		if other, ok := seen[topic]; ok {
			errs = append(errs, fmt.Errorf("topics.%s is %q, which %s has already: each stream needs its own", stream, topic, other))
		}
		seen[topic] = stream.String()
	}
	for name := range o.Topics {
		if _, ok := ingester.ParseStream(name); !ok {
			errs = append(errs, fmt.Errorf("topics.%s: there is no such stream; it must be one of metrics, logs, traces, events, rum", name))
		}
	}
	return errs
}

func (s *SASL) problems() (errs []error) {
	if !slices.Contains([]string{"plain", "scram-sha-256", "scram-sha-512"}, s.Mechanism) {
		errs = append(errs, fmt.Errorf("sasl.mechanism is %q: it must be plain, scram-sha-256 or scram-sha-512", s.Mechanism))
	}
	if s.Username == "" {
		errs = append(errs, errors.New("sasl.username is empty"))
	}
	if (s.Password == "") == (s.PasswordFile == "") {
		errs = append(errs, errors.New("sasl: exactly one of password and password_file must be set"))
	}
	return errs
}

func (o *Options) compression() (kafka.Compression, bool) {
	c, ok := map[string]kafka.Compression{"zstd": kafka.Zstd, "lz4": kafka.Lz4, "snappy": kafka.Snappy, "gzip": kafka.Gzip, "none": 0}[o.Compression]
	return c, ok
}

// transport makes what connects to the cluster. It reads the files that the options
// name.
func (o *Options) transport(topics []string) (*kafka.Transport, error) {
	t := &kafka.Transport{
		Dial:        (&net.Dialer{Timeout: time.Duration(o.Timeout), KeepAlive: 30 * time.Second}).DialContext,
		DialTimeout: time.Duration(o.Timeout),
		IdleTimeout: 90 * time.Second,
		// How late a new leader may be noticed. Only our topics are asked for.
		MetadataTTL:    2 * time.Second,
		MetadataTopics: topics,
		ClientID:       "spillway",
	}
	var err error
	if t.TLS, err = o.tls(); err != nil {
		return nil, fmt.Errorf("tls_config: %w", err)
	}
	if t.SASL, err = o.mechanism(); err != nil {
		return nil, fmt.Errorf("sasl: %w", err)
	}
	return t, nil
}

func (o *Options) tls() (*tls.Config, error) {
	if o.TLSConfig == nil {
		return nil, nil
	}
	return config.NewTLSConfig(o.TLSConfig)
}

func (o *Options) mechanism() (sasl.Mechanism, error) {
	s := o.SASL
	if s == nil {
		return nil, nil
	}
	password := string(s.Password)
	if s.PasswordFile != "" {
		raw, err := os.ReadFile(s.PasswordFile)
		if err != nil {
			return nil, err
		}
		password = strings.TrimSpace(string(raw))
	}
	switch s.Mechanism {
	case "scram-sha-256":
		return scram.Mechanism(scram.SHA256, s.Username, password)
	case "scram-sha-512":
		return scram.Mechanism(scram.SHA512, s.Username, password)
	}
	return plain.Mechanism{Username: s.Username, Password: password}, nil
}
