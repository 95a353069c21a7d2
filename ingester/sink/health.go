package sink

import "time"

// health is what is known of an endpoint's ability to take batches.
//
//	         failure                    wait is over, one batch
//	healthy ---------> left out(wait) --------------------------> probing
//	   ^                  ^   any success                            |
//	   |                  '------------------ failure, longer wait --|
//	   '--------------------------------------- success -------------'
//
// Only what changes the state makes the wait longer: the first failure of a
// healthy endpoint and the failure of a probe. The other batches that were in
// flight when it broke fail with it, and tell nothing new. A success always
// heals, so that an endpoint that fails now and then, a load balancer with one bad
// server behind it, say, is out for a moment only while it is in use.
//
// It is arithmetic: the time and the random numbers are parameters. The zero
// value is healthy.
type health struct {
	// failures counts the failures in a row that made the wait longer.
	failures int
	// until is when the endpoint may be probed; zero while it is healthy.
	until time.Time
	// probe is the number of the one probe that is under way, 0 if none is; probes
	// is how many there were.
	probe, probes int
}

// The waits. The first is short, since most failures are (a restart, a lost
// connection); the longest is how late a server that came back may be noticed.
// Both are guesses within what senders do: Prometheus waits 30ms to 5s.
const (
	FirstWait   = 500 * time.Millisecond
	longestWait = 15 * time.Second
)

func (h *health) healthy() bool { return h.until.IsZero() }

// ready reports whether the endpoint may be given a batch at the time now.
func (h *health) ready(now time.Time) bool {
	return h.healthy() || h.probe == 0 && !now.Before(h.until)
}

// begin notes that the endpoint, which is ready, is given a batch. The result is
// the number of the probe that the batch is, 0 if the endpoint is healthy.
func (h *health) begin() (probe int) {
	if h.healthy() {
		return 0
	}
	h.probes++
	h.probe = h.probes
	return h.probe
}

// succeeded notes that the endpoint took a batch.
func (h *health) succeeded() { *h = health{probes: h.probes} }

// failed notes that the endpoint did not take a batch, at the time now. probe is
// what begin returned for it, asked how long the endpoint asked to be left alone, 0
// if it did not; random is in [0, 1) and spreads the probes of many ingesters over
// the second half of the wait.
func (h *health) failed(now time.Time, probe int, asked time.Duration, random float64) {
	if !h.healthy() && (probe == 0 || probe != h.probe) {
		return
	}
	h.failures++
	wait := longestWait
	if shift := h.failures - 1; shift < 10 {
		wait = min(FirstWait<<shift, longestWait)
	}
	wait = max(wait, min(asked, longestWait))
	h.until = now.Add(time.Duration(float64(wait) * (1 + random) / 2))
	h.probe = 0
}

// abandoned notes that a batch ended without telling anything of the endpoint:
// its sender left. A probe that ends like this makes room for the next.
func (h *health) abandoned(probe int) {
	if probe == h.probe {
		h.probe = 0
	}
}
