package main

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/gorilla/mux"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/datadog"
	"github.com/spillway-telemetry/spillway/ingester/receive/elasticsearch"
	"github.com/spillway-telemetry/spillway/ingester/receive/events"
	"github.com/spillway-telemetry/spillway/ingester/receive/firehose"
	"github.com/spillway-telemetry/spillway/ingester/receive/fluent"
	"github.com/spillway-telemetry/spillway/ingester/receive/heroku"
	"github.com/spillway-telemetry/spillway/ingester/receive/loki"
	"github.com/spillway-telemetry/spillway/ingester/receive/otlp"
)

// RUMConfig is about what browsers send.
type RUMConfig struct {
	// Origins whose pages may send, such as https://shop.example.com,
	// https://*.example.com for all hosts below it, or * for every page. A page of
	// the host that Spillway is reached by needs no entry.
	AllowedOrigins []string `yaml:"allowed_origins"`
}

func (c *RUMConfig) problems() []error {
	var p []error
	for _, o := range c.AllowedOrigins {
		scheme, host, ok := strings.Cut(o, "://")
		if o != "*" && o != "null" && (!ok || scheme == "" || host == "" || strings.ContainsAny(strings.TrimSuffix(host, "/"), "/?# ")) {
			p = append(p, fmt.Errorf("rum.allowed_origins: %q is no origin: write scheme://host or scheme://host:port, scheme://*.domain, or *", o))
		}
	}
	return p
}

// address is where a receiver is served. Below says that it gets all that is
// below the path, too.
type address struct {
	path    string
	below   bool
	handler http.Handler
}

// receivers are the addresses of all that becomes log records inside. Senders know
// them with or without /ingester, since an ingress may strip it.
func (p *process) receivers() []address {
	store := func(stream ingester.Stream, how otlp.Grouping) receive.Store {
		return func(req *receive.Request, message []byte) (ingester.Result, *receive.Refusal) {
			return p.otlp.Records(req, stream, message, how)
		}
	}
	lines, batches := store(ingester.Logs, otlp.EachRecord), store(ingester.Logs, otlp.OneGroup)
	event := events.Handler(p.front, store(ingester.Events, otlp.EachRecord))
	pages := func(h http.Handler) http.Handler { return datadog.CrossOrigin(p.config.RUM.AllowedOrigins, h) }
	ddLogs := pages(datadog.LogsHandler(p.front, lines))
	rum := pages(datadog.RUMHandler(p.front, store(ingester.RUM, otlp.EachRecord)))
	proxy := pages(datadog.Proxy(rum, ddLogs))
	bulk := func(prefix string) http.Handler { return elasticsearch.Handler(p.front, lines, prefix) }

	found := []address{
		{"/ingester/api/v1/filebeat", true, bulk("/ingester/api/v1/filebeat")},
		{"/api/v1/filebeat", true, bulk("/api/v1/filebeat")},
	}
	for _, a := range []address{
		{"/loki/api/v1/push", false, loki.Handler(p.front, lines)},
		{"/v1/fluent_bit", false, fluent.Handler(p.front, lines)},
		{"/v1/fluentd", false, fluent.Handler(p.front, lines)},
		{"/api/v2/logs", false, ddLogs},
		{"/v1/input", true, ddLogs},
		{"/kinesis/logs", false, firehose.Handler(p.front, batches)},
		{"/heroku/logs", false, heroku.Handler(p.front, batches)},
		{"/events", false, event},
		{"/api/v1/events", false, event},
		{"/intake", true, event},
		{"/api/v2/rum", false, rum},
		{"/ddrumproxy", true, proxy},
	} {
		found = append(found, a, address{"/ingester" + a.path, a.below, a.handler})
	}
	return found
}

// mountReceivers serves them.
func (p *process) mountReceivers(r *mux.Router) {
	for _, a := range p.receivers() {
		handler := p.refuseWhenStopping(a.handler)
		r.Path(a.path).Handler(handler)
		if a.below {
			r.PathPrefix(a.path + "/").Handler(handler)
		}
	}
}
