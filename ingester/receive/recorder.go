package receive

import (
	"sync"

	"github.com/spillway-telemetry/spillway/ingester"
)

// Store takes a message of log records, an ExportLogsServiceRequest, through steps 4
// to 8 of the data path. A refusal says that nothing of it was processed or counted.
type Store func(req *Request, message []byte) (ingester.Result, *Refusal)

// Recorder is the way from a protocol's messages to stored log records. It is made
// once for each receiver and may be used by any number of goroutines. D is the
// receiver's decoder, which is reused, as are the records that it writes.
type Recorder[D any] struct {
	Scope string // names the receiver in what it stores
	Store Store

	pool sync.Pool // of *recording[D]
}

type recording[D any] struct {
	records Records
	decoder D
}

// Record lets decode write the records of a request, and stores them. decode says how
// many items it left out since they cannot be read; its error says that nothing can
// be.
//
// What Record refuses is counted; the refusal is for req.Answer.
func (r *Recorder[D]) Record(req *Request, decode func(d *D, out *Records) (invalid int, err error)) (ingester.Result, *Refusal) {
	return r.Finish(req, decode, func(*D) {})
}

// Finish is Record for an answer that needs the decoder once more, when everything
// is stored.
func (r *Recorder[D]) Finish(req *Request, decode func(d *D, out *Records) (invalid int, err error), stored func(d *D)) (ingester.Result, *Refusal) {
	rec, ok := r.pool.Get().(*recording[D])
	if !ok {
		rec = &recording[D]{}
	}
	limits := req.front.Limits
	rec.records.Reset(req.Scratch, r.Scope, req.Batch.Received, Bounds{
		Bytes: limits.DecodedBytes, Items: limits.Items, Grow: req.Memory.Grow, Context: req.HTTP.Context(),
	})
	// What a decoder keeps is bounded by what it read and what it took from the budget.
	read := req.Batch.Size
	defer func() {
		if read+int(rec.records.spent) <= keepBytes {
			r.pool.Put(rec)
		}
	}()
	invalid, err := decode(&rec.decoder, &rec.records)
	message, count := rec.records.Bytes(), rec.records.Count()
	req.Scratch = message[:0]
	stream := req.Batch.Stream
	if err != nil {
		return ingester.Result{}, req.unread(req.refusalOf(err))
	}
	result := ingester.Result{}
	if count > 0 {
		var refusal *Refusal
		if result, refusal = r.Store(req, message); refusal != nil {
			return result, req.unread(refusal)
		}
	}
	req.front.Ingester.CountInvalid(stream, int64(invalid))
	refusal := Failed(&result)
	if refusal == nil {
		stored(&rec.decoder)
	}
	return result, refusal
}

// unread counts a batch of which no item is known.
func (req *Request) unread(refusal *Refusal) *Refusal {
	req.front.Ingester.CountUnread(req.Batch.Stream, refusal.Capacity)
	return refusal
}

// DecodedLimit is how many bytes a request may have when decoded.
func (req *Request) DecodedLimit() int { return req.front.Limits.DecodedBytes }
