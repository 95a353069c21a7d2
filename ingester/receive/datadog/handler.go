package datadog

import (
	"cmp"
	"fmt"
	"mime"
	"net/http"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// LogsHandler receives logs.
func LogsHandler(front *receive.Front, store receive.Store) http.Handler {
	h := &handler{recorder: receive.Recorder[decoder]{Scope: "spillway/datadog-logs", Store: store}}
	return front.Handler(receive.Protocol{Stream: ingester.Logs, Token: token, Unframe: unframe, Handle: h.logs})
}

// RUMHandler receives RUM events.
func RUMHandler(front *receive.Front, store receive.Store) http.Handler {
	h := &handler{recorder: receive.Recorder[decoder]{Scope: "spillway/datadog-rum", Store: store}}
	return front.Handler(receive.Protocol{Stream: ingester.RUM, Token: token, Unframe: unframe, Handle: h.rum})
}

type handler struct{ recorder receive.Recorder[decoder] }

// token finds the API key: the Agent and log libraries have a header of their own,
// browsers, and forwarders that are but an address, a parameter.
func token(r *http.Request) string {
	return cmp.Or(ingester.PresentedKey(r), r.Header.Get("DD-API-KEY"), r.URL.Query().Get("dd-api-key"), ingester.KeyInAddress(r))
}

// unframe names the compression. A browser that may not set a header says it in the
// address.
func unframe(r *http.Request, body []byte) ([]byte, string, *receive.Refusal) {
	return body, cmp.Or(r.Header.Get("Content-Encoding"), r.URL.Query().Get("dd-evp-encoding")), nil
}

func (h *handler) logs(rw http.ResponseWriter, req *receive.Request) {
	media, _, _ := mime.ParseMediaType(req.HTTP.Header.Get("Content-Type"))
	read, invalid, why := 0, 0, error(nil)
	_, refusal := h.recorder.Record(req, func(d *decoder, out *receive.Records) (int, error) {
		err := d.logs(out, req.Body(), commonOf(req.HTTP.URL.Query()), media == "text/plain")
		read, invalid, why = out.Count(), d.invalid, d.why
		return d.invalid, err
	})
	switch {
	case refusal != nil:
		req.Answer(rw, refusal)
	case read == 0 && invalid > 0:
		req.Answer(rw, receive.Malformed(fmt.Errorf("none of %d logs can be read: %w", invalid, why)))
	default:
		rw.Header().Set("Content-Type", "application/json")
		rw.WriteHeader(http.StatusAccepted)
		_, _ = rw.Write([]byte("{}"))
	}
}

func (h *handler) rum(rw http.ResponseWriter, req *receive.Request) {
	read, invalid, why := 0, 0, error(nil)
	_, refusal := h.recorder.Record(req, func(d *decoder, out *receive.Records) (int, error) {
		err := d.rum(out, req.Body(), commonOf(req.HTTP.URL.Query()))
		read, invalid, why = out.Count(), d.invalid, d.why
		return d.invalid, err
	})
	switch {
	case refusal != nil:
		req.Answer(rw, refusal)
	case read == 0 && invalid > 0:
		req.Answer(rw, receive.Malformed(fmt.Errorf("none of %d RUM events can be read: %w", invalid, why)))
	default:
		rw.WriteHeader(http.StatusAccepted)
	}
}
