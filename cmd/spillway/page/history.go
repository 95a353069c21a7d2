package page

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spillway-telemetry/spillway/ingester"
)

const (
	// Interval is how often Sample wants to be called: short enough that a class
	// that begins to drop is seen at once.
	Interval = 5 * time.Second
	// samples are kept of each class: 15 minutes of them.
	samples = 180
	// maxSeries bounds the classes and streams that are remembered, and with it
	// the memory: 1000 x 180 x 8 bytes are 1.4 MB.
	maxSeries = 1000
)

// History remembers what every class admitted and dropped in the last 15 minutes.
// A class takes memory from its first item on until it had none for 15 minutes.
// With more than 1000 of them, later ones wait until an earlier one leaves. All
// methods may be called at the same time.
type History struct {
	mu       sync.Mutex // guards what follows
	started  time.Time
	last     time.Time // of the last sample, at first the start
	sequence int64     // samples taken
	seen     map[name]counts
	series   map[name]*series
}

// name is a class of a stream. The empty class stands for the stream: what it
// received, and what relabel rules dropped.
type name struct{ stream, class string }

// counts are items since the start of the process.
type counts struct{ admitted, dropped int64 }

// rates are in items per second over one interval.
type rates struct{ admitted, dropped float32 }

// series is a ring: sample number n stands at n % samples.
type series struct {
	ring [samples]rates
	busy int64 // the sequence of the last sample that was not 0
}

// NewHistory begins at the start of the process, when all counts are 0.
func NewHistory(start time.Time) *History {
	return &History{started: start, last: start, seen: map[name]counts{}, series: map[name]*series{}}
}

// Sample adds what has happened since the sample before. A clock that stood still
// or went back adds nothing.
func (h *History) Sample(now time.Time, status ingester.RateControl) {
	h.mu.Lock()
	defer h.mu.Unlock()
	seconds := now.Sub(h.last).Seconds()
	if seconds <= 0 {
		return
	}
	h.last = now
	h.sequence++
	for _, s := range h.series {
		s.ring[h.sequence%samples] = rates{}
	}
	for stream, st := range status.Streams {
		h.add(name{stream, ""}, counts{st.Received, st.Relabel}, seconds)
		for _, c := range st.Classes {
			h.add(name{stream, c.Name}, counts{c.Admitted, c.Dropped}, seconds)
		}
	}
	for n, s := range h.series {
		if h.sequence-s.busy >= samples {
			delete(h.series, n)
		}
	}
}

// add notes one class's part of a sample.
func (h *History) add(n name, now counts, seconds float64) {
	before := h.seen[n]
	if now == before {
		return
	}
	h.seen[n] = now
	s := h.series[n]
	if s == nil {
		if len(h.series) >= maxSeries {
			return
		}
		s = &series{}
		h.series[n] = s
	}
	s.busy = h.sequence
	s.ring[h.sequence%samples] = rates{
		admitted: float32(float64(now.admitted-before.admitted) / seconds),
		dropped:  float32(float64(now.dropped-before.dropped) / seconds),
	}
}

// historyAnswer is what /api/v1/ratecontrol/history answers. Points are in items per second,
// oldest first, one per interval.
type historyAnswer struct {
	// Started tells one process from the next, whose sequence begins again.
	Started  int64                    `json:"started_unix_ms"`
	Interval float64                  `json:"interval_seconds"`
	Samples  int                      `json:"samples"`
	Sequence int64                    `json:"sequence"`
	Streams  map[string]streamHistory `json:"streams"`
}

type streamHistory struct {
	Received []float64               `json:"received,omitempty"`
	Relabel  []float64               `json:"dropped_relabel,omitempty"`
	Classes  map[string]classHistory `json:"classes"`
}

type classHistory struct {
	Admitted []float64 `json:"admitted"`
	Dropped  []float64 `json:"dropped"`
}

// ServeHTTP answers with all samples, or with those after the sequence number
// that ?after= names.
func (h *History) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	after, err := strconv.ParseInt(r.URL.Query().Get("after"), 10, 64)
	if err != nil {
		after = 0
	}
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	_ = json.NewEncoder(w).Encode(h.answer(after)) // an error here is a client that left
}

func (h *History) answer(after int64) historyAnswer {
	h.mu.Lock()
	defer h.mu.Unlock()
	if after < 0 || after > h.sequence {
		after = 0
	}
	a := historyAnswer{
		Started: h.started.UnixMilli(), Interval: Interval.Seconds(), Samples: samples, Sequence: h.sequence,
		Streams: map[string]streamHistory{},
	}
	for n, s := range h.series {
		st, ok := a.Streams[n.stream]
		if !ok {
			st.Classes = map[string]classHistory{}
		}
		admitted, dropped := s.since(max(after, h.sequence-samples), h.sequence)
		if n.class == "" {
			st.Received, st.Relabel = admitted, dropped
		} else {
			st.Classes[n.class] = classHistory{admitted, dropped}
		}
		a.Streams[n.stream] = st
	}
	return a
}

// since returns the samples after one and up to the other.
func (s *series) since(after, upTo int64) (admitted, dropped []float64) {
	admitted, dropped = make([]float64, 0, upTo-after), make([]float64, 0, upTo-after)
	for i := after + 1; i <= upTo; i++ {
		r := s.ring[i%samples]
		admitted = append(admitted, rounded(r.admitted))
		dropped = append(dropped, rounded(r.dropped))
	}
	return admitted, dropped
}

// rounded keeps the answer short: a hundredth of an item is below what shows.
func rounded(x float32) float64 { return math.Round(float64(x)*100) / 100 }
