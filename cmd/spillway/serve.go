package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"github.com/grafana/dskit/server"
	"github.com/grafana/dskit/services"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"

	"github.com/spillway-telemetry/spillway/cmd/spillway/page"
	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/otlp"
	rwreceive "github.com/spillway-telemetry/spillway/ingester/receive/remotewrite"
	"github.com/spillway-telemetry/spillway/ingester/receive/telemetry"
)

// process is the whole program, wired:
//
//	server (dskit) --> receive/remotewrite --> ingester --> sink/translate --> sink/<destination>
//	otlpServers -----> receive/otlp  --------^  ^  (server serves OTLP over HTTP, too)
//	                   receive/telemetry  -------^  ^
//	                                                |
//	reloader (SIGHUP, POST /-/reload, file change) -+
//	governor (CPU use -> slots) --------------------+
//
// Everything is made bottom-up in newProcess, without a goroutine; run starts
// the goroutines and stops them in the order in which data flows.
type process struct {
	config   Config
	logger   *slog.Logger
	registry *prometheus.Registry
	sinks    *sinks
	governor *governor.Governor
	ingester *ingester.Ingester
	reloader *reloader
	history  *page.History
	front    *receive.Front
	otlp     *otlp.Receiver
	// otlpPaths are the handlers of OTLP over HTTP by address.
	otlpPaths map[string]http.Handler
	server    *server.Server
	// otlpServers are the listeners for OTLP's own addresses.
	otlpServers []*otlpServer
	stopping    chan struct{} // closed when no new batch is to be taken
}

// serve runs the program until it is told to stop.
func serve(ctx context.Context, path string) error {
	l, err := load(path, 0)
	if err != nil {
		return err
	}
	p, err := newProcess(l, path)
	if err != nil {
		return err
	}
	return p.run(ctx)
}

func newProcess(l *loaded, path string) (*process, error) {
	p := &process{config: l.config, logger: newLogger(l.config.Log), registry: prometheus.NewRegistry(), stopping: make(chan struct{})}
	p.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	var err error
	if p.sinks, err = openSinks(l.config.Sinks, l.config.OTLP.series(), p.logger, p.registry); err != nil {
		return nil, err
	}
	if p.governor, err = governor.New(l.config.Governor.Config, p.registry, p.logger); err != nil {
		return nil, errors.Join(err, p.sinks.close())
	}
	p.ingester, err = ingester.New(l.settings(p.sinks.byName), int64(l.config.Server.MaxRequestBytes), p.governor)
	if err != nil {
		return nil, errors.Join(err, p.sinks.close())
	}
	p.registry.MustRegister(p.ingester)
	p.history = page.NewHistory(time.Now())
	newBuildInfo(p.registry, version, l.config.Ingester.ReplicaCount)
	p.reloader = newReloader(path, l, p)
	if p.server, err = newServer(l.config.Server, p.logger, p.registry); err != nil {
		hint := ""
		if errors.Is(err, syscall.EADDRINUSE) {
			hint = "; another program has it: stop that, or choose another with server.http_listen_address"
		}
		return nil, errors.Join(fmt.Errorf("server.http_listen_address: cannot listen on %s: %w%s", l.config.Server.HTTPListenAddress, err, hint), p.sinks.close())
	}
	p.front = p.newFront()
	p.otlp = p.newOTLP()
	p.otlpPaths = p.newOTLPPaths()
	if err := p.listenOTLP(); err != nil {
		p.closeOTLP()
		p.server.Stop()
		return nil, errors.Join(err, p.sinks.close())
	}
	p.routes()
	return p, nil
}

// run serves until ctx ends or a signal comes. Then no new batch is taken, those
// in flight finish, own metrics are written once more, and the sinks close.
func (p *process) run(ctx context.Context) error {
	ctx, cancel := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := p.sinks.start(ctx, p.config); err != nil {
		return errors.Join(err, p.sinks.close())
	}
	background, err := services.NewManager(append(p.sinks.services(), p.reloader.service(), p.telemetryService(), p.memoryService(), p.historyService(), services.NewBasicService(nil, p.governor.Run, nil))...)
	if err != nil {
		return err
	}
	if err := services.StartManagerAndAwaitHealthy(ctx, background); err != nil {
		return errors.Join(err, p.sinks.close())
	}
	failed := services.NewFailureWatcher()
	failed.WatchManager(background)
	served := make(chan error, 1+len(p.otlpServers))
	go func() { served <- p.server.Run() }()
	p.startOTLP(served)
	p.logger.Info("ready", "address", p.server.HTTPListenAddr().String(), "ingesters", p.config.Ingester.ReplicaCount)
	select {
	case <-ctx.Done():
		p.logger.Info("stopping", "wait", p.config.Server.ShutdownTimeout)
		err = nil
	case err = <-served:
		if err != nil {
			err = fmt.Errorf("server: %w", err)
		}
	case err = <-failed.Chan():
		// Without what moves the capacity or reloads, it would only look alive.
		err = fmt.Errorf("a background service failed: %w", err)
	}
	close(p.stopping)
	p.stopOTLP()
	p.server.Shutdown()
	p.server.Stop()
	stopErr := services.StopManagerAndAwaitStopped(context.Background(), background)
	err = errors.Join(err, stopErr, p.sinks.close())
	p.logger.Info("stopped")
	return err
}

// telemetryService writes Spillway's own metrics in regular intervals, and once
// more at the end.
func (p *process) telemetryService() services.Service {
	c := p.config
	if c.Telemetry.Interval == 0 {
		return services.NewIdleService(nil, nil)
	}
	labels := map[string]string{"job": "spillway", "instance": instance(p.server.HTTPListenAddr())}
	for name, value := range c.Telemetry.Labels {
		labels[name] = value
	}
	w := telemetry.Writer{Ingester: p.ingester, Gatherer: p.registry, Labels: labels}
	write := func(ctx context.Context) error {
		if err := w.Write(ctx, time.Now()); err != nil {
			p.logger.Warn("own metrics were not stored; the next ones will be", "err", err)
		}
		return nil
	}
	return services.NewTimerService(c.Telemetry.Interval, nil, write, func(error) error { return write(context.Background()) })
}

// instance names this process on its own metrics.
func instance(addr net.Addr) string {
	host, err := os.Hostname()
	if err != nil {
		return addr.String()
	}
	_, port, _ := net.SplitHostPort(addr.String())
	return net.JoinHostPort(host, port)
}

// newServer makes the HTTP server. It listens, and does not serve yet.
func newServer(c ServerConfig, logger *slog.Logger, reg *prometheus.Registry) (*server.Server, error) {
	host, port, err := net.SplitHostPort(c.HTTPListenAddress)
	if err != nil {
		return nil, err
	}
	number, err := strconv.Atoi(port)
	if err != nil {
		return nil, fmt.Errorf("port %q is not a number", port)
	}
	cfg := server.Config{
		MetricsNamespace:              "spillway",
		HTTPListenNetwork:             "tcp",
		HTTPListenAddress:             host,
		HTTPListenPort:                number,
		HTTPServerReadTimeout:         c.ReadTimeout,
		HTTPServerReadHeaderTimeout:   c.ReadTimeout,
		HTTPServerIdleTimeout:         c.IdleTimeout,
		ServerGracefulShutdownTimeout: c.ShutdownTimeout,
		DoNotAddDefaultHTTPMiddleware: true,
		Log:                           goKitLogger{logger},
		Registerer:                    reg,
		Gatherer:                      reg,
		SignalHandler:                 &quietSignals{stop: make(chan struct{})},
		GRPCServerMaxRecvMsgSize:      4 << 20,
		GRPCServerMaxSendMsgSize:      4 << 20,
	}
	cfg.GRPCListenNetwork, cfg.GRPCListenAddress = privateListener()
	cfg.HTTPTLSConfig = server.TLSConfig{
		TLSCertPath: c.TLS.CertFile, TLSKeyPath: c.TLS.KeyFile, ClientCAs: c.TLS.ClientCAFile,
	}
	if c.TLS.ClientCAFile != "" {
		cfg.HTTPTLSConfig.ClientAuth = "RequireAndVerifyClientCert"
	}
	s, err := server.New(cfg)
	if err != nil {
		return nil, err
	}
	s.HTTPServer.ErrorLog = slog.NewLogLogger(logger.Handler(), slog.LevelWarn)
	return s, nil
}

// privatePrefix begins the names of private listeners.
const privatePrefix = "@spillway-"

// privateListener is where dskit's server, which always has a gRPC listener,
// puts it while there is nothing to serve on it: nowhere that others can reach.
func privateListener() (network, address string) {
	if runtime.GOOS != "linux" {
		return "tcp", "127.0.0.1"
	}
	var id [8]byte
	_, _ = rand.Read(id[:])
	return "unix", privatePrefix + hex.EncodeToString(id[:])
}

// quietSignals leaves signals to run, which stops things in their order.
type quietSignals struct{ stop chan struct{} }

func (q *quietSignals) Loop() { <-q.stop }
func (q *quietSignals) Stop() { close(q.stop) }

// writeHandler is the remote write receiver with the configured limits.
func (p *process) writeHandler() http.Handler {
	c := p.config
	return rwreceive.NewHandler(p.ingester, rwreceive.Limits{
		BodyBytes: int(c.Server.MaxBodyBytes), DecodedBytes: int(c.Server.MaxDecodedBytes), Series: c.Server.MaxSeriesPerRequest, Items: c.Server.MaxItemsPerRequest,
		ForwardHeaders: c.Server.ForwardHeaders,
	}, c.Governor.ShedStatus)
}
