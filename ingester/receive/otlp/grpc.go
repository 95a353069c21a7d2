package otlp

import (
	"context"
	"encoding/binary"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// The three methods of OTLP over gRPC.
const (
	metricsMethod = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export"
	logsMethod    = "/opentelemetry.proto.collector.logs.v1.LogsService/Export"
	tracesMethod  = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
)

// GRPC makes the handler of OTLP over gRPC, for a server that speaks HTTP/2. A call of
// one message each way is a POST with a frame around the message and a trailer behind
// the answer (https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md), so it
// goes through the same front as every other request: its key is looked at before its
// body, every byte of that comes from the budget, and the message is kept as it was
// compressed. While stopping reports true, calls are sent elsewhere.
func (rc *Receiver) GRPC(stopping func() bool) http.Handler {
	methods := map[string]http.Handler{
		metricsMethod: rc.export(ingester.Metrics, ingester.OTLPMetrics),
		logsMethod:    rc.export(ingester.Logs, ingester.OTLPLogs),
		tracesMethod:  rc.export(ingester.Traces, ingester.OTLPTraces),
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.ProtoMajor < 2 || !strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
			http.Error(rw, "this address speaks OTLP over gRPC; OTLP over HTTP has another one", http.StatusUnsupportedMediaType)
			return
		}
		method, known := methods[r.URL.Path]
		if !known {
			refuseGRPC(rw, r, &receive.Refusal{Status: http.StatusNotFound, Text: "there is no method " + r.URL.Path + " here"})
			return
		}
		if stopping() {
			rw.Header().Set("Connection", "close") // HTTP/2 says GOAWAY for it
			refuseGRPC(rw, r, &receive.Refusal{Status: http.StatusServiceUnavailable, RetryAfter: time.Second,
				Text: "this ingester is stopping; please send the batch again"})
			return
		}
		if wait, ok := timeout(r.Header.Get("Grpc-Timeout")); ok {
			ctx, cancel := context.WithTimeout(r.Context(), wait)
			defer cancel()
			r = r.WithContext(ctx)
		}
		method.ServeHTTP(rw, r)
	})
}

func (rc *Receiver) export(stream ingester.Stream, format ingester.Format) http.Handler {
	return rc.front.Handler(receive.Protocol{
		Stream:  stream,
		Unframe: unframe,
		Refuse:  refuseGRPC,
		Handle: func(rw http.ResponseWriter, req *receive.Request) {
			res, refusal := rc.process(req, format, EachRecord)
			if refusal != nil {
				req.Refuse(rw, refusal)
				return
			}
			if refusal := receive.Failed(&res); refusal != nil {
				req.Answer(rw, refusal)
				return
			}
			answerGRPC(rw, partial(format, &res))
		},
	})
}

// frameHeader is the length of what stands before a message: whether it is
// compressed, and its length.
const frameHeader = 5

// unframe takes the one message out of the body of a call.
func unframe(r *http.Request, body []byte) (message []byte, encoding string, refusal *receive.Refusal) {
	bad := func(text string) ([]byte, string, *receive.Refusal) {
		return nil, "", &receive.Refusal{Status: http.StatusBadRequest, Text: text}
	}
	if len(body) < frameHeader {
		return bad("the call brings no message")
	}
	size := binary.BigEndian.Uint32(body[1:frameHeader])
	message = body[frameHeader:]
	switch {
	case uint64(len(message)) < uint64(size):
		return bad("the message is cut off")
	case uint64(len(message)) > uint64(size):
		return bad("the call brings more than one message")
	}
	switch body[0] {
	case 0:
		return message, "", nil
	case 1:
		encoding = r.Header.Get("Grpc-Encoding")
		if encoding == "" || encoding == "identity" {
			return bad("the message is compressed, and grpc-encoding does not say how")
		}
		return message, encoding, nil
	}
	return bad("the message's frame is malformed")
}

// timeout reads grpc-timeout: up to 8 digits and a unit.
func timeout(value string) (time.Duration, bool) {
	units := map[byte]time.Duration{
		'H': time.Hour, 'M': time.Minute, 'S': time.Second, 'm': time.Millisecond, 'u': time.Microsecond, 'n': time.Nanosecond,
	}
	if len(value) < 2 || len(value) > 9 {
		return 0, false
	}
	unit, known := units[value[len(value)-1]]
	n, err := strconv.ParseUint(value[:len(value)-1], 10, 32)
	if !known || err != nil {
		return 0, false
	}
	return time.Duration(n) * unit, true
}
