package tsdb

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/histogram"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/storage"
	promtsdb "github.com/prometheus/prometheus/tsdb"
)

// Why the database refuses an item for good. Sending it again changes nothing.
const (
	// ReasonOutOfOrder is older than the newest sample of its series, and no
	// out-of-order window is set.
	ReasonOutOfOrder = "out_of_order"
	// ReasonDuplicate has the time of the newest sample of its series and
	// another value.
	ReasonDuplicate = "duplicate"
	// ReasonTooOld is older than the out-of-order window reaches.
	ReasonTooOld = "too_old"
	// ReasonOutOfBounds is older than what memory covers, and no out-of-order
	// window is set.
	ReasonOutOfBounds = "out_of_bounds"
	// ReasonInvalidHistogram breaks the rules of native histograms.
	ReasonInvalidHistogram = "invalid_histogram"
	// ReasonTooFarAhead is more than ten minutes in the future.
	ReasonTooFarAhead = "too_far_ahead"
	// ReasonInvalidLabels has no metric name, a name twice, or text that is not
	// UTF-8.
	ReasonInvalidLabels = "invalid_labels"
)

// refBits is how long a series reference is at most (NewHeadChunkRef of
// Prometheus' tsdb/chunks panics beyond). Above it a route remembers which
// opening of the database the reference is of: after another one the same
// number may be another series.
const refBits = 40

func newTag() uint64 { return uint64(1+rand.Uint32N(1<<(64-refBits)-1)) << refBits }

// appender is one commit being put together. It belongs to the holder of the
// lane and is used over and over.
type appender struct {
	db      *promtsdb.DB
	tag     uint64
	window  int64 // out-of-order window, ms
	metrics *metrics
	builder labels.ScratchBuilder
	pending pending

	app interface {
		storage.ExemplarAppenderV2
		storage.GetRef
	}
}

// begin opens a commit for up to n series.
func (a *appender) begin(ctx context.Context, n int) {
	a.pending.begin(n)
	a.app = a.db.AppenderV2(ctx).(interface {
		storage.ExemplarAppenderV2
		storage.GetRef
	})
}

// appendBatch puts one batch into the commit. An error is none of an item's.
func (a *appender) appendBatch(w *staged) error {
	for i := range w.series {
		if err := a.appendSeries(w, &w.series[i]); err != nil {
			return err
		}
	}
	return nil
}

func (a *appender) appendSeries(w *staged, s *series) error {
	if remembered := s.group.Route.Ref(); remembered&^(1<<refBits-1) == a.tag {
		s.ref = remembered & (1<<refBits - 1)
	} else if !a.lookUp(w, s) {
		w.reject(s, s.pointsEnd-s.points, ReasonInvalidLabels)
		return nil
	}
	for i := s.points; i < s.pointsEnd; i++ {
		reason, err := a.appendPoint(w, s, &w.points[i])
		if err != nil {
			return err
		}
		if reason != "" {
			w.reject(s, 1, reason)
		}
	}
	a.appendExemplars(w, s)
	return nil
}

// lookUp builds the labels of a series and finds its reference, if the database
// has it. It reports false for labels that the database does not take.
func (a *appender) lookUp(w *staged, s *series) bool {
	ls, ok := buildLabels(&a.builder, w.batch.Labels(s.group))
	if !ok || !ls.Has(model.MetricNameLabel) || !ls.IsValid(model.UTF8Validation) {
		return false
	}
	if _, twice := ls.HasDuplicateLabelNames(); twice {
		return false
	}
	ref, _ := a.app.GetRef(ls, ls.Hash())
	s.labels, s.labelsBuilt, s.ref = ls, true, uint64(ref)
	return true
}

// appendPoint puts one point into the commit, or says why it can never be
// stored. What it takes, the commit stores: nobody else appends meanwhile, and
// pending knows what the commit holds already.
func (a *appender) appendPoint(w *staged, s *series, p *point) (reason string, err error) {
	if p.t > w.maxTime {
		return ReasonTooFarAhead, nil
	}
	if held := a.pending.newest(s.ref); held != nil && p.t <= held.t {
		switch {
		case p.t == held.t && same(held, p):
			return "", nil
		case p.t == held.t:
			return ReasonDuplicate, nil
		case a.window == 0:
			return ReasonOutOfOrder, nil
		case p.t < a.db.Head().MaxTime()-a.window:
			return ReasonTooOld, nil
		}
	}
	ref, err := a.offer(s, p)
	if err != nil {
		ref, err = a.offerAgain(w, s, p, err)
	}
	if err != nil {
		return finalReason(err)
	}
	s.ref = uint64(ref)
	a.pending.hold(s.ref, p)
	return "", nil
}

// offerAgain gives a point that the database did not take a second chance where
// the first try was not its fault.
func (a *appender) offerAgain(w *staged, s *series, p *point, err error) (storage.SeriesRef, error) {
	if errors.Is(err, promtsdb.ErrInvalidSample) && !s.labelsBuilt {
		// The series has left memory since its route remembered it.
		a.metrics.staleRefs.Inc()
		if !a.lookUp(w, s) {
			return 0, err
		}
		return a.offer(s, p)
	}
	if errors.Is(err, storage.ErrDuplicateSampleForTimestamp) && isStaleFloat(p) {
		return a.offerStaleHistogram(s, p, err)
	}
	return 0, err
}

// finalReason tells what is wrong with an item from what is wrong with the
// database.
func finalReason(err error) (reason string, other error) {
	switch {
	case errors.Is(err, storage.ErrOutOfOrderSample):
		return ReasonOutOfOrder, nil
	case errors.Is(err, storage.ErrDuplicateSampleForTimestamp):
		return ReasonDuplicate, nil
	case errors.Is(err, storage.ErrTooOldSample):
		return ReasonTooOld, nil
	case errors.Is(err, storage.ErrOutOfBounds):
		return ReasonOutOfBounds, nil
	case errors.Is(err, promtsdb.ErrInvalidSample):
		return ReasonInvalidLabels, nil
	}
	if _, ok := errors.AsType[histogram.Error](err); ok {
		return ReasonInvalidHistogram, nil
	}
	return "", err
}

// offer appends a point under the reference, or the labels where there is none.
func (a *appender) offer(s *series, p *point) (storage.SeriesRef, error) {
	return a.app.Append(storage.SeriesRef(s.ref), s.labels, p.st, p.t, p.v, p.h, p.fh, storage.AOptions{})
}

// offerStaleHistogram offers a stale marker that came as a float as the one of
// a native histogram series. The database keeps it so, and does not recognise
// the float when a sender repeats it. duplicate is what it said to the float.
func (a *appender) offerStaleHistogram(s *series, p *point, duplicate error) (storage.SeriesRef, error) {
	for _, marker := range []point{
		{st: p.st, t: p.t, h: &histogram.Histogram{Sum: p.v}},
		{st: p.st, t: p.t, fh: &histogram.FloatHistogram{Sum: p.v}},
	} {
		if ref, err := a.offer(s, &marker); err == nil {
			return ref, nil
		}
	}
	return 0, duplicate
}

func isStaleFloat(p *point) bool { return p.h == nil && p.fh == nil && value.IsStaleNaN(p.v) }

// appendExemplars adds what it can. Exemplars are no items: one that is refused
// is counted, and no more.
func (a *appender) appendExemplars(w *staged, s *series) {
	es := w.exemplars[s.exemplars:s.exemplarsEnd]
	if len(es) == 0 {
		return
	}
	if s.ref == 0 {
		w.lostExemplars += len(es)
		return
	}
	_, err := a.app.AppendExemplars(storage.SeriesRef(s.ref), s.labels, es)
	if partial, ok := errors.AsType[*storage.AppendPartialError](err); ok {
		w.lostExemplars += len(partial.ExemplarErrors)
	} else if err != nil {
		w.lostExemplars += len(es)
	}
}

func (w *staged) reject(s *series, n int, reason string) {
	for range n {
		w.rejected = append(w.rejected, rejection{s.group, reason})
	}
}

// settle tells the batch what became of it, once that is certain: it takes back
// nothing that a failed commit would have to.
func (w *staged) settle(a *appender) {
	for _, r := range w.rejected {
		w.batch.Reject(r.group, 1, r.reason)
		a.metrics.rejected.WithLabelValues(r.reason).Inc()
	}
	for i := range w.series {
		if s := &w.series[i]; s.ref != 0 && s.group.Route.Ref() != a.tag|s.ref {
			s.group.Route.SetRef(a.tag | s.ref)
		}
	}
	w.batch.LoseExemplars(int64(w.lostExemplars))
	a.metrics.lostExemplars.Add(float64(w.lostExemplars))
}
