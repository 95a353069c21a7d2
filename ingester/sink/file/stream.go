package file

import (
	"errors"
	"fmt"
	"io/fs"
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
	// hold makes sure that the folder of all streams is this process's.
	hold func() error

	mu struct {
		sync.Mutex
		// file is being written, nil before the first write and after a close.
		file *os.File
		path string
		info os.FileInfo
		// size counts whole lines only.
		size   int64
		opened time.Time
		// next numbers the files, so that names sort by age whatever the clock did.
		next int
		// torn is a closed file that ends with half a line.
		torn *tornFile
	}
}

// tornFile is a file that ends with half a line behind size bytes.
type tornFile struct {
	path string
	info os.FileInfo
	size int64
}

// errMoved says that a file is no longer where it was opened.
var errMoved = errors.New("the file was renamed or deleted while it was being written")

// append stores lines. On an error nothing of them is left in a file.
func (s *stream) append(lines []byte, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.appendLocked(lines, now)
	if errors.Is(err, errMoved) {
		err = s.appendLocked(lines, now)
	}
	if err != nil {
		s.metrics.failed.Inc()
		return err
	}
	s.mu.size += int64(len(lines))
	s.metrics.written.Add(float64(len(lines)))
	return nil
}

// appendLocked writes lines to the file, to a new one if there is none or it is full
// or gone.
func (s *stream) appendLocked(lines []byte, now time.Time) error {
	switch {
	case s.mu.file == nil:
	case !s.inPlaceLocked():
		s.leaveLocked()
	case s.mu.size > 0 && s.mu.size+int64(len(lines)) > s.options.RotateBytes:
		if err := s.closeLocked(); err != nil {
			return err
		}
	}
	if s.mu.file == nil {
		if err := s.openLocked(now); err != nil {
			return err
		}
	}
	if err := s.writeLocked(lines); err != nil {
		return err
	}
	if s.inPlaceLocked() {
		return nil
	}
	// If the file lives on under another name, the lines must not be there twice.
	err := s.mu.file.Truncate(s.mu.size)
	s.leaveLocked()
	return errors.Join(errMoved, err)
}

// inPlaceLocked reports whether the path still leads to the file being written: what
// is written to a deleted file is gone when it is closed. Somebody may also have
// shortened it.
func (s *stream) inPlaceLocked() bool {
	now, err := os.Stat(s.mu.path)
	if err != nil || !os.SameFile(now, s.mu.info) {
		return false
	}
	s.mu.size = min(s.mu.size, now.Size())
	return true
}

// leaveLocked leaves a file to whoever moved it away. All that it holds was written,
// so an error of closing it changes nothing.
func (s *stream) leaveLocked() {
	s.options.Logger.Warn("a file was renamed or deleted while it was being written; a new one is begun", "file", s.mu.path)
	s.metrics.moved.Inc()
	_ = s.mu.file.Close()
	s.mu.file, s.mu.path, s.mu.info, s.mu.size = nil, "", nil, 0
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
	s.mu.torn = &tornFile{s.mu.path, s.mu.info, s.mu.size}
	return errors.Join(err, back, s.closeLocked())
}

// mend cuts off the half line of a file that ends with one.
func (s *stream) mend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mendLocked()
}

func (s *stream) mendLocked() error {
	torn := s.mu.torn
	if torn == nil {
		return nil
	}
	now, err := os.Stat(torn.path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && !os.SameFile(now, torn.info):
		// Whoever took it away has it as it is.
	case err != nil:
		return err
	default:
		if err := os.Truncate(torn.path, min(torn.size, now.Size())); err != nil {
			return fmt.Errorf("cut off the half line that a failed write left: %w", err)
		}
	}
	s.mu.torn = nil
	return nil
}

func (s *stream) openLocked(now time.Time) error {
	if err := s.mendLocked(); err != nil {
		return err
	}
	if err := s.hold(); err != nil {
		return err
	}
	if err := os.MkdirAll(s.folder, 0o755); err != nil {
		return err
	}
	path := filepath.Join(s.folder, fmt.Sprintf("%s-%08d-%s.jsonl", s.name, s.mu.next, now.UTC().Format("20060102T150405Z")))
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY|os.O_APPEND, 0o644)
	if errors.Is(err, fs.ErrExist) {
		s.mu.next++ // of a folder that was put in the place of ours
	}
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil {
		return errors.Join(err, f.Close(), os.Remove(path))
	}
	if s.options.Fsync {
		if err := syncFolder(s.folder); err != nil {
			return errors.Join(err, f.Close(), os.Remove(path))
		}
	}
	s.mu.next++
	s.mu.file, s.mu.path, s.mu.info, s.mu.size, s.mu.opened = f, path, info, 0, now
	// Files may grow faster than Run looks.
	return s.bound(func() string { return path })
}

// closeLocked ends the file being written.
func (s *stream) closeLocked() error {
	f := s.mu.file
	s.mu.file, s.mu.path, s.mu.info, s.mu.size = nil, "", nil, 0
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
