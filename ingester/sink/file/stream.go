package file

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// stream is the files of one stream.
type stream struct {
	name, folder string
	options      *Options
	metrics      streamMetrics

	mu struct {
		sync.Mutex
		// file is being written, nil before the first write and after a close.
		file *os.File
		path string
		// size counts whole lines only.
		size   int64
		opened time.Time
		// next numbers the files, so that names sort by age whatever the clock did.
		next int
	}
}

// append stores lines. On an error nothing of them is left in a file.
func (s *stream) append(lines []byte, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.file != nil && s.mu.size > 0 && s.mu.size+int64(len(lines)) > s.options.RotateBytes {
		if err := s.closeLocked(); err != nil {
			return s.failed(err)
		}
	}
	if s.mu.file == nil {
		if err := s.openLocked(now); err != nil {
			return s.failed(err)
		}
	}
	if err := s.writeLocked(lines); err != nil {
		return s.failed(err)
	}
	s.mu.size += int64(len(lines))
	s.metrics.written.Add(float64(len(lines)))
	return nil
}

func (s *stream) failed(err error) error {
	s.metrics.failed.Inc()
	return err
}

// writeLocked writes lines, or takes back what was written of them.
func (s *stream) writeLocked(lines []byte) error {
	_, err := s.mu.file.Write(lines)
	if err == nil && s.options.Fsync {
		err = s.mu.file.Sync()
	}
	if err == nil {
		return nil
	}
	back := s.mu.file.Truncate(s.mu.size)
	if back == nil {
		return err
	}
	// The file ends with half a line now. Nothing may come behind it.
	return errors.Join(err, back, s.closeLocked())
}

func (s *stream) openLocked(now time.Time) error {
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.folder, fmt.Sprintf("%s-%08d-%s.jsonl", s.name, s.mu.next, now.UTC().Format("20060102T150405Z")))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		return err
	}
	if s.options.Fsync {
		if err := syncFolder(s.folder); err != nil {
			return errors.Join(err, f.Close(), os.Remove(path))
		}
	}
	s.mu.next++
	s.mu.file, s.mu.path, s.mu.size, s.mu.opened = f, path, 0, now
	// Files may grow faster than Run looks.
	return s.bound(func() string { return path })
}

// closeLocked ends the file being written.
func (s *stream) closeLocked() error {
	f := s.mu.file
	s.mu.file, s.mu.path, s.mu.size = nil, "", 0
	if f == nil {
		return nil
	}
	s.metrics.closed.Inc()
	return f.Close()
}

func (s *stream) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closeLocked()
}

// closeOld ends the file being written if it is old enough.
func (s *stream) closeOld(now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.file == nil || now.Sub(s.mu.opened) < time.Duration(s.options.RotateAge) {
		return nil
	}
	return s.closeLocked()
}

// active is the name of the file being written, empty if there is none.
func (s *stream) active() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.path
}

// syncFolder makes a new name in a folder last.
func syncFolder(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
