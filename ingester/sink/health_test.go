package sink

import (
	"math/rand"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A trace of one endpoint: what happens when, and whether it may be given a batch
// right after. random is 1, so that waits are as long as they get.
func TestHealthOverTime(t *testing.T) {
	const s = time.Second
	for name, steps := range map[string][]healthStep{
		"a failure leaves it out, a probe brings it back": {
			{0, "begin", 0, true, "healthy"},
			{s, "fail", 0, false, "out"},
			{s + 499*time.Millisecond, "look", 0, false, "out"},
			{s + 500*time.Millisecond, "look", 0, true, "out"},
			{2 * s, "probe", 0, false, "out"},
			{3 * s, "succeed", 0, true, "healthy"},
		},
		"each failed probe doubles the wait, up to the longest": {
			{0, "fail", 0, false, "out"},
			{1 * s, "probe", 0, false, "out"},
			{1 * s, "fail probe", 0, false, "out"},
			{1*s + 999*time.Millisecond, "look", 0, false, "out"},
			{2 * s, "probe", 0, false, "out"},
			{2 * s, "fail probe", 0, false, "out"},
			{4 * s, "probe", 0, false, "out"},
			{4 * s, "fail probe", 0, false, "out"},
			{8 * s, "probe", 0, false, "out"},
			{8 * s, "fail probe", 0, false, "out"},
			{16 * s, "probe", 0, false, "out"},
			{16 * s, "fail probe", 0, false, "out"},
			{31*s - 1, "look", 0, false, "out"},
			{31 * s, "look", 0, true, "out"},
		},
		"those in flight when it broke change nothing": {
			{0, "fail", 0, false, "out"},
			{400 * time.Millisecond, "fail", 0, false, "out"},
			{450 * time.Millisecond, "fail", 0, false, "out"},
			{500 * time.Millisecond, "look", 0, true, "out"},
			{500 * time.Millisecond, "probe", 0, false, "out"},
			{600 * time.Millisecond, "fail", 0, false, "out"},
		},
		"a late success heals": {
			{0, "fail", 0, false, "out"},
			{s / 10, "succeed", 0, true, "healthy"},
			{s, "fail", 0, false, "out"},
			{s + 500*time.Millisecond, "look", 0, true, "out"},
		},
		"a probe whose sender leaves makes room for another": {
			{0, "fail", 0, false, "out"},
			{s, "probe", 0, false, "out"},
			{s, "leave probe", 0, true, "out"},
			{s, "probe", 0, false, "out"},
		},
		"an old probe tells nothing of a new failure": {
			{0, "fail", 0, false, "out"},
			{s, "probe", 0, false, "out"},
			{s, "succeed", 0, true, "healthy"},
			{s, "fail", 0, false, "out"},
			{s, "fail probe", 0, false, "out"},
			{s, "leave probe", 0, false, "out"},
			{s + 500*time.Millisecond, "look", 0, true, "out"},
			{2 * s, "second probe", 0, false, "out"},
			{2 * s, "leave probe", 0, false, "out"},
			{2 * s, "fail probe", 0, false, "out"},
			{9 * s, "look", 0, false, "out"},
			{9 * s, "succeed", 0, true, "healthy"},
		},
		"it is left alone for as long as it asks, within reason": {
			{0, "fail", 3 * s, false, "out"},
			{3*s - 1, "look", 0, false, "out"},
			{3 * s, "probe", 0, false, "out"},
			{3 * s, "fail probe", time.Hour, false, "out"},
			{18*s - 1, "look", 0, false, "out"},
			{18 * s, "look", 0, true, "out"},
		},
	} {
		t.Run(name, func(t *testing.T) { runHealth(t, steps) })
	}
}

type healthStep struct {
	at     time.Duration
	event  string
	asked  time.Duration
	ready  bool
	health string
}

func runHealth(t *testing.T, steps []healthStep) {
	var h health
	probe := 0
	start := time.Unix(1000, 0)
	for i, s := range steps {
		now := start.Add(s.at)
		switch s.event {
		case "begin":
			require.Zero(t, h.begin(), "step %d", i)
		case "probe":
			require.True(t, h.ready(now), "step %d", i)
			probe = h.begin()
			require.NotZero(t, probe, "step %d", i)
		case "second probe":
			require.True(t, h.ready(now), "step %d", i)
			require.NotEqual(t, probe, h.begin(), "step %d", i)
		case "fail":
			h.failed(now, 0, s.asked, 1)
		case "fail probe":
			h.failed(now, probe, s.asked, 1)
		case "succeed":
			h.succeeded()
		case "leave probe":
			h.abandoned(probe)
		}
		require.Equal(t, s.ready, h.ready(now), "step %d: %s", i, s.event)
		require.Equal(t, s.health == "healthy", h.healthy(), "step %d: %s", i, s.event)
	}
}

// In any history a healthy endpoint is ready, there is one probe at most, and no
// wait is shorter than half of the first or longer than the longest.
func TestHealthOfRandomHistories(t *testing.T) {
	for seed := range int64(200) {
		r := rand.New(rand.NewSource(seed))
		var h health
		now := time.Unix(1000, 0)
		var inFlight []int // the probe that each batch is
		for range 300 {
			now = now.Add(time.Duration(r.Int63n(int64(2 * time.Second))))
			ready, wasOut := h.ready(now), !h.healthy()
			if r.Intn(2) == 0 && ready {
				p := h.begin()
				require.Equal(t, wasOut, p != 0)
				inFlight = append(inFlight, p)
			}
			if wasOut && h.probe != 0 {
				require.False(t, h.ready(now.Add(time.Hour)), "a second probe")
			}
			if len(inFlight) == 0 || r.Intn(2) == 0 {
				continue
			}
			i := r.Intn(len(inFlight))
			p := inFlight[i]
			inFlight = append(inFlight[:i], inFlight[i+1:]...)
			before := h
			switch r.Intn(4) {
			case 0:
				h.succeeded()
				require.True(t, h.healthy() && h.ready(now))
			case 1:
				h.abandoned(p)
				require.Equal(t, before.until, h.until)
			default:
				h.failed(now, p, time.Duration(r.Int63n(int64(time.Minute)))*time.Duration(r.Intn(2)), r.Float64())
				if before.healthy() || p != 0 && p == before.probe {
					require.GreaterOrEqual(t, h.until.Sub(now), FirstWait/2)
					require.LessOrEqual(t, h.until.Sub(now), longestWait)
				} else {
					require.Equal(t, before, h)
				}
			}
		}
	}
}
