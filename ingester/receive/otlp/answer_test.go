package otlp

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zlib"
	"github.com/klauspost/compress/zstd"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	_ "google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// teamLogs is a request of one log record for each team that is named.
func teamLogs(teams ...string) plogotlp.ExportRequest {
	logs := plog.NewLogs()
	records := logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords()
	for i, team := range teams {
		r := records.AppendEmpty()
		r.Body().SetStr(fmt.Sprint("line ", i))
		r.Attributes().PutStr("team", team)
	}
	return plogotlp.NewExportRequestFromLogs(logs)
}

const oneOfA = `streams: {logs: {rate: 0.1, burst: 2, classes: [{name: a, percent: 50}], rules: [{class: a, matchers: ['team="a"']}]}}`

func (s *system) post(path string, body []byte, header ...string) *httptest.ResponseRecorder {
	req := httptest.NewRequest(http.MethodPost, path, bytes.NewReader(body))
	req.Header.Set("Content-Type", protobufType)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	s.mux().ServeHTTP(rec, req)
	return rec
}

// client is a gRPC connection to the system.
func (s *system) client() *grpc.ClientConn {
	address, _ := s.servers()
	conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(s.t, err)
	s.t.Cleanup(func() { conn.Close() })
	return conn
}

// TestPartialSuccess tells senders exactly how much was dropped, and of which class,
// in the encoding that they speak.
func TestPartialSuccess(t *testing.T) {
	request := teamLogs("a", "a", "b", "a")
	check := func(t *testing.T, p plogotlp.ExportPartialSuccess) {
		require.EqualValues(t, 2, p.RejectedLogRecords())
		require.Contains(t, p.ErrorMessage(), "class a: 2 items dropped (ratelimit)")
	}
	t.Run("protobuf", func(t *testing.T) {
		s := newSystem(t, setup{policy: oneOfA})
		rec := s.post("/v1/logs", must(request.MarshalProto()))
		require.Equal(t, 200, rec.Code)
		require.Equal(t, protobufType, rec.Header().Get("Content-Type"))
		response := plogotlp.NewExportResponse()
		require.NoError(t, response.UnmarshalProto(rec.Body.Bytes()))
		check(t, response.PartialSuccess())
		s.requireConserved(ingester.Logs)
	})
	t.Run("JSON", func(t *testing.T) {
		s := newSystem(t, setup{policy: oneOfA})
		rec := s.post("/v1/logs", must(request.MarshalJSON()), "Content-Type", "application/json; charset=utf-8")
		require.Equal(t, 200, rec.Code)
		require.Equal(t, jsonType, rec.Header().Get("Content-Type"))
		response := plogotlp.NewExportResponse()
		require.NoError(t, response.UnmarshalJSON(rec.Body.Bytes()))
		check(t, response.PartialSuccess())
		require.Len(t, s.sink.items, 2)
	})
	t.Run("gRPC", func(t *testing.T) {
		s := newSystem(t, setup{policy: oneOfA})
		response, err := plogotlp.NewGRPCClient(s.client()).Export(context.Background(), request)
		require.NoError(t, err)
		check(t, response.PartialSuccess())
	})
	t.Run("silent", func(t *testing.T) {
		s := newSystem(t, setup{policy: oneOfA, silent: true})
		rec := s.post("/v1/logs", must(request.MarshalProto()))
		require.Equal(t, 200, rec.Code)
		require.Empty(t, rec.Body.Bytes())
	})
	t.Run("all stored", func(t *testing.T) {
		s := newSystem(t, setup{})
		require.Empty(t, s.post("/v1/logs", must(request.MarshalProto())).Body.Bytes())
		require.Equal(t, "{}", s.post("/v1/logs", must(request.MarshalJSON()), "Content-Type", jsonType).Body.String())
		require.Equal(t, 2, s.sink.whole)
	})
}

// TestRefusals checks the answers to requests of which nothing is stored, over HTTP
// and gRPC, and what of them asks for another try.
func TestRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		system setup
		sink   error
		body   []byte
		status int
		code   codes.Code
		retry  bool
		text   string
	}{
		"malformed":     {setup{}, nil, []byte{0x0a, 9, 1}, 400, codes.InvalidArgument, false, "malformed protobuf"},
		"no capacity":   {setup{memory: 256 << 10, held: 216 << 10}, nil, bytes.Repeat([]byte{0x7a, 0}, 30<<10), 429, codes.ResourceExhausted, true, "server.max_request_bytes"},
		"never fits":    {setup{memory: 40 << 10}, nil, bytes.Repeat([]byte{0x7a, 0}, 30<<10), 413, codes.ResourceExhausted, false, "server.max_request_bytes"},
		"too large":     {setup{limits: receive.Limits{BodyBytes: 100, DecodedBytes: 100}}, nil, make([]byte, 200), 413, codes.ResourceExhausted, false, "server.max_body_bytes"},
		"too many":      {setup{options: func(o *Options) { o.Items = 3 }}, nil, must(teamLogs("a", "b", "c", "d").MarshalProto()), 413, codes.ResourceExhausted, false, "too many items"},
		"sink down":     {setup{}, errors.New("broker gone"), must(teamLogs("a").MarshalProto()), 503, codes.Unavailable, true, "broker gone"},
		"sink refuses":  {setup{}, &ingester.SinkError{Err: errors.New("tenant unknown"), Final: true}, must(teamLogs("a").MarshalProto()), 400, codes.InvalidArgument, false, "tenant unknown"},
		"no key":        {setup{keys: someKeys}, nil, must(teamLogs("a").MarshalProto()), 401, codes.Unauthenticated, false, "wants an API key"},
		"two resources": {setup{}, nil, []byte{0x0a, 4, 0x0a, 0, 0x0a, 0}, 400, codes.InvalidArgument, false, "malformed protobuf"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, c.system)
			s.sink.fail = c.sink
			rec := s.post("/v1/logs", c.body)
			require.Equal(t, c.status, rec.Code, rec.Body)
			require.Equal(t, c.retry, rec.Header().Get("Retry-After") != "")
			st := &spb.Status{}
			require.NoError(t, proto.Unmarshal(rec.Body.Bytes(), st))
			require.Contains(t, st.Message, c.text)
			require.EqualValues(t, c.code, st.Code)

			err := s.client().Invoke(context.Background(), logsMethod, c.body, new([]byte), grpc.ForceCodec(rawCodec{}))
			require.Equal(t, c.code, status.Code(err), "%v", err)
			require.Contains(t, err.Error(), c.text)
			retry := false
			for _, d := range status.Convert(err).Details() {
				if info, ok := d.(*errdetails.RetryInfo); ok {
					retry = info.RetryDelay.AsDuration() > 0
				}
			}
			require.Equal(t, c.retry, retry, "RetryInfo")
			counts := s.requireConserved(ingester.Logs)
			require.Zero(t, counts["spillway_admitted_items_total"])
		})
	}
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Marshal(v any) ([]byte, error)      { return v.([]byte), nil }
func (rawCodec) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (rawCodec) Name() string                       { return "proto" }

// someKeys has one key, "secret", that may send logs.
const someKeys = `keys: [{name: shop, sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b, labels: {team: a}, streams: [logs], headers: {x-tenant: shop}}]`

// TestKeys takes the API key from headers and from gRPC metadata, before the body, and
// passes headers on.
func TestKeys(t *testing.T) {
	s := newSystem(t, setup{keys: someKeys, policy: oneOfA})
	body := must(teamLogs("b").MarshalProto())
	rec := s.post("/v1/logs", body, "Kf-Api-Key", "wrong")
	require.Equal(t, 403, rec.Code)
	rec = s.post("/v1/traces", body, "Kf-Api-Key", "secret")
	require.Equal(t, 403, rec.Code, "the key may send logs only")
	rec = s.post("/v1/logs", body, "Kf-Api-Key", "secret", "X-Scope-OrgID", "eu", "X-Other", "1")
	require.Equal(t, 200, rec.Code)
	require.Equal(t, http.Header{"X-Scope-Orgid": {"eu"}, "X-Tenant": {"shop"}}, s.sink.headers[0])
	require.Equal(t, "a", s.sink.items[0].labels["team"], "the key's label wins, and is in view")
	require.Zero(t, s.sink.whole, "the record leaves with the key's label")

	ctx := metadata.AppendToOutgoingContext(context.Background(), "kf-api-key", "secret")
	response, err := plogotlp.NewGRPCClient(s.client()).Export(ctx, teamLogs("b"))
	require.NoError(t, err)
	require.EqualValues(t, 1, response.PartialSuccess().RejectedLogRecords(), "class a had one token")
	ctx = metadata.AppendToOutgoingContext(context.Background(), "authorization", "Bearer wrong")
	_, err = plogotlp.NewGRPCClient(s.client()).Export(ctx, teamLogs("b"))
	require.Equal(t, codes.PermissionDenied, status.Code(err))
}

// TestEncodings takes every compression, over HTTP and gRPC, and keeps the message as
// it was compressed.
func TestEncodings(t *testing.T) {
	body := must(teamLogs("a", "b").MarshalProto())
	for encoding, packed := range compressed(t, body) {
		t.Run(encoding, func(t *testing.T) {
			s := newSystem(t, setup{})
			name, _, _ := strings.Cut(encoding, " ")
			require.Equal(t, 200, s.post("/v1/logs", packed, "Content-Encoding", name).Code)
			require.Len(t, s.sink.items, 2)
			require.Equal(t, 1, s.sink.whole)
		})
	}
	s := newSystem(t, setup{})
	_, err := plogotlp.NewGRPCClient(s.client()).Export(context.Background(), teamLogs("a"), grpc.UseCompressor("gzip"))
	require.NoError(t, err)
	rec := s.post("/v1/logs", body, "Content-Encoding", "br")
	require.Equal(t, 415, rec.Code)
	require.Equal(t, 415, s.post("/v1/logs", body, "Content-Type", "text/plain").Code)
	require.Equal(t, 400, s.post("/v1/logs", body, "Content-Encoding", "gzip").Code)
}

func compressed(t testing.TB, body []byte) map[string][]byte {
	write := func(w io.WriteCloser, buf *bytes.Buffer) []byte {
		_, err := w.Write(body)
		require.NoError(t, err)
		require.NoError(t, w.Close())
		return buf.Bytes()
	}
	var gz, zl, fl, zs, sn bytes.Buffer
	raw, err := flate.NewWriter(&fl, 1)
	require.NoError(t, err)
	zw, err := zstd.NewWriter(&zs)
	require.NoError(t, err)
	return map[string][]byte{
		"gzip":          write(gzip.NewWriter(&gz), &gz),
		"deflate":       write(zlib.NewWriter(&zl), &zl),
		"deflate raw":   write(raw, &fl),
		"zstd":          write(zw, &zs),
		"snappy":        snappy.Encode(nil, body),
		"snappy framed": write(snappy.NewBufferedWriter(&sn), &sn),
	}
}

// TestBombs refuses what grows beyond the limit, and holds no memory for it.
func TestBombs(t *testing.T) {
	for encoding, packed := range compressed(t, make([]byte, 64<<20)) {
		t.Run(encoding, func(t *testing.T) {
			s := newSystem(t, setup{})
			name, _, _ := strings.Cut(encoding, " ")
			require.Equal(t, 413, s.post("/v1/logs", packed, "Content-Encoding", name).Code)
			s.requireConserved(ingester.Logs)
		})
	}
}

// TestOtherSignals answers for data points and spans in their own words.
func TestOtherSignals(t *testing.T) {
	s := newSystem(t, setup{policy: "streams: {metrics: {rate: 1, burst: 1, default: {rate: 0}}, traces: {rate: 1, burst: 1, default: {rate: 0}}}"})
	bodies := benchBodies(t)
	points := pmetricotlp.NewExportRequest()
	require.NoError(t, points.UnmarshalProto(bodies[ingester.OTLPMetrics]))
	got, err := pmetricotlp.NewGRPCClient(s.client()).Export(context.Background(), points)
	require.NoError(t, err)
	require.EqualValues(t, 1000, got.PartialSuccess().RejectedDataPoints())
	spans := ptraceotlp.NewExportRequest()
	require.NoError(t, spans.UnmarshalProto(bodies[ingester.OTLPTraces]))
	rec := s.post("/v1/traces", must(spans.MarshalJSON()), "Content-Type", jsonType)
	response := ptraceotlp.NewExportResponse()
	require.NoError(t, response.UnmarshalJSON(rec.Body.Bytes()))
	require.EqualValues(t, 1000, response.PartialSuccess().RejectedSpans())
	s.requireConserved(ingester.Metrics)
	s.requireConserved(ingester.Traces)
}

// TestEvents counts log records that are sent to the events' address as events.
func TestEvents(t *testing.T) {
	s := newSystem(t, setup{})
	require.Equal(t, 200, s.post("/ingester/otlp/k8s_events", must(teamLogs("a", "b").MarshalProto())).Code)
	require.EqualValues(t, 2, s.requireConserved(ingester.Events)["spillway_admitted_items_total"])
	require.Zero(t, s.requireConserved(ingester.Logs)["spillway_received_items_total"])
}

// TestJSONRefusal says in JSON what is wrong with JSON.
func TestJSONRefusal(t *testing.T) {
	s := newSystem(t, setup{})
	deep := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":` + strings.Repeat(`{"arrayValue":{"values":[`, 100_000)
	for name, body := range map[string]string{"cut off": `{"resourceLogs":[`, "wrong type": `{"resourceLogs":7}`, "empty": "", "deep": deep} {
		t.Run(name, func(t *testing.T) {
			rec := s.post("/v1/logs", []byte(body), "Content-Type", jsonType)
			require.Equal(t, 400, rec.Code)
			st := &spb.Status{}
			require.NoError(t, protojson.Unmarshal(rec.Body.Bytes(), st), rec.Body)
			require.EqualValues(t, codes.InvalidArgument, st.Code)
		})
	}
	rec := s.post("/v1/logs", []byte(`{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"madeUp":{"a":[1]}}]}]}],"more":1}`), "Content-Type", jsonType)
	require.Equal(t, 200, rec.Code, "unknown fields are ignored: %s", rec.Body)
	s.requireConserved(ingester.Logs)
}

// TestJSONThatNeverFits refuses for good what no idle ingester could convert, instead of
// asking for it again for ever.
func TestJSONThatNeverFits(t *testing.T) {
	s := newSystem(t, setup{memory: 1 << 20})
	line := strings.Repeat("x", 200<<10)
	body := `{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"` + line + `"}}]}]}]}`
	rec := s.post("/v1/logs", []byte(body), "Content-Type", "application/json")
	require.Equal(t, 413, rec.Code, rec.Body)
	require.Empty(t, rec.Header().Get("Retry-After"))
	require.Contains(t, rec.Body.String(), "server.max_request_bytes, which is 1048576")
	s.requireConserved(ingester.Logs)
}
