package file

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// What was acknowledged is found in the folder, whatever happened to the file that was
// being written.
func TestNothingIsAcknowledgedIntoAMovedFile(t *testing.T) {
	type place struct{ root, folder, path string }
	for name, c := range map[string]struct {
		move func(t *testing.T, p place)
		// kept says that what was written before is still in the folder.
		kept bool
	}{
		"file removed":   {func(t *testing.T, p place) { require.NoError(t, os.Remove(p.path)) }, false},
		"folder removed": {func(t *testing.T, p place) { require.NoError(t, os.RemoveAll(p.folder)) }, false},
		"all removed":    {func(t *testing.T, p place) { require.NoError(t, os.RemoveAll(p.root)) }, false},
		"file renamed":   {func(t *testing.T, p place) { require.NoError(t, os.Rename(p.path, p.path+".1")) }, true},
		"file renamed and another put there": {func(t *testing.T, p place) {
			require.NoError(t, os.Rename(p.path, p.path+".1"))
			require.NoError(t, os.WriteFile(p.path, nil, 0o644))
		}, true},
		"file shortened": {func(t *testing.T, p place) { require.NoError(t, os.Truncate(p.path, 0)) }, false},
		"folder replaced": {func(t *testing.T, p place) {
			require.NoError(t, os.Rename(p.folder, p.folder+".old"))
			require.NoError(t, os.Mkdir(p.folder, 0o755))
		}, false},
		"folder replaced by its copy": {func(t *testing.T, p place) {
			require.NoError(t, os.Rename(p.folder, p.folder+".old"))
			require.NoError(t, os.CopyFS(p.folder, os.DirFS(p.folder+".old")))
		}, true},
	} {
		for _, fsync := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, fsync %t", name, fsync), func(t *testing.T) {
				o := DefaultOptions(filepath.Join(t.TempDir(), "f"))
				o.Fsync = fsync
				s := open(t, o)
				require.NoError(t, s.Write(t.Context(), batch(t, "a")))
				st := s.streams[ingester.Logs]
				c.move(t, place{o.Path, st.folder, st.active()})
				require.NoError(t, s.Write(t.Context(), batch(t, "b")))
				require.NoError(t, s.Write(t.Context(), batch(t, "c")))
				want := []string{"b", "c"}
				if c.kept {
					want = []string{"a", "b", "c"}
				}
				require.ElementsMatch(t, want, bodies(t, o.Path))
				other, err := New(o)
				require.NoError(t, err)
				require.ErrorContains(t, other.Open(), "give each its own folder")
				require.NoError(t, s.Close())
			})
		}
	}
}

// Files are moved away all the time, also between a write and the look after it. What
// was acknowledged is there once.
func TestFilesThatAreMovedAllTheTime(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	st := s.streams[ingester.Logs]
	done, stopped := make(chan struct{}), make(chan int)
	go func() {
		moved := 0
		for {
			select {
			case <-done:
				stopped <- moved
				return
			default:
				if path := st.active(); path != "" && os.Rename(path, fmt.Sprint(path, ".", moved)) == nil {
					moved++
				}
			}
		}
	}()
	var want []string
	for i := range 500 {
		text := fmt.Sprint(i)
		if s.Write(t.Context(), batch(t, text)) == nil {
			want = append(want, text)
		}
	}
	close(done)
	require.Positive(t, <-stopped)
	require.NotEmpty(t, want)
	require.ElementsMatch(t, want, bodies(t, o.Path))
	require.NoError(t, s.Close())
}

// Where no new file can be begun the write fails, and the sender keeps its data.
func TestAMovedFileThatCannotBeReplaced(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	require.NoError(t, s.Write(t.Context(), batch(t, "a")))
	folder := s.streams[ingester.Logs].folder
	require.NoError(t, os.RemoveAll(folder))
	require.NoError(t, os.WriteFile(folder, nil, 0o644))
	var e *ingester.SinkError
	require.ErrorAs(t, s.Write(t.Context(), batch(t, "b")), &e)
	require.False(t, e.Final)
	require.Positive(t, e.RetryAfter)
	require.NoError(t, os.Remove(folder))
	require.NoError(t, s.Write(t.Context(), batch(t, "c")))
	require.Equal(t, []string{"c"}, bodies(t, o.Path))
	require.EqualValues(t, 1, testutil.ToFloat64(s.streams[ingester.Logs].metrics.moved))
	require.NoError(t, s.Close())
}

// A file that was shortened by somebody else is not filled up with zeros when a write
// to it fails.
func TestAFailedWriteToAShortenedFile(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	require.NoError(t, s.Write(t.Context(), batch(t, "a", "b")))
	st := s.streams[ingester.Logs]
	require.NoError(t, os.Truncate(st.active(), 0))
	require.True(t, st.inPlaceLocked())
	require.Zero(t, st.mu.size)
	require.NoError(t, s.Close())
}

// A write that fails half way and cannot be taken back leaves half a line. It is cut
// off before anything else happens to the file.
func TestHalfALineThatCannotBeTakenBack(t *testing.T) {
	for _, compression := range []string{"zstd", "none"} {
		t.Run(compression, func(t *testing.T) {
			o := DefaultOptions(t.TempDir())
			o.Compression = compression
			s := open(t, o)
			require.NoError(t, s.Write(t.Context(), batch(t, "a")))
			st := s.streams[ingester.Logs]
			path := st.active()
			// The file takes neither bytes nor a new length, and half a line is in it.
			good := st.mu.file
			_, err := good.WriteString(`{"resourceLogs":[{"sco`)
			require.NoError(t, err)
			st.mu.file, err = os.Open(path)
			require.NoError(t, err)
			require.Error(t, s.Write(t.Context(), batch(t, "b")))
			require.NoError(t, good.Close())
			require.NotNil(t, st.mu.torn)

			require.NoError(t, st.tidy(t.Context(), time.Now()))
			require.Nil(t, st.mu.torn)
			require.Equal(t, []string{"a"}, bodies(t, o.Path), "before the next write")
			require.NoError(t, s.Write(t.Context(), batch(t, "c")))
			require.NoError(t, st.tidy(t.Context(), time.Now()))
			require.Equal(t, []string{"a", "c"}, bodies(t, o.Path))
			require.NoError(t, s.Close())
		})
	}
}

// A torn file that somebody replaced is left alone.
func TestATornFileThatIsGone(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	require.NoError(t, s.Write(t.Context(), batch(t, "a")))
	st := s.streams[ingester.Logs]
	path := st.active()
	st.mu.torn = &tornFile{path: path, info: st.mu.info, size: 1}
	require.NoError(t, st.close())
	require.NoError(t, os.Rename(path, path+".1"))
	require.NoError(t, os.WriteFile(path, []byte("{}\n{}\n"), 0o644))
	require.NoError(t, st.mend())
	require.EqualValues(t, 6, fileSize(t, path))
	require.NoError(t, s.Close())
}

// BenchmarkInPlace is what it costs to know that a file is where it was.
func BenchmarkInPlace(b *testing.B) {
	s, err := New(DefaultOptions(b.TempDir()))
	require.NoError(b, err)
	require.NoError(b, s.Write(b.Context(), batch(b, "a")))
	st := s.streams[ingester.Logs]
	for b.Loop() {
		if !st.inPlaceLocked() {
			b.Fatal("moved")
		}
	}
	require.NoError(b, s.Close())
}
