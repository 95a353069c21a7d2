package remotewrite

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
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

// request is one request's memory. It is reused.
type request struct {
	batch  ingester.Batch
	packed []byte
}

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
	req := h.borrow()
	defer h.giveBack(req)

	if refusal := h.read(r, req, memory); refusal != nil { // 1 receive
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
	b := &req.batch
	b.Stream, b.Origin, b.Received = ingester.Metrics, origin, time.Now()
	b.Headers = receive.Forwarded(h.limits.ForwardHeaders, r, origin.Sender)
	if refusal := h.decode(format, req, memory); refusal != nil { // 3 decode
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

// keepBytes is the largest buffer that is kept for the next request, so that
// one huge request does not hold its memory for ever.
const keepBytes = 8 << 20

func (h *Handler) giveBack(req *request) {
	spans := cap(req.batch.Symbols) + cap(req.batch.Families)
	if cap(req.packed) > keepBytes || cap(req.batch.Body) > keepBytes || cap(req.batch.Groups)*groupBytes > keepBytes || spans*spanBytes > keepBytes {
		return
	}
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

// leastRead is what the first read of a body may bring.
const leastRead = 32 << 10

// read takes the body into memory, within its limit and the budget.
func (h *Handler) read(r *http.Request, req *request, memory *ingester.Memory) *refusal {
	limit := int64(h.limits.BodyBytes)
	if r.ContentLength > limit {
		return tooLarge("the body has %d bytes, and server.max_body_bytes is %d", r.ContentLength, limit)
	}
	req.packed = req.packed[:0]
	body := io.LimitReader(r.Body, limit+1)
	reserved := 0
	for {
		if len(req.packed) == reserved {
			step := max(leastRead, len(req.packed))
			if !memory.Grow(int64(step)) {
				return h.overCapacity()
			}
			reserved += step
			req.packed = slices.Grow(req.packed, step)
		}
		n, err := body.Read(req.packed[len(req.packed):reserved])
		req.packed = req.packed[:len(req.packed)+n]
		switch {
		case int64(len(req.packed)) > limit:
			return tooLarge("the body is larger than server.max_body_bytes, which is %d", limit)
		case err == io.EOF:
			return nil
		case err != nil:
			return &refusal{status: http.StatusBadRequest, text: "the body did not arrive whole: " + err.Error()}
		}
	}
}

// decode decompresses the body and finds its series.
func (h *Handler) decode(format ingester.Format, req *request, memory *ingester.Memory) *refusal {
	size, err := snappy.DecodedLen(req.packed)
	if err != nil {
		return malformed(fmt.Errorf("the body is not a snappy block: %w", err))
	}
	if size > h.limits.DecodedBytes {
		return tooLarge("the body has %d bytes when decompressed, and server.max_decoded_bytes is %d", size, h.limits.DecodedBytes)
	}
	if !memory.Grow(int64(size)) {
		return h.overCapacity()
	}
	b := &req.batch
	body, err := snappy.Decode(b.Body[:cap(b.Body)], req.packed)
	if err != nil {
		return malformed(fmt.Errorf("the body is not a snappy block: %w", err))
	}
	b.Body, b.Size, b.Packed = body, len(body), req.packed
	w := walker{b: b, memory: memory, limits: h.limits}
	if format == ingester.RemoteWrite2 {
		err = w.walkV2()
	} else {
		err = w.walkV1()
	}
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errNoMemory):
		return h.overCapacity()
	case errors.Is(err, errTooManySeries), errors.Is(err, errTooManyItems), errors.Is(err, errTooManySpans):
		return tooLarge("%v", err)
	}
	return malformed(err)
}
