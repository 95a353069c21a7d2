package file

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.uber.org/goleak"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// batch is a batch of log records with these bodies, as a receiver makes it.
func batch(tb testing.TB, bodies ...string) *ingester.Batch {
	tb.Helper()
	ld := plog.NewLogs()
	records := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for _, text := range bodies {
		records.AppendEmpty().Body().SetStr(text)
	}
	raw, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(tb, err)
	b := &ingester.Batch{Stream: ingester.Logs, Format: ingester.OTLPLogs}
	require.True(tb, sink.Describe(b, raw))
	require.Len(tb, b.Groups, len(bodies))
	return b
}

func open(t *testing.T, o Options) *Sink {
	t.Helper()
	s, err := New(o)
	require.NoError(t, err)
	require.NoError(t, s.Open())
	return s
}

// bodies reads the log bodies of all files of a folder, oldest first. Every line must
// be whole.
func bodies(t *testing.T, folder string) (all []string) {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "logs", "logs-*.jsonl*"))
	require.NoError(t, err)
	slices.Sort(paths)
	for _, path := range paths {
		require.NotContains(t, path, partialEnd)
		raw, err := os.ReadFile(path)
		require.NoError(t, err)
		if strings.HasSuffix(path, compressedEnd) {
			d, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1))
			require.NoError(t, err)
			raw, err = io.ReadAll(d)
			require.NoError(t, err)
			d.Close()
		}
		lines := bufio.NewScanner(bytes.NewReader(raw))
		lines.Buffer(nil, 64<<20)
		for lines.Scan() {
			ld, err := (&plog.JSONUnmarshaler{}).UnmarshalLogs(lines.Bytes())
			require.NoError(t, err, "%s holds a torn line: %s", path, lines.Text())
			for _, rl := range ld.ResourceLogs().All() {
				for _, sl := range rl.ScopeLogs().All() {
					for _, lr := range sl.LogRecords().All() {
						all = append(all, lr.Body().Str())
					}
				}
			}
		}
	}
	return all
}

func TestLinesCanBeReadWhileTheyAreWritten(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	defer s.Close()
	b := batch(t, "a", "b", "c")
	b.Groups[1].Verdict = ingester.DroppedRatelimit
	require.NoError(t, s.Write(t.Context(), b))
	require.Equal(t, []string{"a", "c"}, bodies(t, o.Path))
	whole := batch(t, "d")
	whole.Whole = true
	require.NoError(t, s.Write(t.Context(), whole))
	require.Equal(t, []string{"a", "c", "d"}, bodies(t, o.Path))
	nothing := batch(t, "e")
	nothing.Groups[0].Verdict = ingester.DroppedRelabel
	require.NoError(t, s.Write(t.Context(), nothing))
	require.Equal(t, []string{"a", "c", "d"}, bodies(t, o.Path))
}

func TestStreamsHaveTheirOwnFiles(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	defer s.Close()
	for _, stream := range []ingester.Stream{ingester.Logs, ingester.Events, ingester.RUM} {
		b := batch(t, stream.String())
		b.Stream = stream
		require.NoError(t, s.Write(t.Context(), b))
	}
	td := ptrace.NewTraces()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("op")
	raw, err := (&ptrace.ProtoMarshaler{}).MarshalTraces(td)
	require.NoError(t, err)
	require.NoError(t, s.Write(t.Context(), &ingester.Batch{Stream: ingester.Traces, Format: ingester.OTLPTraces, Body: raw, Size: len(raw), Whole: true, Groups: make([]ingester.Group, 1)}))
	for _, stream := range []string{"logs", "events", "rum", "traces"} {
		paths, err := filepath.Glob(filepath.Join(o.Path, stream, stream+"-00000000-*.jsonl"))
		require.NoError(t, err)
		require.Len(t, paths, 1)
	}
}

func TestLargeRequestsBecomeSeveralLines(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	defer s.Close()
	var want []string
	for i := range 40 {
		want = append(want, fmt.Sprint(i, strings.Repeat("x", 30_000)))
	}
	want = append(want, strings.Repeat("y", 2*longestRequest))
	b := batch(t, want...)
	require.NoError(t, s.Write(t.Context(), b))
	require.Equal(t, want, bodies(t, o.Path))
	lines, err := s.lines(b)
	require.NoError(t, err)
	for line := range bytes.Lines(lines) {
		require.True(t, len(line) < 1<<20)
	}
	require.GreaterOrEqual(t, bytes.Count(lines, []byte("\n")), 6)
}

// Files are closed by size and age, compressed, and the oldest go beyond the bound.
func TestFilesRotate(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	o.RotateBytes, o.MaxBytes, o.RotateAge = 1<<10, 4<<10, model.Duration(time.Minute)
	s := open(t, o)
	var want []string
	for i := range 30 {
		text := fmt.Sprint(i, strings.Repeat("z", 200))
		want = append(want, text)
		require.NoError(t, s.Write(t.Context(), batch(t, text)))
		if i%4 == 0 {
			require.NoError(t, s.streams[ingester.Logs].tidy(t.Context(), time.Now()))
		}
		files, err := s.streams[ingester.Logs].files()
		require.NoError(t, err)
		var sum int64
		for _, f := range files {
			sum += f.size
		}
		require.LessOrEqual(t, sum, o.MaxBytes+o.RotateBytes, "what is written since the last file began is not in the bound yet")
	}
	st := s.streams[ingester.Logs]
	require.NoError(t, st.tidy(t.Context(), time.Now()))
	require.NotEmpty(t, st.active())
	require.NoError(t, st.tidy(t.Context(), time.Now().Add(time.Minute)))
	require.Empty(t, st.active(), "closed by age")
	files, err := st.files()
	require.NoError(t, err)
	for _, f := range files {
		require.True(t, strings.HasSuffix(f.path, compressedEnd))
	}
	got := bodies(t, o.Path)
	require.Equal(t, want[len(want)-len(got):], got, "the newest are kept, each once")
	require.NotEmpty(t, got)
	require.NoError(t, s.Close())
}

func TestRunTidies(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	o.RotateBytes = 1 << 10
	s := open(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	var want []string
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 200 {
				text := fmt.Sprintf("%d-%d-%s", w, i, strings.Repeat("z", 100))
				if err := s.Write(ctx, batch(t, text)); err != nil {
					t.Error(err)
				}
				mu.Lock()
				want = append(want, text)
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	cancel()
	require.NoError(t, <-done)
	require.NoError(t, s.Close())
	got := bodies(t, o.Path)
	slices.Sort(got)
	slices.Sort(want)
	require.Equal(t, want, got)
}

// Whatever a killed process leaves behind, the next one finds every line that was
// stored, each once, and none torn.
func TestWhatAKillLeavesBehind(t *testing.T) {
	rnd := rand.New(rand.NewSource(1))
	for range 50 {
		o := DefaultOptions(t.TempDir())
		s := open(t, o)
		require.NoError(t, s.Write(t.Context(), batch(t, "a")))
		require.NoError(t, s.Write(t.Context(), batch(t, "b")))
		path := s.streams[ingester.Logs].active()
		lines, err := s.lines(batch(t, strings.Repeat("torn", 50_000)))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		torn := lines[:rnd.Intn(len(lines))]
		f, err := os.OpenFile(path, os.O_APPEND|os.O_WRONLY, 0)
		require.NoError(t, err)
		_, err = f.Write(torn)
		require.NoError(t, err)
		require.NoError(t, f.Close())
		switch rnd.Intn(3) {
		case 0: // killed while compressing
			require.NoError(t, os.WriteFile(strings.TrimSuffix(path, plainEnd)+compressedEnd+partialEnd, []byte("half"), 0o644))
		case 1: // killed before the source of a compressed file was deleted
			require.NoError(t, cutTornLine(path, int64(fileSize(t, path))))
			require.NoError(t, compressFile(t.Context(), path, strings.TrimSuffix(path, plainEnd)+compressedEnd))
		}
		s = open(t, o)
		require.NoError(t, s.Write(t.Context(), batch(t, "c")))
		require.NotEqual(t, path, s.streams[ingester.Logs].active())
		require.Equal(t, []string{"a", "b", "c"}, bodies(t, o.Path))
		require.NoError(t, s.Close())
	}
}

func fileSize(t *testing.T, path string) int64 {
	info, err := os.Stat(path)
	require.NoError(t, err)
	return info.Size()
}

// A write that fails half way is taken back, and the sender hears of it.
func TestAFailedWriteLeavesNothing(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	require.NoError(t, s.Write(t.Context(), batch(t, "a")))
	st := s.streams[ingester.Logs]
	readOnly, err := os.Open(st.active())
	require.NoError(t, err)
	good := st.mu.file
	st.mu.file = readOnly
	var e *ingester.SinkError
	require.ErrorAs(t, s.Write(t.Context(), batch(t, "b")), &e)
	require.False(t, e.Final)
	require.NoError(t, good.Close())
	require.NoError(t, s.Write(t.Context(), batch(t, "c")))
	require.Equal(t, []string{"a", "c"}, bodies(t, o.Path))
	require.NoError(t, s.Close())
}

func TestAFolderBelongsToOne(t *testing.T) {
	o := DefaultOptions(t.TempDir())
	s := open(t, o)
	other, err := New(o)
	require.NoError(t, err)
	require.ErrorContains(t, other.Open(), "give each its own folder")
	require.ErrorContains(t, other.Write(t.Context(), batch(t, "a")), "give each its own folder")
	require.NoError(t, s.Close())
	require.NoError(t, other.Write(t.Context(), batch(t, "a")), "it is free now")
	require.NoError(t, other.Close())
	require.NoError(t, open(t, o).Close())
}

func TestOptionsProblems(t *testing.T) {
	o := Options{RotateBytes: 1, Compression: "gzip", MaxBytes: 1}
	err := o.Validate()
	for _, want := range []string{"path is empty", "rotate_bytes is 1", "rotate_age is 0s", `compression is "gzip"`, "max_bytes is 1"} {
		require.ErrorContains(t, err, want)
	}
	good := DefaultOptions("x")
	require.NoError(t, good.Validate())
}
