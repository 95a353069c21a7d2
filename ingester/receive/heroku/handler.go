package heroku

import (
	"cmp"
	"mime"
	"net/http"
	"strconv"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Handler receives Logplex drains and stores their lines as logs, each request as
// one group.
func Handler(front *receive.Front, store receive.Store) http.Handler {
	h := &handler{recorder: receive.Recorder[decoder]{Scope: "spillway/heroku", Store: store}}
	return front.Handler(receive.Protocol{Stream: ingester.Logs, Check: check, Token: token, Handle: h.handle})
}

type handler struct{ recorder receive.Recorder[decoder] }

func check(r *http.Request) *receive.Refusal {
	ct := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(ct); err != nil || media != "application/logplex-1" {
		return receive.Unsupported("Content-Type %q is not that of a Heroku drain: it must be application/logplex-1", ct)
	}
	return nil
}

// token finds the API key. A drain is but an address, so that is where it stands: as
// a parameter, or as the password before the host.
func token(r *http.Request) string {
	return cmp.Or(ingester.PresentedKey(r), ingester.KeyInAddress(r), ingester.KeyAsPassword(r))
}

func (h *handler) handle(rw http.ResponseWriter, req *receive.Request) {
	header := req.HTTP.Header
	_, refusal := h.recorder.Record(req, func(d *decoder, out *receive.Records) (int, error) {
		if err := d.frames(out, req.Body()); err != nil {
			return 0, err
		}
		// A body that lost frames on the way is not to be taken for the whole.
		if said, err := strconv.Atoi(header.Get("Logplex-Msg-Count")); err == nil && said != len(d.lines)+d.invalid {
			return 0, errCount(said, len(d.lines)+d.invalid)
		}
		return d.invalid, d.write(out, header.Get("Logplex-Drain-Token"))
	})
	if refusal != nil {
		req.Answer(rw, refusal)
		return
	}
	rw.WriteHeader(http.StatusNoContent)
}
