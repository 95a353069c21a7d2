package fluent

import (
	"cmp"
	"mime"
	"net/http"
	"strings"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Handler receives what the http outputs of Fluent Bit and Fluentd send, and stores
// it as logs.
func Handler(front *receive.Front, store receive.Store) http.Handler {
	h := &handler{recorder: receive.Recorder[decoder]{Scope: "spillway/fluent", Store: store}}
	return front.Handler(receive.Protocol{
		Stream: ingester.Logs, Methods: []string{http.MethodPost, http.MethodPut}, Check: check, Token: token, Handle: h.handle,
	})
}

type handler struct{ recorder receive.Recorder[decoder] }

// check refuses what is said not to be JSON. Fluent Bit's default is MessagePack.
func check(r *http.Request) *receive.Refusal {
	ct := r.Header.Get("Content-Type")
	media, _, err := mime.ParseMediaType(ct)
	if err == nil && (strings.Contains(media, "msgpack") || media == "application/octet-stream") {
		return receive.Unsupported("Content-Type %q is not read here: set `format json` (Fluent Bit), or `@type json` in the output's format (Fluentd)", ct)
	}
	return nil
}

// token finds the API key, which http_passwd (Fluent Bit) or auth.password (Fluentd)
// may hold, too.
func token(r *http.Request) string {
	return cmp.Or(ingester.PresentedKey(r), ingester.KeyAsPassword(r))
}

// tagHeader is the name that Fluent Bit's documentation gives to header_tag.
const tagHeader = "Fluent-Tag"

func (h *handler) handle(rw http.ResponseWriter, req *receive.Request) {
	tag := cmp.Or(req.HTTP.Header.Get(tagHeader), req.HTTP.URL.Query().Get("tag"))
	_, refusal := h.recorder.Record(req, func(d *decoder, out *receive.Records) (int, error) {
		err := d.decode(out, req.Body(), tag)
		return d.invalid, err
	})
	if refusal != nil {
		req.Answer(rw, refusal)
		return
	}
	rw.WriteHeader(http.StatusOK)
}
