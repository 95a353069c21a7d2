package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"
)

// The ends of names: plain files, compressed ones, and those being compressed.
const (
	plainEnd      = ".jsonl"
	compressedEnd = ".jsonl.zst"
	partialEnd    = ".partial"
)

// recover makes the files of an earlier process fit to be read, and numbers go on
// where it stopped.
func (s *stream) recover() error {
	files, err := s.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		var number int
		if _, err := fmt.Sscanf(strings.TrimPrefix(filepath.Base(f.path), s.name+"-"), "%d-", &number); err == nil {
			s.mu.next = max(s.mu.next, number+1)
		}
		if err := s.recoverFile(f); err != nil {
			return err
		}
	}
	leftovers, err := filepath.Glob(filepath.Join(s.folder, "*"+partialEnd))
	if err != nil {
		return err
	}
	for _, path := range leftovers {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

func (s *stream) recoverFile(f diskFile) error {
	name, plain := strings.CutSuffix(f.path, plainEnd)
	if !plain {
		return nil
	}
	// A compressed file gets its name when it is whole, and then its source goes.
	if _, err := os.Stat(name + compressedEnd); err == nil {
		return os.Remove(f.path)
	}
	return cutTornLine(f.path, f.size)
}

// cutTornLine cuts off what stands behind the last whole line of a file.
func cutTornLine(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	end, err := lastLineEnd(f, size)
	if err == nil && end < size {
		err = f.Truncate(end)
	}
	return errors.Join(err, f.Close())
}

// lastLineEnd is where the last whole line of a file of size bytes ends.
func lastLineEnd(f io.ReaderAt, size int64) (int64, error) {
	block := make([]byte, 64<<10)
	for end := size; end > 0; {
		start := max(0, end-int64(len(block)))
		part := block[:end-start]
		if _, err := f.ReadAt(part, start); err != nil {
			return 0, err
		}
		if i := bytes.LastIndexByte(part, '\n'); i >= 0 {
			return start + int64(i) + 1, nil
		}
		end = start
	}
	return 0, nil
}

// diskFile is a file of a stream.
type diskFile struct {
	path string
	size int64
}

// files lists the plain and compressed files, oldest first.
func (s *stream) files() (files []diskFile, err error) {
	entries, err := os.ReadDir(s.folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if !strings.HasSuffix(e.Name(), plainEnd) && !strings.HasSuffix(e.Name(), compressedEnd) {
			continue
		}
		info, err := e.Info()
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		files = append(files, diskFile{filepath.Join(s.folder, e.Name()), info.Size()})
	}
	return files, nil
}

// tidy closes a file that is old enough, compresses the closed ones and deletes the
// oldest beyond the stream's bytes. now decides what is old. While a file ends with half
// a line that cannot be cut off, nothing is compressed.
func (s *stream) tidy(ctx context.Context, now time.Time) error {
	if err := errors.Join(s.closeOld(now), s.mend()); err != nil {
		return err
	}
	files, err := s.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		// A file that is not being written now never is again.
		if s.options.Compression == "none" || !strings.HasSuffix(f.path, plainEnd) || f.path == s.active() {
			continue
		}
		if err := s.compress(ctx, f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return s.bound(s.active)
}

// compress replaces a closed file by its compressed form.
func (s *stream) compress(ctx context.Context, path string) error {
	to := strings.TrimSuffix(path, plainEnd) + compressedEnd
	if err := compressFile(ctx, path, to+partialEnd); err != nil {
		return errors.Join(err, os.Remove(to+partialEnd))
	}
	if err := os.Rename(to+partialEnd, to); err != nil {
		return err
	}
	if err := syncFolder(s.folder); err != nil {
		return err
	}
	return os.Remove(path)
}

func compressFile(ctx context.Context, path, to string) error {
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	w, err := zstd.NewWriter(out, zstd.WithEncoderConcurrency(1))
	if err != nil {
		return errors.Join(err, out.Close())
	}
	_, err = io.Copy(w, readerUntil{ctx, from})
	// The data is on the disk before the name says so.
	return errors.Join(err, w.Close(), out.Sync(), out.Close())
}

// readerUntil reads until the context ends, so that a stop need not wait for a large
// file.
type readerUntil struct {
	ctx  context.Context
	from io.Reader
}

func (r readerUntil) Read(p []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, context.Cause(r.ctx)
	}
	return r.from.Read(p)
}

// bound deletes the oldest closed files while all take more than the stream's bytes.
// active says which one is being written.
func (s *stream) bound(active func() string) error {
	files, err := s.files()
	if err != nil {
		return err
	}
	var sum int64
	for _, f := range files {
		sum += f.size
	}
	for _, f := range files {
		if sum <= s.options.MaxBytes {
			break
		}
		if f.path == active() {
			continue
		}
		if err := os.Remove(f.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		sum -= f.size
		s.metrics.deleted.Add(float64(f.size))
	}
	s.metrics.kept.Set(float64(sum))
	return nil
}
