package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// loadTally counts what becomes of requests.
type loadTally struct {
	mu       *sync.Mutex // guards what follows
	started  time.Time
	requests int64
	items    int64
	accepted int64
	bytes    int64
	answers  map[int]*loadAnswers
	failures map[string]int64
	latency  *latencies
}

// loadAnswer is the receiver's answer to one request.
type loadAnswer struct {
	code     int
	latency  time.Duration
	accepted int
	text     string // the first line of the body
}

// loadAnswers are the answers with one code.
type loadAnswers struct {
	Requests int64  `json:"requests"`
	First    string `json:"first_text,omitempty"` // of the first one, if it was no success
}

func newLoadTally() loadTally {
	return loadTally{mu: &sync.Mutex{}, answers: map[int]*loadAnswers{}, failures: map[string]int64{}, latency: &latencies{}}
}

func (t *loadTally) start(now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.started = now
}

// countLocked counts a request that was sent.
func (t *loadTally) countLocked(r loadRequest) {
	t.requests++
	t.items += int64(r.items)
	t.bytes += int64(len(r.body))
}

func (t *loadTally) answered(r loadRequest, a loadAnswer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.countLocked(r)
	t.accepted += int64(a.accepted)
	t.latency.add(a.latency)
	same, ok := t.answers[a.code]
	if !ok {
		same = &loadAnswers{}
		if a.code/100 != 2 {
			same.First = a.text
		}
		t.answers[a.code] = same
	}
	same.Requests++
}

func (t *loadTally) failed(r loadRequest, why string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.countLocked(r)
	t.failures[why]++
}

// loadSummary is what `spillway load` prints at the end.
type loadSummary struct {
	Seconds        float64              `json:"seconds"` // from the first request to the last answer
	Requests       int64                `json:"requests"`
	Items          int64                `json:"items"`
	Accepted       int64                `json:"accepted_items"`
	Caveat         string               `json:"accepted_caveat,omitempty"` // what accepted_items cannot say
	Bytes          int64                `json:"bytes"`                     // of the bodies, compressed
	ItemsPerSecond float64              `json:"items_per_second"`
	P50            float64              `json:"latency_p50_seconds"` // of the requests that were answered
	P99            float64              `json:"latency_p99_seconds"`
	Max            float64              `json:"latency_max_seconds"`
	Answers        map[int]*loadAnswers `json:"answers"`  // by status code
	Failures       map[string]int64     `json:"failures"` // requests without an answer, by reason
	Receiver       *receiverCPU         `json:"receiver,omitempty"`
}

func (t *loadTally) summary(now time.Time) *loadSummary {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := &loadSummary{
		Seconds: now.Sub(t.started).Seconds(), Requests: t.requests, Items: t.items, Accepted: t.accepted, Bytes: t.bytes,
		P50: t.latency.quantile(0.5).Seconds(), P99: t.latency.quantile(0.99).Seconds(), Max: t.latency.max.Seconds(),
		Answers: map[int]*loadAnswers{}, Failures: map[string]int64{},
	}
	if s.Seconds > 0 {
		s.ItemsPerSecond = float64(s.Items) / s.Seconds
	}
	for code, a := range t.answers {
		same := *a
		s.Answers[code] = &same
	}
	for why, n := range t.failures {
		s.Failures[why] = n
	}
	return s
}

// answered is how many requests got an answer, whatever it was.
func (s *loadSummary) answered() (n int64) {
	for _, a := range s.Answers {
		n += a.Requests
	}
	return n
}

// failure is what makes of a load a failed one: nothing was accepted at all.
func (s *loadSummary) failure(address string) error {
	switch {
	case s.Requests == 0 || s.Accepted > 0:
		return nil
	case s.answered() == 0:
		return fmt.Errorf("%s: no request was answered; is Spillway running there?", address)
	}
	codes := sortedKeys(s.Answers)
	hint := ""
	if slices.Contains(codes, 404) || slices.Contains(codes, 405) {
		hint = "; is the path right? Spillway takes remote write at /api/v1/write"
	}
	return fmt.Errorf("%s: nothing was accepted; the answers were %s%s", address, strings.Trim(fmt.Sprint(codes), "[]"), hint)
}

func (s *loadSummary) writeText(out io.Writer) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	sent := "sent"
	if s.answered() == 0 {
		sent = "tried"
	}
	fmt.Fprintf(w, "%s\t%s in %s, %s\n", sent, count(s.Items, "item"), count(s.Requests, "request"), count(s.Bytes, "byte"))
	fmt.Fprintf(w, "accepted\t%s, as the answers say", count(s.Accepted, "item"))
	if s.Caveat != "" {
		fmt.Fprintf(w, "; %s", s.Caveat)
	}
	fmt.Fprintln(w)
	fmt.Fprintf(w, "rate\t%.0f items/s over %.2f s\n", s.ItemsPerSecond, s.Seconds)
	fmt.Fprintf(w, "latency\tp50 %s, p99 %s, max %s\n", shortSeconds(s.P50), shortSeconds(s.P99), shortSeconds(s.Max))
	if s.Receiver != nil {
		fmt.Fprintf(w, "receiver\t%.2f s of CPU time, %.0f items per CPU-second\n", s.Receiver.CPUSeconds, s.Receiver.ItemsPerCPUSecond)
		if s.Receiver.Dropped+s.Receiver.Refused > 0 {
			fmt.Fprintf(w, "\tmeanwhile it dropped %d items and refused %d, which takes less CPU than to store them: give the class the budget and measure again\n", s.Receiver.Dropped, s.Receiver.Refused)
		}
	}
	for _, code := range sortedKeys(s.Answers) {
		a := s.Answers[code]
		fmt.Fprintf(w, "answer %d\t%s", code, count(a.Requests, "request"))
		if a.First != "" {
			fmt.Fprintf(w, ", first: %s", a.First)
		}
		fmt.Fprintln(w)
	}
	for _, why := range sortedKeys(s.Failures) {
		fmt.Fprintf(w, "no answer\t%s: %s\n", count(s.Failures[why], "request"), why)
	}
	return w.Flush()
}

func shortSeconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second)).Round(time.Microsecond)
}

// showProgress rewrites a line on a terminal every second, until the function
// that it returns is called, which clears the line.
func (g *generator) showProgress(terminal io.Writer) (stop func()) {
	ended, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		ticker := time.NewTicker(time.Second)
		defer ticker.Stop()
		last := &loadSummary{}
		for {
			select {
			case <-ended:
				fmt.Fprint(terminal, "\r\x1b[K")
				return
			case now := <-ticker.C:
				s := g.tally.summary(now)
				fmt.Fprintf(terminal, "\r\x1b[K%s", s.progress(last))
				last = s
			}
		}
	}()
	return func() { close(ended); <-done }
}

// progress is the live line: the rate since the last one, and totals.
func (s *loadSummary) progress(last *loadSummary) string {
	rate := 0.0
	if d := s.Seconds - last.Seconds; d > 0 {
		rate = float64(s.Items-last.Items) / d
	}
	line := fmt.Sprintf("%.0f s  %.0f items/s  %d sent  %d accepted  p99 %s", s.Seconds, rate, s.Items, s.Accepted, shortSeconds(s.P99))
	for _, code := range sortedKeys(s.Answers) {
		line += fmt.Sprintf("  %d: %d", code, s.Answers[code].Requests)
	}
	if silent := s.Requests - s.answered(); silent > 0 {
		line += fmt.Sprintf("  no answer: %d", silent)
	}
	return line
}

// isTerminal says that w is a character device, such as a terminal.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
