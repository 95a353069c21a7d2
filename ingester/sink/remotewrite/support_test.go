package remotewrite

import (
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/spillway-telemetry/spillway/ingester"
)

// timeout is that of testOptions.
const timeout = 2 * time.Second

// testOptions are options with the given endpoints and a timeout of 2s.
func testOptions(tb testing.TB, format ingester.Format, endpoints ...string) Options {
	tb.Helper()
	o := DefaultOptions()
	o.Timeout = model.Duration(2 * time.Second)
	if format == ingester.RemoteWrite2 {
		o.ProtobufMessage = MessageV2
	}
	for _, e := range endpoints {
		u, err := url.Parse(e)
		require.NoError(tb, err)
		o.Endpoints = append(o.Endpoints, &config.URL{URL: u})
	}
	return o
}

func newTestSink(tb testing.TB, format ingester.Format, endpoints ...string) *Sink {
	tb.Helper()
	return openTestSink(tb, testOptions(tb, format, endpoints...))
}

func openTestSink(tb testing.TB, o Options) *Sink {
	tb.Helper()
	s, err := New(o, slog.New(slog.DiscardHandler), nil)
	require.NoError(tb, err)
	tb.Cleanup(func() { require.NoError(tb, s.Close()) })
	return s
}

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// request is what a test server got.
type request struct {
	header http.Header
	body   []byte
}

// server is a destination whose answers a test decides.
type server struct {
	*httptest.Server
	mu       sync.Mutex
	requests []request
}

// newServer answers each request with answer, which may be nil for 204.
func newServer(t *testing.T, answer http.HandlerFunc) *server {
	s := &server{}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		s.mu.Lock()
		s.requests = append(s.requests, request{r.Header.Clone(), body})
		s.mu.Unlock()
		if answer == nil {
			w.WriteHeader(http.StatusNoContent)
			return
		}
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.requests)
}

// status answers with a code, a text and headers given in pairs.
func status(code int, text string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(code)
		_, _ = io.WriteString(w, text)
	}
}

// transport is a client of one endpoint without a network.
type transport func(*http.Request) (*http.Response, error)

func (f transport) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// answering is a transport that reads the request and answers with a code.
func answering(code int, headers ...string) transport {
	return func(r *http.Request) (*http.Response, error) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return nil, err
		}
		w := httptest.NewRecorder()
		status(code, "", headers...)(w, r)
		return w.Result(), nil
	}
}

// hanging is a transport that never answers.
func hanging(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// refusing is a transport that nobody listens to.
func refusing(*http.Request) (*http.Response, error) {
	return nil, errors.New("connect: connection refused")
}

// offline makes a sink whose endpoints are the transports, named http://a, http://b
// and so on.
func offline(t *testing.T, format ingester.Format, to ...transport) *Sink {
	t.Helper()
	var names []string
	for i := range to {
		names = append(names, "http://"+string(rune('a'+i)))
	}
	s := newTestSink(t, format, names...)
	for i, rt := range to {
		s.to.Endpoints[i].Client.Transport = rt
	}
	return s
}

// smallBatch is one sample of one series.
func smallBatch(t testing.TB, format ingester.Format) *ingester.Batch {
	t.Helper()
	var b *ingester.Batch
	if format == ingester.RemoteWrite1 {
		b = newTestBatch(t, &prompb.WriteRequest{Timeseries: []prompb.TimeSeries{{
			Labels: []prompb.Label{{Name: "__name__", Value: "up"}}, Samples: []prompb.Sample{{Value: 1, Timestamp: 2}},
		}}})
	} else {
		b = newTestBatch(t, &writev2.Request{Symbols: []string{"", "__name__", "up"}, Timeseries: []writev2.TimeSeries{{
			LabelsRefs: []uint32{1, 2}, Samples: []writev2.Sample{{Value: 1, Timestamp: 2}},
		}}})
	}
	b.Whole = true
	return b
}

// sinkError writes a small batch and returns the error.
func sinkError(t *testing.T, s *Sink) *ingester.SinkError {
	t.Helper()
	var e *ingester.SinkError
	require.ErrorAs(t, s.Write(t.Context(), smallBatch(t, s.format)), &e)
	return e
}
