package receive

import (
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
	"unsafe"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
)

// Limits bounds one request.
type Limits struct {
	BodyBytes    int // as they are sent
	DecodedBytes int // decompressed
	// Items that a receiver of another protocol than OTLP may find in it, valid or not;
	// 0: any number.
	Items int
}

// Front takes requests from their header to their decoded bytes. It is made once
// for all receivers, which then share what it keeps for the next request.
type Front struct {
	Ingester *ingester.Ingester
	Limits   Limits
	// ForwardHeaders are the request headers that a sink may pass on, in any case.
	ForwardHeaders []string

	requests   sync.Pool
	unpackings sync.Pool
}

// Protocol is what a receiver adds to the front. All but Handle may be left out.
type Protocol struct {
	// Stream is what the request is counted under, and what its key must be allowed.
	Stream ingester.Stream
	// Methods that are understood; POST where there is none.
	Methods []string
	// ShedStatus answers want of capacity; 429 where it is 0.
	ShedStatus int
	// Check looks at the headers before anything else.
	Check func(r *http.Request) *Refusal
	// Token finds the API key. nil looks for Kf-Api-Key and a bearer token; a function
	// of its own may fall back to ingester.PresentedKey.
	Token func(r *http.Request) string
	// Unframe finds the message in the body and how it is compressed. nil takes
	// the whole body and Content-Encoding.
	Unframe func(r *http.Request, body []byte) (message []byte, encoding string, refusal *Refusal)
	// Refuse writes an answer that is not Handle's; nil is plain text.
	Refuse func(rw http.ResponseWriter, r *http.Request, refusal *Refusal)
	// Handle decodes, processes and answers.
	Handle func(rw http.ResponseWriter, req *Request)
}

// Request is one request whose bytes lie in memory. It is reused: nothing of it
// may be kept when Handle has returned.
type Request struct {
	HTTP *http.Request
	// Protocol is what Handler was called with.
	Protocol *Protocol
	Batch    ingester.Batch
	// Memory is the request's part of the budget of bytes. Who builds something
	// that grows with the request takes it from here first.
	Memory *ingester.Memory

	// Scratch is a buffer for a message that the receiver makes. It comes back empty
	// with the next request, as large as it was.
	Scratch []byte

	front  *Front
	slot   *governor.Slot
	packed []byte // the body as it came
}

// Body is the decompressed message.
func (req *Request) Body() []byte { return req.Batch.Body[:req.Batch.Size] }

// Process takes the batch through steps 4 to 8 of the data path.
func (req *Request) Process() ingester.Result {
	res := req.front.Ingester.Process(req.HTTP.Context(), &req.Batch)
	if res.Err != nil && req.slot != nil {
		req.slot.Failed()
	}
	return res
}

// Replace makes message the batch's body, in place of the one that was received. The
// request keeps its memory as Scratch.
func (req *Request) Replace(message []byte) {
	b := &req.Batch
	b.Body, b.Size = message, len(message)
	b.Packed, b.Encoding = message, "identity"
	req.Scratch = message
}

// Refuse counts the batch as unread and answers it.
func (req *Request) Refuse(rw http.ResponseWriter, refusal *Refusal) {
	req.front.Ingester.CountUnread(req.Batch.Stream, refusal.Capacity)
	req.Answer(rw, refusal)
}

// Answer writes a refusal in the protocol's manner and counts nothing.
func (req *Request) Answer(rw http.ResponseWriter, refusal *Refusal) {
	req.Protocol.refuse(rw, req.HTTP, refusal)
}

// Handler makes the HTTP handler of a protocol.
func (f *Front) Handler(p Protocol) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { f.serve(&p, rw, r) })
}

func (f *Front) serve(p *Protocol, rw http.ResponseWriter, r *http.Request) {
	if refusal := p.check(r); refusal != nil {
		p.refuse(rw, r, refusal)
		return
	}
	origin, err := f.authenticate(p, r)
	if err != nil {
		p.refuse(rw, r, Unauthorized(err))
		return
	}
	memory := f.Ingester.Memory()
	defer memory.Release()
	packed, refusal := f.read(p, r, memory) // 1 receive
	if refusal != nil {
		f.Ingester.CountUnread(p.Stream, refusal.Capacity)
		p.refuse(rw, r, refusal)
		return
	}
	slot, err := f.Ingester.Slot(r.Context(), origin.Sender, p.Stream) // 2 slot
	if err != nil {
		refusal = p.shed(err)
		f.Ingester.CountUnread(p.Stream, refusal.Capacity)
		p.refuse(rw, r, refusal)
		return
	}
	defer slot.Release()
	// Only now: a batch that waits holds its body and nothing else.
	req := f.borrow()
	defer f.giveBack(req)
	req.HTTP, req.Protocol, req.Memory, req.slot, req.packed = r, p, memory, slot, packed
	req.Batch.Stream, req.Batch.Origin, req.Batch.Received = p.Stream, origin, time.Now()
	req.Batch.Headers = Forwarded(f.ForwardHeaders, r, origin.Sender)
	if refusal := f.unpack(req); refusal != nil {
		req.Refuse(rw, refusal)
		return
	}
	p.Handle(rw, req)
}

func (p *Protocol) check(r *http.Request) *Refusal {
	methods := p.Methods
	if len(methods) == 0 {
		methods = []string{http.MethodPost}
	}
	if !slices.Contains(methods, r.Method) {
		allow := strings.Join(methods, ", ")
		return &Refusal{Status: http.StatusMethodNotAllowed, Allow: allow,
			Text: r.Method + " is not understood here; this address takes " + allow}
	}
	if p.Check == nil {
		return nil
	}
	return p.Check(r)
}

func (p *Protocol) refuse(rw http.ResponseWriter, r *http.Request, refusal *Refusal) {
	if p.Refuse == nil {
		refusal.Answer(rw)
		return
	}
	p.Refuse(rw, r, refusal)
}

func (f *Front) authenticate(p *Protocol, r *http.Request) (ingester.Origin, error) {
	if p.Token == nil {
		return f.Ingester.Authenticate(r, p.Stream)
	}
	return f.Ingester.AuthenticateToken(p.Token(r), p.Stream)
}

// Forwarded collects the headers that a sink may pass on. What the API key sets
// wins over what the request says.
func Forwarded(names []string, r *http.Request, sender *ingester.Sender) http.Header {
	var out http.Header
	set := func(name string, values []string) {
		if out == nil {
			out = http.Header{}
		}
		out[name] = values
	}
	for _, name := range names {
		name = http.CanonicalHeaderKey(name)
		if values := r.Header[name]; len(values) > 0 {
			set(name, values)
		}
	}
	if sender != nil {
		for name, values := range sender.Headers {
			set(name, values)
		}
	}
	return out
}

func (f *Front) borrow() *Request {
	if req, ok := f.requests.Get().(*Request); ok {
		return req
	}
	return &Request{front: f}
}

// keepBytes is the largest list or Scratch that is kept for the next request, so
// that one huge request does not hold its memory for ever. Buffers belong to Memory.
const keepBytes = 8 << 20

func (f *Front) giveBack(req *Request) {
	b := &req.Batch
	groups := cap(b.Groups) * int(unsafe.Sizeof(ingester.Group{}))
	containers := cap(b.Containers) * int(unsafe.Sizeof(ingester.Container{}))
	spans := (cap(b.Symbols) + cap(b.Families)) * int(unsafe.Sizeof(ingester.Span{}))
	if max(cap(req.Scratch), groups, containers, spans) > keepBytes {
		return
	}
	b.Reset()
	b.Body = nil
	*req = Request{front: f, Batch: *b, Scratch: req.Scratch[:0]}
	f.requests.Put(req)
}
