package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink/tsdb"
	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/relabel"
)

// loaded is a configuration with all the files that it names, read and checked.
type loaded struct {
	config Config
	files  map[string]fingerprint // every file that was named, as it was just before it was read
	policy *policy.Set
	keys   *ingester.Keys
	rules  map[ingester.Stream]*relabel.Rules
}

// load reads a configuration file and what it names. Its error has a line for
// every problem. What it returns with an error names the files that were looked
// at, and nothing else of it may be used.
//
// ingesters is the N that policies are divided by (P12: it is read at start); 0
// takes it from the configuration.
func load(path string, ingesters int) (*loaded, error) {
	l := &loaded{config: defaultConfig(), files: map[string]fingerprint{}, rules: map[ingester.Stream]*relabel.Rules{}}
	data, err := l.read(path)
	if err != nil {
		return l, fmt.Errorf("configuration: %w", err)
	}
	if err := wrongKind(data, path, kindConfig); err != nil {
		return l, err
	}
	problems, err := decodeFields(data, path, &l.config)
	if err != nil {
		return l, err
	}
	if len(problems) > 0 {
		l.config.standIn(data)
	}
	if ingesters == 0 {
		ingesters = max(1, l.config.Ingester.ReplicaCount)
	}
	dir := filepath.Dir(path)
	l.config.complete(dir)
	if err := errors.Join(append(l.config.problems(), l.readRules()...)...); err != nil {
		problems = append(problems, under(path, err))
	}
	problems = append(problems, l.readPolicy(dir, ingesters), l.readKeys(dir))
	if err := errors.Join(problems...); err != nil {
		return l, err
	}
	return l, nil
}

// standIn puts something in the place of sinks that could not be read, so that what
// names them is not said to be wrong, too. Such a configuration is never used.
func (c *Config) standIn(data []byte) {
	var file struct{ Sinks map[string]yaml.Node }
	_ = yaml.Unmarshal(data, &file) // fields of other types are problems already
	for name := range file.Sinks {
		if _, ok := c.Sinks[name]; !ok {
			if c.Sinks == nil {
				c.Sinks = map[string]SinkConfig{}
			}
			c.Sinks[name] = SinkConfig{Discard: &struct{}{}}
		}
	}
}

// under puts a path before each line of an error.
func under(path string, err error) error {
	var out []error
	for _, line := range strings.Split(err.Error(), "\n") {
		out = append(out, fmt.Errorf("%s: %s", path, line))
	}
	return errors.Join(out...)
}

// complete fills in what depends on other settings.
func (c *Config) complete(dir string) {
	if c.Streams == nil {
		c.Streams = map[string]StreamConfig{}
	}
	if c.Sinks == nil {
		c.Sinks = map[string]SinkConfig{}
	}
	metrics := c.Streams[ingester.Metrics.String()]
	if metrics.Sink == "" {
		metrics.Sink = defaultSink
		c.Streams[ingester.Metrics.String()] = metrics
		if _, taken := c.Sinks[defaultSink]; !taken {
			opts := tsdb.DefaultOptions(filepath.Join("data", "metrics"))
			c.Sinks[defaultSink] = SinkConfig{TSDB: &opts}
		}
	}
	c.completeSinks(dir)
}

// problems checks what the types cannot.
func (c *Config) problems() []error {
	var p []error
	complain := func(format string, args ...any) { p = append(p, fmt.Errorf(format, args...)) }
	if _, _, err := net.SplitHostPort(c.Server.HTTPListenAddress); err != nil {
		complain("server.http_listen_address: %q is not host:port: %v", c.Server.HTTPListenAddress, err)
	}
	for name, address := range map[string]string{
		"server.otlp_grpc_listen_address": c.Server.OTLPGRPCListenAddress, "server.otlp_http_listen_address": c.Server.OTLPHTTPListenAddress,
	} {
		if _, _, err := net.SplitHostPort(address); address != "" && err != nil {
			complain("%s: %q is not host:port: %v", name, address, err)
		}
	}
	if (c.Server.TLS.CertFile == "") != (c.Server.TLS.KeyFile == "") {
		complain("server.tls: cert_file and key_file go together")
	}
	for name, size := range map[string]ByteSize{
		"server.max_body_bytes": c.Server.MaxBodyBytes, "server.max_decoded_bytes": c.Server.MaxDecodedBytes,
		"server.max_request_bytes": c.Server.MaxRequestBytes, "ingester.route_cache_bytes": c.Ingester.RouteCacheBytes,
		"ingester.limits.label_name_bytes": c.Ingester.Limits.LabelNameBytes, "ingester.limits.label_value_bytes": c.Ingester.Limits.LabelValueBytes,
		"ingester.limits.label_set_bytes": c.Ingester.Limits.LabelSetBytes,
	} {
		if size < 1 {
			complain("%s: must be above 0", name)
		}
	}
	if c.Server.MaxDecodedBytes > 1<<30 {
		complain("server.max_decoded_bytes: %s is above 1GiB, the most that one request may have", c.Server.MaxDecodedBytes)
	}
	if c.Server.MaxRequestBytes < c.Server.MaxBodyBytes+c.Server.MaxDecodedBytes {
		complain("server.max_request_bytes: %s cannot hold one request of max_body_bytes %s and max_decoded_bytes %s",
			c.Server.MaxRequestBytes, c.Server.MaxBodyBytes, c.Server.MaxDecodedBytes)
	}
	if least := c.memorySum(1); c.Server.MemoryLimit > 0 && int64(c.Server.MemoryLimit) < least {
		complain("server.memory_limit: %s is less than the %s that max_request_bytes, route_cache_bytes and the program take together",
			c.Server.MemoryLimit, ByteSize(least))
	}
	if c.Server.MaxSeriesPerRequest < 1 || c.Server.MaxItemsPerRequest < 1 || c.Ingester.Limits.LabelNames < 1 {
		complain("server.max_series_per_request, server.max_items_per_request and ingester.limits.label_names: must be above 0")
	}
	if c.Ingester.ReplicaCount < 1 {
		complain("ingester.replica_count: %d is not a number of ingesters; it must be 1 or more", c.Ingester.ReplicaCount)
	}
	if c.Telemetry.Interval < 0 {
		complain("telemetry.interval: must not be below 0")
	}
	if c.Exempt.Label == "" || c.Exempt.Value == "" {
		complain("exempt: label and value must not be empty")
	}
	if err := c.Governor.Validate(); err != nil {
		p = append(p, err)
	}
	if c.Governor.ShedStatus != 503 && c.Governor.ShedStatus != 429 {
		complain("governor.shed_status: %d is neither 503 nor 429", c.Governor.ShedStatus)
	}
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, c.Log.Level) {
		complain("log.level: %q is not one of debug, info, warn, error", c.Log.Level)
	}
	if !slices.Contains([]string{"logfmt", "json"}, c.Log.Format) {
		complain("log.format: %q is neither logfmt nor json", c.Log.Format)
	}
	p = append(p, c.OTLP.problems()...)
	p = append(p, c.RUM.problems()...)
	p = append(p, c.sinkProblems()...)
	return append(p, c.streamProblems()...)
}

func (c *Config) sinkProblems() []error {
	var p []error
	for _, name := range sortedKeys(c.Sinks) {
		kinds := c.Sinks[name].kinds()
		if len(kinds) != 1 {
			p = append(p, fmt.Errorf("sinks.%s: needs exactly one of tsdb, remote_write, otlp, kafka, file, discard, and has %d", name, len(kinds)))
			continue
		}
		if err := c.Sinks[name].validate(); err != nil {
			p = append(p, under(fmt.Sprintf("sinks.%s.%s", name, kinds[0]), err))
		}
	}
	return p
}

func (c *Config) streamProblems() []error {
	var p []error
	for _, name := range sortedKeys(c.Streams) {
		stream, ok := ingester.ParseStream(name)
		if !ok {
			p = append(p, fmt.Errorf("streams.%s: is not one of metrics, logs, traces, events, rum", name))
			continue
		}
		s := c.Streams[name]
		sink, ok := c.Sinks[s.Sink]
		if s.Sink != "" && !ok {
			p = append(p, fmt.Errorf("streams.%s.sink: there is no sink %q; sinks are: %s", name, s.Sink, strings.Join(sortedKeys(c.Sinks), ", ")))
		}
		if s.Sink != "" && ok && stream != ingester.Metrics && (sink.TSDB != nil || sink.RemoteWrite != nil) {
			p = append(p, fmt.Errorf("streams.%s.sink: sink %q stores metrics only", name, s.Sink))
		}
		if s.RateLimitResponse != "" && s.RateLimitResponse != "default" && s.RateLimitResponse != "silent" {
			p = append(p, fmt.Errorf("streams.%s.rate_limit_response: %q is neither default nor silent", name, s.RateLimitResponse))
		}
	}
	return p
}

func (l *loaded) readRules() []error {
	var p []error
	for _, stream := range ingester.Streams() {
		node := l.config.Streams[stream.String()].RelabelConfigs
		rules, err := relabel.Parse(&node)
		if err != nil {
			p = append(p, under(fmt.Sprintf("streams.%s.relabel_configs", stream), err))
		}
		l.rules[stream] = rules
	}
	return p
}

func (l *loaded) readPolicy(dir string, ingesters int) error {
	data, path, err := l.readNamed(dir, l.config.PolicyFile)
	if err != nil {
		return fmt.Errorf("policy_file: %w", err)
	}
	if path != "" && len(bytes.TrimSpace(data)) == 0 {
		return fmt.Errorf("%s: is empty; if nothing shall be limited, write streams: {}", path)
	}
	l.policy, err = loadPolicy(data, path, ingesters)
	return err
}

func (l *loaded) readKeys(dir string) error {
	data, path, err := l.readNamed(dir, l.config.APIKeysFile)
	if err != nil {
		return fmt.Errorf("api_keys_file: %w", err)
	}
	if path == "" {
		return nil
	}
	if l.keys, err = ingester.ParseKeys(data, path); err == nil && l.keys.Empty() {
		return fmt.Errorf("%s: names no key; if everybody shall send, leave api_keys_file out", path)
	}
	return err
}

// readNamed reads a file that the configuration names, relative to its own
// folder, and remembers that it did. An empty name reads nothing.
func (l *loaded) readNamed(dir, name string) (data []byte, path string, err error) {
	if name == "" {
		return nil, "", nil
	}
	if path = name; !filepath.IsAbs(name) {
		path = filepath.Join(dir, name)
	}
	data, err = l.read(path)
	return data, path, err
}

// read reads a file and remembers how it looked just before: a change that comes
// later is noticed, whenever it comes.
func (l *loaded) read(path string) ([]byte, error) {
	l.files[path] = fingerprintOf(path)
	return readFile(path)
}

// largestFile is far above what any of these files needs; it keeps one that never
// ends from filling the memory.
const largestFile = 64 << 20

func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, largestFile+1))
	if err == nil && len(data) > largestFile {
		err = fmt.Errorf("%s: is larger than %s", path, ByteSize(largestFile))
	}
	return data, err
}

// settings makes the ingester's rules from the configuration and open sinks.
func (l *loaded) settings(sinks map[string]ingester.Sink) ingester.Settings {
	c := &l.config
	s := ingester.Settings{
		Exempt: ingester.ExemptLabel{Label: c.Exempt.Label, Value: c.Exempt.Value, AnySender: c.Exempt.AnySender},
		Keys:   l.keys,
		Limits: ingester.LabelLimits{
			Names: c.Ingester.Limits.LabelNames, NameBytes: int(c.Ingester.Limits.LabelNameBytes),
			ValueBytes: int(c.Ingester.Limits.LabelValueBytes), SetBytes: int(c.Ingester.Limits.LabelSetBytes),
		},
		RouteBytes: int64(c.Ingester.RouteCacheBytes),
	}
	for _, stream := range ingester.Streams() {
		sc := c.Streams[stream.String()]
		s.Streams[stream] = ingester.StreamSettings{
			Rules: l.rules[stream], Policy: l.policy.Stream(stream.String()),
			Sink: sinks[sc.Sink], SinkName: sc.Sink, Silent: sc.RateLimitResponse == "silent",
		}
	}
	return s
}
