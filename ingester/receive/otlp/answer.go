package otlp

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Content types of OTLP over HTTP.
const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"
)

// response is an Export...ServiceResponse of any of the three signals.
type response interface {
	MarshalProto() ([]byte, error)
	MarshalJSON() ([]byte, error)
}

// partial returns the response to a request of which something is not stored, nil if
// all of it is, or is to be answered so.
func partial(format ingester.Format, res *ingester.Result) response {
	rejected := res.Offered.Samples - res.Written.Samples
	if rejected == 0 || res.Silent && res.Invalid == 0 {
		return nil
	}
	switch format {
	case ingester.OTLPMetrics:
		r := pmetricotlp.NewExportResponse()
		r.PartialSuccess().SetRejectedDataPoints(rejected)
		r.PartialSuccess().SetErrorMessage(res.Text())
		return r
	case ingester.OTLPTraces:
		r := ptraceotlp.NewExportResponse()
		r.PartialSuccess().SetRejectedSpans(rejected)
		r.PartialSuccess().SetErrorMessage(res.Text())
		return r
	}
	r := plogotlp.NewExportResponse()
	r.PartialSuccess().SetRejectedLogRecords(rejected)
	r.PartialSuccess().SetErrorMessage(res.Text())
	return r
}

// answerHTTP answers in the encoding that the request had.
func answerHTTP(rw http.ResponseWriter, asJSON bool, r response) {
	media, body := protobufType, []byte(nil)
	var err error
	switch {
	case asJSON && r == nil:
		media, body = jsonType, []byte("{}")
	case asJSON:
		media = jsonType
		body, err = r.MarshalJSON()
	case r != nil:
		body, err = r.MarshalProto()
	}
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	rw.Header().Set("Content-Type", media)
	_, _ = rw.Write(body)
}

// refuseHTTP answers with a google.rpc.Status in the encoding that the request had.
func refuseHTTP(rw http.ResponseWriter, r *http.Request, f *receive.Refusal) {
	asJSON, ok := encodingOf(r)
	if !ok {
		f.Answer(rw)
		return
	}
	f.SetHeaders(rw.Header())
	media, body := protobufType, []byte(nil)
	var err error
	if asJSON {
		media = jsonType
		body, err = protojson.Marshal(statusOf(f))
	} else {
		body, err = proto.Marshal(statusOf(f))
	}
	if err != nil {
		http.Error(rw, f.Text, f.Status)
		return
	}
	rw.Header().Set("Content-Type", media)
	rw.WriteHeader(f.Status)
	_, _ = rw.Write(body)
}

// codeOf is the code of gRPC for a refusal. OTLP asks senders to repeat a request
// that exhausted a resource only if RetryInfo comes with it.
func codeOf(f *receive.Refusal) codes.Code {
	if f.Capacity {
		return codes.ResourceExhausted
	}
	switch f.Status {
	case http.StatusUnauthorized:
		return codes.Unauthenticated
	case http.StatusForbidden:
		return codes.PermissionDenied
	case http.StatusRequestEntityTooLarge:
		return codes.ResourceExhausted
	case http.StatusServiceUnavailable:
		return codes.Unavailable
	case http.StatusUnsupportedMediaType, http.StatusMethodNotAllowed, http.StatusNotFound:
		return codes.Unimplemented
	}
	return codes.InvalidArgument
}

// statusOf is a refusal as a google.rpc.Status, with RetryInfo where the sender
// should come back.
func statusOf(f *receive.Refusal) *spb.Status {
	s := &spb.Status{Code: int32(codeOf(f)), Message: f.Text}
	if wait := f.Wait(); wait > 0 {
		info, err := anypb.New(&errdetails.RetryInfo{RetryDelay: durationpb.New(wait)})
		if err == nil {
			s.Details = append(s.Details, info)
		}
	}
	return s
}

// answerGRPC sends the response message and the status behind it.
func answerGRPC(rw http.ResponseWriter, r response) {
	var body []byte
	var err error
	if r != nil {
		if body, err = r.MarshalProto(); err != nil {
			refuseGRPC(rw, nil, &receive.Refusal{Status: http.StatusServiceUnavailable, Text: err.Error()})
			return
		}
	}
	h := rw.Header()
	grpcHeaders(h)
	h.Set("Trailer", "Grpc-Status")
	frame := make([]byte, frameHeader, frameHeader+len(body))
	frame[1], frame[2], frame[3], frame[4] = byte(len(body)>>24), byte(len(body)>>16), byte(len(body)>>8), byte(len(body))
	_, _ = rw.Write(append(frame, body...))
	h.Set("Grpc-Status", "0")
}

// refuseGRPC answers with a status and no message.
func refuseGRPC(rw http.ResponseWriter, _ *http.Request, f *receive.Refusal) {
	s := statusOf(f)
	h := rw.Header()
	grpcHeaders(h)
	h.Set("Grpc-Status", strconv.Itoa(int(s.Code)))
	h.Set("Grpc-Message", percentEncode(s.Message))
	if details, err := proto.Marshal(s); err == nil && len(s.Details) > 0 {
		h.Set("Grpc-Status-Details-Bin", base64.RawStdEncoding.EncodeToString(details))
	}
	rw.WriteHeader(http.StatusOK)
}

func grpcHeaders(h http.Header) {
	h.Set("Content-Type", "application/grpc+proto")
	h.Set("Grpc-Accept-Encoding", "identity,gzip,zstd,snappy,deflate")
}

// percentEncode writes a status message as gRPC demands: printable ASCII but for the
// percent sign as it is, every other byte as %XX.
func percentEncode(s string) string {
	var out strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '%' {
			fmt.Fprintf(&out, "%%%02X", c)
			continue
		}
		out.WriteByte(s[i])
	}
	return out.String()
}
