package page

import "math"

// recentSamples are half a minute: long enough to smooth what is sent in bursts,
// short enough to tell of now.
const recentSamples = 6

// Recent is what one class was offered and lost lately.
type Recent struct {
	Seconds float64 `json:"seconds"`
	// Offered and Dropped are items, rounded: history remembers rates.
	Offered int64 `json:"offered"`
	Dropped int64 `json:"dropped"`
}

// Recent sums up the last 30 seconds of a class, or what there is of them; nil
// before the first sample. A class without a history was offered nothing.
func (h *History) Recent(stream, class string) *Recent {
	h.mu.Lock()
	defer h.mu.Unlock()
	n := min(h.sequence, recentSamples)
	if n == 0 {
		return nil
	}
	r := &Recent{Seconds: float64(n) * Interval.Seconds()}
	s := h.series[name{stream, class}]
	if s == nil {
		return r
	}
	var admitted, dropped float64
	for i := h.sequence - n + 1; i <= h.sequence; i++ {
		admitted += float64(s.ring[i%samples].admitted)
		dropped += float64(s.ring[i%samples].dropped)
	}
	r.Dropped = int64(math.Round(dropped * Interval.Seconds()))
	r.Offered = r.Dropped + int64(math.Round(admitted*Interval.Seconds()))
	return r
}
