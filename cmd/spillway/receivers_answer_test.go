package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// withKeys puts two API keys in force: one for everything, whose labels and headers
// show, and one for metrics only.
func withKeys(t *testing.T, p *process, k *keeper) {
	t.Helper()
	digest := func(secret string) string {
		sum := sha256.Sum256([]byte(secret))
		return hex.EncodeToString(sum[:])
	}
	file := filepath.Join(t.TempDir(), "keys.yaml")
	require.NoError(t, os.WriteFile(file, fmt.Appendf(nil, "keys:\n"+
		"  - {name: a, sha256: %s, labels: {from: a}, headers: {X-Scope-OrgID: tenant-a}}\n"+
		"  - {name: m, sha256: %s, streams: [metrics]}\n", digest("secret"), digest("other")), 0o600))
	config, err := os.ReadFile(p.reloader.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(p.reloader.path, append([]byte("api_keys_file: "+file+"\n"), config...), 0o600))
	l, err := load(p.reloader.path, 0)
	require.NoError(t, err)
	sinks := map[string]ingester.Sink{"": k}
	for name := range l.config.Sinks {
		sinks[name] = k
	}
	require.NoError(t, p.ingester.Reload(l.settings(sinks)))
}

func basic(secret string) string {
	return "Basic " + base64.StdEncoding.EncodeToString([]byte("anybody:"+secret))
}

// carriers are the places where each source may have its key, beside Kf-Api-Key and a
// bearer token: a header with its value, or a parameter.
func carriers(s *source) (headers [][2]string, parameters []string) {
	switch {
	case strings.HasPrefix(s.name, "Loki"), strings.HasPrefix(s.name, "Fluent"):
		return [][2]string{{"Authorization", basic("secret")}}, nil
	case s.name == "Elasticsearch":
		return [][2]string{
			{"Authorization", basic("secret")}, {"Authorization", "ApiKey secret"},
			{"Authorization", "ApiKey " + base64.StdEncoding.EncodeToString([]byte("id:secret"))},
		}, nil
	case s.name == "Datadog logs", s.name == "RUM":
		return [][2]string{{"DD-API-KEY", "secret"}}, []string{"dd-api-key", "kf-api-key"}
	case s.name == "Firehose":
		return [][2]string{{"X-Amz-Firehose-Access-Key", "secret"}}, nil
	case s.name == "Heroku":
		return [][2]string{{"Authorization", basic("secret")}}, []string{"kf-api-key"}
	case s.name == "events":
		return [][2]string{{"DD-API-KEY", "secret"}}, nil
	}
	return nil, nil
}

func TestEverySourceCarriesItsKey(t *testing.T) {
	for _, s := range sources() {
		t.Run(s.name, func(t *testing.T) {
			p, k := receiving(t, "", "")
			withKeys(t, p, k)
			send := func(path string, header ...string) int {
				body := &unreadable{Reader: bytes.NewReader(s.body(3, false))}
				code := p.get(t, http.MethodPost, path, body, append(header, s.header...)...).Code
				if code == http.StatusUnauthorized || code == http.StatusForbidden {
					require.False(t, body.read, "the body of a sender without a key is not read")
				}
				return code
			}
			require.Equal(t, http.StatusUnauthorized, send(s.path))
			require.Equal(t, http.StatusForbidden, send(s.path, "Kf-Api-Key", "wrong"))
			require.Equal(t, http.StatusForbidden, send(s.path, "Kf-Api-Key", "other"), "this key is for metrics")
			headers, parameters := carriers(&s)
			headers = append(headers, [2]string{"Kf-Api-Key", "secret"}, [2]string{"Authorization", "Bearer secret"})
			for _, h := range headers {
				require.Equal(t, s.stored, send(s.path, h[0], h[1]), "%v", h)
				require.Equal(t, "tenant-a", k.headers.Get("X-Scope-OrgID"))
			}
			separator := "?"
			if strings.Contains(s.path, "?") {
				separator = "&"
			}
			for _, parameter := range []string{"kf-api-key", "dd-api-key"} {
				want := http.StatusUnauthorized
				for _, may := range parameters {
					if may == parameter {
						want = s.stored
					}
				}
				require.Equal(t, want, send(s.path+separator+parameter+"=secret"), parameter)
			}
			require.Len(t, k.take(), 3*(len(headers)+len(parameters)))
			outcomes(t, p, s.stream)
		})
	}
}

// unreadable notes whether it is read.
type unreadable struct {
	*bytes.Reader
	read bool
}

func (u *unreadable) Read(b []byte) (int, error) {
	u.read = true
	return u.Reader.Read(b)
}

func TestFirehoseHearsWhatItDemands(t *testing.T) {
	p, k := receiving(t, "", "")
	answerOf := func(body []byte, header ...string) (int, map[string]any) {
		rec := p.get(t, http.MethodPost, "/ingester/kinesis/logs", bytes.NewReader(body), header...)
		require.Equal(t, "application/json", rec.Header().Get("Content-Type"))
		var answer map[string]any
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &answer))
		require.NotZero(t, answer["timestamp"])
		return rec.Code, answer
	}
	code, answer := answerOf([]byte(`{"requestId":"in-body","records":[]}`))
	require.Equal(t, 200, code)
	require.Equal(t, "in-body", answer["requestId"])
	require.NotContains(t, answer, "errorMessage")
	code, answer = answerOf([]byte(`{`), "X-Amz-Firehose-Request-Id", "r-1")
	require.Equal(t, 400, code)
	require.Equal(t, "r-1", answer["requestId"])
	require.NotEmpty(t, answer["errorMessage"])
	code, _ = answerOf(nil, "X-Amz-Firehose-Protocol-Version", "2.0")
	require.Equal(t, 400, code)
	withKeys(t, p, k)
	code, answer = answerOf([]byte(`{`), "X-Amz-Firehose-Request-Id", "r-2")
	require.Equal(t, 401, code)
	require.Equal(t, "r-2", answer["requestId"])
}

func TestHerokuCountsItsFrames(t *testing.T) {
	p, _ := receiving(t, "", "")
	line := "<190>1 2026-11-30T08:00:00Z h a web.1 - x"
	body := fmt.Sprintf("%d %s", len(line), line)
	for count, want := range map[string]int{"1": 204, "": 204, "2": 400} {
		rec := p.get(t, http.MethodPost, "/heroku/logs", strings.NewReader(body), "Content-Type", "application/logplex-1", "Logplex-Msg-Count", count)
		require.Equal(t, want, rec.Code, rec.Body.String())
	}
	rec := p.get(t, http.MethodPost, "/heroku/logs", strings.NewReader(body), "Content-Type", "text/plain")
	require.Equal(t, http.StatusUnsupportedMediaType, rec.Code)
	outcomes(t, p, "logs")
}

func TestElasticsearchAnswersInquiries(t *testing.T) {
	p, k := receiving(t, "", "")
	const base = "/ingester/api/v1/filebeat"
	ask := func(method, path, agent string) (int, map[string]any) {
		rec := p.get(t, method, base+path, nil, "User-Agent", agent)
		require.Equal(t, "Elasticsearch", rec.Header().Get("X-Elastic-Product"))
		answer := map[string]any{}
		require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &answer), rec.Body.String())
		return rec.Code, answer
	}
	for agent, version := range map[string]string{"Elastic-Filebeat/9.2.1 (linux; amd64)": "9.2.1", "curl/8": "8.19.0", "Elastic-Filebeat/evil\" (x)": "8.19.0"} {
		code, answer := ask(http.MethodGet, "/", agent)
		require.Equal(t, 200, code)
		require.Equal(t, version, answer["version"].(map[string]any)["number"])
	}
	code, answer := ask(http.MethodGet, "/_license", "")
	require.Equal(t, 200, code)
	require.Equal(t, "active", answer["license"].(map[string]any)["status"])
	for _, path := range []string{"/_ilm/policy/filebeat", "/_index_template/filebeat-8", "/_ingest/pipeline/x", "/_data_stream/filebeat"} {
		code, _ = ask(http.MethodGet, path, "")
		require.Equal(t, 200, code, "nothing needs to be set up: %s", path)
		code, answer = ask(http.MethodPut, path, "")
		require.Equal(t, 200, code)
		require.Equal(t, true, answer["acknowledged"])
	}
	for _, path := range []string{"/i/_search", "/_cat/indices", "/i", "/a/b/c/_bulk"} {
		code, answer = ask(http.MethodGet, path, "")
		require.Equal(t, 404, code)
		require.NotEmpty(t, answer["error"].(map[string]any)["reason"])
	}
	code, answer = ask(http.MethodGet, "/_bulk", "")
	require.Equal(t, 405, code)
	require.EqualValues(t, 405, answer["status"])
	withKeys(t, p, k)
	code, answer = ask(http.MethodGet, "/", "")
	require.Equal(t, 401, code)
	require.Equal(t, "security_exception", answer["error"].(map[string]any)["type"])
}

func TestBulkSaysWhatBecameOfEachAction(t *testing.T) {
	p, k := receiving(t, "", "")
	body := strings.Join([]string{
		`{"create":{"_index":"a","_id":"1"}}`, `{"message":"one"}`,
		`{"index":{}}`, `{"message":`,
		`{"delete":{"_id":"3"}}`,
		`{"update":{"_id":"4"}}`, `{"doc":{"message":"four"}}`, "",
	}, "\n")
	rec := p.get(t, http.MethodPut, "/api/v1/filebeat/b%22c/_bulk?filter_path=errors", strings.NewReader(body))
	require.Equal(t, 200, rec.Code)
	var answer struct {
		Errors bool
		Items  []map[string]struct {
			Index  string `json:"_index"`
			ID     string `json:"_id"`
			Status int
			Error  *struct{ Type, Reason string }
		}
	}
	require.NoError(t, json.Unmarshal(rec.Body.Bytes(), &answer), rec.Body.String())
	require.True(t, answer.Errors)
	require.Len(t, answer.Items, 4)
	require.Equal(t, 201, answer.Items[0]["create"].Status)
	require.Equal(t, "1", answer.Items[0]["create"].ID)
	require.Equal(t, 400, answer.Items[1]["index"].Status)
	require.Equal(t, `b"c`, answer.Items[1]["index"].Index)
	require.NotEmpty(t, answer.Items[1]["index"].Error.Reason)
	require.Equal(t, 400, answer.Items[2]["delete"].Status)
	require.Equal(t, 200, answer.Items[3]["update"].Status)
	require.Len(t, k.take(), 2)
	require.Equal(t, outcome{received: 4, invalid: 2, admitted: 2}, outcomes(t, p, "logs"))
}

func TestPagesOfOtherHostsNeedPermission(t *testing.T) {
	t.Chdir(t.TempDir()) // streams without a sink are kept below ./data
	p, k := receiving(t, "rum: {allowed_origins: ['https://shop.example.com', 'https://*.wild.example']}", "")
	target := "/ddrumproxy?ddforward=" + url.QueryEscape("/api/v2/rum?ddsource=browser&dd-api-key=k")
	for origin, may := range map[string]bool{
		"https://shop.example.com": true, "https://a.b.wild.example": true, "http://example.com": true, // the test's own host
		"https://wild.example": false, "https://evilwild.example": false, "http://a.wild.example": false, "null": false,
		"https://shop.example.com.evil.example": false, "http://shop.example.com": false,
	} {
		rec := p.get(t, http.MethodPost, target, strings.NewReader(`{"type":"view"}`), "Origin", origin, "Content-Type", "text/plain")
		preflight := p.get(t, http.MethodOptions, target, nil, "Origin", origin, "Access-Control-Request-Method", "POST")
		require.Contains(t, rec.Header().Values("Vary"), "Origin")
		if may {
			require.Equal(t, 202, rec.Code, origin)
			require.Equal(t, 204, preflight.Code)
			require.Equal(t, origin, rec.Header().Get("Access-Control-Allow-Origin"))
			require.Equal(t, "POST", preflight.Header().Get("Access-Control-Allow-Methods"))
			require.Len(t, k.take(), 1)
			continue
		}
		require.Equal(t, 403, rec.Code, origin)
		require.Equal(t, 403, preflight.Code, origin)
		require.Empty(t, rec.Header().Get("Access-Control-Allow-Origin"))
		require.Empty(t, k.take())
	}
	for path, want := range map[string]int{
		"/ddrumproxy?ddforward=%2Fapi%2Fv2%2Freplay%3Fx%3D1": 404, "/ddrumproxy": 404, "/ddrumproxy?ddforward=%zz": 404,
		"/ddrumproxy/api/v2/rum?ddsource=browser": 202, "/ingester/ddrumproxy/api/v2/logs?ddsource=browser": 202, "/api/v2/rum?ddsource=browser": 202,
	} {
		rec := p.get(t, http.MethodPost, path, strings.NewReader(`{"type":"view"}`))
		require.Equal(t, want, rec.Code, "%s: %s", path, rec.Body)
	}
	outcomes(t, p, "rum")
}

func TestOriginsThatAreNone(t *testing.T) {
	for _, o := range []string{"shop.example.com", "https://", "https://a/b", ""} {
		c := RUMConfig{AllowedOrigins: []string{o}}
		require.Len(t, c.problems(), 1, o)
	}
	c := RUMConfig{AllowedOrigins: []string{"*", "null", "http://localhost:3000", "https://*.example.com"}}
	require.Empty(t, c.problems())
}
