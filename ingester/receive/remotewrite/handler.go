package remotewrite

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/klauspost/compress/snappy"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Limits bounds what one request may ask for.
type Limits struct {
	BodyBytes    int // compressed
	DecodedBytes int // decompressed
	Series       int // in one request
	Items        int // samples, histograms and exemplars in one request
	// ForwardHeaders are the request headers that a sink may pass on, in any case.
	ForwardHeaders []string
}

// Handler receives remote write 1.0 and 2.0.
type Handler struct {
	ingester *ingester.Ingester
	limits   Limits
	// capacityStatus answers a batch that is refused for want of capacity.
	capacityStatus int
	requests       sync.Pool
}

// NewHandler makes the handler of /api/v1/write.
func NewHandler(in *ingester.Ingester, limits Limits, capacityStatus int) *Handler {
	return &Handler{ingester: in, limits: limits, capacityStatus: capacityStatus}
}

// shed answers a batch that gets no slot.
func (h *Handler) shed(err error) *refusal {
	refusal := &refusal{status: h.capacityStatus, text: err.Error(), capacity: true, retryAfter: time.Second}
	var shed *governor.Shed
	if errors.As(err, &shed) {
		refusal.retryAfter, refusal.exact = shed.RetryAfter, true
	}
	return refusal
}

// request is what one batch needs beside its bytes. It is reused.
type request struct{ batch ingester.Batch }

// ServeHTTP takes one batch through the data path and answers only when the sink
// has taken it.
func (h *Handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	format, refusal := negotiate(r)
	if refusal != nil {
		refusal.answer(rw)
		return
	}
	origin, err := h.ingester.Authenticate(r, ingester.Metrics)
	if err != nil {
		unauthorized(err).answer(rw)
		return
	}
	memory := h.ingester.Memory()
	defer memory.Release()
	packed, refusal := h.read(r, memory) // 1 receive
	if refusal != nil {
		h.ingester.CountUnread(ingester.Metrics, refusal.capacity)
		refusal.answer(rw)
		return
	}
	slot, err := h.ingester.Slot(r.Context(), origin.Sender, ingester.Metrics) // 2 slot
	if err != nil {
		h.ingester.CountUnread(ingester.Metrics, true)
		h.shed(err).answer(rw)
		return
	}
	defer slot.Release()
	// Only now: a batch that waits holds its body and nothing else.
	req := h.borrow()
	defer h.giveBack(req)
	b := &req.batch
	b.Stream, b.Origin, b.Received, b.Packed = ingester.Metrics, origin, time.Now(), packed
	b.Headers = receive.Forwarded(h.limits.ForwardHeaders, r, origin.Sender)
	if refusal := h.decode(format, b, memory); refusal != nil { // 3 decode
		h.ingester.CountUnread(ingester.Metrics, refusal.capacity)
		refusal.answer(rw)
		return
	}
	result := h.ingester.Process(r.Context(), b) // 4 to 8
	if result.Err != nil {
		slot.Failed()
	}
	answer(rw, format, &result) // 9 answer
}

func (h *Handler) borrow() *request {
	if req, ok := h.requests.Get().(*request); ok {
		return req
	}
	return &request{}
}

// keepBytes is the largest list that is kept for the next request, so that
// one huge request does not hold its memory for ever.
const keepBytes = 8 << 20

func (h *Handler) giveBack(req *request) {
	spans := cap(req.batch.Symbols) + cap(req.batch.Families)
	if cap(req.batch.Groups)*groupBytes > keepBytes || spans*spanBytes > keepBytes {
		return
	}
	// The bytes belong to the request's memory, which lends them to another one.
	req.batch.Body = nil
	req.batch.Reset()
	h.requests.Put(req)
}

// negotiate finds out which message a request brings. A request without the
// headers is a simple 1.0 one.
func negotiate(r *http.Request) (ingester.Format, *refusal) {
	if r.Method != http.MethodPost {
		return 0, &refusal{status: http.StatusMethodNotAllowed, allow: http.MethodPost,
			text: "remote write is a POST; " + r.Method + " is not understood here"}
	}
	format := ingester.RemoteWrite1
	if ct := r.Header.Get("Content-Type"); ct != "" {
		media, params, err := mime.ParseMediaType(ct)
		if err != nil || media != "application/x-protobuf" {
			return 0, unsupported("Content-Type %q is not remote write: it must be application/x-protobuf", ct)
		}
		switch params["proto"] {
		case "", "prometheus.WriteRequest":
		case "io.prometheus.write.v2.Request":
			format = ingester.RemoteWrite2
		default:
			return 0, unsupported("proto=%s is not spoken here: send prometheus.WriteRequest (1.0) or io.prometheus.write.v2.Request (2.0)", params["proto"])
		}
	}
	if enc := r.Header.Get("Content-Encoding"); enc != "" && !strings.EqualFold(enc, "snappy") {
		return 0, unsupported("Content-Encoding %q is not remote write: the body must be compressed with snappy", enc)
	}
	return format, nil
}

// leastRead is the first buffer of a body. It doubles as the body arrives: what a
// sender merely announces takes nothing from the budget.
const leastRead = 32 << 10

// read takes the body into memory, within its limit and the budget.
func (h *Handler) read(r *http.Request, memory *ingester.Memory) ([]byte, *refusal) {
	limit := int64(h.limits.BodyBytes)
	if r.ContentLength > limit {
		return nil, tooLarge("the body has %d bytes, and server.max_body_bytes is %d", r.ContentLength, limit)
	}
	// One byte more than the body may have, to see that it ends.
	most := int(limit) + 1
	if r.ContentLength >= 0 {
		most = int(r.ContentLength) + 1
	}
	packed, ok := memory.Buffer(min(leastRead, most))
	if !ok {
		return nil, h.noMemory(memory)
	}
	body := io.LimitReader(r.Body, limit+1)
	for {
		if len(packed) == cap(packed) {
			if packed, ok = memory.Larger(packed, min(2*len(packed), max(most, len(packed)+1))); !ok {
				return nil, h.noMemory(memory)
			}
		}
		n, err := body.Read(packed[len(packed):cap(packed)])
		packed = packed[:len(packed)+n]
		switch {
		case int64(len(packed)) > limit:
			return nil, tooLarge("the body is larger than server.max_body_bytes, which is %d", limit)
		case err == io.EOF:
			return packed, nil
		case err != nil:
			return nil, &refusal{status: http.StatusBadRequest, text: "the body did not arrive whole: " + err.Error()}
		}
	}
}

// decode decompresses the body and finds its series.
func (h *Handler) decode(format ingester.Format, b *ingester.Batch, memory *ingester.Memory) *refusal {
	size, err := snappy.DecodedLen(b.Packed)
	if err != nil {
		return malformed(fmt.Errorf("the body is not a snappy block: %w", err))
	}
	if size > h.limits.DecodedBytes {
		return tooLarge("the body has %d bytes when decompressed, and server.max_decoded_bytes is %d", size, h.limits.DecodedBytes)
	}
	buffer, ok := memory.Buffer(size)
	if !ok {
		return h.noMemory(memory)
	}
	body, err := snappy.Decode(buffer[:cap(buffer)], b.Packed)
	if err != nil {
		return malformed(fmt.Errorf("the body is not a snappy block: %w", err))
	}
	b.Body, b.Size = body, len(body)
	w := walker{b: b, guess: h.ingester.Guess(b), memory: memory, limits: h.limits}
	if format == ingester.RemoteWrite2 {
		err = w.walkV2()
	} else {
		err = w.walkV1()
	}
	switch {
	case err == nil && !memory.Grow(int64(cap(b.Body)-cap(body))): // keys that had to be copied
		return h.noMemory(memory)
	case err == nil:
		return nil
	case errors.Is(err, errNoMemory):
		return h.noMemory(memory)
	case errors.Is(err, errTooManySeries), errors.Is(err, errTooManyItems), errors.Is(err, errTooManySpans), errors.Is(err, errTooManyLabelBytes):
		return tooLarge("%v", err)
	}
	return malformed(err)
}
