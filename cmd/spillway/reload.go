package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/signal"
	"reflect"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/grafana/dskit/services"
)

// watchInterval is how often the files are looked at. A change is taken up when
// two looks in a row see the same, so that a half-written file is left alone;
// that is within the second that users are promised.
const watchInterval = 300 * time.Millisecond

// reloader puts changed files in force: on SIGHUP, on POST /-/reload, and when
// a file has changed. What is new is read and checked whole before anything is
// replaced; where it is not valid the last good configuration stays.
type reloader struct {
	path    string
	process *process
	metrics *reloadMetrics

	mu      sync.Mutex // one reload at a time; guards what follows
	running Config     // what the process was started with, for what needs a restart
	seen    map[string]fingerprint
	pending map[string]fingerprint
}

// fingerprint tells whether a file has changed. It follows symbolic links, so
// the swap that Kubernetes makes under a mounted ConfigMap is a change.
type fingerprint struct {
	missing  bool
	size     int64
	modified time.Time
	inode    uint64
}

func newReloader(path string, l *loaded, p *process) *reloader {
	r := &reloader{path: path, process: p, running: l.config, metrics: newReloadMetrics(p.registry)}
	r.seen = l.files
	r.metrics.succeeded(time.Now())
	return r
}

// reload reads everything again and puts it in force, or says what is wrong.
func (r *reloader) reload(why string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.reloadLocked(why)
}

func (r *reloader) reloadLocked(why string) error {
	l, err := load(r.path, r.running.Ingester.ReplicaCount)
	r.watch(l, err != nil)
	if err == nil {
		err = r.process.ingester.Reload(l.settings(r.process.sinks.byName))
	}
	if err != nil {
		r.metrics.failed()
		for _, line := range strings.Split(err.Error(), "\n") {
			r.process.logger.Error("reload refused; the last good configuration stays in force", "cause", why, "problem", line)
		}
		return err
	}
	r.metrics.succeeded(time.Now())
	r.process.logger.Info("configuration reloaded", "cause", why)
	r.logPolicyWarnings(l)
	for _, name := range needRestart(r.running, l.config) {
		r.process.logger.Warn("this change takes a restart to be in force", "section", name)
	}
	return nil
}

// watch looks from now on for changes of the files that a configuration names. A
// refused one may be mended in its own files or by going back to those before.
func (r *reloader) watch(l *loaded, refused bool) {
	r.pending = nil
	if !refused {
		r.seen = l.files
		return
	}
	maps.Copy(r.seen, l.files)
}

func (r *reloader) logPolicyWarnings(l *loaded) {
	for _, w := range l.policy.Warnings() {
		r.process.logger.Warn("policy", "path", w.Path, "warning", w.Message)
	}
}

// needRestart lists the sections that differ and are read at start only.
func needRestart(old, now Config) []string {
	var names []string
	for _, s := range []struct {
		name     string
		old, now any
	}{
		{"server", old.Server, now.Server},
		{"sinks", old.Sinks, now.Sinks},
		{"log", old.Log, now.Log},
		{"ingester.route_cache_bytes", old.Ingester.RouteCacheBytes, now.Ingester.RouteCacheBytes},
		{"governor", old.Governor, now.Governor},
		{"otlp", old.OTLP, now.OTLP},
		{"telemetry", old.Telemetry, now.Telemetry},
		{"ingester.replica_count", old.Ingester.ReplicaCount, now.Ingester.ReplicaCount},
	} {
		if !reflect.DeepEqual(s.old, s.now) {
			names = append(names, s.name)
		}
	}
	return names
}

// service watches for SIGHUP and for changed files.
func (r *reloader) service() services.Service {
	return services.NewBasicService(nil, r.run, nil)
}

func (r *reloader) run(ctx context.Context) error {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	ticker := time.NewTicker(watchInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-hup:
			_ = r.reload("SIGHUP") // logged and counted
		case <-ticker.C:
			r.look()
		}
	}
}

// look reloads when a file differs from what was loaded last and has come to
// rest. A refused change is not tried again until the files change once more.
func (r *reloader) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := make(map[string]fingerprint, len(r.seen))
	for file := range r.seen {
		now[file] = fingerprintOf(file)
	}
	if reflect.DeepEqual(now, r.seen) {
		r.pending = nil
		return
	}
	if !reflect.DeepEqual(now, r.pending) {
		r.pending = now
		return
	}
	r.seen = now // a refused file is not tried again until it changes once more
	_ = r.reloadLocked("file change")
}

// serveHTTP answers POST /-/reload.
func (r *reloader) serveHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodPost && req.Method != http.MethodPut {
		w.Header().Set("Allow", "POST, PUT")
		http.Error(w, "only POST or PUT reloads", http.StatusMethodNotAllowed)
		return
	}
	if err := r.reload("POST /-/reload"); err != nil {
		http.Error(w, fmt.Sprintf("the last good configuration stays in force:\n%v", err), http.StatusInternalServerError)
		return
	}
	text("reloaded\n")(w, req)
}

func fingerprintOf(file string) fingerprint {
	info, err := os.Stat(file)
	if err != nil {
		return fingerprint{missing: errors.Is(err, os.ErrNotExist)}
	}
	f := fingerprint{size: info.Size(), modified: info.ModTime()}
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		f.inode = st.Ino
	}
	return f
}
