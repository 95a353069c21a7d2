package sink

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

// complaints writes log lines about endpoints, at most one per endpoint and kind
// in every quiet period: an endpoint that is down would fill the log otherwise.
type complaints struct {
	logger *slog.Logger

	mu struct {
		sync.Mutex
		last map[complaint]said
	}
}

type complaint struct {
	endpoint string
	outcome  Outcome
}

// said is when a complaint was last written, and how often it was not since.
type said struct {
	at      time.Time
	skipped int
}

// quiet is the quiet period.
const quiet = 30 * time.Second

func newComplaints(logger *slog.Logger) *complaints {
	c := &complaints{logger: logger}
	c.mu.last = make(map[complaint]said)
	return c
}

// answer logs what is wrong with an answer, if anything is.
func (c *complaints) answer(endpoint string, a Answer, now time.Time) {
	if a.Err == nil || a.Outcome == Abandoned {
		return
	}
	skipped, ok := c.due(complaint{endpoint, a.Outcome}, now)
	if !ok {
		return
	}
	level, text := slog.LevelWarn, "The endpoint could not take a batch"
	switch a.Outcome {
	case Stored:
		text = "The destination took a batch, but not all of it, or did not say so readably"
	case Refused:
		text = "The destination refused a batch for good"
	case Overloaded:
		text = "The destination is overloaded"
	case Misconfigured:
		level, text = slog.LevelError, "The destination does not accept our requests; senders keep their data until that is corrected"
	}
	c.logger.Log(context.Background(), level, text,
		"endpoint", endpoint, "err", a.Err, "not_logged_before", skipped)
}

// due reports whether a complaint may be written, and how many were not.
func (c *complaints) due(what complaint, now time.Time) (skipped int, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	last, known := c.mu.last[what]
	if known && now.Sub(last.at) < quiet {
		last.skipped++
		c.mu.last[what] = last
		return 0, false
	}
	c.mu.last[what] = said{at: now}
	return last.skipped, true
}
