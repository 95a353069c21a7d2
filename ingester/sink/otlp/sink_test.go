package otlp

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/x509"
	"encoding/pem"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// TestMain fails when a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// logsBatch is a batch of n log records under one resource, as a receiver makes it.
func logsBatch(tb testing.TB, n int) *ingester.Batch {
	tb.Helper()
	ld := plog.NewLogs()
	records := ld.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for range n {
		records.AppendEmpty().Body().SetStr("line")
	}
	raw, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(tb, err)
	b := &ingester.Batch{Format: ingester.OTLPLogs, Whole: true}
	require.True(tb, sink.Describe(b, raw))
	require.Len(tb, b.Groups, n)
	return b
}

func openSink(t *testing.T, o Options, endpoints ...string) *Sink {
	t.Helper()
	for _, e := range endpoints {
		u, err := url.Parse(e)
		require.NoError(t, err)
		o.Endpoints = append(o.Endpoints, &config.URL{URL: u})
	}
	s, err := New(o, slog.New(slog.DiscardHandler), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func grpcOptions() Options {
	o := DefaultOptions()
	o.Protocol = ProtocolGRPC
	o.Timeout = model.Duration(5 * time.Second)
	return o
}

// receiver is an OTLP receiver over HTTP that keeps what it gets.
type receiver struct {
	*httptest.Server
	mu     sync.Mutex
	paths  []string
	header []http.Header
	raw    [][]byte
}

func newReceiver(t *testing.T, answer func(http.ResponseWriter)) *receiver {
	r := &receiver{}
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		raw, _ := io.ReadAll(req.Body)
		r.mu.Lock()
		r.paths, r.header, r.raw = append(r.paths, req.URL.Path), append(r.header, req.Header.Clone()), append(r.raw, raw)
		r.mu.Unlock()
		if answer != nil {
			answer(w)
		}
	}))
	t.Cleanup(r.Close)
	return r
}

func TestHTTPRequests(t *testing.T) {
	for _, compression := range []string{"none", "gzip", "zstd"} {
		to := newReceiver(t, nil)
		o := DefaultOptions()
		o.Compression = compression
		o.Headers = map[string]string{"X-Scope-OrgID": "platform", "X-Extra": "1"}
		o.HTTPClientConfig.BasicAuth = &config.BasicAuth{Username: "u", Password: "p"}
		s := openSink(t, o, to.URL+"/base")
		b := logsBatch(t, 3)
		b.Whole = false
		b.Groups[1].Verdict = ingester.DroppedRatelimit
		b.Headers = http.Header{"X-Scope-Orgid": {"team-a"}, "Content-Type": {"text/plain"}, "Grpc-Timeout": {"1n"}}
		require.NoError(t, s.Write(t.Context(), b))
		require.Equal(t, "/base/v1/logs", to.paths[0])
		h := to.header[0]
		require.Equal(t, "application/x-protobuf", h.Get("Content-Type"))
		require.Equal(t, []string{"team-a"}, h["X-Scope-Orgid"], "what came with the batch wins")
		require.Equal(t, "1", h.Get("X-Extra"))
		require.Equal(t, "Basic dTpw", h.Get("Authorization"))
		require.NotContains(t, h, "Grpc-Timeout")
		raw := to.raw[0]
		if compression != "none" {
			require.Equal(t, compression, h.Get("Content-Encoding"))
			raw = unpacked(t, compression, raw)
		}
		got := plogotlp.NewExportRequest()
		require.NoError(t, got.UnmarshalProto(raw))
		require.Equal(t, 2, got.Logs().LogRecordCount())
	}
}

func unpacked(t *testing.T, encoding string, raw []byte) []byte {
	t.Helper()
	var r io.Reader
	var err error
	if encoding == "gzip" {
		r, err = gzip.NewReader(bytes.NewReader(raw))
	} else {
		d, zerr := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1))
		require.NoError(t, zerr)
		defer d.Close()
		r = d
	}
	require.NoError(t, err)
	raw, err = io.ReadAll(r)
	require.NoError(t, err)
	return raw
}

// A batch that nobody touched leaves as it came where the destination reads its
// encoding, and is compressed anew elsewhere.
func TestWholeBatchesPassThrough(t *testing.T) {
	for encoding, passes := range map[string]bool{"gzip": true, "zstd": true, "br": false, "": false} {
		to := newReceiver(t, nil)
		o := DefaultOptions()
		o.AcceptedEncodings = []string{"zstd"}
		b := logsBatch(t, 2)
		b.Packed, b.Encoding = []byte("as it came"), encoding
		require.NoError(t, openSink(t, o, to.URL).Write(t.Context(), b))
		if passes {
			require.Equal(t, b.Packed, to.raw[0])
			require.Equal(t, encoding, to.header[0].Get("Content-Encoding"))
			continue
		}
		require.Equal(t, b.Body, unpacked(t, "gzip", to.raw[0]))
	}
}

// Requests larger than any buffer on their way arrive as they were, without compression
// as the very bytes of the batch.
func TestLargeRequests(t *testing.T) {
	to := newReceiver(t, nil)
	o := DefaultOptions()
	o.Compression = "none"
	s := openSink(t, o, to.URL)
	for i, n := range []int{20_000, 100_000, 3} {
		b := logsBatch(t, n)
		require.NoError(t, s.Write(t.Context(), b))
		require.Equal(t, b.Body[:b.Size], to.raw[i])
		require.Empty(t, to.header[i].Get("Content-Encoding"))
		b.Whole = false
		m, ok := s.pack(b)
		require.True(t, ok)
		require.NotSame(t, &b.Body[0], &m.packed[0], "the encoder's bytes are copied, it is free for others")
		s.unpack(&m)
	}
}

func TestNothingAdmittedSendsNothing(t *testing.T) {
	to := newReceiver(t, nil)
	b := logsBatch(t, 1)
	b.Whole = false
	b.Groups[0].Verdict = ingester.DroppedRelabel
	require.NoError(t, openSink(t, DefaultOptions(), to.URL).Write(t.Context(), b))
	require.Empty(t, to.raw)
}

func TestPartialSuccessOverHTTP(t *testing.T) {
	to := newReceiver(t, func(w http.ResponseWriter) {
		resp := plogotlp.NewExportResponse()
		resp.PartialSuccess().SetRejectedLogRecords(2)
		resp.PartialSuccess().SetErrorMessage("too old")
		raw, _ := resp.MarshalProto()
		w.Header().Set("Content-Type", "application/x-protobuf")
		_, _ = w.Write(raw)
	})
	b := logsBatch(t, 3)
	b.Groups[2].Verdict = ingester.DroppedRelabel
	b.Whole = false
	require.NoError(t, openSink(t, DefaultOptions(), to.URL).Write(t.Context(), b))
	require.Equal(t, []uint32{1, 1, 0}, []uint32{b.Groups[0].Rejected, b.Groups[1].Rejected, b.Groups[2].Rejected})
}

func TestAnswersOverHTTP(t *testing.T) {
	spb, err := protoStatus(codes.InvalidArgument, "bad thing")
	require.NoError(t, err)
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		final  bool
		wait   time.Duration
		text   string
	}{
		"final": {func(w http.ResponseWriter) {
			w.Header().Set("Content-Type", "application/x-protobuf")
			w.WriteHeader(400)
			_, _ = w.Write(spb)
		}, true, 0, "answered 400 Bad Request: bad thing"},
		"limited":     {func(w http.ResponseWriter) { w.Header().Set("Retry-After", "7"); w.WriteHeader(429) }, false, 7 * time.Second, "429"},
		"unavailable": {func(w http.ResponseWriter) { w.Header().Set("Retry-After", "9"); w.WriteHeader(503) }, false, 9 * time.Second, "503"},
		"forbidden":   {func(w http.ResponseWriter) { w.WriteHeader(403) }, false, 0, "correct the address, the credentials"},
		"error":       {func(w http.ResponseWriter) { w.WriteHeader(500) }, false, 0, "500"},
	} {
		t.Run(name, func(t *testing.T) {
			to := newReceiver(t, c.answer)
			var e *ingester.SinkError
			require.ErrorAs(t, openSink(t, DefaultOptions(), to.URL).Write(t.Context(), logsBatch(t, 1)), &e)
			require.Equal(t, c.final, e.Final)
			require.ErrorContains(t, e, c.text)
			if c.wait > 0 {
				require.Equal(t, c.wait, e.RetryAfter)
			}
		})
	}
}

func protoStatus(code codes.Code, text string) ([]byte, error) {
	raw := protowire.AppendVarint(protowire.AppendTag(nil, 1, protowire.VarintType), uint64(code))
	return protowire.AppendString(protowire.AppendTag(raw, 2, protowire.BytesType), text), nil
}

// logsServer is a receiver made of OpenTelemetry's own service and grpc-go.
type logsServer struct {
	plogotlp.UnimplementedGRPCServer
	mu      sync.Mutex
	answer  func() (plogotlp.ExportResponse, error)
	records int
	md      metadata.MD
}

func (s *logsServer) Export(ctx context.Context, r plogotlp.ExportRequest) (plogotlp.ExportResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.records += r.Logs().LogRecordCount()
	s.md, _ = metadata.FromIncomingContext(ctx)
	if s.answer != nil {
		return s.answer()
	}
	return plogotlp.NewExportResponse(), nil
}

func serveLogs(t *testing.T, s *logsServer, options ...grpc.ServerOption) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	server := grpc.NewServer(options...)
	plogotlp.RegisterGRPCServer(server, s)
	done := make(chan struct{})
	go func() { defer close(done); _ = server.Serve(listener) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return "http://" + listener.Addr().String()
}

func TestCallsOfARealServer(t *testing.T) {
	for _, compression := range []string{"none", "gzip"} {
		server := &logsServer{}
		o := grpcOptions()
		o.Compression = compression
		o.HTTPClientConfig.Authorization = &config.Authorization{Type: "Bearer", Credentials: "secret"}
		s := openSink(t, o, serveLogs(t, server))
		b := logsBatch(t, 3)
		b.Headers = http.Header{"X-Scope-Orgid": {"team-a"}}
		require.NoError(t, s.Write(t.Context(), b))
		b.Whole = false
		b.Groups[0].Verdict = ingester.DroppedRatelimit
		require.NoError(t, s.Write(t.Context(), b))
		require.Equal(t, 5, server.records)
		require.Equal(t, []string{"team-a"}, server.md.Get("x-scope-orgid"))
		require.Equal(t, []string{"Bearer secret"}, server.md.Get("authorization"))
	}
}

// A message that came compressed passes through gRPC, too.
func TestCallsPassThrough(t *testing.T) {
	server := &logsServer{}
	s := openSink(t, grpcOptions(), serveLogs(t, server))
	b := logsBatch(t, 4)
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(b.Body)
	require.NoError(t, err)
	require.NoError(t, w.Close())
	b.Packed, b.Encoding = packed.Bytes(), "gzip"
	b.Body = []byte("not looked at")
	require.NoError(t, s.Write(t.Context(), b))
	require.Equal(t, 4, server.records)
}

func TestManyCallsShareConnections(t *testing.T) {
	server := &logsServer{}
	s := openSink(t, grpcOptions(), serveLogs(t, server, grpc.MaxConcurrentStreams(8)))
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			for range 10 {
				if err := s.Write(t.Context(), logsBatch(t, 2)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Equal(t, 1000, server.records)
}

func TestPartialSuccessOverGRPC(t *testing.T) {
	server := &logsServer{answer: func() (plogotlp.ExportResponse, error) {
		r := plogotlp.NewExportResponse()
		r.PartialSuccess().SetRejectedLogRecords(1)
		r.PartialSuccess().SetErrorMessage("too old")
		return r, nil
	}}
	b := logsBatch(t, 2)
	require.NoError(t, openSink(t, grpcOptions(), serveLogs(t, server)).Write(t.Context(), b))
	require.Equal(t, []uint32{0, 1}, []uint32{b.Groups[0].Rejected, b.Groups[1].Rejected})
}

func TestAnswersOverGRPC(t *testing.T) {
	limited, err := status.New(codes.ResourceExhausted, "späte: 100% voll").WithDetails(&errdetails.RetryInfo{RetryDelay: durationpb.New(2500 * time.Millisecond)})
	require.NoError(t, err)
	for name, c := range map[string]struct {
		err   error
		final bool
		wait  time.Duration
		text  string
	}{
		"invalid":         {status.Error(codes.InvalidArgument, "bad"), true, 0, "gRPC status 3: bad"},
		"limited":         {limited.Err(), false, 2500 * time.Millisecond, "späte: 100% voll"},
		"too large":       {status.Error(codes.ResourceExhausted, "grpc: received message larger than max (5 vs. 4)"), true, 0, "raise its limit"},
		"unavailable":     {status.Error(codes.Unavailable, "soon"), false, 0, "soon"},
		"internal":        {status.Error(codes.Internal, "oh"), false, 0, "oh"},
		"unauthenticated": {status.Error(codes.Unauthenticated, "who"), false, 0, "correct the address, the credentials"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &logsServer{answer: func() (plogotlp.ExportResponse, error) { return plogotlp.NewExportResponse(), c.err }}
			var e *ingester.SinkError
			require.ErrorAs(t, openSink(t, grpcOptions(), serveLogs(t, server)).Write(t.Context(), logsBatch(t, 1)), &e)
			require.Equal(t, c.final, e.Final)
			require.ErrorContains(t, e, c.text)
			if c.wait > 0 {
				require.Equal(t, c.wait, e.RetryAfter)
			}
		})
	}
}

// A service that the server does not have, and a server that is no gRPC server.
func TestCallsOfTheWrongServer(t *testing.T) {
	traces := logsBatch(t, 1)
	traces.Format = ingester.OTLPTraces
	err := openSink(t, grpcOptions(), serveLogs(t, &logsServer{})).Write(t.Context(), traces)
	require.ErrorContains(t, err, "unknown service opentelemetry.proto.collector.trace.v1.TraceService")

	to := newReceiver(t, nil)
	var e *ingester.SinkError
	require.ErrorAs(t, openSink(t, grpcOptions(), to.URL).Write(t.Context(), logsBatch(t, 1)), &e)
	require.False(t, e.Final)
}

// The next endpoint takes what one failed to take.
func TestTheNextEndpointTakesIt(t *testing.T) {
	server := &logsServer{}
	s := openSink(t, grpcOptions(), "http://127.0.0.1:1", serveLogs(t, server))
	for range 5 {
		require.NoError(t, s.Write(t.Context(), logsBatch(t, 1)))
	}
	require.Equal(t, 5, server.records)
	require.False(t, s.to.State(0, time.Now()).Healthy)
}

func TestGRPCOverTLS(t *testing.T) {
	server := &logsServer{}
	gs := grpc.NewServer()
	plogotlp.RegisterGRPCServer(gs, server)
	to := httptest.NewUnstartedServer(gs)
	to.EnableHTTP2 = true
	to.StartTLS()
	defer to.Close()
	defer gs.Stop()
	file := filepath.Join(t.TempDir(), "ca.pem")
	require.NoError(t, os.WriteFile(file, pemOf(to.Certificate()), 0o600))
	o := grpcOptions()
	o.HTTPClientConfig.TLSConfig.CAFile = file
	require.NoError(t, openSink(t, o, to.URL).Write(t.Context(), logsBatch(t, 1)))
	require.Equal(t, 1, server.records)
}

func TestTracesAndMetricsHaveTheirPaths(t *testing.T) {
	to := newReceiver(t, nil)
	s := openSink(t, DefaultOptions(), to.URL)
	td := ptrace.NewTraces()
	td.ResourceSpans().AppendEmpty().ScopeSpans().AppendEmpty().Spans().AppendEmpty().SetName("op")
	raw, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
	require.NoError(t, err)
	for _, f := range []ingester.Format{ingester.OTLPTraces, ingester.OTLPMetrics} {
		require.NoError(t, s.Write(t.Context(), &ingester.Batch{Format: f, Body: raw, Size: len(raw), Whole: true}))
	}
	require.Equal(t, []string{"/v1/traces", "/v1/metrics"}, to.paths)
	require.Error(t, s.Write(t.Context(), &ingester.Batch{Format: ingester.RemoteWrite1}))
}

func TestOptionsProblems(t *testing.T) {
	o := DefaultOptions()
	o.Protocol, o.Compression, o.AcceptedEncodings = "thrift", "lz4", []string{"snappy"}
	err := o.Validate()
	for _, want := range []string{"endpoints is empty", `protocol is "thrift"`, `compression is "lz4"`, `accepted_encodings[0] is "snappy"`} {
		require.ErrorContains(t, err, want)
	}
}

func pemOf(c *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
}
