package sink

import (
	"context"
	"log/slog"
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/version"
)

// HTTP is a destination with one or several endpoints that speak HTTP. It is safe
// for concurrent use.
type HTTP struct {
	*Pool
	Endpoints []*Endpoint
	timeout   time.Duration
	header    http.Header
}

// NewHTTP makes the destination that valid options describe. It reads the files
// that they name, connects to nothing and starts nothing. only2 asks for HTTP/2
// without a negotiation, which gRPC needs. The logger says which sink it is; so
// must reg where several sinks share it, by a label of its own. reg may be nil.
func NewHTTP(o *HTTPOptions, only2 bool, logger *slog.Logger, reg prometheus.Registerer) (*HTTP, error) {
	var names []string
	for _, u := range o.Endpoints {
		names = append(names, endpointName(u.URL))
	}
	timeout := time.Duration(o.Timeout)
	h := &HTTP{Pool: NewPool(names, o.MaxConnectionsPerEndpoint, timeout, logger), timeout: timeout, header: o.header()}
	m := newMetrics(reg)
	for i, u := range o.Endpoints {
		transport, err := newTransport(o, only2)
		if err != nil {
			return nil, err
		}
		h.Endpoints = append(h.Endpoints, &Endpoint{
			Name: names[i],
			url:  u.URL,
			Client: &http.Client{
				Transport:     transport,
				CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			},
			metrics: m.endpoint(names[i], func() bool { return h.State(i, time.Time{}).Healthy }),
		})
	}
	return h, nil
}

// header are the configured headers of every request.
func (o *HTTPOptions) header() http.Header {
	h := make(http.Header)
	for name, value := range o.Headers {
		h.Set(name, value)
	}
	h.Set("User-Agent", version.ComponentUserAgent("Spillway"))
	return h
}

// Header are the headers of a request: those of the configuration, then those
// passed on with a batch, then, in pairs, those of the protocol, which nobody
// else may set.
func (h *HTTP) Header(passed http.Header, protocol ...string) http.Header {
	header := make(http.Header, len(h.header)+len(passed)+len(protocol)/2)
	for name, values := range h.header {
		header[name] = values
	}
	for name, values := range passed {
		if !reservedHeader(name) {
			header[http.CanonicalHeaderKey(name)] = values
		}
	}
	for i := 0; i+1 < len(protocol); i += 2 {
		header.Set(protocol[i], protocol[i+1])
	}
	return header
}

// Post sends a request to one endpoint after the other until one has an answer
// that holds for all. Its errors are those of Pool.Deliver.
func (h *HTTP) Post(ctx context.Context, r *Request) error {
	return h.Deliver(ctx, func(ctx context.Context, i, number int) Answer {
		if number > 0 {
			h.Endpoints[i].metrics.retries.Inc()
		}
		return h.Endpoints[i].send(ctx, r, h.timeout, number)
	})
}

// Close closes the idle connections. Writes must have ended. The error is nil.
func (h *HTTP) Close() error {
	for _, e := range h.Endpoints {
		e.Client.CloseIdleConnections()
	}
	return nil
}
