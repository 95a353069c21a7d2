package tsdb

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"time"

	"github.com/grafana/regexp"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	apiv1 "github.com/prometheus/prometheus/web/api/v1"
)

const (
	// prefix is where Prometheus serves its API.
	prefix = "/api/v1"
	// prometheusVersion is of the library whose API this is: module v0.316.0.
	// Grafana chooses by it what it asks for.
	prometheusVersion = "3.16.0"
	// What one remote read may cost: the defaults of Prometheus' flags
	// storage.remote.read-sample-limit, -concurrent-limit and -max-bytes-in-frame.
	readMaxSamples    = 50_000_000
	readConcurrency   = 10
	readMaxFrameBytes = 1 << 20
)

// libraryPaths are the endpoints that the library answers. What is not here is
// not served: its router also knows the write and the admin endpoints.
func libraryPaths() []string {
	return []string{
		"/query", "/query_range", "/query_exemplars", "/format_query", "/parse_query",
		"/series", "/labels", "/label/{name}/values",
		"/targets", "/targets/metadata", "/scrape_pools", "/alertmanagers", "/rules", "/alerts",
		"/status/buildinfo", "/status/config", "/status/flags", "/status/runtimeinfo",
		"/status/tsdb", "/status/tsdb/blocks", "/status/walreplay",
		"/read",
	}
}

// newAPI builds the handler that serves for the sink's whole life, whichever
// database is open.
func (s *Sink) newAPI() http.Handler {
	o := &s.options
	promql := promql.NewEngine(promql.EngineOpts{
		Logger: s.log, Reg: o.Registerer,
		MaxSamples: o.QueryMaxSamples, Timeout: time.Duration(o.QueryTimeout),
		ActiveQueryTracker: make(querySlots, o.QueryConcurrency),
		LookbackDelta:      time.Duration(o.QueryLookback),
		// As Prometheus does by its default evaluation interval.
		NoStepSubqueryIntervalFn: func(int64) int64 { return time.Minute.Milliseconds() },
		EnableAtModifier:         true, EnableNegativeOffset: true,
	})
	open := openDatabase{s}
	api := apiv1.NewAPI(
		promql, open, nil, open,
		func(context.Context) apiv1.ScrapePoolsRetriever { return nothing{} },
		func(context.Context) apiv1.TargetRetriever { return nothing{} },
		func(context.Context) apiv1.AlertmanagerRetriever { return nothing{} },
		func() config.Config { return config.Config{GlobalConfig: config.DefaultGlobalConfig} },
		o.flags(), apiv1.GlobalURLOptions{},
		func(next http.HandlerFunc) http.HandlerFunc { return next }, // guard does it
		open, o.Path,
		false, false, 0, // neither admin nor search endpoints
		s.log,
		func(context.Context) apiv1.RulesRetriever { return nothing{} },
		readMaxSamples, readConcurrency, readMaxFrameBytes,
		false, regexp.MustCompile("$^"), // no page of another origin may read it
		s.runtimeInfo(), &apiv1.PrometheusVersion{Version: prometheusVersion, GoVersion: runtime.Version()},
		nil, nil, open, o.Registerer, nil,
		false, nil, false, false, false, // takes no writes
		time.Duration(o.QueryLookback), false, false, nil, nil,
		// A description of the API that it writes in advance and nobody is served.
		apiv1.OpenAPIOptions{IncludePaths: []string{"none"}}, parser.NewParser(parser.Options{}), false, time.Duration(o.QueryTimeout),
	)
	router := route.New().WithPrefix(prefix)
	api.Register(router)

	mux := http.NewServeMux()
	for _, path := range libraryPaths() {
		mux.Handle(prefix+path, s.guard(router))
	}
	mux.Handle("GET "+prefix+"/metadata", s.guard(http.HandlerFunc(s.serveMetadata)))
	return mux
}

// guard lets a request in while the database is open and keeps it open until
// the answer is out. A panic costs the request, not the process.
func (s *Sink) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := s.queryable(); err != nil {
			answerError(w, http.StatusServiceUnavailable, "unavailable", err)
			return
		}
		s.reads.RLock()
		defer s.reads.RUnlock()
		if s.db == nil {
			answerError(w, http.StatusServiceUnavailable, "unavailable", errNotOpen)
			return
		}
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		defer context.AfterFunc(s.queries, cancel)()
		defer s.recoverQuery(w, r)
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// queryable reports why no query is answered. A database that failed to write
// can still be read.
func (s *Sink) queryable() error {
	if s.state.Load() == stateBroken {
		return nil
	}
	return s.Ready()
}

func (s *Sink) recoverQuery(w http.ResponseWriter, r *http.Request) {
	p := recover()
	switch {
	case p == nil:
	case p == http.ErrAbortHandler:
		panic(p)
	default:
		s.metrics.queryPanics.Inc()
		s.log.Error("A query panicked", "path", r.URL.Path, "query", r.Form.Get("query"), "panic", p, "stack", string(debug.Stack()))
		answerError(w, http.StatusInternalServerError, "internal", fmt.Errorf("panic: %v", p))
	}
}

// answer is the envelope of every answer of the API.
type answer struct {
	Status    string `json:"status"`
	Data      any    `json:"data,omitempty"`
	ErrorType string `json:"errorType,omitempty"`
	Error     string `json:"error,omitempty"`
}

func respond(w http.ResponseWriter, status int, a answer) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(a) // who is gone needs no answer
}

func answerError(w http.ResponseWriter, status int, kind string, err error) {
	respond(w, status, answer{Status: "error", ErrorType: kind, Error: err.Error()})
}

// serveMetadata answers /api/v1/metadata. The library's own looks at scrape
// targets, of which there are none here.
func (s *Sink) serveMetadata(w http.ResponseWriter, r *http.Request) {
	limits := [2]int{-1, -1}
	for i, name := range []string{"limit", "limit_per_metric"} {
		text := r.FormValue(name)
		if text == "" {
			continue
		}
		n, err := strconv.Atoi(text)
		if err != nil {
			answerError(w, http.StatusBadRequest, "bad_data", fmt.Errorf("%s must be a number", name))
			return
		}
		limits[i] = n
	}
	respond(w, http.StatusOK, answer{Status: "success", Data: s.families.Load().list(r.FormValue("metric"), limits[0], limits[1])})
}

// runtimeInfo describes the process, for /api/v1/status/runtimeinfo.
func (s *Sink) runtimeInfo() func() (apiv1.RuntimeInfo, error) {
	start := time.Now()
	return func() (apiv1.RuntimeInfo, error) {
		host, _ := os.Hostname()
		return apiv1.RuntimeInfo{
			StartTime: start, ServerTime: time.Now(), Hostname: host,
			ReloadConfigSuccess: true, LastConfigTime: start,
			GoroutineCount: runtime.NumGoroutine(), GOMAXPROCS: runtime.GOMAXPROCS(0),
			GOMEMLIMIT: debug.SetMemoryLimit(-1), GOGC: os.Getenv("GOGC"), GODEBUG: os.Getenv("GODEBUG"),
			StorageRetention: s.options.RetentionTime.String(),
		}, nil
	}
}

// flags says for /api/v1/status/flags what a Prometheus with these options would
// have been started with.
func (o *Options) flags() map[string]string {
	return map[string]string{
		"storage.tsdb.path":               o.Path,
		"storage.tsdb.retention.time":     o.RetentionTime.String(),
		"storage.tsdb.retention.size":     strconv.FormatInt(o.RetentionBytes, 10) + "B",
		"storage.tsdb.min-block-duration": o.MinBlockDuration.String(),
		"storage.tsdb.wal-segment-size":   strconv.Itoa(o.WALSegmentBytes) + "B",
		"query.timeout":                   o.QueryTimeout.String(),
		"query.max-samples":               strconv.Itoa(o.QueryMaxSamples),
		"query.max-concurrency":           strconv.Itoa(o.QueryConcurrency),
		"query.lookback-delta":            o.QueryLookback.String(),
	}
}
