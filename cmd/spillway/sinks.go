package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"

	"github.com/grafana/dskit/services"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink/discard"
	"github.com/spillway-telemetry/spillway/ingester/sink/file"
	"github.com/spillway-telemetry/spillway/ingester/sink/kafka"
	"github.com/spillway-telemetry/spillway/ingester/sink/otlp"
	rwsink "github.com/spillway-telemetry/spillway/ingester/sink/remotewrite"
	"github.com/spillway-telemetry/spillway/ingester/sink/translate"
	"github.com/spillway-telemetry/spillway/ingester/sink/tsdb"
)

// sinks are the open destinations by name.
type sinks struct {
	byName map[string]ingester.Sink
	tsdb   *tsdb.Sink // whose query API is served; nil if there is none
	kafkas map[string]*kafka.Sink
	files  []*file.Sink
	closes []func() error

	translation translate.Options
}

// openSinks opens every destination. translation says how OTLP metrics become series.
func openSinks(configs map[string]SinkConfig, translation translate.Options, logger *slog.Logger, reg prometheus.Registerer) (*sinks, error) {
	s := &sinks{byName: map[string]ingester.Sink{"": discard.Sink{}}, kafkas: map[string]*kafka.Sink{}, translation: translation}
	for _, name := range sortedKeys(configs) {
		if err := s.open(name, configs[name], logger.With("sink", name), prometheus.WrapRegistererWith(prometheus.Labels{"sink": name}, reg)); err != nil {
			return nil, errors.Join(fmt.Errorf("sinks.%s: %w", name, err), s.close())
		}
	}
	return s, nil
}

// open opens one destination, behind the translation of metrics that it needs.
func (s *sinks) open(name string, c SinkConfig, logger *slog.Logger, reg prometheus.Registerer) (err error) {
	switch {
	case c.TSDB != nil:
		opts := *c.TSDB
		opts.Logger, opts.Registerer = logger, reg
		var db *tsdb.Sink
		if db, err = tsdb.Open(opts); err == nil {
			s.add(name, translate.NewToRemoteWrite(db, s.translation), db.Close)
			if s.tsdb == nil {
				s.tsdb = db
			}
		}
	case c.RemoteWrite != nil:
		var rw *rwsink.Sink
		if rw, err = rwsink.New(*c.RemoteWrite, logger, reg); err == nil {
			s.add(name, translate.NewToRemoteWrite(rw, s.translation), rw.Close)
		}
	case c.OTLP != nil:
		var to *otlp.Sink
		if to, err = otlp.New(*c.OTLP, logger, reg); err == nil {
			s.add(name, translate.NewToOTLP(to), to.Close)
		}
	case c.Kafka != nil:
		var to *kafka.Sink
		if to, err = kafka.New(*c.Kafka, logger, reg); err == nil {
			s.kafkas[name] = to
			s.add(name, translate.NewToOTLP(to), to.Close)
		}
	case c.File != nil:
		return s.openFile(name, *c.File, logger, reg)
	default:
		s.byName[name] = discard.Sink{}
	}
	return err
}

// openFile opens a sink of files. The one that nobody configured takes its folder
// when something is written: most programs never need it.
func (s *sinks) openFile(name string, opts file.Options, logger *slog.Logger, reg prometheus.Registerer) error {
	opts.Logger, opts.Registerer = logger, reg
	f, err := file.New(opts)
	if err == nil && name != defaultFileSink {
		err = f.Open()
	}
	if err != nil {
		return err
	}
	s.files = append(s.files, f)
	s.add(name, translate.NewToOTLP(f), f.Close)
	return nil
}

func (s *sinks) add(name string, to ingester.Sink, close func() error) {
	s.byName[name] = to
	s.closes = append(s.closes, close)
}

// start makes or checks the topics that streams go to.
func (s *sinks) start(ctx context.Context, c Config) error {
	for name, k := range s.kafkas {
		var streams []ingester.Stream
		for _, stream := range ingester.Streams() {
			if c.Streams[stream.String()].Sink == name {
				streams = append(streams, stream)
			}
		}
		if err := k.Start(ctx, streams); err != nil {
			return fmt.Errorf("sinks.%s.kafka: %w", name, err)
		}
	}
	return nil
}

// services are what sinks do in the background.
func (s *sinks) services() (background []services.Service) {
	for _, f := range s.files {
		background = append(background, services.NewBasicService(nil, f.Run, nil))
	}
	return background
}

func (s *sinks) close() error {
	var errs []error
	for _, c := range s.closes {
		errs = append(errs, c())
	}
	return errors.Join(errs...)
}

// completeSinks gives the streams without a sink, metrics apart, the embedded one, and
// makes the relative names of files of secrets start at dir.
func (c *Config) completeSinks(dir string) {
	for _, stream := range ingester.Streams() {
		st := c.Streams[stream.String()]
		if st.Sink != "" || stream == ingester.Metrics {
			continue
		}
		st.Sink = defaultFileSink
		c.Streams[stream.String()] = st
		if _, taken := c.Sinks[defaultFileSink]; !taken {
			opts := file.DefaultOptions(filepath.Join("data", "files"))
			c.Sinks[defaultFileSink] = SinkConfig{File: &opts}
		}
	}
	for _, s := range c.Sinks {
		switch {
		case s.RemoteWrite != nil:
			s.RemoteWrite.SetDirectory(dir)
		case s.OTLP != nil:
			s.OTLP.SetDirectory(dir)
		case s.Kafka != nil:
			s.Kafka.SetDirectory(dir)
		}
	}
}
