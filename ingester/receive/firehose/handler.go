package firehose

import (
	"cmp"
	"encoding/json"
	"net/http"
	"time"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Names of the headers that Firehose sends.
const (
	requestIDHeader = "X-Amz-Firehose-Request-Id"
	accessKeyHeader = "X-Amz-Firehose-Access-Key"
	commonHeader    = "X-Amz-Firehose-Common-Attributes"
	sourceHeader    = "X-Amz-Firehose-Source-Arn"
	versionHeader   = "X-Amz-Firehose-Protocol-Version"
)

// Handler receives deliveries and stores their lines as logs, each request as one
// group.
func Handler(front *receive.Front, store receive.Store) http.Handler {
	h := &handler{recorder: receive.Recorder[decoder]{Scope: "spillway/firehose", Store: store}}
	return front.Handler(receive.Protocol{
		Stream: ingester.Logs, Check: check, Token: token, Refuse: refuse, Handle: h.handle,
	})
}

type handler struct{ recorder receive.Recorder[decoder] }

func check(r *http.Request) *receive.Refusal {
	if v := r.Header.Get(versionHeader); v != "" && v != "1.0" {
		return &receive.Refusal{Status: http.StatusBadRequest, Text: versionHeader + " " + v + " is not understood here; 1.0 is"}
	}
	return nil
}

// token finds the API key, which is the access key of the delivery stream.
func token(r *http.Request) string {
	return cmp.Or(r.Header.Get(accessKeyHeader), ingester.PresentedKey(r))
}

func (h *handler) handle(rw http.ResponseWriter, req *receive.Request) {
	header := req.HTTP.Header
	id := header.Get(requestIDHeader)
	_, refusal := h.recorder.Record(req, func(d *decoder, out *receive.Records) (int, error) {
		r := request{common: header.Get(commonHeader), arn: header.Get(sourceHeader), limit: req.DecodedLimit(), grow: req.Memory.Grow}
		if err := d.read(out, req.Body(), &r); err != nil {
			return 0, err
		}
		id = cmp.Or(id, d.id)
		return d.invalid, d.write(out, &r)
	})
	if refusal != nil {
		req.Answer(rw, refusal)
		return
	}
	answer(rw, http.StatusOK, id, "")
}

// refuse answers in the form that Firehose demands; it keeps the text for the error
// log of the delivery stream.
func refuse(rw http.ResponseWriter, r *http.Request, refusal *receive.Refusal) {
	refusal.SetHeaders(rw.Header())
	answer(rw, refusal.Status, r.Header.Get(requestIDHeader), refusal.Text)
}

// longestError is how many bytes of errorMessage Firehose accepts.
const longestError = 8192

// answer writes the body without which Firehose takes any status for a failure.
func answer(rw http.ResponseWriter, status int, id, failure string) {
	body, _ := json.Marshal(struct {
		RequestID string `json:"requestId"`
		Timestamp int64  `json:"timestamp"` // milliseconds since 1970
		Error     string `json:"errorMessage,omitempty"`
	}{id, time.Now().UnixMilli(), failure[:min(len(failure), longestError/2)]})
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write(body)
}
