package events

import (
	"cmp"
	"encoding/json"
	"net/http"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Handler receives events of every kind that the package knows.
func Handler(front *receive.Front, store receive.Store) http.Handler {
	h := &handler{recorder: receive.Recorder[decoder]{Scope: "spillway/events", Store: store}}
	return front.Handler(receive.Protocol{Stream: ingester.Events, Token: token, Refuse: refuse, Handle: h.handle})
}

type handler struct{ recorder receive.Recorder[decoder] }

// token finds the API key, which Datadog's clients and Agent have in a header of
// their own.
func token(r *http.Request) string {
	return cmp.Or(ingester.PresentedKey(r), r.Header.Get("DD-API-KEY"))
}

// status is the body of an answer.
type status struct {
	Status  string   `json:"status"`
	Invalid int      `json:"invalid,omitempty"` // events left out
	Errors  []string `json:"errors,omitempty"`
}

func (h *handler) handle(rw http.ResponseWriter, req *receive.Request) {
	s, read := status{Status: "ok"}, 0
	_, refusal := h.recorder.Record(req, func(d *decoder, out *receive.Records) (int, error) {
		err := d.decode(out, req.Body())
		if read = out.Count(); d.why != nil {
			s.Invalid, s.Errors = d.invalid, []string{d.why.Error()}
		}
		return d.invalid, err
	})
	switch {
	case refusal != nil:
		req.Answer(rw, refusal)
	case read == 0 && s.Invalid > 0:
		s.Status = "error"
		answer(rw, http.StatusBadRequest, s)
	default:
		answer(rw, http.StatusAccepted, s)
	}
}

func refuse(rw http.ResponseWriter, _ *http.Request, refusal *receive.Refusal) {
	refusal.SetHeaders(rw.Header())
	answer(rw, refusal.Status, status{Status: "error", Errors: []string{refusal.Text}})
}

func answer(rw http.ResponseWriter, code int, s status) {
	body, _ := json.Marshal(s)
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(code)
	_, _ = rw.Write(body)
}
