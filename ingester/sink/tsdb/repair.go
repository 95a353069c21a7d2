package tsdb

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/prometheus/prometheus/tsdb/wlog"
)

// The library keeps two logs: wal for everything, and wbl for what came out of
// order. This file makes up for three ways in which it loses what it has
// acknowledged.

func logDirs(dir string) []string {
	return []string{filepath.Join(dir, "wal"), filepath.Join(dir, wlog.WblDirName)}
}

// undoRepairs brings back log segments whose repair did not get to its end. To
// repair a segment, the library moves it to *.repair and writes its good records
// anew; when the disk fills up meanwhile, or the process dies, it forgets the
// moved file.
func undoRepairs(dir string) error {
	for _, logDir := range logDirs(dir) {
		moved, err := filepath.Glob(filepath.Join(logDir, "*.repair"))
		if err != nil {
			return err
		}
		for _, m := range moved {
			if err := os.Rename(m, strings.TrimSuffix(m, ".repair")); err != nil {
				return fmt.Errorf("undo an interrupted repair: %w", err)
			}
		}
	}
	return nil
}

// repairLogs takes torn records off the logs of a database that was not closed.
// The library would do so as well while it opens, but having repaired wal it does
// not read wbl: what came out of order is missing until the next start, and its
// compaction, which believes that it has seen all of wbl, deletes it.
func (s *Sink) repairLogs() error {
	for _, dir := range logDirs(s.options.Path) {
		corruption, err := findCorruption(dir)
		if err != nil {
			return fmt.Errorf("read log %s: %w", dir, err)
		}
		if corruption == nil {
			continue
		}
		if err := s.repairLog(dir, corruption); err != nil {
			return fmt.Errorf("repair log %s: %w", dir, err)
		}
	}
	return nil
}

func (s *Sink) repairLog(dir string, corruption error) error {
	w, err := wlog.NewSize(s.log, nil, dir, s.options.WALSegmentBytes, s.options.WALCompression)
	if err != nil {
		return err
	}
	return errors.Join(w.Repair(corruption), w.Close())
}

// findCorruption reads a log and returns where its first bad record is, or nil.
func findCorruption(dir string) (corruption, err error) {
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	first, last, err := wlog.Segments(dir)
	if err != nil || last < 0 {
		return nil, err
	}
	for i := first; i <= last; i++ {
		segment, err := wlog.OpenReadSegment(wlog.SegmentName(dir, i))
		if err != nil {
			return nil, err
		}
		records := wlog.NewSegmentBufReader(segment)
		r := wlog.NewReader(records)
		for r.Next() {
		}
		if err := errors.Join(r.Err(), records.Close()); err != nil {
			return r.Err(), nil
		}
	}
	return nil, nil
}

// watch is a log handler that notices when the library could not write what came
// out of order to wbl. It says so in its log alone: Commit returns nil, and the
// samples are gone with the process.
type watch struct {
	slog.Handler
	failure *atomic.Pointer[error]
}

// wblFailure is the library's message (Commit in tsdb/head_append.go).
const wblFailure = "Failed to log out of order samples into the WAL"

// Handle implements slog.Handler.
func (w watch) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == wblFailure {
		cause := errors.New("unknown cause")
		r.Attrs(func(a slog.Attr) bool {
			if err, ok := a.Value.Any().(error); ok {
				cause = err
			}
			return true
		})
		w.failure.Store(&cause)
	}
	if !w.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return w.Handler.Handle(ctx, r)
}

// Enabled implements slog.Handler. Errors are wanted even if nobody reads them.
func (w watch) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= slog.LevelError || w.Handler.Enabled(ctx, l)
}

// WithAttrs implements slog.Handler.
func (w watch) WithAttrs(attrs []slog.Attr) slog.Handler {
	return watch{w.Handler.WithAttrs(attrs), w.failure}
}

// WithGroup implements slog.Handler.
func (w watch) WithGroup(name string) slog.Handler {
	return watch{w.Handler.WithGroup(name), w.failure}
}
