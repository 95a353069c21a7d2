package tsdb

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
)

// Environment of the process that TestKilledProcessLosesNothing kills.
const (
	killDir  = "SPILLWAY_TSDB_TEST_DIR"
	killBase = "SPILLWAY_TSDB_TEST_BASE"
)

// killRequest is what the process writes as its i-th batch: new series and known
// ones, one of them out of order, a histogram, an exemplar, and metadata.
func killRequest(i, base int64) *writev2.Request {
	sy := newSymbols()
	at := base + i*1000
	hist := testHistograms()["integer"]
	req := &writev2.Request{Timeseries: []writev2.TimeSeries{
		{
			LabelsRefs: sy.refs("__name__", "known_total", "job", "test"),
			Samples:    []writev2.Sample{{Timestamp: at, Value: float64(i)}},
			Exemplars:  []writev2.Exemplar{{LabelsRefs: sy.refs("trace_id", fmt.Sprint(i)), Value: 1, Timestamp: at}},
			Metadata:   writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: sy.Symbolize(fmt.Sprintf("help %d", i%5))},
		},
		{LabelsRefs: sy.refs("__name__", "fresh", "job", fmt.Sprint(i)), Samples: []writev2.Sample{{Timestamp: at, Value: float64(i)}}},
		{LabelsRefs: sy.refs("__name__", "late", "job", "test"), Samples: []writev2.Sample{{Timestamp: at + 500 - 1500*(i%2), Value: float64(i)}}},
		{LabelsRefs: sy.refs("__name__", "hist", "job", "test"), Histograms: []writev2.Histogram{writev2.FromIntHistogram(0, at, hist.h)}},
	}}
	req.Symbols = sy.Symbols()
	return req
}

// TestMain turns the test binary into the process to kill when it is asked to.
func TestMain(m *testing.M) {
	if dir := os.Getenv(killDir); dir != "" {
		writeUntilKilled(dir)
		return
	}
	os.Exit(m.Run())
}

// writeUntilKilled writes batches for ever and prints the number of each one
// that it was told is stored.
func writeUntilKilled(dir string) {
	t := &child{}
	base, err := strconv.ParseInt(os.Getenv(killBase), 10, 64)
	t.must(err)
	o := DefaultOptions(dir)
	o.MinFreeBytes = 0
	s, err := Open(o)
	t.must(err)
	rs := routes{}
	for i := int64(0); ; i++ {
		b := newTestBatch(t, rs, killRequest(i, base))
		t.must(s.Write(context.Background(), b))
		if rejected(b) == 0 {
			fmt.Println(i)
		}
	}
}

// child lets a process that is no test use the helpers of tests.
type child struct{ testing.T }

func (c *child) must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// What Write returned nil for survives SIGKILL.
func TestKilledProcessLosesNothing(t *testing.T) {
	dir, base := t.TempDir(), time.Now().Add(-30*time.Minute).UnixMilli()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), killDir+"="+dir, fmt.Sprintf("%s=%d", killBase, base))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	last := int64(-1)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		// The last line may be torn: only whole ones were acknowledged.
		n, err := strconv.ParseInt(lines.Text(), 10, 64)
		require.NoError(t, err)
		require.Equal(t, last+1, n)
		if last = n; last == 400 {
			require.NoError(t, cmd.Process.Kill())
			break
		}
	}
	rest, err := io.ReadAll(out)
	require.NoError(t, err)
	if whole := strings.LastIndexByte(string(rest), '\n'); whole >= 0 {
		last += int64(strings.Count(string(rest[:whole+1]), "\n"))
	}
	require.Error(t, cmd.Wait())
	require.GreaterOrEqual(t, last, int64(400))

	o := testOptions(t)
	o.Path = dir
	s := openTest(t, o)
	c := content(t, s)
	have := func(name, job string, p point) {
		for _, q := range c[fmt.Sprintf(`{__name__="%s", job="%s"}`, name, job)] {
			if q.t == p.t && same(&q, &p) {
				return
			}
		}
		t.Fatalf("%s{job=%q} at %d of %d acknowledged batches is lost", name, job, p.t, last+1)
	}
	for i := range last + 1 {
		at := base + i*1000
		have("known_total", "test", point{t: at, v: float64(i)})
		have("fresh", fmt.Sprint(i), point{t: at, v: float64(i)})
		have("late", "test", point{t: at + 500 - 1500*(i%2), v: float64(i)})
		have("hist", "test", point{t: at, h: testHistograms()["integer"].h})
	}
	require.Len(t, s.families.Load().list("known_total", -1, -1)["known_total"], 5)
	require.GreaterOrEqual(t, len(exemplars(t, s, `known_total`)), int(last)+1)
}

// A commit that fails has stored nothing, says so, and the next one finds the
// database opened again. What was acknowledged before and after is on disk.
func TestFailedCommitStoresNothingAndIsMended(t *testing.T) {
	o := testOptions(t)
	s := openTest(t, o)
	rs := routes{}
	base := milli()
	first := newTestBatch(t, rs, write1(float1("a", sample(base, 1)), float1("b", sample(base, 1))))
	require.NoError(t, s.Write(t.Context(), first))
	refs := [2]uint64{first.Groups[0].Route.Ref(), first.Groups[1].Route.Ref()}

	require.NoError(t, s.db.Close()) // as a disk that takes no more
	again := newTestBatch(t, rs, write1(float1("a", sample(base+1, 2)), float1("a", sample(base, 9)), float1("new", sample(base, 3))))
	require.Error(t, s.Write(t.Context(), again))
	require.Zero(t, rejected(again), "a failed commit rejects nothing")
	require.Zero(t, again.Groups[2].Route.Ref(), "a failed commit remembers nothing")
	require.Error(t, s.Ready())
	require.Equal(t, 1.0, testutil.ToFloat64(s.metrics.failedCommits))
	require.Zero(t, testutil.ToFloat64(s.metrics.open))
	require.Equal(t, 2, count(content(t, openCopy(t, o))))

	again = newTestBatch(t, rs, write1(float1("a", sample(base+1, 2)), float1("a", sample(base, 9)), float1("new", sample(base, 3))))
	again.Groups[1].Route = again.Groups[0].Route
	require.NoError(t, s.Write(t.Context(), again))
	require.NoError(t, s.Ready())
	require.Equal(t, 1.0, testutil.ToFloat64(s.metrics.open))
	require.NotEqual(t, refs[0], again.Groups[0].Route.Ref(), "references do not outlive the database that gave them")
	want := map[string]map[int64]float64{"a": {base: 9, base + 1: 2}, "b": {base: 1}, "new": {base: 3}}
	got := content(t, s)
	require.Len(t, got, len(want))
	require.Equal(t, 4, count(got))
	require.Len(t, content(t, openCopy(t, o)), len(want))
}

// A route that remembers a series of another opening never writes to it.
func TestReferenceOfAnotherDatabaseIsNotUsed(t *testing.T) {
	rs := routes{}
	one, two := openTest(t, testOptions(t)), openTest(t, testOptions(t))
	now := milli()
	// The first series of either database has the number 1.
	require.NoError(t, one.Write(t.Context(), newTestBatch(t, rs, write1(float1("a", sample(now, 1))))))
	require.NoError(t, two.Write(t.Context(), newTestBatch(t, routes{}, write1(float1("b", sample(now, 1))))))
	require.NoError(t, two.Write(t.Context(), newTestBatch(t, rs, write1(float1("a", sample(now, 1))))))
	c := content(t, two)
	require.Len(t, c[`{__name__="a", job="test"}`], 1)
	require.Len(t, c[`{__name__="b", job="test"}`], 1)
}

// A series that left memory since its route remembered it is found by its labels
// again.
func TestStaleReference(t *testing.T) {
	o := testOptions(t)
	s := openTest(t, o)
	rs := routes{}
	base := time.Now().Add(-5 * time.Hour).UnixMilli()
	b := newTestBatch(t, rs, write1(float1("m", sample(base, 1))))
	require.NoError(t, s.Write(t.Context(), b))
	old := b.Groups[0].Route.Ref()
	later := base + 4*time.Hour.Milliseconds()
	require.NoError(t, s.Write(t.Context(), newTestBatch(t, rs, write1(float1("other", sample(later, 1))))))
	require.NoError(t, s.db.Compact(t.Context()))
	require.EqualValues(t, 1, s.db.Head().NumSeries(), "the series did not leave memory")

	b = newTestBatch(t, rs, write1(float1("m", sample(later, 2), sample(later+1, 3))))
	require.NoError(t, s.Write(t.Context(), b))
	require.Zero(t, rejected(b))
	require.NotEqual(t, old, b.Groups[0].Route.Ref())
	require.Equal(t, 1.0, testutil.ToFloat64(s.metrics.staleRefs))
	got := content(t, s)[`{__name__="m", job="test"}`]
	require.Equal(t, []point{{t: base, v: 1}, {t: later, v: 2}, {t: later + 1, v: 3}}, got)
	b = newTestBatch(t, rs, write1(float1("m", sample(later+2, 4))))
	require.NoError(t, s.Write(t.Context(), b))
	require.Equal(t, 1.0, testutil.ToFloat64(s.metrics.staleRefs), "the new reference was not remembered")
}

// A repair that did not get to its end left a segment under another name.
func TestInterruptedRepairIsUndone(t *testing.T) {
	o := testOptions(t)
	s := openTest(t, o)
	rs := routes{}
	base := milli()
	for i := range int64(20) {
		require.NoError(t, s.Write(t.Context(), newTestBatch(t, rs, write1(float1("m", sample(base+i, 1))))))
	}
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS(o.Path)))
	segment := filepath.Join(dir, "wal", "00000000")
	require.NoError(t, os.Rename(segment, segment+".repair"))
	require.NoError(t, os.WriteFile(segment, nil, 0o600))
	o.Path = dir
	o.Registerer = nil
	require.Equal(t, 20, count(content(t, openTest(t, o))))
}

func TestClosedSinkRefuses(t *testing.T) {
	s, err := Open(testOptions(t))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, s.Close(), "the second close does nothing")
	b := newTestBatch(t, routes{}, write1(float1("m", prompb.Sample{Timestamp: milli(), Value: 1})))
	require.ErrorIs(t, s.Write(t.Context(), b), errClosed)
	require.Error(t, s.Open(), "a closed sink stays closed")
}

// A torn record of the log, as a killed process leaves it, costs that record and
// nothing of what came out of order, whose log is another.
func TestTornLogKeepsWhatCameOutOfOrder(t *testing.T) {
	o := testOptions(t)
	s := openTest(t, o)
	rs := routes{}
	base := milli()
	for i := range int64(20) {
		require.NoError(t, s.Write(t.Context(), newTestBatch(t, rs, write1(float1("m", sample(base+i*10, 1.1), sample(base+i*10-1005, 2.2))))))
	}
	image := t.TempDir()
	require.NoError(t, os.CopyFS(image, os.DirFS(o.Path)))
	segment := filepath.Join(image, "wal", "00000000")
	info, err := os.Stat(segment)
	require.NoError(t, err)
	// The reader pads with zeros, so what is cut off has to be something else.
	require.NoError(t, os.Truncate(segment, info.Size()-3))
	for range 2 {
		o.Path = image
		o.Registerer = nil
		again, err := Open(o)
		require.NoError(t, err)
		got := map[float64]int{}
		for _, p := range content(t, again)[`{__name__="m", job="test"}`] {
			got[p.v]++
		}
		require.Equal(t, map[float64]int{1.1: 19, 2.2: 20}, got)
		require.NoError(t, again.Close())
	}
}

// TestFolderDeleted: once the folder is gone nothing is acknowledged any more.
func TestFolderDeleted(t *testing.T) {
	o := testOptions(t)
	s := openTest(t, o)
	rs := routes{}
	base := time.Now().UnixMilli()
	require.NoError(t, s.Write(t.Context(), newTestBatch(t, rs, write1(float1("m", sample(base, 1))))))
	moved := o.Path + ".gone"
	require.NoError(t, os.Rename(o.Path, moved))
	require.ErrorContains(t, s.Write(t.Context(), newTestBatch(t, rs, write1(float1("m", sample(base+1, 1))))), "is gone")
	require.NoError(t, os.Rename(moved, o.Path))
	require.NoError(t, s.Write(t.Context(), newTestBatch(t, rs, write1(float1("m", sample(base+2, 1))))))
}
