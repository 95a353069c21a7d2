package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/golang/snappy"
	"google.golang.org/protobuf/encoding/protowire"
)

// sink is the discarding destination behind every forwarding receiver. It counts
// the samples that arrive, as some receivers answer first and forward later.
type sink struct {
	url     string
	server  *http.Server
	buffers sync.Pool // of *sinkBuffers
	samples atomic.Int64
	arrived chan struct{} // has a token when samples changed
	broken  atomic.Pointer[error]
}

type sinkBuffers struct{ packed, raw []byte }

func startSink() (*sink, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	s := &sink{url: "http://" + l.Addr().String() + "/api/v1/write", arrived: make(chan struct{}, 1)}
	s.buffers.New = func() any { return &sinkBuffers{} }
	s.server = &http.Server{Handler: s}
	go s.server.Serve(l)
	return s, nil
}

// ServeHTTP answers writes as a remote write receiver does, and whatever else is
// asked of it with 200.
func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		return
	}
	n, err := s.take(r)
	if err != nil {
		err = fmt.Errorf("the sink cannot read what arrives: %w", err)
		s.broken.CompareAndSwap(nil, &err)
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.samples.Add(n)
	select {
	case s.arrived <- struct{}{}:
	default:
	}
	if isOTLP(r.URL.Path) {
		w.Header().Set("Content-Type", "application/x-protobuf")
		return
	}
	w.Header().Set("X-Prometheus-Remote-Write-Samples-Written", fmt.Sprint(n))
	w.WriteHeader(http.StatusNoContent)
}

// take reads a request and counts its samples.
func (s *sink) take(r *http.Request) (int64, error) {
	b := s.buffers.Get().(*sinkBuffers)
	defer s.buffers.Put(b)
	if isOTLP(r.URL.Path) {
		raw, err := b.readPlain(r)
		if err != nil {
			return 0, err
		}
		return countOTLP(r.URL.Path, raw)
	}
	if encoding := r.Header.Get("Content-Encoding"); encoding != "snappy" {
		return 0, fmt.Errorf("compressed by %q, which is not what is compared", encoding)
	}
	size := int(r.ContentLength)
	if size < 0 || size > 1<<28 {
		return 0, fmt.Errorf("its length is %d", size)
	}
	if cap(b.packed) < size {
		b.packed = make([]byte, size)
	}
	b.packed = b.packed[:size]
	if _, err := io.ReadFull(r.Body, b.packed); err != nil {
		return 0, err
	}
	raw, err := snappy.Decode(b.raw[:cap(b.raw)], b.packed)
	if err != nil {
		return 0, err
	}
	b.raw = raw
	series := protowire.Number(1)
	if strings.Contains(r.Header.Get("Content-Type"), message2) {
		series = 5
	}
	return countSamples(raw, series)
}

// countSamples counts the samples of a request whose series are in the given
// field. In both messages the samples of a series are its field 2.
func countSamples(raw []byte, series protowire.Number) (n int64, err error) {
	err = eachField(raw, func(field protowire.Number, message []byte) error {
		if field != series {
			return nil
		}
		return eachField(message, func(field protowire.Number, _ []byte) error {
			if field == 2 {
				n++
			}
			return nil
		})
	})
	return n, err
}

// eachField calls f with the length-delimited fields of a message.
func eachField(message []byte, f func(protowire.Number, []byte) error) error {
	for len(message) > 0 {
		field, wire, size := protowire.ConsumeTag(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		message = message[size:]
		if wire != protowire.BytesType {
			if size = protowire.ConsumeFieldValue(field, wire, message); size < 0 {
				return protowire.ParseError(size)
			}
			message = message[size:]
			continue
		}
		value, size := protowire.ConsumeBytes(message)
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := f(field, value); err != nil {
			return err
		}
		message = message[size:]
	}
	return nil
}

// patience is how long nothing may happen while something is still awaited.
const patience = 30 * time.Second

// await waits until want samples have arrived.
func (s *sink) await(ctx context.Context, want int64) error {
	for {
		if err := s.broken.Load(); err != nil {
			return *err
		}
		have := s.samples.Load()
		if have >= want {
			return nil
		}
		select {
		case <-s.arrived:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(patience):
			return fmt.Errorf("%d of %d samples arrived at the sink, and no more for %s", have, want, patience)
		}
	}
}
