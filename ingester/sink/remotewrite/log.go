package remotewrite

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
	endpoint *endpoint
	outcome  outcome
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
func (c *complaints) answer(e *endpoint, a answer, now time.Time) {
	if a.err == nil || a.outcome == abandoned {
		return
	}
	skipped, ok := c.due(complaint{e, a.outcome}, now)
	if !ok {
		return
	}
	level, text := slog.LevelWarn, "The endpoint could not take a batch"
	switch a.outcome {
	case stored:
		text = "The destination stored a batch only in part"
	case refused:
		text = "The destination refused a batch for good"
	case overloaded:
		text = "The destination is overloaded"
	case misconfigured:
		level, text = slog.LevelError, "The destination does not accept our requests; senders keep their data until that is corrected"
	}
	c.logger.Log(context.Background(), level, text,
		"endpoint", e.name, "err", a.err, "not_logged_before", skipped)
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
