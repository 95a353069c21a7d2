package otlp

import (
	"errors"
	"mime"
	"net/http"

	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// HTTP makes the handler of OTLP over HTTP for requests of one format that count
// under one stream: protobuf and JSON, answered in the same.
func (rc *Receiver) HTTP(stream ingester.Stream, format ingester.Format) http.Handler {
	return rc.front.Handler(receive.Protocol{
		Stream: stream,
		Check: func(r *http.Request) *receive.Refusal {
			if _, ok := encodingOf(r); !ok {
				return receive.Unsupported("Content-Type %q is not OTLP: it must be %s or %s", r.Header.Get("Content-Type"), protobufType, jsonType)
			}
			return nil
		},
		Refuse: refuseHTTP,
		Handle: func(rw http.ResponseWriter, req *receive.Request) { rc.handleHTTP(rw, req, format) },
	})
}

// encodingOf finds out whether a request is JSON. ok is false if it is neither JSON
// nor protobuf.
func encodingOf(r *http.Request) (asJSON, ok bool) {
	switch ct := r.Header.Get("Content-Type"); ct {
	case protobufType:
		return false, true
	case jsonType:
		return true, true
	default:
		media, _, err := mime.ParseMediaType(ct)
		return media == jsonType, err == nil && (media == jsonType || media == protobufType)
	}
}

func (rc *Receiver) handleHTTP(rw http.ResponseWriter, req *receive.Request, format ingester.Format) {
	asJSON, _ := encodingOf(req.HTTP)
	if asJSON {
		if refusal := rc.fromJSON(req, format); refusal != nil {
			req.Refuse(rw, refusal)
			return
		}
	}
	res, refusal := rc.process(req, format, EachRecord)
	if refusal != nil {
		req.Refuse(rw, refusal)
		return
	}
	if refusal := receive.Failed(&res); refusal != nil {
		req.Answer(rw, refusal)
		return
	}
	answerHTTP(rw, asJSON, partial(format, &res))
}

// process walks the request's batch and processes it.
func (rc *Receiver) process(req *receive.Request, format ingester.Format, how Grouping) (ingester.Result, *receive.Refusal) {
	req.Batch.Format = format
	if err := rc.Walk(&req.Batch, req.Memory, how); err != nil {
		return ingester.Result{}, rc.refusal(req, err)
	}
	return req.Process(), nil
}

// jsonFactor is about how many times the bytes of a JSON request its messages take in
// memory while they are converted: `{"intValue":1}` becomes three structures.
const jsonFactor = 8

// fromJSON turns a JSON request into the protobuf one that it stands for, by pdata.
func (rc *Receiver) fromJSON(req *receive.Request, format ingester.Format) *receive.Refusal {
	if !req.Memory.Grow(jsonFactor * int64(req.Batch.Size)) {
		return req.Protocol.NoMemory(req.Memory)
	}
	message, err := convert(req.Body(), format)
	if err != nil {
		return receive.Malformed(err)
	}
	req.Replace(message)
	return nil
}

func convert(body []byte, format ingester.Format) ([]byte, error) {
	if len(body) == 0 {
		return nil, errors.New("the body is empty, which is no JSON")
	}
	// pdata stops behind the first value, and what follows would be lost unseen.
	var j receive.JSON
	if _, err := j.Check(body); err != nil {
		return nil, jsonProblem(body, err)
	}
	switch format {
	case ingester.OTLPMetrics:
		r := pmetricotlp.NewExportRequest()
		if err := r.UnmarshalJSON(body); err != nil {
			return nil, jsonProblem(body, err)
		}
		return r.MarshalProto()
	case ingester.OTLPTraces:
		r := ptraceotlp.NewExportRequest()
		if err := r.UnmarshalJSON(body); err != nil {
			return nil, jsonProblem(body, err)
		}
		return r.MarshalProto()
	}
	r := plogotlp.NewExportRequest()
	if err := r.UnmarshalJSON(body); err != nil {
		return nil, jsonProblem(body, err)
	}
	return r.MarshalProto()
}
