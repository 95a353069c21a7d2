package page

import (
	"fmt"
	"math/rand/v2"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

func status(stream string, received, relabel int64, classes ...ingester.ClassStatus) ingester.RateControl {
	return ingester.RateControl{Streams: map[string]ingester.StreamStatus{stream: {Received: received, Relabel: relabel, Classes: classes}}}
}

func class(name string, admitted, dropped int64) ingester.ClassStatus {
	return ingester.ClassStatus{Name: name, Admitted: admitted, Dropped: dropped}
}

// TestHistoryAgainstAList: whatever the times between samples, the rates times
// the time add up to the counts, and an answer after a sequence number is the
// end of the whole answer.
func TestHistoryAgainstAList(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	now := time.Unix(1000, 0)
	h := NewHistory(now)
	var admitted, dropped []float64
	var a, d int64
	for range 3 * samples {
		gap := time.Duration(1+r.IntN(20_000)) * time.Millisecond
		more, less := int64(r.IntN(3)*r.IntN(1000)), int64(r.IntN(2)*r.IntN(100))
		now, a, d = now.Add(gap), a+more, d+less
		h.Sample(now, status("metrics", a+d, 0, class("a", a, d)))
		admitted = append(admitted, float64(more)/gap.Seconds())
		dropped = append(dropped, float64(less)/gap.Seconds())

		whole := h.answer(0)
		n := min(len(admitted), samples)
		got := whole.Streams["metrics"].Classes["a"]
		if len(got.Admitted) == 0 {
			continue // nothing yet
		}
		require.InDeltaSlice(t, admitted[len(admitted)-n:], got.Admitted, 0.02)
		require.InDeltaSlice(t, dropped[len(dropped)-n:], got.Dropped, 0.02)
		after := whole.Sequence - int64(r.IntN(n+1))
		part := h.answer(after).Streams["metrics"].Classes["a"]
		require.Len(t, part.Admitted, int(whole.Sequence-min(after, whole.Sequence)))
		require.Equal(t, got.Admitted[len(got.Admitted)-len(part.Admitted):], part.Admitted)
	}
}

// TestHistoryForgets: a class takes memory only while it has had traffic in the
// last 15 minutes, also when it has left the policy.
func TestHistoryForgets(t *testing.T) {
	now := time.Unix(0, 0)
	h := NewHistory(now)
	step := func(rc ingester.RateControl) {
		now = now.Add(Interval)
		h.Sample(now, rc)
	}
	step(status("logs", 0, 0, class("idle", 0, 0), class("busy", 5, 0)))
	require.NotContains(t, h.answer(0).Streams["logs"].Classes, "idle")
	require.Equal(t, 1.0, h.answer(0).Streams["logs"].Classes["busy"].Admitted[0])
	for range samples - 1 {
		step(status("logs", 0, 0))
	}
	require.Contains(t, h.answer(0).Streams["logs"].Classes, "busy", "its last item is not 15 minutes ago yet")
	step(status("logs", 0, 0))
	require.Empty(t, h.series)
}

// TestHistoryIsBounded: a policy of many classes does not make it grow, and a place
// that becomes free is taken.
func TestHistoryIsBounded(t *testing.T) {
	now := time.Unix(0, 0)
	h := NewHistory(now)
	many := func(from, items int) ingester.RateControl {
		var classes []ingester.ClassStatus
		for i := range 2 * maxSeries {
			classes = append(classes, class(fmt.Sprint(i), int64(max(0, min(items, i-from))), 0))
		}
		return status("logs", 0, 0, classes...)
	}
	now = now.Add(Interval)
	h.Sample(now, many(0, 1))
	require.Len(t, h.series, maxSeries)
	for range samples {
		now = now.Add(Interval)
		h.Sample(now, many(0, 1))
	}
	require.Empty(t, h.series)
	now = now.Add(Interval)
	h.Sample(now, many(0, 2))
	require.Len(t, h.series, maxSeries)
}

// TestHistoryAndOddClocks: a clock that stands still or goes back loses no item and
// invents none.
func TestHistoryAndOddClocks(t *testing.T) {
	h := NewHistory(time.Unix(100, 0))
	h.Sample(time.Unix(90, 0), status("logs", 10, 0, class("a", 10, 0)))
	h.Sample(time.Unix(100, 0), status("logs", 20, 0, class("a", 20, 0)))
	require.Zero(t, h.sequence)
	h.Sample(time.Unix(110, 0), status("logs", 30, 7, class("a", 30, 0)))
	a := h.answer(0)
	require.Equal(t, []float64{3}, a.Streams["logs"].Classes["a"].Admitted[len(a.Streams["logs"].Classes["a"].Admitted)-1:])
	require.Equal(t, 0.7, a.Streams["logs"].Relabel[len(a.Streams["logs"].Relabel)-1])
}

func TestHistoryAnswer(t *testing.T) {
	h := NewHistory(time.UnixMilli(1234))
	h.Sample(time.UnixMilli(6234), status("logs", 10, 0, class("a", 10, 5)))
	for query, points := range map[string]int{"": 1, "?after=0": 1, "?after=1": 0, "?after=nonsense": 1, "?after=99": 1, "?after=-4": 1} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest("GET", "/"+query, nil))
		require.Equal(t, "application/json; charset=utf-8", rec.Header().Get("Content-Type"))
		want := `{"started_unix_ms":1234,"interval_seconds":5,"samples":180,"sequence":1,"streams":{"logs":{"received":[2],"dropped_relabel":[0],"classes":{"a":{"admitted":[2],"dropped":[1]}}}}}`
		if points == 0 {
			want = `{"started_unix_ms":1234,"interval_seconds":5,"samples":180,"sequence":1,"streams":{"logs":{"classes":{"a":{"admitted":[],"dropped":[]}}}}}`
		}
		require.JSONEq(t, want, rec.Body.String(), query)
	}
}
