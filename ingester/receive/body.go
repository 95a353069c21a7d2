package receive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-telemetry/spillway/ingester"
)

// leastRead is the first buffer of a body. It grows as the body arrives, so that what a
// sender merely announces takes little from the budget: growth times what is there, which
// leaves most requests with one copy of their first bytes.
const (
	leastRead = 32 << 10
	growth    = 16
)

// read takes the body into memory, within its limit and the budget.
func (f *Front) read(p *Protocol, r *http.Request, memory *ingester.Memory) ([]byte, *Refusal) {
	limit, most := f.Limits.BodyBytes, leastRead
	if n := r.ContentLength; n > int64(limit) {
		return nil, TooLarge("the body has %d bytes, and server.max_body_bytes is %d", n, limit)
	} else if n >= 0 {
		most = int(n) + 1 // to see that it ends
	}
	packed, err := readAll(memory, r.Body, most, limit)
	switch {
	case err == nil:
		return packed, nil
	case errors.Is(err, errTooLarge):
		return nil, TooLarge("the body is larger than server.max_body_bytes, which is %d", limit)
	case errors.Is(err, errNoMemory):
		return nil, p.NoMemory(memory)
	}
	return nil, &Refusal{Status: http.StatusBadRequest, Text: "the body did not arrive whole: " + err.Error()}
}

// Errors of readAll that are not the reader's.
var (
	errTooLarge = errors.New("larger than the limit")
	errNoMemory = errors.New("the budget of bytes in memory is used up")
)

// readAll returns what r has, at most limit bytes, in a buffer out of the budget.
// expected is how large it will be, as far as anybody knows.
func readAll(memory *ingester.Memory, r io.Reader, expected, limit int) ([]byte, error) {
	out, ok := memory.Buffer(min(leastRead, expected))
	if !ok {
		return nil, errNoMemory
	}
	for {
		if len(out) == cap(out) {
			more := 2 * len(out) // it was expected to end here
			if len(out) < expected {
				more = min(growth*len(out), expected)
			}
			if out, ok = memory.Larger(out, min(more, limit+1)); !ok {
				return nil, errNoMemory
			}
		}
		n, err := r.Read(out[len(out):cap(out)])
		out = out[:len(out)+n]
		switch {
		case len(out) > limit:
			return nil, errTooLarge
		case err == io.EOF:
			return out, nil
		case err != nil:
			return nil, err
		}
	}
}

// unpack decompresses the body into the batch.
func (f *Front) unpack(req *Request) *Refusal {
	b := &req.Batch
	message, encoding := req.packed, req.HTTP.Header.Get("Content-Encoding")
	if req.Protocol.Unframe != nil {
		var refusal *Refusal
		if message, encoding, refusal = req.Protocol.Unframe(req.HTTP, req.packed); refusal != nil {
			return refusal
		}
	}
	encoding = strings.ToLower(strings.TrimSpace(encoding))
	b.Packed = message
	if encoding == "" || encoding == "identity" {
		if len(message) > f.Limits.DecodedBytes {
			return f.tooLarge()
		}
		b.Encoding, b.Body, b.Size = "identity", message, len(message)
		return nil
	}
	u := f.borrowUnpacking()
	defer f.unpackings.Put(u)
	body, err := u.decompress(req, message, encoding, f.Limits.DecodedBytes)
	var unknown unknownEncoding
	switch {
	case err == nil:
		b.Encoding, b.Body, b.Size = encoding, body, len(body)
		if encoding == "snappy" {
			b.Encoding = ""
			if framed(message) {
				b.Encoding = "x-snappy-framed"
			}
		}
		return nil
	case errors.Is(err, errTooLarge):
		return f.tooLarge()
	case errors.Is(err, errNoMemory):
		return req.Protocol.NoMemory(req.Memory)
	case errors.As(err, &unknown):
		return Unsupported("%v", err)
	}
	return Malformed(fmt.Errorf("the body is not %s: %w", encoding, err))
}

func (f *Front) tooLarge() *Refusal {
	return TooLarge("the body is larger than server.max_decoded_bytes when decompressed, which is %d", f.Limits.DecodedBytes)
}

// unknownEncoding is a content encoding that is not spoken here.
type unknownEncoding string

func (e unknownEncoding) Error() string {
	return fmt.Sprintf("Content-Encoding %q is not spoken here: send gzip, zstd, deflate, snappy or none", string(e))
}

// maxWindow is the largest window of zstd that is understood, in bytes; the
// encoder of the same library makes none larger.
const maxWindow = 32 << 20

// unpacking holds decompressors, which are costly to make.
type unpacking struct {
	src  bytes.Reader
	gzip *gzip.Reader
	zlib io.ReadCloser
	raw  io.ReadCloser
	zstd *zstd.Decoder
}

func (f *Front) borrowUnpacking() *unpacking {
	if u, ok := f.unpackings.Get().(*unpacking); ok {
		return u
	}
	return &unpacking{}
}

// framed says whether snappy's bytes are a framed stream and not a block.
func framed(message []byte) bool { return bytes.HasPrefix(message, []byte("\xff\x06\x00\x00sNaPpY")) }

// decompress returns the message's content in a buffer out of the budget.
func (u *unpacking) decompress(req *Request, message []byte, encoding string, limit int) ([]byte, error) {
	if encoding == "snappy" && !framed(message) {
		return unblock(req, message, limit)
	}
	if encoding == "zstd" {
		// Its decoder keeps a window of what came before, as large as the sender says.
		var h zstd.Header
		if h.Decode(message) == nil && !req.Memory.Grow(int64(min(h.WindowSize, maxWindow))) {
			return nil, errNoMemory
		}
	}
	u.src.Reset(message)
	r, err := u.reader(message, encoding)
	if err != nil {
		return nil, err
	}
	return readAll(req.Memory, r, 2*len(message), limit)
}

// unblock decompresses a snappy block, which says its size.
func unblock(req *Request, message []byte, limit int) ([]byte, error) {
	size, err := snappy.DecodedLen(message)
	switch {
	case err != nil:
		return nil, err
	case size > limit:
		return nil, errTooLarge
	}
	buffer, ok := req.Memory.Buffer(size)
	if !ok {
		return nil, errNoMemory
	}
	return snappy.Decode(buffer[:cap(buffer)], message)
}

// reader starts a decompressor on u.src.
func (u *unpacking) reader(message []byte, encoding string) (r io.Reader, err error) {
	switch encoding {
	case "gzip", "x-gzip":
		if u.gzip == nil {
			u.gzip = new(gzip.Reader)
		}
		return u.gzip, u.gzip.Reset(&u.src)
	case "zstd":
		if u.zstd == nil {
			// One goroutine, and the largest window that klauspost's encoder makes.
			u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(maxWindow))
			if err != nil {
				return nil, err
			}
		}
		return u.zstd, u.zstd.Reset(&u.src)
	case "deflate":
		return u.deflate(message)
	case "snappy":
		return snappy.NewReader(&u.src), nil
	}
	return nil, unknownEncoding(encoding)
}

// deflate reads what HTTP calls deflate: the zlib format, or, from some senders,
// what is inside it.
func (u *unpacking) deflate(message []byte) (io.Reader, error) {
	if len(message) < 2 || message[0]&0x0f != 8 || (int(message[0])<<8|int(message[1]))%31 != 0 {
		if u.raw == nil {
			u.raw = flate.NewReader(&u.src)
			return u.raw, nil
		}
		return u.raw, u.raw.(flate.Resetter).Reset(&u.src, nil)
	}
	if u.zlib == nil {
		r, err := zlib.NewReader(&u.src)
		u.zlib = r
		return r, err
	}
	return u.zlib, u.zlib.(zlib.Resetter).Reset(&u.src, nil)
}
