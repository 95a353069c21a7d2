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

// Limits bounds the bytes of one request.
type Limits struct {
	BodyBytes    int // as they are sent
	DecodedBytes int // decompressed
}

// Front takes requests from their header to their decoded bytes. It is made once
// for all receivers, which then share what it keeps for the next request.
type Front struct {
	Ingester *ingester.Ingester
	Limits   Limits
	// ForwardHeaders are the request headers that a sink may pass on, in any case.
	ForwardHeaders []string

	bodies     sync.Pool
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

	front *Front
	slot  *governor.Slot
	in    *body
	plain []byte  // buffer of the decompressed body
	home  *[]byte // which of the buffers Batch.Body began in
}

// body is a request's body as it came.
type body struct{ packed []byte }

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
	req.home = &req.Scratch
	b.Body, b.Size = message, len(message)
	b.Packed, b.Encoding = message, "identity"
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
	in := f.borrowBody()
	defer f.giveBackBody(in)
	refuse := func(refusal *Refusal) {
		f.Ingester.CountUnread(p.Stream, refusal.Capacity)
		p.refuse(rw, r, refusal)
	}
	if refusal := f.read(p, r, in, memory); refusal != nil { // 1 receive
		refuse(refusal)
		return
	}
	slot, err := f.Ingester.Slot(r.Context(), origin.Sender, p.Stream) // 2 slot
	if err != nil {
		refuse(p.shed(err))
		return
	}
	defer slot.Release()
	// Only now: a batch that waits holds its body and nothing else.
	req := f.borrow()
	defer f.giveBack(req)
	req.HTTP, req.Protocol, req.Memory, req.slot, req.in = r, p, memory, slot, in
	b := &req.Batch
	b.Stream, b.Origin, b.Received, b.Headers = p.Stream, origin, time.Now(), Forwarded(f.ForwardHeaders, r, origin.Sender)
	if refusal := f.unpack(req); refusal != nil {
		refuse(refusal)
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

func (f *Front) borrowBody() *body {
	if in, ok := f.bodies.Get().(*body); ok {
		return in
	}
	return &body{}
}

func (f *Front) giveBackBody(in *body) {
	if cap(in.packed) <= keepBytes {
		in.packed = in.packed[:0]
		f.bodies.Put(in)
	}
}

func (f *Front) borrow() *Request {
	if req, ok := f.requests.Get().(*Request); ok {
		return req
	}
	return &Request{front: f}
}

// keepBytes is the largest buffer that is kept for the next request, so that
// one huge request does not hold its memory for ever.
const keepBytes = 8 << 20

func (f *Front) giveBack(req *Request) {
	b := &req.Batch
	if req.home != nil && cap(b.Body) > cap(*req.home) {
		*req.home = b.Body // grown for the keys behind it
	}
	groups := cap(b.Groups) * int(unsafe.Sizeof(ingester.Group{}))
	containers := cap(b.Containers) * int(unsafe.Sizeof(ingester.Container{}))
	spans := (cap(b.Symbols) + cap(b.Families)) * int(unsafe.Sizeof(ingester.Span{}))
	if max(cap(req.plain), cap(req.Scratch), groups, containers, spans) > keepBytes {
		return
	}
	b.Reset()
	b.Body = nil
	*req = Request{front: f, Batch: *b, plain: req.plain[:0], Scratch: req.Scratch[:0]}
	f.requests.Put(req)
}
