package elasticsearch

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/spillway-telemetry/spillway/ingester/receive"
)

// serverVersion is the version that clients are told: one that new ones accept and
// that old ones do not find too new. Beats refuse a server older than themselves, so
// they hear their own.
const serverVersion = "8.19.0"

// inquire answers what clients ask, or want to set up, before they send.
func inquire(rw http.ResponseWriter, r *http.Request, parts []string) {
	reading := r.Method == http.MethodGet || r.Method == http.MethodHead
	first := ""
	if len(parts) > 0 {
		first = parts[0]
	}
	switch {
	case len(parts) == 0 && reading:
		reply(rw, http.StatusOK, `{"name":"spillway","cluster_name":"spillway","cluster_uuid":"c3BpbGx3YXktY2x1c3Rlcg","version":{"number":`+
			strconv.Quote(versionFor(r.UserAgent()))+`,"build_flavor":"default","build_type":"docker","build_hash":"0000000","build_date":"2025-01-01T00:00:00Z",`+
			`"build_snapshot":false,"lucene_version":"9.12.0","minimum_wire_compatibility_version":"7.17.0",`+
			`"minimum_index_compatibility_version":"7.0.0"},"tagline":"You Know, for Search"}`)
	case first == "_license" && reading:
		reply(rw, http.StatusOK, `{"license":`+license+`}`)
	case first == "_xpack" && reading:
		reply(rw, http.StatusOK, `{"license":`+license+`,"features":{"ilm":{"available":true,"enabled":true},"security":{"available":false,"enabled":false}}}`)
	case first == "_cluster" && reading:
		reply(rw, http.StatusOK, `{"cluster_name":"spillway","status":"green","timed_out":false,"number_of_nodes":1,"number_of_data_nodes":1}`)
	case first == "_nodes" && reading:
		reply(rw, http.StatusOK, `{"cluster_name":"spillway","nodes":{}}`)
	case isSetup(first) && reading:
		// It is there: nobody needs to set up an index that there is not.
		reply(rw, http.StatusOK, `{}`)
	case isSetup(first) && (r.Method == http.MethodPut || r.Method == http.MethodPost):
		reply(rw, http.StatusOK, `{"acknowledged":true}`)
	default:
		refuse(rw, r, &receive.Refusal{Status: http.StatusNotFound,
			Text: r.Method + " /" + strings.Join(parts, "/") + " is not served here: this address takes bulk requests with logs"})
	}
}

const license = `{"status":"active","uid":"73706c77-6179-4000-8000-000000000000","type":"basic","mode":"basic"}`

// isSetup says whether an address is about what shippers install in Elasticsearch:
// templates, lifecycle policies, pipelines, aliases, data streams.
func isSetup(first string) bool {
	switch first {
	case "_template", "_index_template", "_component_template", "_ilm", "_lifecycle", "_ingest", "_alias", "_aliases", "_data_stream":
		return true
	}
	return false
}

// versionFor returns the version to tell a client.
func versionFor(agent string) string {
	name, rest, ok := strings.Cut(agent, "/")
	version, _, _ := strings.Cut(rest, " ")
	if !ok || !strings.HasSuffix(strings.ToLower(name), "beat") || strings.Count(version, ".") != 2 || len(version) > 16 ||
		strings.Trim(version, "0123456789.") != "" {
		return serverVersion
	}
	return version
}

func reply(rw http.ResponseWriter, status int, body string) {
	rw.Header().Set("Content-Type", "application/json")
	rw.WriteHeader(status)
	_, _ = rw.Write([]byte(body))
}

// refuse answers in the form of Elasticsearch's errors.
func refuse(rw http.ResponseWriter, _ *http.Request, refusal *receive.Refusal) {
	refusal.SetHeaders(rw.Header())
	kind := "illegal_argument_exception"
	switch refusal.Status {
	case http.StatusUnauthorized, http.StatusForbidden:
		kind = "security_exception"
	case http.StatusTooManyRequests:
		kind = "es_rejected_execution_exception"
	case http.StatusServiceUnavailable:
		kind = "unavailable_shards_exception"
	case http.StatusRequestEntityTooLarge:
		kind = "content_too_long_exception"
	}
	cause := append([]byte(`{"type":"`+kind+`","reason":`), quote(nil, refusal.Text)...)
	body := `{"error":{"root_cause":[` + string(cause) + `}],` + string(cause[1:]) + `},"status":` + strconv.Itoa(refusal.Status) + `}`
	reply(rw, refusal.Status, body)
}
