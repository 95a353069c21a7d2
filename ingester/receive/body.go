package receive

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"

	"github.com/spillway-telemetry/spillway/ingester"
)

// leastRead is what the first read of a body may bring.
const leastRead = 32 << 10

// read takes the body into memory, within its limit and the budget.
func (f *Front) read(p *Protocol, r *http.Request, in *body, memory *ingester.Memory) *Refusal {
	limit := f.Limits.BodyBytes
	if n := r.ContentLength; n > int64(limit) {
		return TooLarge("the body has %d bytes, and server.max_body_bytes is %d", n, limit)
	}
	packed, err := readAll(in.packed[:0], r.Body, limit, memory)
	in.packed = packed
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errTooLarge):
		return TooLarge("the body is larger than server.max_body_bytes, which is %d", limit)
	case errors.Is(err, errNoMemory):
		return p.OverCapacity()
	}
	return &Refusal{Status: http.StatusBadRequest, Text: "the body did not arrive whole: " + err.Error()}
}

// Errors of readAll that are not the reader's.
var (
	errTooLarge = errors.New("larger than the limit")
	errNoMemory = errors.New("the budget of bytes in memory is used up")
)

// readAll appends to dst what r has, at most limit bytes, and takes the memory for
// it from the budget before it is used.
func readAll(dst []byte, r io.Reader, limit int, memory *ingester.Memory) ([]byte, error) {
	reserved := 0
	for {
		if len(dst) == reserved {
			step := min(max(leastRead, reserved), limit+1-reserved)
			if step == 0 {
				return dst, errTooLarge
			}
			if !memory.Grow(int64(step)) {
				return dst, errNoMemory
			}
			reserved += step
			dst = slices.Grow(dst, reserved-len(dst))
		}
		n, err := r.Read(dst[len(dst):reserved])
		dst = dst[:len(dst)+n]
		switch {
		case err == io.EOF && len(dst) <= limit:
			return dst, nil
		case err != nil && err != io.EOF:
			return dst, err
		case len(dst) > limit:
			return dst, errTooLarge
		}
	}
}

// unpack decompresses the body into the batch.
func (f *Front) unpack(req *Request) *Refusal {
	b := &req.Batch
	message, encoding := req.in.packed, req.HTTP.Header.Get("Content-Encoding")
	if req.Protocol.Unframe != nil {
		var refusal *Refusal
		if message, encoding, refusal = req.Protocol.Unframe(req.HTTP, req.in.packed); refusal != nil {
			return refusal
		}
	}
	encoding = strings.ToLower(strings.TrimSpace(encoding))
	b.Packed = message
	if encoding == "" || encoding == "identity" {
		if len(message) > f.Limits.DecodedBytes {
			return f.tooLarge()
		}
		b.Encoding, b.Body, b.Size, req.home = "identity", message, len(message), &req.in.packed
		return nil
	}
	u := f.borrowUnpacking()
	defer f.unpackings.Put(u)
	body, err := u.decompress(req, message, encoding, f.Limits.DecodedBytes)
	if body != nil {
		req.plain, req.home = body, &req.plain
	}
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
		return req.Protocol.OverCapacity()
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

// decompress returns the message's content in the request's buffer.
func (u *unpacking) decompress(req *Request, message []byte, encoding string, limit int) ([]byte, error) {
	if encoding == "snappy" && !framed(message) {
		return unblock(req, message, limit)
	}
	u.src.Reset(message)
	r, err := u.reader(message, encoding)
	if err != nil {
		return nil, err
	}
	return readAll(req.plain[:0], r, limit, req.Memory)
}

// unblock decompresses a snappy block, which says its size.
func unblock(req *Request, message []byte, limit int) ([]byte, error) {
	size, err := snappy.DecodedLen(message)
	switch {
	case err != nil:
		return nil, err
	case size > limit:
		return nil, errTooLarge
	case !req.Memory.Grow(int64(size)):
		return nil, errNoMemory
	}
	return snappy.Decode(req.plain[:cap(req.plain)], message)
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
			u.zstd, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(32<<20))
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
