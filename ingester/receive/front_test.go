package receive

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/governor"
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/relabel"
)

// nowhere is a sink that keeps nothing.
type nowhere struct{}

func (nowhere) Write(context.Context, *ingester.Batch) error { return nil }

func newFront(t testing.TB, memory int64, keys string) *Front {
	t.Helper()
	s := ingester.Settings{Exempt: ingester.ExemptLabel{Label: "kfuse", Value: "true"}, RouteBytes: 1 << 16}
	for _, stream := range ingester.Streams() {
		s.Streams[stream] = ingester.StreamSettings{Rules: &relabel.Rules{}, Sink: nowhere{}}
	}
	var err error
	if keys != "" {
		s.Keys, err = ingester.ParseKeys([]byte(keys), "keys")
		require.NoError(t, err)
	}
	g, err := governor.New(governor.Defaults(), nil, slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	in, err := ingester.New(s, memory, g)
	require.NoError(t, err)
	return &Front{Ingester: in, Limits: Limits{BodyBytes: 1 << 20, DecodedBytes: 1 << 20}}
}

func pack(t testing.TB, encoding string, body []byte) []byte {
	var buf bytes.Buffer
	var w io.WriteCloser
	var err error
	switch encoding {
	case "gzip":
		w = gzip.NewWriter(&buf)
	case "deflate":
		w = zlib.NewWriter(&buf)
	case "zstd":
		w, err = zstd.NewWriter(&buf)
	case "snappy":
		return snappy.Encode(nil, body)
	default:
		return body
	}
	require.NoError(t, err)
	_, err = w.Write(body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	return buf.Bytes()
}

// TestEveryRequestHasItsOwnBytes sends requests of all sizes and encodings at the same
// time through one front, whose buffers go from one to the next: each handler sees its
// own body, also after it has written behind it.
func TestEveryRequestHasItsOwnBytes(t *testing.T) {
	f := newFront(t, 256<<20, "")
	h := f.Handler(Protocol{Stream: ingester.Logs, Handle: func(rw http.ResponseWriter, req *Request) {
		want := string(req.Body())
		b := &req.Batch
		b.Body = append(b.Body, bytes.Repeat([]byte("k"), len(want)/2)...)
		require.Equal(t, want, string(req.Body()))
		if req.HTTP.Header.Get("X-Replace") != "" {
			req.Scratch = append(append(req.Scratch[:0], "made of "...), want...)
			req.Replace(req.Scratch)
			b.Body = append(b.Body, "behind it"...)
			want = string(req.Body()[len("made of "):])
			require.Equal(t, "identity", b.Encoding)
		}
		_, _ = io.WriteString(rw, want)
	}})
	var wg sync.WaitGroup
	for worker := range 8 {
		r := rand.New(rand.NewPCG(1, uint64(worker)))
		wg.Go(func() {
			for range 150 {
				encoding := []string{"", "identity", "gzip", "deflate", "zstd", "snappy"}[r.IntN(6)]
				body := []byte(strings.Repeat(fmt.Sprintf("%d-%d ", worker, r.IntN(1e6)), r.IntN(5000)))
				req := httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(pack(t, encoding, body)))
				req.Header.Set("Content-Encoding", encoding)
				if r.IntN(2) == 0 {
					req.Header.Set("X-Replace", "1")
				}
				rec := httptest.NewRecorder()
				h.ServeHTTP(rec, req)
				if rec.Code != 200 || rec.Body.String() != string(body) {
					t.Errorf("%s: %d bytes in, answer %d with %d bytes", encoding, len(body), rec.Code, rec.Body.Len())
				}
			}
		})
	}
	wg.Wait()
	require.True(t, f.Ingester.Memory().Grow(256<<20), "all memory is given back")
}

// unread fails the test when somebody reads it.
type unread struct{ t *testing.T }

func (u unread) Read([]byte) (int, error) {
	u.t.Error("the body is read")
	return 0, io.EOF
}

// TestRefusedBeforeTheBody looks at the method, the headers and the key first.
func TestRefusedBeforeTheBody(t *testing.T) {
	f := newFront(t, 1<<20, `keys: [{name: a, sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b}]`)
	h := f.Handler(Protocol{
		Stream: ingester.Logs,
		Check: func(r *http.Request) *Refusal {
			if r.Header.Get("Content-Type") == "odd" {
				return Unsupported("odd")
			}
			return nil
		},
		Token:  func(r *http.Request) string { return r.Header.Get("X-Own-Key") },
		Handle: func(http.ResponseWriter, *Request) { t.Error("handled") },
	})
	for name, c := range map[string]struct {
		method, header, value string
		length                int64
		status                int
	}{
		"method": {"GET", "", "", 1, 405}, "type": {"POST", "Content-Type", "odd", 1, 415}, "no key": {"POST", "Kf-Api-Key", "secret", 1, 401},
		"wrong key": {"POST", "X-Own-Key", "other", 1, 403}, "announced too large": {"POST", "X-Own-Key", "secret", 2 << 20, 413},
	} {
		req := httptest.NewRequest(c.method, "/", unread{t})
		req.ContentLength = c.length
		if c.header != "" {
			req.Header.Set(c.header, c.value)
		}
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, req)
		require.Equal(t, c.status, rec.Code, name)
	}
}

// TestBodyThatEnds answers a body that does not arrive, grows too large, or finds no
// memory.
func TestBodyThatEnds(t *testing.T) {
	handled := 0
	p := Protocol{Stream: ingester.Logs, Handle: func(http.ResponseWriter, *Request) { handled++ }}
	post := func(f *Front, body io.Reader) *httptest.ResponseRecorder {
		req := httptest.NewRequest(http.MethodPost, "/", body)
		req.ContentLength = -1
		rec := httptest.NewRecorder()
		f.Handler(p).ServeHTTP(rec, req)
		return rec
	}
	f := newFront(t, 4<<20, "")
	require.Equal(t, 400, post(f, io.MultiReader(strings.NewReader("half"), broken{})).Code)
	require.Equal(t, 413, post(f, io.LimitReader(zeros{}, 1<<20+1)).Code)
	require.Zero(t, handled)
	require.Equal(t, 200, post(f, io.LimitReader(zeros{}, 1<<20)).Code, "the limit itself is allowed")
	busy := newFront(t, 256<<10, "")
	others := busy.Ingester.Memory()
	require.True(t, others.Grow(216<<10))
	rec := post(busy, io.LimitReader(zeros{}, 64<<10))
	require.Equal(t, 429, rec.Code)
	require.NotEmpty(t, rec.Header().Get("Retry-After"))
	p.ShedStatus = 503
	require.Equal(t, 503, post(busy, io.LimitReader(zeros{}, 64<<10)).Code)
	others.Release()
	require.Equal(t, 200, post(busy, io.LimitReader(zeros{}, 64<<10)).Code, "it was right to come back")
	rec = post(newFront(t, 40<<10, ""), io.LimitReader(zeros{}, 64<<10))
	require.Equal(t, 413, rec.Code, "what never fits must not come back")
	require.Empty(t, rec.Header().Get("Retry-After"))
	require.Contains(t, rec.Body.String(), "server.max_request_bytes, which is 40960")
	require.True(t, f.Ingester.Memory().Grow(4<<20), "all memory is given back")
}

// TestAnnouncedBytesAreNotTaken holds the buffer of a body to what arrived of it.
func TestAnnouncedBytesAreNotTaken(t *testing.T) {
	const announced = 48 << 20
	body := &slowly{t: t, left: 3 << 20}
	memory := newFront(t, 2*announced, "").Ingester.Memory()
	out, err := readAll(memory, body, announced+1, announced)
	require.NoError(t, err)
	require.Len(t, out, 3<<20)
	require.Less(t, body.buffers, 5, "most of it arrives where it stays")
	memory.Release()
	body = &slowly{t: t, left: 300_000}
	out, err = readAll(memory, body, 300_001, announced)
	require.NoError(t, err)
	require.Len(t, out, 300_000)
	require.Equal(t, 2, body.buffers, "one step to the announced size")
	memory.Release()
}

// slowly is a body that arrives in small pieces.
type slowly struct {
	t                            *testing.T
	left, arrived, size, buffers int
}

func (s *slowly) Read(b []byte) (int, error) {
	if size := s.arrived + len(b); size != s.size {
		s.size, s.buffers = size, s.buffers+1
	}
	require.LessOrEqual(s.t, s.size, max(leastRead, growth*s.arrived)*5/4, "after %d bytes", s.arrived)
	n := min(len(b), s.left, 1000)
	s.left, s.arrived = s.left-n, s.arrived+n
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, errors.New("connection reset") }

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
