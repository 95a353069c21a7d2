package otlp

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/klauspost/compress/gzip"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// longestAnswer bounds what is read of an answer. A response holds a number and a
// text, and the text is cut for logs anyway.
const longestAnswer = 64 << 10

// Field numbers of ExportXServiceResponse, ExportXPartialSuccess, and of
// google.rpc.Status, google.protobuf.Any, google.rpc.RetryInfo and
// google.protobuf.Duration.
const (
	responsePartial  = 1
	partialRejected  = 1
	partialMessage   = 2
	statusMessage    = 2
	statusDetails    = 3
	anyType          = 1
	anyValue         = 2
	retryDelay       = 1
	durationSeconds  = 1
	durationNanos    = 2
	retryInfoTypeURL = "type.googleapis.com/google.rpc.RetryInfo"
)

// judgePost reads an answer of OTLP over HTTP, and how many items the destination
// refuses although it took the others.
func judgePost(r *http.Response, body []byte, now time.Time) (sink.Answer, int64) {
	kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type"))
	text := body
	if kind == typeProto && r.StatusCode/100 != 2 {
		text = bytesField(body, statusMessage)
	}
	a := sink.JudgeStatus(r.StatusCode, r.Header, short(text), now)
	switch {
	case a.Outcome != sink.Stored:
		return a, 0
	case r.ContentLength > int64(len(body)) && len(body) < longestAnswer:
		return unreadable(a, fmt.Errorf("the connection broke after %d of its %d bytes", len(body), r.ContentLength)), 0
	case kind == typeProto || len(body) == 0:
		return partial(a, body)
	case kind == typeJSON:
		return partialJSON(a, body)
	}
	return unreadable(a, fmt.Errorf("its Content-Type is %q: %s", kind, short(body))), 0
}

const (
	typeProto = "application/x-protobuf"
	typeJSON  = "application/json"
)

// unreadable is what is made of a success whose response cannot be read: OTLP calls a
// request with status 2xx or OK accepted, and sending it again would store it twice.
// The error only becomes a line in the log.
func unreadable(a sink.Answer, why error) sink.Answer {
	a.Err = fmt.Errorf("answered that it is stored, but how many items it rejected cannot be read, so none count as rejected: %w", why)
	return a
}

// partial reads the response of a request that was taken.
func partial(a sink.Answer, response []byte) (sink.Answer, int64) {
	success := bytesField(response, responsePartial)
	return rejectedOf(a, int64(numberField(success, partialRejected)), bytesField(success, partialMessage),
		wellFormed(response) && wellFormed(success))
}

// partialJSON reads the response in OTLP's JSON, whose numbers of 64 bits are strings
// or numbers. Destinations answer in it although OTLP asks for the request's encoding.
func partialJSON(a sink.Answer, response []byte) (sink.Answer, int64) {
	type number = json.Number
	var r struct {
		PartialSuccess struct {
			Records number `json:"rejectedLogRecords"`
			Spans   number `json:"rejectedSpans"`
			Points  number `json:"rejectedDataPoints"`
			Message string `json:"errorMessage"`
		} `json:"partialSuccess"`
	}
	err := json.Unmarshal(response, &r)
	n := int64(0)
	for _, text := range []number{r.PartialSuccess.Records, r.PartialSuccess.Spans, r.PartialSuccess.Points} {
		if i, err := text.Int64(); err == nil {
			n = max(n, i)
		}
	}
	return rejectedOf(a, n, []byte(r.PartialSuccess.Message), err == nil)
}

func rejectedOf(a sink.Answer, rejected int64, message []byte, whole bool) (sink.Answer, int64) {
	if rejected <= 0 {
		if !whole {
			return unreadable(a, errors.New("the response is no whole message")), 0
		}
		// A text alone is advice, and the items are stored.
		return a, 0
	}
	a.Err = fmt.Errorf("rejected %d items: %s", rejected, short(message))
	return a, rejected
}

// The status codes of gRPC that mean something here
// (https://grpc.github.io/grpc/core/md_doc_statuscodes.html).
const (
	codeOK                = 0
	codeInvalidArgument   = 3
	codeNotFound          = 5
	codePermissionDenied  = 7
	codeResourceExhausted = 8
	codeUnimplemented     = 12
	codeUnauthenticated   = 16
)

// judgeCall reads an answer of OTLP over gRPC.
func judgeCall(r *http.Response, body []byte) (sink.Answer, int64) {
	trailer := r.Trailer
	if r.Header.Get("Grpc-Status") != "" {
		trailer = r.Header // an answer without a message has its trailers in front
	}
	code, err := strconv.Atoi(trailer.Get("Grpc-Status"))
	if err != nil {
		if r.StatusCode != http.StatusOK {
			return sink.JudgeStatus(r.StatusCode, r.Header, short(body), time.Now()), 0
		}
		return sink.Answer{Outcome: sink.Broken, Err: fmt.Errorf("answered without a status of gRPC: the connection broke, or it does not speak gRPC")}, 0
	}
	if code == codeOK {
		a := sink.Answer{Outcome: sink.Stored}
		message, err := unframe(body, r.Header.Get("Grpc-Encoding"))
		if err != nil {
			return unreadable(a, err), 0
		}
		return partial(a, message)
	}
	return judgeCode(code, trailer), 0
}

func judgeCode(code int, trailer http.Header) sink.Answer {
	text, err := url.PathUnescape(trailer.Get("Grpc-Message"))
	if err != nil {
		text = trailer.Get("Grpc-Message")
	}
	a := sink.Answer{Outcome: sink.Broken, Asked: retryInfo(trailer.Get("Grpc-Status-Details-Bin"))}
	a.Err = fmt.Errorf("answered gRPC status %d: %s", code, short([]byte(text)))
	switch code {
	case codeInvalidArgument:
		a.Outcome = sink.Refused
	case codeResourceExhausted:
		a.Outcome = sink.Overloaded
		if tooLarge(text) {
			a.Outcome = sink.Refused
			a.Err = fmt.Errorf("%w: raise its limit of a message's size", a.Err)
		}
	case codeNotFound, codePermissionDenied, codeUnimplemented, codeUnauthenticated:
		a.Outcome = sink.Misconfigured
		a.Err = fmt.Errorf("%w: correct the address, the credentials or the headers of this sink", a.Err)
	}
	return a
}

// tooLarge recognises a receiver's limit of a message's size. gRPC has no other code
// for it than the one for want of capacity, and waiting does not help. These are the
// words of the Go, C and Java implementations.
func tooLarge(text string) bool {
	text = strings.ToLower(text)
	return strings.Contains(text, "message") && (strings.Contains(text, "larger than max") || strings.Contains(text, "exceeds maximum"))
}

// unframe takes the first message off a body of gRPC; an empty body holds an empty
// one. Servers may answer with the compression of the request.
func unframe(body []byte, encoding string) ([]byte, error) {
	if len(body) == 0 {
		return nil, nil
	}
	if len(body) < 5 || uint64(binary.BigEndian.Uint32(body[1:])) > uint64(len(body)-5) {
		return nil, io.ErrUnexpectedEOF
	}
	message := body[5 : 5+binary.BigEndian.Uint32(body[1:])]
	if body[0] == 0 {
		return message, nil
	}
	if encoding != "gzip" {
		return nil, fmt.Errorf("it is compressed with %q, which was not asked for", encoding)
	}
	r, err := gzip.NewReader(bytes.NewReader(message))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(r, longestAnswer))
}

// retryInfo reads how long the destination asked to wait, 0 if it did not.
func retryInfo(encoded string) time.Duration {
	raw, err := base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
	if err != nil {
		return 0
	}
	var wait time.Duration
	each(raw, func(num protowire.Number, payload []byte, _ uint64) {
		if num != statusDetails || string(bytesField(payload, anyType)) != retryInfoTypeURL {
			return
		}
		delay := bytesField(bytesField(payload, anyValue), retryDelay)
		seconds := min(max(int64(numberField(delay, durationSeconds)), 0), int64(sink.LongestAsked/time.Second))
		nanos := min(max(int64(numberField(delay, durationNanos)), 0), int64(time.Second))
		wait = min(time.Duration(seconds)*time.Second+time.Duration(nanos), sink.LongestAsked)
	})
	return wait
}

// each calls yield for every field of a message up to the first that cannot be read,
// with the payload of a length-delimited one and the value of a varint. It reports
// whether all could be read.
func each(message []byte, yield func(num protowire.Number, payload []byte, value uint64)) (whole bool) {
	for len(message) > 0 {
		num, typ, tag := protowire.ConsumeTag(message)
		if tag < 0 {
			return false
		}
		n := protowire.ConsumeFieldValue(num, typ, message[tag:])
		if n < 0 {
			return false
		}
		switch typ {
		case protowire.BytesType:
			payload, _ := protowire.ConsumeBytes(message[tag:])
			yield(num, payload, 0)
		case protowire.VarintType:
			value, _ := protowire.ConsumeVarint(message[tag:])
			yield(num, nil, value)
		}
		message = message[tag+n:]
	}
	return true
}

func wellFormed(message []byte) bool {
	return each(message, func(protowire.Number, []byte, uint64) {})
}

func bytesField(message []byte, want protowire.Number) (found []byte) {
	each(message, func(num protowire.Number, payload []byte, _ uint64) {
		if num == want && payload != nil {
			found = payload
		}
	})
	return found
}

func numberField(message []byte, want protowire.Number) (found uint64) {
	each(message, func(num protowire.Number, payload []byte, value uint64) {
		if num == want && payload == nil {
			found = value
		}
	})
	return found
}

// short makes a text fit for a log line.
func short(text []byte) string { return sink.OneLine(text[:min(len(text), sink.LongestText)]) }
