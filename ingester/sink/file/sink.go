package file

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/ptrace"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// Sink writes batches to files. It is safe for concurrent use.
type Sink struct {
	options  Options
	logger   *slog.Logger
	streams  map[ingester.Stream]*stream
	encoders sync.Pool

	opening sync.Mutex
	lock    *os.File // of the folder, nil while it is not ours
}

// Sink implements ingester.Sink.
var _ ingester.Sink = (*Sink)(nil)

// New makes a sink. It touches no file before Open or the first Write.
func New(o Options) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{options: o, logger: o.Logger, streams: make(map[ingester.Stream]*stream)}
	if s.logger == nil {
		s.logger = slog.New(slog.DiscardHandler)
	}
	s.options.Logger = s.logger
	s.encoders.New = func() any { return new(sink.Encoder) }
	m := newMetrics(o.Registerer)
	for _, name := range ingester.Streams() {
		s.streams[name] = &stream{name: name.String(), folder: filepath.Join(o.Path, name.String()), options: &s.options, metrics: m.of(name), hold: s.hold}
	}
	return s, nil
}

// Open takes the folder, which no other process may be using, and makes the files
// that an earlier process left fit to be read: a torn last line is cut off. It may be
// called again; once it succeeded it does nothing.
func (s *Sink) Open() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.lock != nil {
		return nil
	}
	if err := os.MkdirAll(s.options.Path, 0o755); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	lock, err := lockFolder(filepath.Join(s.options.Path, "lock"))
	if err != nil {
		return fmt.Errorf("path: %w", err)
	}
	for _, st := range s.streams {
		if err := st.recover(); err != nil {
			return errors.Join(fmt.Errorf("path: %w", err), lock.Close())
		}
	}
	s.lock = lock
	return nil
}

// hold makes sure that the folder is ours when a file is begun: with the folder its lock
// may have been deleted, and another process may have taken a new one.
func (s *Sink) hold() error {
	s.opening.Lock()
	defer s.opening.Unlock()
	path := filepath.Join(s.options.Path, "lock")
	if s.lock != nil {
		held, err := s.lock.Stat()
		if err != nil {
			return err
		}
		if now, err := os.Stat(path); err == nil && os.SameFile(held, now) {
			return nil
		}
	}
	if err := os.MkdirAll(s.options.Path, 0o755); err != nil {
		return fmt.Errorf("path: %w", err)
	}
	lock, err := lockFolder(path)
	if err != nil {
		return fmt.Errorf("path: %w", err)
	}
	if s.lock != nil {
		_ = s.lock.Close() // of a file that nobody can find any more
	}
	s.lock = lock
	return nil
}

// opened says that the folder is ours.
func (s *Sink) opened() bool {
	s.opening.Lock()
	defer s.opening.Unlock()
	return s.lock != nil
}

// Write implements ingester.Sink: it stores the admitted groups of an OTLP batch as
// lines and blocks until the operating system, with fsync the disk, has them. Its
// errors are *ingester.SinkError that may be retried.
func (s *Sink) Write(_ context.Context, b *ingester.Batch) error {
	lines, err := s.lines(b)
	if err != nil {
		return &ingester.SinkError{Err: err}
	}
	if len(lines) == 0 {
		return nil
	}
	if err := s.Open(); err != nil {
		return &ingester.SinkError{Err: err, RetryAfter: retryAfter}
	}
	if err := s.streams[b.Stream].append(lines, time.Now()); err != nil {
		return &ingester.SinkError{Err: fmt.Errorf("writing to %s: %w", s.streams[b.Stream].folder, err), RetryAfter: retryAfter}
	}
	return nil
}

// retryAfter is how long senders are asked to wait after a failed write: disks that
// are full take people to empty.
const retryAfter = 5 * time.Second

// longestRequest is how large a request may be that becomes one line. JSON is two to
// four times as long, and readers of lines, such as the Collector's, take a megabyte
// by default.
const longestRequest = 256 << 10

// lines makes the lines of a batch.
func (s *Sink) lines(b *ingester.Batch) (lines []byte, err error) {
	e := s.encoders.Get().(*sink.Encoder)
	defer s.encoders.Put(e)
	err = e.Split(b, nil, longestRequest, func(request []byte, alone int) error {
		line, err := toJSON(b.Format, request)
		if err != nil {
			return err
		}
		lines = append(append(lines, line...), '\n')
		return nil
	})
	return lines, err
}

// toJSON translates a request with OpenTelemetry's own code.
func toJSON(f ingester.Format, request []byte) ([]byte, error) {
	switch f {
	case ingester.OTLPMetrics:
		md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(request)
		if err != nil {
			return nil, err
		}
		return (&pmetric.JSONMarshaler{}).MarshalMetrics(md)
	case ingester.OTLPLogs:
		ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(request)
		if err != nil {
			return nil, err
		}
		return (&plog.JSONMarshaler{}).MarshalLogs(ld)
	case ingester.OTLPTraces:
		td, err := (&ptrace.ProtoUnmarshaler{}).UnmarshalTraces(request)
		if err != nil {
			return nil, err
		}
		return (&ptrace.JSONMarshaler{}).MarshalTraces(td)
	}
	return nil, fmt.Errorf("format %d is not OTLP, which is all that this sink takes", f)
}

// Run closes files by their age, compresses closed ones and keeps each stream within
// its bytes, until ctx ends. It returns nil.
func (s *Sink) Run(ctx context.Context) error {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		for _, st := range s.streams {
			if !s.opened() {
				break
			}
			if err := st.tidy(ctx, time.Now()); err != nil && ctx.Err() == nil {
				s.logger.Warn("files could not be tidied; the next try is in a second", "folder", st.folder, "err", err)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Close closes the files. Writes must have ended.
func (s *Sink) Close() error {
	var errs []error
	for _, st := range s.streams {
		errs = append(errs, st.close())
	}
	s.opening.Lock()
	defer s.opening.Unlock()
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
		s.lock = nil
	}
	return errors.Join(errs...)
}
