package tsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtsdb "github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/fileutil"
)

// Open opens the data folder, replays the log and starts the database, whose own
// goroutines end with Close. It blocks until that is done. The error is one
// line.
func (s *Sink) Open() error {
	if !s.state.CompareAndSwap(stateNew, stateOpening) {
		return errors.New("the embedded database was opened before")
	}
	s.lane.Lock()
	defer s.lane.Unlock()
	f, err := s.open()
	if err != nil {
		s.state.CompareAndSwap(stateOpening, stateNew)
		return oneLine(err)
	}
	s.families.Store(f)
	s.opened()
	return nil
}

// open opens metadata and database. The caller holds the lane.
func (s *Sink) open() (*families, error) {
	f, err := s.openFiles()
	if err != nil {
		return nil, err
	}
	if err := s.openDatabase(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

// openFiles looks after the data folder before the library gets it.
func (s *Sink) openFiles() (f *families, err error) {
	unclean, release, err := claim(s.options.Path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, release()) }()
	if err := undoRepairs(s.options.Path); err != nil {
		return nil, err
	}
	if unclean {
		if err := s.repairLogs(); err != nil {
			return nil, err
		}
	}
	return openFamilies(s.options.Path, s.options.MaxFamilies, s.metrics)
}

func (s *Sink) openDatabase() error {
	registry := prometheus.NewRegistry()
	s.wblFailure.Store(nil)
	log := slog.New(watch{s.log.Handler(), &s.wblFailure})
	db, err := promtsdb.Open(s.options.Path, log, registry, s.options.database(), s.stats)
	if err != nil {
		return fmt.Errorf("open the database in %s: %w", s.options.Path, err)
	}
	s.appender.db, s.appender.tag = db, newTag()
	s.appender.window = time.Duration(s.options.OutOfOrderWindow).Milliseconds()
	s.appender.metrics = s.metrics
	s.reads.Lock()
	defer s.reads.Unlock()
	s.db = db
	s.queries, s.cancelQueries = context.WithCancel(context.Background())
	s.database.current.Store(registry)
	return nil
}

func (s *Sink) opened() {
	if s.state.CompareAndSwap(stateOpening, stateOpen) {
		s.metrics.open.Set(1)
	}
}

// closeDatabase ends all queries and closes the database. The caller holds the
// lane.
func (s *Sink) closeDatabase() error {
	if s.appender.db == nil {
		return nil
	}
	s.cancelQueries()
	s.reads.Lock()
	defer s.reads.Unlock()
	s.database.current.Store(nil)
	db := s.db
	s.db, s.appender.db, s.appender.app = nil, nil, nil
	return db.Close()
}

// Close waits for the running commit, ends all queries, flushes and closes. A
// second call does nothing.
func (s *Sink) Close() error {
	before := s.state.Swap(stateClosed)
	if before == stateClosed {
		return nil
	}
	s.metrics.open.Set(0)
	if before == stateFailed {
		return errPanicked
	}
	s.lane.Lock()
	defer s.lane.Unlock()
	err := s.closeDatabase()
	if f := s.families.Load(); f != nil {
		err = errors.Join(err, f.close())
	}
	if err != nil {
		return oneLine(fmt.Errorf("close the embedded database in %s: %w", s.options.Path, err))
	}
	return nil
}

// mend reports whether writes are taken. The first write that finds the database
// broken closes and opens it again: only then is what is in memory what the log
// can bring back. (After a failed write the log of Prometheus goes on behind
// the torn record, and a repair throws away everything behind it; and a series
// whose record failed to be written stays in memory as if it had been.) Others
// are refused meanwhile.
func (s *Sink) mend(now time.Time) error {
	if s.state.Load() != stateBroken {
		return s.Ready()
	}
	// A replay writes chunks, and dies if it cannot; a repair rewrites a segment.
	if err := s.room(max(s.options.MinFreeBytes, int64(s.options.WALSegmentBytes))); err != nil {
		return err
	}
	if now.UnixNano() < s.retryAt.Load() || !s.state.CompareAndSwap(stateBroken, stateOpening) {
		return s.Ready()
	}
	s.lane.Lock()
	defer s.lane.Unlock()
	if err := s.closeDatabase(); err != nil {
		s.log.Warn("The broken embedded database did not close cleanly", "err", err)
	}
	err := undoRepairs(s.options.Path)
	if err == nil {
		err = s.repairLogs()
	}
	if err == nil {
		err = s.openDatabase()
	}
	if err != nil {
		s.retryAt.Store(now.Add(reopenPause).UnixNano())
		s.state.CompareAndSwap(stateOpening, stateBroken)
		return oneLine(fmt.Errorf("open the broken embedded database again: %w", err))
	}
	s.log.Info("The embedded database was opened again after a failed write", "path", s.options.Path)
	s.opened()
	return s.Ready()
}

// claim checks that the folder can be written to and is nobody else's, and takes
// it until release is called. It is unclean if its last owner did not close it.
func claim(dir string) (unclean bool, release func() error, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return false, nil, fmt.Errorf("make data folder %s: %w: choose a path that this user may write to", dir, err)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return false, nil, fmt.Errorf("write to data folder %s: %w: choose a path that this user may write to", dir, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return false, nil, fmt.Errorf("write to data folder %s: %w", dir, err)
	}
	// The library's own lock file. It removes the file when it closes.
	path := filepath.Join(dir, "lock")
	_, statErr := os.Stat(path)
	unclean = statErr == nil
	lock, _, err := fileutil.Flock(path)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil, fmt.Errorf("data folder %s is in use by another process (it holds %s): stop it, or choose another path", dir, path)
	}
	if err != nil {
		return false, nil, fmt.Errorf("lock data folder %s: %w", dir, err)
	}
	return unclean, func() error {
		if unclean {
			return lock.Release()
		}
		return errors.Join(lock.Release(), os.Remove(path))
	}, nil
}

// oneLine joins the lines of an error, for whoever reads it in a terminal.
func oneLine(err error) error {
	if text := err.Error(); strings.Contains(text, "\n") {
		return errors.New(strings.ReplaceAll(text, "\n", "; "))
	}
	return err
}
