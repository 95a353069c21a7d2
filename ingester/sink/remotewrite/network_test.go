package remotewrite

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	crand "crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log"
	"math/big"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// As many connections as configured are opened, no more, however many writes
// there are; and both endpoints work.
func TestConnectionsStayWithinTheBudget(t *testing.T) {
	const limit, writers = 3, 24
	var opened, peak [2]atomic.Int32
	var urls []string
	for i := range 2 {
		var inFlight atomic.Int32
		s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			n := inFlight.Add(1)
			defer inFlight.Add(-1)
			for p := peak[i].Load(); n > p && !peak[i].CompareAndSwap(p, n); p = peak[i].Load() {
			}
			_, _ = io.Copy(io.Discard, r.Body)
			w.WriteHeader(204)
		}))
		s.Config.ConnState = func(_ net.Conn, c http.ConnState) {
			if c == http.StateNew {
				opened[i].Add(1)
			}
		}
		s.Start()
		t.Cleanup(s.Close)
		urls = append(urls, s.URL)
	}
	o := testOptions(t, ingester.RemoteWrite1, urls...)
	o.MaxConnectionsPerEndpoint = limit
	s := openTestSink(t, o)
	var wg sync.WaitGroup
	for range writers {
		wg.Go(func() {
			for range 40 {
				if err := s.Write(t.Context(), smallBatch(t, s.format)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := range 2 {
		require.LessOrEqual(t, opened[i].Load(), int32(limit))
		require.LessOrEqual(t, peak[i].Load(), int32(limit))
		require.Positive(t, peak[i].Load())
	}
}

// Many writers, endpoints that fail in every way: whatever a write says is stored
// was received whole by some endpoint that said so, and a write that failed says so.
func TestConcurrentWritesThroughFaults(t *testing.T) {
	var mu sync.Mutex
	stored := make(map[string]int)
	faulty := func(seed int64, faults int) *httptest.Server {
		r := rand.New(rand.NewSource(seed))
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			mu.Lock()
			fault := r.Intn(100)
			mu.Unlock()
			if fault >= faults {
				fault = 9
			}
			switch fault % 10 {
			case 0:
				w.WriteHeader(500) // the body is not read
				return
			case 1:
				hijack("")(w, req)
				return
			case 2:
				hijack("HTTP/1.1 503 No\r\nRetry-After: 1\r\n")(w, req)
				return
			}
			body, err := io.ReadAll(req.Body)
			if err != nil {
				return
			}
			mu.Lock()
			stored[string(body)]++
			mu.Unlock()
			if fault%10 == 3 {
				hijack("")(w, req) // stored, and does not say so
				return
			}
			w.WriteHeader(204)
		}))
		t.Cleanup(s.Close)
		return s
	}
	s := newTestSink(t, ingester.RemoteWrite1, faulty(1, 20).URL, faulty(2, 20).URL, faulty(3, 100).URL)
	var wg sync.WaitGroup
	var done atomic.Int32
	for w := range 16 {
		wg.Go(func() {
			r := rand.New(rand.NewSource(int64(w)))
			b := smallBatch(t, s.format)
			for i := range 60 {
				b.Packed = make([]byte, 1+r.Intn(100_000))
				copy(b.Packed, []byte{byte(w), byte(i)})
				key := bytes.Clone(b.Packed)
				err := s.Write(t.Context(), b)
				clear(b.Packed) // it is ours again
				if err != nil {
					continue
				}
				done.Add(1)
				mu.Lock()
				n := stored[string(key)]
				mu.Unlock()
				if n == 0 {
					t.Errorf("write %d of %d is said to be stored and is not", i, w)
				}
			}
		})
	}
	wg.Wait()
	require.Positive(t, done.Load())
	for i := range s.to.Endpoints {
		require.Zero(t, s.to.State(i, time.Now()).InFlight)
	}
}

// An endpoint that answers before it has read the request leaves the transport
// sending. By the time Write returns it must have let go of the bytes: the race
// detector sees it if it has not.
func TestTheBatchIsNotReadAfterWriteReturns(t *testing.T) {
	early := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusBadRequest)
	}))
	defer early.Close()
	s := newTestSink(t, ingester.RemoteWrite1, early.URL)
	b := smallBatch(t, s.format)
	b.Packed = make([]byte, 4<<20)
	for range 20 {
		require.Error(t, s.Write(t.Context(), b))
		clear(b.Packed)
	}
}

// A server may close its idle connections just as a request goes out on one of
// them. That is no failure of the endpoint: the request goes out again, on a new
// connection, since the other idle ones are no better.
func TestClosedIdleConnectionsAreNoFailure(t *testing.T) {
	const idle = 4
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var served atomic.Int32
	var wg, together sync.WaitGroup
	together.Add(idle)
	wg.Go(func() {
		for n := 0; ; n++ {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer conn.Close()
				in := bufio.NewReader(conn)
				r, err := http.ReadRequest(in)
				if err != nil {
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				if n < idle {
					// So many connections are open before the first gets its answer.
					together.Done()
					together.Wait()
				}
				served.Add(1)
				_, _ = io.WriteString(conn, "HTTP/1.1 204 No Content\r\n\r\n")
				// The next request's first byte is answered by closing.
				_, _ = in.Peek(1)
			})
		}
	})
	t.Cleanup(wg.Wait)
	t.Cleanup(func() { _ = listener.Close() })

	s := newTestSink(t, ingester.RemoteWrite1, "http://"+listener.Addr().String())
	var writers sync.WaitGroup
	for range idle {
		writers.Go(func() {
			if err := s.Write(t.Context(), smallBatch(t, s.format)); err != nil {
				t.Error(err)
			}
		})
	}
	writers.Wait()
	for range 5 {
		require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
	}
	require.EqualValues(t, idle+5, served.Load())
	require.True(t, s.to.State(0, time.Now()).Healthy)
}

// strangerCA is the certificate of an authority that signed nothing.
func strangerCA(t *testing.T) []byte {
	key, err := ecdsa.GenerateKey(elliptic.P256(), crand.Reader)
	require.NoError(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(crand.Reader, template, template, &key.PublicKey, key)
	require.NoError(t, err)
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: raw})
}

func TestTLSAndItsFiles(t *testing.T) {
	to := httptest.NewUnstartedServer(status(204, ""))
	to.Config.ErrorLog = log.New(io.Discard, "", 0)
	to.StartTLS()
	defer to.Close()
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: to.Certificate().Raw})
	file := filepath.Join(t.TempDir(), "ca.pem")

	o := testOptions(t, ingester.RemoteWrite1, to.URL)
	e := sinkError(t, openTestSink(t, o))
	require.ErrorContains(t, e, "certificate")
	require.False(t, e.Final)

	o.HTTPClientConfig.TLSConfig.CAFile = file
	_, err := New(o, nil, nil)
	require.ErrorContains(t, err, file, "a file that is missing is found at the start")
	require.NoError(t, os.WriteFile(file, strangerCA(t), 0o600))
	s := openTestSink(t, o)
	require.ErrorContains(t, sinkError(t, s), "certificate")
	// The file is read again when it changes.
	require.NoError(t, os.WriteFile(file, ca, 0o600))
	require.Eventually(t, func() bool { return s.Write(t.Context(), smallBatch(t, s.format)) == nil }, time.Minute, 10*time.Millisecond)

	o.HTTPClientConfig.TLSConfig.CAFile, o.HTTPClientConfig.TLSConfig.CA = "", string(ca)
	o.HTTPClientConfig.EnableHTTP2 = true
	s = openTestSink(t, o)
	require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
}
