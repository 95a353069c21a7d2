package ingester

// RateControl is what /api/v1/ratecontrol answers.
type RateControl struct {
	Streams map[string]StreamStatus `json:"streams"`
}

// StreamStatus is one stream's classes and counts since the start, in items.
type StreamStatus struct {
	Limited   bool          `json:"limited"`
	Rate      float64       `json:"rate,omitempty"`
	Burst     int64         `json:"burst,omitempty"`
	Ingesters int           `json:"ingesters,omitempty"`
	Received  int64         `json:"received"`
	Invalid   int64         `json:"invalid"`
	Relabel   int64         `json:"dropped_relabel"`
	Exempt    int64         `json:"exempt"`
	Classes   []ClassStatus `json:"classes"`
}

// ClassStatus is one class on this ingester. Tokens is null where the class has
// no bucket.
type ClassStatus struct {
	Name       string   `json:"name"`
	Configured bool     `json:"configured"`
	Limited    bool     `json:"limited"`
	Rate       float64  `json:"rate"`
	Share      int64    `json:"share_percent"`
	LocalRate  float64  `json:"rate_per_ingester"`
	LocalBurst int64    `json:"burst_per_ingester"`
	Tokens     *float64 `json:"tokens"`
	Admitted   int64    `json:"admitted"`
	Dropped    int64    `json:"dropped"`
	Refused    int64    `json:"refused"`
}

// RateControl describes every stream's classes now.
func (in *Ingester) RateControl() RateControl {
	now := in.now()
	status := RateControl{Streams: map[string]StreamStatus{}}
	for _, st := range in.generation.Load().streams {
		status.Streams[st.stream.String()] = st.status(now)
	}
	return status
}

func (st *streamRules) status(now int64) StreamStatus {
	c := st.counters
	s := StreamStatus{
		Limited:  st.Policy != nil,
		Received: c.received.items.Load(),
		Invalid:  c.invalid.items.Load(),
		Relabel:  c.relabelled.items.Load(),
		Exempt:   c.class(ExemptClass).admitted.items.Load(),
	}
	if st.Policy == nil {
		s.Classes = append(s.Classes, countsOf(DefaultClass, c.class(DefaultClass)))
		return s
	}
	s.Rate, _ = st.Policy.Rate().Float64()
	s.Burst, s.Ingesters = st.Policy.Burst(), st.Policy.Ingesters()
	for id, class := range st.budgets {
		cs := countsOf(class.Name, st.classes[id])
		cs.Configured, cs.Limited = class.Configured, true
		cs.Rate, _ = class.Rate.Float64()
		cs.Share = class.SharePercent
		cs.LocalRate, _ = class.RatePerIngester.Float64()
		cs.LocalBurst = class.BurstPerIngester
		if class.Configured && class.Rate.Sign() > 0 {
			tokens := st.limiter.Tokens(id, now)
			cs.Tokens = &tokens
		}
		s.Classes = append(s.Classes, cs)
	}
	return s
}

func countsOf(name string, c *classCounters) ClassStatus {
	return ClassStatus{
		Name: name, Configured: true,
		Admitted: c.admitted.items.Load(), Dropped: c.dropped.items.Load(), Refused: c.refused.items.Load(),
	}
}

// RoutedStreams counts the streams that remember routes, each in up to
// Settings.RouteBytes of memory.
func (in *Ingester) RoutedStreams() (n int) {
	for _, st := range in.generation.Load().streams {
		if st.routes.count.Load() > 0 {
			n++
		}
	}
	return n
}
