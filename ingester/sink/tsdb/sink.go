package tsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/promslog"
	promtsdb "github.com/prometheus/prometheus/tsdb"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Sink stores metrics in an embedded Prometheus database and answers the
// Prometheus query API from it. It is safe for concurrent use.
type Sink struct {
	options  Options
	log      *slog.Logger
	metrics  *metrics
	database *databaseMetrics
	stats    *promtsdb.DBStats
	handler  http.Handler

	state      atomic.Int32          // one of the states below
	retryAt    atomic.Int64          // unix ns before which no reopening is tried
	wblFailure atomic.Pointer[error] // since the database was opened

	staging sync.Pool // of *staged
	rounds  rounds

	// lane is held while the database is appended to, opened and closed.
	lane     sync.Mutex
	appender appender // lane; db is nil while nothing is open

	families atomic.Pointer[families]

	// reads is held for reading by every query, and for writing, together with
	// lane, by who exchanges the fields below. What a query reads is mapped from
	// files, and must not go away under it.
	reads         sync.RWMutex
	db            *promtsdb.DB
	queries       context.Context // ends when the database is about to close
	cancelQueries context.CancelFunc
}

// The states of a sink.
const (
	stateNew     int32 = iota // nothing is open yet
	stateOpening              // the log is being replayed
	stateOpen
	stateBroken // a commit failed: what is on disk has to be read again
	stateFailed // the library panicked in a commit: only a new process helps
	stateClosed
)

// reopenPause is how long a broken database is left alone after a failed
// attempt to open it again (a guess: long enough not to replay a large log
// all the time, short enough for somebody who just made room on the disk).
const reopenPause = 10 * time.Second

var (
	errNotOpen = errors.New("the embedded database is not open yet: send again later")
	errClosed  = errors.New("the embedded database is closed: send again when the ingester is back")
)

// New makes a sink that is not open: it refuses writes and answers queries with
// 503 until Open has returned. The error lists everything that is wrong with the
// options.
func New(o Options) (*Sink, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Sink{
		options: o, log: o.Logger,
		metrics: newMetrics(o.Registerer), database: &databaseMetrics{}, stats: promtsdb.NewDBStats(),
	}
	if s.log == nil {
		s.log = promslog.NewNopLogger()
	}
	if o.Registerer != nil {
		if err := o.Registerer.Register(s.database); err != nil {
			return nil, fmt.Errorf("register the metrics of the embedded database: %w", err)
		}
	}
	s.staging.New = func() any { return new(staged) }
	s.handler = s.newAPI()
	return s, nil
}

// Open makes a sink and opens it. It blocks while the log is replayed.
func Open(o Options) (*Sink, error) {
	s, err := New(o)
	if err != nil {
		return nil, err
	}
	if err := s.Open(); err != nil {
		return nil, err
	}
	return s, nil
}

// Ready reports whether writes are taken and queries answered, and why not.
func (s *Sink) Ready() error {
	switch s.state.Load() {
	case stateOpen:
		return nil
	case stateNew, stateOpening:
		return errNotOpen
	case stateFailed:
		return errPanicked
	case stateClosed:
		return errClosed
	}
	return fmt.Errorf("the embedded database in %s failed to write and is opened again with the next batch: "+
		"check the disk's space and health", s.options.Path)
}

// Write implements ingester.Sink. It blocks until the batch is in the write-ahead
// log. Batches that arrive while another is written share the next commit; one
// that cannot be stored takes those that share its commit with it, and all of
// them may be sent again.
func (s *Sink) Write(ctx context.Context, b *ingester.Batch) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if err := s.mend(time.Now()); err != nil {
		return err
	}
	w := s.staging.Get().(*staged)
	defer func() {
		w.reset()
		s.staging.Put(w)
	}()
	if err := w.read(b); err != nil {
		return &ingester.SinkError{Err: fmt.Errorf("embedded database: %w: the sender's encoder is broken", err), Final: true}
	}
	// Before the commit: a batch that is refused afterwards and sent again
	// finds its metadata known, while the opposite order could lose it.
	if err := s.families.Load().learn(w.metadata); err != nil {
		return err
	}
	if len(w.series) == 0 && len(w.rejected) == 0 && w.lostExemplars == 0 {
		return nil
	}
	return s.rounds.join(w, &s.lane, s.commit)
}

// commit stores the batches of a round together, or none of them. The caller
// holds the lane.
func (s *Sink) commit(batches []*staged) (err error) {
	if err := s.Ready(); err != nil {
		return err
	}
	if err := s.room(s.options.MinFreeBytes); err != nil {
		return err
	}
	if err := s.folder(); err != nil {
		return err
	}
	a := &s.appender
	defer func() {
		if err != nil {
			s.metrics.failedCommits.Inc()
		}
	}()
	n := 0
	for _, w := range batches {
		n += len(w.series)
	}
	// Whatever goes wrong from here on, the head may hold what the log does not.
	after := stateFailed
	defer func() {
		if after != stateOpen && s.state.CompareAndSwap(stateOpen, after) {
			s.metrics.open.Set(0)
		}
	}()
	a.begin(context.Background(), n)
	for _, w := range batches {
		if err := a.appendBatch(w); err != nil {
			after = stateBroken
			if a.app.Rollback() == nil {
				after = stateOpen
			}
			return fmt.Errorf("append to the embedded database in %s: %w", s.options.Path, err)
		}
	}
	if err := a.app.Commit(); err != nil {
		after = stateBroken
		return fmt.Errorf("commit to the embedded database in %s: %w", s.options.Path, err)
	}
	if cause := s.wblFailure.Load(); cause != nil {
		after = stateBroken
		return fmt.Errorf("commit what came out of order to the embedded database in %s: %w", s.options.Path, *cause)
	}
	after = stateOpen
	for _, w := range batches {
		w.settle(a)
	}
	s.metrics.commits.Inc()
	s.metrics.batches.Add(float64(len(batches)))
	return nil
}

// folder looks whether the log is still where it was opened. The database goes on
// writing to files that were deleted, and what it acknowledged then would be gone.
func (s *Sink) folder() error {
	wal := filepath.Join(s.options.Path, "wal")
	if _, err := os.Stat(wal); err != nil {
		return fmt.Errorf("the embedded database's folder is gone or cannot be read: %w; restore it and start again", err)
	}
	return nil
}

// room refuses to write to a disk with less than need bytes left.
func (s *Sink) room(need int64) error {
	if need == 0 {
		return nil
	}
	if free, ok := freeBytes(s.options.Path); ok && free < need {
		return fmt.Errorf("the file system of %s has %d bytes left, less than %d (min_free_bytes, or one wal_segment_bytes "+
			"for a repair): make room, or keep less with retention_bytes", s.options.Path, free, need)
	}
	return nil
}

// API answers the Prometheus query API under /api/v1/, and 404 to everything
// else, the write and admin endpoints included. While the database is not open
// it answers 503.
func (s *Sink) API() http.Handler { return s.handler }

var _ ingester.Sink = (*Sink)(nil)
var _ prometheus.Collector = (*databaseMetrics)(nil)
