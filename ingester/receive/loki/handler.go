package loki

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Handler receives push requests and stores their entries as logs.
func Handler(front *receive.Front, store receive.Store) http.Handler {
	h := &handler{recorder: receive.Recorder[decoder]{Scope: "spillway/loki", Store: store}}
	return front.Handler(receive.Protocol{
		Stream: ingester.Logs, Check: check, Token: token, Unframe: unframe, Handle: h.handle,
	})
}

type handler struct{ recorder receive.Recorder[decoder] }

func isJSON(r *http.Request) bool {
	media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	return err == nil && media == "application/json"
}

func check(r *http.Request) *receive.Refusal {
	ct := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(ct); err == nil && (media == "application/json" || media == "application/x-protobuf") {
		return nil
	}
	return receive.Unsupported("Content-Type %q is not Loki's push API: send application/x-protobuf or application/json", ct)
}

// token finds the API key. Promtail and Alloy may have it as the password of basic
// authentication.
func token(r *http.Request) string {
	return cmp.Or(ingester.PresentedKey(r), ingester.KeyAsPassword(r))
}

// unframe names the compression. Protobuf is always a snappy block, whether a header
// says so or not.
func unframe(r *http.Request, body []byte) ([]byte, string, *receive.Refusal) {
	encoding := r.Header.Get("Content-Encoding")
	if !isJSON(r) && encoding == "" {
		encoding = "snappy"
	}
	return body, encoding, nil
}

func (h *handler) handle(rw http.ResponseWriter, req *receive.Request) {
	invalid, why := 0, error(nil)
	_, refusal := h.recorder.Record(req, func(d *decoder, out *receive.Records) (int, error) {
		d.out, d.invalid, d.why = out, 0, nil
		var err error
		if isJSON(req.HTTP) {
			err = d.jsonRequest(req.Body())
		} else {
			err = d.proto(req.Body())
		}
		invalid, why = d.invalid, d.why
		return d.invalid, err
	})
	switch {
	case refusal != nil:
		req.Answer(rw, refusal)
	case invalid > 0:
		// As Loki: the rest is stored, and a client that hears 400 does not send it again.
		req.Answer(rw, receive.Malformed(fmt.Errorf("%d entries cannot be read, the others are dealt with: %w", invalid, why)))
	default:
		rw.WriteHeader(http.StatusNoContent)
	}
}
