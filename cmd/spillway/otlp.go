package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"slices"
	"syscall"

	"github.com/prometheus/otlptranslator"
	"github.com/prometheus/prometheus/config"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/otlp"
	"github.com/spillway-telemetry/spillway/ingester/sink/translate"
)

// OTLPConfig is what is special to OTLP. The translation of metrics has the names and
// the meaning that Prometheus' own configuration gives it.
type OTLPConfig struct {
	// How metrics are named: UnderscoreEscapingWithSuffixes,
	// UnderscoreEscapingWithoutSuffixes, NoUTF8EscapingWithSuffixes or NoTranslation.
	TranslationStrategy otlptranslator.TranslationStrategyOption `yaml:"translation_strategy"`
	// Resource attributes that become labels of metrics, beside job and instance.
	PromoteResourceAttributes []string `yaml:"promote_resource_attributes"`
	// Make labels of all resource attributes, for metrics.
	PromoteAllResourceAttributes bool `yaml:"promote_all_resource_attributes"`
	// With promote_all_resource_attributes: those that are left out.
	IgnoreResourceAttributes []string `yaml:"ignore_resource_attributes"`
	// Make labels of a metric's scope: otel_scope_name, otel_scope_version,
	// otel_scope_schema_url and otel_scope_ATTRIBUTE.
	PromoteScopeMetadata bool `yaml:"promote_scope_metadata"`
	// Put key before label names that begin with one underscore.
	LabelNameUnderscoreSanitization bool `yaml:"label_name_underscore_sanitization"`
	// Keep several underscores in a row in label names.
	LabelNamePreserveMultipleUnderscores bool `yaml:"label_name_preserve_multiple_underscores"`
	// Leave the attribute names of logs, spans, events and RUM events as they are.
	// Otherwise they are translated like those of metrics.
	UTF8Names bool `yaml:"utf8_names"`
	// Attributes of one item, resource or scope, or of a span's event or link. An
	// item with more is invalid.
	MaxAttributes int `yaml:"max_attributes"`
	// Explicit bounds of a histogram's data point, quantiles of a summary's, where
	// metrics become series (sinks tsdb and remote_write): each is a series, and the
	// data point costs one token. One with more is invalid, as too_many_buckets or
	// too_many_quantiles. Exponential histograms are one series.
	MaxBuckets int `yaml:"max_buckets"`
}

func defaultOTLPConfig() OTLPConfig {
	o := otlp.DefaultOptions()
	return OTLPConfig{
		TranslationStrategy:                  o.Translation.TranslationStrategy,
		LabelNameUnderscoreSanitization:      o.Translation.LabelNameUnderscoreSanitization,
		LabelNamePreserveMultipleUnderscores: o.Translation.LabelNamePreserveMultipleUnderscores,
		MaxAttributes:                        o.Attributes,
		MaxBuckets:                           translate.DefaultMaxBuckets,
	}
}

// series says how metrics become series.
func (c *OTLPConfig) series() translate.Options {
	return translate.Options{Translation: c.translation(), MaxBuckets: c.MaxBuckets}
}

// translation is the part that Prometheus' library knows.
func (c *OTLPConfig) translation() config.OTLPConfig {
	return config.OTLPConfig{
		TranslationStrategy:                  c.TranslationStrategy,
		PromoteResourceAttributes:            c.PromoteResourceAttributes,
		PromoteAllResourceAttributes:         c.PromoteAllResourceAttributes,
		IgnoreResourceAttributes:             c.IgnoreResourceAttributes,
		PromoteScopeMetadata:                 c.PromoteScopeMetadata,
		LabelNameUnderscoreSanitization:      c.LabelNameUnderscoreSanitization,
		LabelNamePreserveMultipleUnderscores: c.LabelNamePreserveMultipleUnderscores,
	}
}

func (c *OTLPConfig) problems() []error {
	var p []error
	known := []otlptranslator.TranslationStrategyOption{
		otlptranslator.UnderscoreEscapingWithSuffixes, otlptranslator.UnderscoreEscapingWithoutSuffixes,
		otlptranslator.NoUTF8EscapingWithSuffixes, otlptranslator.NoTranslation,
	}
	if !slices.Contains(known, c.TranslationStrategy) {
		p = append(p, fmt.Errorf("otlp.translation_strategy: %q is not one of %v", c.TranslationStrategy, known))
	}
	if c.PromoteAllResourceAttributes && len(c.PromoteResourceAttributes) > 0 {
		p = append(p, errors.New("otlp: promote_all_resource_attributes leaves nothing for promote_resource_attributes to add"))
	}
	if !c.PromoteAllResourceAttributes && len(c.IgnoreResourceAttributes) > 0 {
		p = append(p, errors.New("otlp: ignore_resource_attributes needs promote_all_resource_attributes"))
	}
	if c.MaxAttributes < 1 {
		p = append(p, errors.New("otlp.max_attributes: must be above 0"))
	}
	if c.MaxBuckets < 1 {
		p = append(p, errors.New("otlp.max_buckets: must be above 0"))
	}
	return p
}

// newFront makes the front of the receivers.
func (p *process) newFront() *receive.Front {
	c := p.config.Server
	return &receive.Front{
		Ingester:       p.ingester,
		Limits:         receive.Limits{BodyBytes: int(c.MaxBodyBytes), DecodedBytes: int(c.MaxDecodedBytes), Items: c.MaxItemsPerRequest},
		ForwardHeaders: c.ForwardHeaders,
	}
}

// newOTLP makes the receiver of OTLP, which logs of other protocols go through, too.
func (p *process) newOTLP() *otlp.Receiver {
	c := &p.config.OTLP
	return otlp.New(p.front, otlp.Options{
		Items: p.config.Server.MaxItemsPerRequest, Attributes: c.MaxAttributes, Translation: c.translation(), UTF8Names: c.UTF8Names,
	})
}

// newOTLPPaths makes the handlers of OTLP over HTTP by address, for its own port and
// the one that serves everything.
func (p *process) newOTLPPaths() map[string]http.Handler {
	handler := func(path string, stream ingester.Stream, format ingester.Format) http.Handler {
		return p.metricsOf(path, p.refuseWhenStopping(p.otlp.HTTP(stream, format)))
	}
	metrics := handler("/v1/metrics", ingester.Metrics, ingester.OTLPMetrics)
	logs := handler("/v1/logs", ingester.Logs, ingester.OTLPLogs)
	traces := handler("/v1/traces", ingester.Traces, ingester.OTLPTraces)
	events := handler("/ingester/otlp/k8s_events", ingester.Events, ingester.OTLPLogs)
	paths := map[string]http.Handler{"/v1/metrics": metrics, "/v1/logs": logs, "/v1/traces": traces}
	for _, prefix := range []string{"/otlp", "/ingester/otlp"} { // an ingress may strip /ingester
		for signal, handler := range map[string]http.Handler{"metrics": metrics, "logs": logs, "traces": traces} {
			paths[prefix+"/"+signal], paths[prefix+"/v1/"+signal] = handler, handler
		}
		paths[prefix+"/k8s_events"] = events
	}
	return paths
}

// otlpServer is a listener of its own for OTLP.
type otlpServer struct {
	name     string
	listener net.Listener
	server   *http.Server
}

// listenOTLP opens the two addresses of OTLP. An empty address is none.
func (p *process) listenOTLP() error {
	c := p.config.Server
	overHTTP := http.NewServeMux()
	for path, handler := range p.otlpPaths {
		overHTTP.Handle(path, handler)
	}
	var grpcProtocols, httpProtocols http.Protocols
	grpcProtocols.SetHTTP1(true) // for the answer to who takes it for the other address
	grpcProtocols.SetHTTP2(true)
	grpcProtocols.SetUnencryptedHTTP2(true)
	httpProtocols.SetHTTP1(true)
	httpProtocols.SetHTTP2(true)
	return errors.Join(
		p.addOTLP("otlp_grpc_listen_address", c.OTLPGRPCListenAddress, p.metricsOf("otlp_grpc", p.otlp.GRPC(p.isStopping)), &grpcProtocols),
		p.addOTLP("otlp_http_listen_address", c.OTLPHTTPListenAddress, overHTTP, &httpProtocols),
	)
}

func (p *process) addOTLP(name, address string, handler http.Handler, protocols *http.Protocols) error {
	if address == "" {
		return nil
	}
	c := p.config.Server
	secure, err := c.TLS.load()
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", address)
	if errors.Is(err, syscall.EADDRINUSE) && isDefaultOTLP(address) {
		p.logger.Warn("another program has this port, so OTLP is served on the HTTP port only; name another address, or an empty one",
			"option", "server."+name, "address", address)
		return nil
	}
	if err != nil {
		return fmt.Errorf("server.%s: cannot listen on %s: %w", name, address, err)
	}
	p.otlpServers = append(p.otlpServers, &otlpServer{name: name, listener: l, server: &http.Server{
		Handler: handler, Protocols: protocols, TLSConfig: secure,
		ReadTimeout: c.ReadTimeout, ReadHeaderTimeout: c.ReadTimeout, IdleTimeout: c.IdleTimeout,
		ErrorLog: slog.NewLogLogger(p.logger.Handler(), slog.LevelWarn),
	}})
	return nil
}

// isDefaultOTLP says whether an address is one that nobody had to ask for.
func isDefaultOTLP(address string) bool {
	d := defaultConfig().Server
	return address == d.OTLPGRPCListenAddress || address == d.OTLPHTTPListenAddress
}

// load reads the certificates, nil if there are none.
func (c *TLSConfig) load() (*tls.Config, error) {
	if c.CertFile == "" {
		return nil, nil
	}
	pair, err := tls.LoadX509KeyPair(c.CertFile, c.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("server.tls: %w", err)
	}
	secure := &tls.Config{MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{pair}}
	if c.ClientCAFile == "" {
		return secure, nil
	}
	pem, err := os.ReadFile(c.ClientCAFile)
	if err != nil {
		return nil, fmt.Errorf("server.tls.client_ca_file: %w", err)
	}
	secure.ClientCAs, secure.ClientAuth = x509.NewCertPool(), tls.RequireAndVerifyClientCert
	if !secure.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("server.tls.client_ca_file: %s holds no certificate", c.ClientCAFile)
	}
	return secure, nil
}

// serve blocks until the server is shut down.
func (s *otlpServer) serve() error {
	var err error
	if s.server.TLSConfig != nil {
		err = s.server.ServeTLS(s.listener, "", "")
	} else {
		err = s.server.Serve(s.listener)
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("server.%s: %w", s.name, err)
}

// startOTLP serves OTLP's own addresses. What ends a server before its time comes out
// of failed.
func (p *process) startOTLP(failed chan<- error) {
	for _, s := range p.otlpServers {
		p.logger.Info("listening", "for", s.name, "address", s.listener.Addr().String())
		go func() {
			if err := s.serve(); err != nil {
				failed <- err
			}
		}()
	}
}

// stopOTLP lets requests in flight finish.
func (p *process) stopOTLP() {
	ctx, cancel := context.WithTimeout(context.Background(), p.config.Server.ShutdownTimeout)
	defer cancel()
	for _, s := range p.otlpServers {
		if err := s.server.Shutdown(ctx); err != nil {
			p.logger.Warn("requests were cut off", "on", s.name, "err", err)
			_ = s.server.Close()
		}
	}
}

func (p *process) isStopping() bool {
	select {
	case <-p.stopping:
		return true
	default:
		return false
	}
}

// closeOTLP closes listeners that nobody serves on yet.
func (p *process) closeOTLP() {
	for _, s := range p.otlpServers {
		_ = s.listener.Close()
	}
}
