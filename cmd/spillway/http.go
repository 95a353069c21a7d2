package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/pprof"
	"strings"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/spillway-telemetry/spillway/ingester"
)

// routes puts every address on the server's router.
func (p *process) routes() {
	r := p.server.HTTP
	write := p.metricsOf("/api/v1/write", p.refuseWhenStopping(p.writeHandler()))
	for _, path := range []string{"/api/v1/write", "/ingester/write", "/write"} {
		r.Path(path).Handler(write)
	}
	for path, handler := range p.otlpPaths {
		r.Path(path).Handler(handler)
	}
	p.mountReceivers(r)
	r.Path("/metrics").Handler(promhttp.HandlerFor(p.registry, promhttp.HandlerOpts{EnableOpenMetrics: true, Registry: p.registry}))
	r.Path("/-/healthy").HandlerFunc(text("Spillway is healthy.\n"))
	r.Path("/-/ready").HandlerFunc(p.ready)
	r.Path("/-/reload").HandlerFunc(p.reloader.serveHTTP)
	r.Path("/api/v1/ratecontrol").Methods(http.MethodGet).HandlerFunc(p.rateControl)
	r.Path("/api/v1/ratecontrol/history").Methods(http.MethodGet).Handler(p.history)
	r.Path("/api/v1/governor").Methods(http.MethodGet).HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		writeJSON(w, http.StatusOK, p.governor.Snapshot())
	})
	r.Path("/api/v1/explain").Methods(http.MethodGet).HandlerFunc(p.explain)
	r.Path("/debug/pprof/profile").HandlerFunc(pprof.Profile)
	r.Path("/debug/pprof/trace").HandlerFunc(pprof.Trace)
	r.PathPrefix("/debug/pprof/").HandlerFunc(pprof.Index)
	if p.sinks.tsdb != nil {
		mountQueries(r, p.sinks.tsdb.API())
	}
	p.mountPage()
	r.NotFoundHandler = http.HandlerFunc(notFound)
}

// mountQueries serves the Prometheus query API of the embedded TSDB on every
// address below /api/v1 that is not taken.
func mountQueries(r *mux.Router, queries http.Handler) {
	r.PathPrefix("/api/v1/").HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		queries.ServeHTTP(&pathChecker{ResponseWriter: w, request: r}, r)
	})
	r.Path("/federate").Handler(queries)
}

// refuseWhenStopping answers new batches 503 once the program stops, so that
// senders with open connections come back to another ingester.
func (p *process) refuseWhenStopping(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		select {
		case <-p.stopping:
			w.Header().Set("Retry-After", "1")
			w.Header().Set("Connection", "close")
			http.Error(w, "this ingester is stopping; please send the batch again", http.StatusServiceUnavailable)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func (p *process) ready(w http.ResponseWriter, _ *http.Request) {
	select {
	case <-p.stopping:
		http.Error(w, "Spillway is stopping.", http.StatusServiceUnavailable)
	default:
		text("Spillway is ready.\n")(w, nil)
	}
}

func (p *process) explain(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	stream := cmp.Or(query.Get("stream"), ingester.Metrics.String())
	e, err := p.ingester.Explain(stream, query.Get("labels"), query.Get("api_key"))
	if err != nil {
		writeJSON(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
		return
	}
	x := explanation{Explanation: e}
	if e.Bucket != nil {
		x.Recent = p.history.Recent(stream, e.Class)
	}
	writeJSON(w, http.StatusOK, x)
}

func text(s string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		_, _ = w.Write([]byte(s))
	}
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	body, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(append(body, '\n'))
}

// notFound points at the list of addresses.
func notFound(w http.ResponseWriter, r *http.Request) {
	http.Error(w, fmt.Sprintf("%s is not served here; GET / lists what is", r.URL.Path), http.StatusNotFound)
}

// pathChecker answers as notFound does where the query API does not know a path. What
// it does know it answers with JSON, also if it is 404.
type pathChecker struct {
	http.ResponseWriter
	request *http.Request
	unknown bool
}

func (c *pathChecker) WriteHeader(status int) {
	if status == http.StatusNotFound && strings.HasPrefix(c.Header().Get("Content-Type"), "text/plain") {
		c.unknown = true
		notFound(c.ResponseWriter, c.request)
		return
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *pathChecker) Write(p []byte) (int, error) {
	if c.unknown {
		return len(p), nil // notFound has said it
	}
	return c.ResponseWriter.Write(p)
}

// Flush is what streamed answers ask for.
func (c *pathChecker) Flush() { _ = http.NewResponseController(c.ResponseWriter).Flush() }

// index lists what is served.
func index(w http.ResponseWriter, _ *http.Request) {
	text(fmt.Sprintf(`Spillway %s

what is sent (POST)
/api/v1/write, /ingester/write      remote write 1.0 and 2.0
/v1/metrics, /v1/logs, /v1/traces   OTLP, also below /otlp; 4318 serves it, too, and 4317 gRPC
/otlp/k8s_events                    OTLP log records as events; this and what follows also with /ingester before it
/loki/api/v1/push                   Loki
/api/v1/filebeat                    Elasticsearch bulk: the server's address of Filebeat and others
/v1/fluent_bit, /v1/fluentd         Fluent Bit and Fluentd
/api/v2/logs, /v1/input             Datadog logs
/kinesis/logs, /heroku/logs         Amazon Data Firehose, Heroku drains
/events, /api/v1/events, /intake/   events
/ddrumproxy, /api/v2/rum            Datadog browser SDK

what is asked
/                                   in a browser, the page: who is being dropped, and why
/api/v1/ratecontrol                 every class: rate, burst, tokens, share, counts
/api/v1/ratecontrol/history         ?after=N: what each class admitted and dropped, every 5 s
/api/v1/governor                    how many batches are processed at once, and why
/api/v1/explain                     ?stream=metrics&labels={...}: what happens to a series, and why
/api/v1/query                       PromQL, with the rest of the Prometheus query API, where metrics are stored here
/federate                           the same for another Prometheus to scrape
/metrics                            Spillway's own metrics
/debug/pprof/                       profiles of the running process

what is done
/-/reload                           read the configuration again (POST)
/-/ready, /-/healthy                probes
`, version))(w, nil)
}
