package tsdb

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	promtsdb "github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/fileutil"
	"github.com/prometheus/prometheus/tsdb/wlog"
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
	release, err := claim(s.options.Path)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(undoRepairs(s.options.Path), release()); err != nil {
		return nil, fmt.Errorf("prepare data folder %s: %w", s.options.Path, err)
	}
	f, err := openFamilies(s.options.Path, s.options.MaxFamilies, s.metrics)
	if err != nil {
		return nil, err
	}
	if err := s.openDatabase(); err != nil {
		return nil, errors.Join(err, f.close())
	}
	return f, nil
}

func (s *Sink) openDatabase() error {
	registry := prometheus.NewRegistry()
	db, err := promtsdb.Open(s.options.Path, s.log, registry, s.options.database(), s.stats)
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
	if s.state.Swap(stateClosed) == stateClosed {
		return nil
	}
	s.metrics.open.Set(0)
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
	if err := s.room(); err != nil {
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
// it until release is called.
func claim(dir string) (release func() error, err error) {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return nil, fmt.Errorf("make data folder %s: %w: choose a path that this user may write to", dir, err)
	}
	probe, err := os.CreateTemp(dir, ".probe-*")
	if err != nil {
		return nil, fmt.Errorf("write to data folder %s: %w: choose a path that this user may write to", dir, err)
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		return nil, fmt.Errorf("write to data folder %s: %w", dir, err)
	}
	path := filepath.Join(dir, "lock") // as in Prometheus' tsdb/tsdbutil
	lock, _, err := fileutil.Flock(path)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, fmt.Errorf("data folder %s is in use by another process (it holds %s): stop it, or choose another path", dir, path)
	}
	if err != nil {
		return nil, fmt.Errorf("lock data folder %s: %w", dir, err)
	}
	return func() error { return errors.Join(lock.Release(), os.Remove(path)) }, nil
}

func undoRepairs(dir string) error {
	return errors.Join(undoRepair(filepath.Join(dir, "wal")), undoRepair(filepath.Join(dir, wlog.WblDirName)))
}

// undoRepair brings back a log segment whose repair did not get to its end. To
// repair a segment, Prometheus moves it to *.repair and writes its good records
// anew; when the disk fills up meanwhile, or the process dies, it forgets the
// moved file and all that was acknowledged in it.
func undoRepair(dir string) error {
	moved, err := filepath.Glob(filepath.Join(dir, "*.repair"))
	if err != nil {
		return err
	}
	for _, m := range moved {
		if err := os.Rename(m, strings.TrimSuffix(m, ".repair")); err != nil {
			return fmt.Errorf("undo an interrupted repair: %w", err)
		}
	}
	return nil
}

// oneLine joins the lines of an error, for whoever reads it in a terminal.
func oneLine(err error) error {
	if text := err.Error(); strings.Contains(text, "\n") {
		return errors.New(strings.ReplaceAll(text, "\n", "; "))
	}
	return err
}
