package sink

import (
	"bytes"
	"fmt"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"
)

// Compressor compresses whole messages by a content encoding of HTTP. It is safe
// for concurrent use.
type Compressor struct {
	encoding string
	writers  sync.Pool // of *gzip.Writer
	zstd     *zstd.Encoder
}

// NewCompressor makes a compressor for gzip or zstd, or one for none, which leaves
// messages as they are. Both work at the level that costs least: what it saves
// beyond that is not worth the time here.
func NewCompressor(encoding string) (*Compressor, error) {
	c := &Compressor{encoding: encoding}
	switch encoding {
	case "none":
		c.encoding = ""
	case "gzip":
	case "zstd":
		// Without concurrency it starts no goroutine; EncodeAll may be called at the
		// same time all the same.
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(4))
		if err != nil {
			return nil, err
		}
		c.zstd = e
	default:
		return nil, fmt.Errorf("compression is %q: it must be gzip, zstd or none", encoding)
	}
	return c, nil
}

// Encoding is the content encoding of what Compress returns, empty for none.
func (c *Compressor) Encoding() string { return c.encoding }

// Compress returns the message compressed, in dst if there is room.
func (c *Compressor) Compress(dst, message []byte) []byte {
	switch {
	case c.zstd != nil:
		return c.zstd.EncodeAll(message, dst[:0])
	case c.encoding == "":
		return message
	}
	out := bytes.NewBuffer(dst[:0])
	w, ok := c.writers.Get().(*gzip.Writer)
	if ok {
		w.Reset(out)
	} else {
		w, _ = gzip.NewWriterLevel(out, gzip.BestSpeed)
	}
	_, _ = w.Write(message) // a buffer takes all
	_ = w.Close()
	c.writers.Put(w)
	return out.Bytes()
}
