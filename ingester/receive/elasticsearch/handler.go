package elasticsearch

import (
	"cmp"
	"encoding/base64"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// Handler serves the part of Elasticsearch's API that log shippers use, under an
// address that the request's path starts with.
func Handler(front *receive.Front, store receive.Store, prefix string) http.Handler {
	h := &handler{prefix: prefix, ingester: front.Ingester, recorder: receive.Recorder[decoder]{Scope: "spillway/elasticsearch", Store: store}}
	h.bulk = front.Handler(receive.Protocol{
		Stream: ingester.Logs, Methods: []string{http.MethodPost, http.MethodPut}, Token: token, Refuse: refuse, Handle: h.serveBulk,
	})
	return h
}

type handler struct {
	prefix   string
	ingester *ingester.Ingester
	bulk     http.Handler
	recorder receive.Recorder[decoder]
}

// ServeHTTP tells bulk requests from all that clients ask before them.
func (h *handler) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	// The official clients refuse to talk to a server that does not say this.
	rw.Header().Set("X-Elastic-Product", "Elasticsearch")
	parts := h.parts(r)
	if n := len(parts); n > 0 && n <= 3 && parts[n-1] == "_bulk" {
		h.bulk.ServeHTTP(rw, r)
		return
	}
	if _, err := h.ingester.AuthenticateToken(token(r), ingester.Logs); err != nil {
		refuse(rw, r, receive.Unauthorized(err))
		return
	}
	inquire(rw, r, parts)
}

// parts are the steps of the path behind the prefix.
func (h *handler) parts(r *http.Request) []string {
	path := strings.Trim(strings.TrimPrefix(r.URL.Path, h.prefix), "/")
	if path == "" {
		return nil
	}
	return strings.Split(path, "/")
}

// token finds the API key. The shippers' own option api_key arrives as `ApiKey
// base64(id:key)`, or as it is from Fluent Bit; user and password as basic authentication.
func token(r *http.Request) string {
	if key := cmp.Or(ingester.PresentedKey(r), ingester.KeyAsPassword(r)); key != "" {
		return key
	}
	scheme, key, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "ApiKey") {
		return ""
	}
	key = strings.TrimSpace(key)
	if plain, err := base64.StdEncoding.DecodeString(key); err == nil {
		if _, secret, ok := strings.Cut(string(plain), ":"); ok {
			return secret
		}
	}
	return key
}

func (h *handler) serveBulk(rw http.ResponseWriter, req *receive.Request) {
	start := time.Now()
	index := ""
	if parts := h.parts(req.HTTP); len(parts) > 1 {
		index = parts[0]
	}
	var answer []byte
	_, refusal := h.recorder.Finish(req, func(d *decoder, out *receive.Records) (int, error) {
		err := d.decode(out, req.Body(), index)
		return d.invalid, err
	}, func(d *decoder) {
		answer = d.answer(req.Batch.Groups, time.Since(start))
	})
	if refusal != nil {
		req.Answer(rw, refusal)
		return
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(answer)
}

// answer says what became of each action. The groups are the records that went on,
// in the order of their actions; a sink may have found some invalid.
func (d *decoder) answer(groups []ingester.Group, took time.Duration) []byte {
	failed := d.invalid > 0 || slices.ContainsFunc(groups, func(g ingester.Group) bool { return refused(&g) })
	out := append(make([]byte, 0, 64+d.answerBytes), `{"took":`...)
	out = strconv.AppendInt(out, took.Milliseconds(), 10)
	out = append(out, `,"errors":`...)
	out = strconv.AppendBool(out, failed)
	out = append(out, `,"items":[`...)
	next := 0
	for i := range d.items {
		it := &d.items[i]
		reason := it.reason
		if reason == "" && next < len(groups) {
			if refused(&groups[next]) {
				reason = breaksLimit
			}
			next++
		}
		if i > 0 {
			out = append(out, ',')
		}
		out = it.append(out, reason)
	}
	return append(out, "]}"...)
}

// breaksLimit is what an item says whose document was refused behind the receiver.
const breaksLimit = "the labels or values of this document break a limit"

func refused(g *ingester.Group) bool { return g.Verdict == ingester.Invalid || g.Rejected > 0 }

// answerBytes is at least what append takes, with a comma.
func (it *item) answerBytes() int {
	const frame = 128
	return frame + quotedBytes(it.index) + quotedBytes(it.id) + max(quotedBytes(it.reason), len(breaksLimit))
}

// quotedBytes is at least what quote takes: six bytes for one that is escaped.
func quotedBytes(text string) int {
	for i := range len(text) {
		if c := text[i]; c < ' ' || c > '~' || c == '"' || c == '\\' {
			return 2 + 6*len(text)
		}
	}
	return 2 + len(text)
}

// append writes the item of an action.
func (it *item) append(dst []byte, reason string) []byte {
	dst = append(dst, `{"`...)
	dst = append(dst, it.action...)
	dst = append(dst, `":{"_index":`...)
	dst = quote(dst, it.index)
	if it.id != "" {
		dst = append(dst, `,"_id":`...)
		dst = quote(dst, it.id)
	}
	if reason != "" {
		dst = append(dst, `,"status":400,"error":{"type":"document_parsing_exception","reason":`...)
		dst = quote(dst, reason)
		return append(dst, "}}}"...)
	}
	status, result := "201", "created"
	if it.action == "update" {
		status, result = "200", "updated"
	}
	dst = append(dst, `,"result":"`...)
	dst = append(dst, result...)
	dst = append(dst, `","status":`...)
	dst = append(dst, status...)
	return append(dst, "}}"...)
}

// quote appends a JSON string. The error is of invalid UTF-8, which is replaced.
func quote(dst []byte, text string) []byte {
	dst, _ = jsontext.AppendQuote(dst, text)
	return dst
}
