//go:build e2e

package e2e

import (
	"bytes"
	"compress/zlib"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

// browserPeer finds the SDK, node and Chromium, or skips the test with the reason.
func browserPeer(t *testing.T) (dir, node, chromium string) {
	t.Helper()
	dir = peer(t, "browser")
	if _, err := os.Stat(filepath.Join(dir, "stamp")); err != nil {
		t.Skip("the browser SDK is not here: make peers says why npm could not install it")
	}
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("no node on this machine, which drives the browser")
	}
	for _, name := range []string{"chromium", "chromium-browser", "google-chrome"} {
		if chromium, err = exec.LookPath(name); err == nil {
			return dir, node, chromium
		}
	}
	t.Skip("no Chromium on this machine: install the package chromium")
	return
}

// page is what a shop might do. The parameters choose how the SDK sends.
const page = `<!doctype html><title>shop</title><button id="buy">buy</button>
<script src="/sdk/datadog-rum.js"></script>
<script>
const q = new URLSearchParams(location.search), to = q.get('to')
window.results = {}
DD_RUM.init({
  applicationId: 'a1a1a1a1-0000-4000-8000-000000000001', clientToken: q.get('token'), site: 'datadoghq.com',
  service: 'shop', env: 'prod', version: '1.2.3', sessionSampleRate: 100, sessionReplaySampleRate: 0, telemetrySampleRate: 0,
  allowUntrustedEvents: true, trackUserInteractions: true, trackResources: true, trackLongTasks: true, compressIntakeRequests: q.get('how') === 'deflate',
  proxy: q.get('how') === 'function' ? (o) => to + o.path + '?' + o.parameters : to,
})
DD_RUM.setGlobalContextProperty('team', {name: 'web', tags: ['x', 1, 2.5]})
DD_RUM.addAction('pay', {cart: {amount: 7, items: [{sku: 'ü"1'}, {sku: '2'}]}, nothing: null})
DD_RUM.addError(new Error('boom'), {big: 9007199254740991})
// More than a batch holds, so that one leaves by fetch before the page is hidden.
for (let i = 0; i < 60; i++) DD_RUM.addAction('step', {i})
const pause = (ms) => new Promise((done) => setTimeout(done, ms))
const settled = () => sentRequests.every((r) => r.status !== -1 || r.how === 'beacon' && !r.pending)
;(async () => {
  document.getElementById('buy').click()
  // A header that is not simple makes the browser ask for permission first.
  try {
    const r = await fetch(to + '/api/v2/rum?preflight=1', {method: 'POST', headers: {'Kf-Api-Key': q.get('token')}, body: '{"type":"custom","date":1700000000000}'})
    results.preflight = r.status
  } catch (e) { results.preflight = String(e) }
  await pause(400) // so that the page has loaded, as far as the SDK is concerned
  Object.defineProperty(document, 'visibilityState', {value: 'hidden', configurable: true})
  document.dispatchEvent(new Event('visibilitychange'))
  for (let i = 0; i < 100 && !(settled() && sentRequests.length > 1); i++) await pause(50)
  window.done = true
})()
</script>`

// visit is what drive.mjs prints of a page.
type visit struct {
	URL  string
	Sent []struct {
		How, URL string
		Body     []byte
		Status   int
	}
	Results    map[string]any
	Complaints []string
}

// startShop serves the page and the SDK.
func startShop(t *testing.T, sdk string) *httptest.Server {
	mux := http.NewServeMux()
	mux.Handle("/sdk/", http.StripPrefix("/sdk/", http.FileServer(http.Dir(sdk))))
	mux.HandleFunc("/shop", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = io.WriteString(w, page)
	})
	shop := httptest.NewServer(mux)
	t.Cleanup(shop.Close)
	return shop
}

// browse opens pages one after the other.
func browse(t *testing.T, pages ...string) []visit {
	t.Helper()
	dir, node, chromium := browserPeer(t)
	plan, err := json.Marshal(map[string]any{"pages": pages})
	require.NoError(t, err)
	cmd := exec.Command(node, "drive.mjs", chromium, string(plan))
	cmd.Dir = dir
	var problems bytes.Buffer
	cmd.Stderr = &problems
	out, err := cmd.Output()
	require.NoError(t, err, problems.String())
	var visits []visit
	for dec := json.NewDecoder(bytes.NewReader(out)); dec.More(); {
		var v visit
		require.NoError(t, dec.Decode(&v))
		require.Empty(t, v.Complaints)
		visits = append(visits, v)
	}
	require.Len(t, visits, len(pages))
	return visits
}

// events are the RUM events in the bodies of what a page sent.
func (v *visit) events(t *testing.T) (events []map[string]any, deflated int) {
	t.Helper()
	for _, s := range v.Sent {
		body := s.Body
		if strings.Contains(s.URL, "dd-evp-encoding") {
			deflated++
			r, err := zlib.NewReader(bytes.NewReader(body))
			require.NoError(t, err)
			// The SDK ends a stream that it sends while the page goes away without a checksum.
			body, _ = io.ReadAll(r)
		}
		for _, line := range bytes.Split(body, []byte("\n")) {
			dec := json.NewDecoder(bytes.NewReader(line))
			dec.UseNumber()
			e := map[string]any{}
			require.NoError(t, dec.Decode(&e), "%s", line)
			events = append(events, e)
		}
	}
	return events, deflated
}

// flatten takes a JSON value apart as the table of sources says.
func flatten(into map[string]any, path string, v any) {
	object, ok := v.(map[string]any)
	if ok && len(object) > 0 {
		for name, field := range object {
			flatten(into, path+"."+name, field)
		}
	} else if v != nil {
		into[path] = plainValue(v)
	}
}

func plainValue(v any) any {
	switch v := v.(type) {
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64()
		return f
	case []any:
		out := []any{}
		for _, e := range v {
			out = append(out, plainValue(e))
		}
		return out
	case map[string]any:
		out := map[string]any{}
		for name, e := range v {
			out[name] = plainValue(e)
		}
		return out
	}
	return v
}

// expected is what a RUM event becomes.
func expected(e map[string]any) receivetest.Record {
	r := receivetest.Record{Resource: map[string]any{"source": "browser"}, Attributes: map[string]any{}}
	for name, v := range e {
		text, _ := v.(string)
		switch name {
		case "service":
			r.Resource["service.name"] = text
		case "version":
			r.Resource["service.version"] = text
		case "source":
			r.Resource["source"] = text
		case "application":
			flatten(r.Resource, name, v)
		case "ddtags":
			for _, tag := range strings.Split(text, ",") {
				key, value, _ := strings.Cut(tag, ":")
				r.Resource[key] = value
			}
		case "date":
			ms, _ := v.(json.Number).Int64()
			r.Time = uint64(ms) * 1e6
		default:
			flatten(r.Attributes, name, v)
		}
	}
	r.EventName, _ = e["type"].(string)
	if message, ok := r.Attributes["error.message"]; ok {
		r.Body = message
	}
	return r
}

// TestRealBrowserSDK: every event that the SDK sends from a real browser is stored,
// field by field, by proxy address and by proxy function, plain and deflated, by
// fetch and by sendBeacon.
func TestRealBrowserSDK(t *testing.T) {
	dir, _, _ := browserPeer(t)
	shop := startShop(t, filepath.Join(dir, "node_modules/@datadog/browser-rum/bundle"))
	data := t.TempDir()
	s := startSpillway(t, data, freeAddress(t), quiet+fmt.Sprintf("rum: {allowed_origins: ['%s']}\nsinks: {none: {discard: {}}, files: {file: {path: '%s'}}}\n"+
		"streams: {metrics: {sink: none}, rum: {sink: files}}\n", shop.URL, data), "")
	var pages []string
	for _, how := range []string{"plain", "deflate", "function"} {
		pages = append(pages, shop.URL+"/shop?"+url.Values{"how": {how}, "to": {"http://" + s.address + "/ddrumproxy"}, "token": {"pub1"}}.Encode())
	}
	visits := browse(t, pages...)
	var want []receivetest.Record
	ways := map[string]int{}
	deflated := 0
	for i := range visits {
		events, n := visits[i].events(t)
		require.Greater(t, len(events), 3, "view, actions, error")
		deflated += n
		for _, e := range events {
			r := expected(e)
			if e["type"] == "custom" {
				delete(r.Resource, "source")
			}
			want = append(want, r)
		}
		for _, sent := range visits[i].Sent {
			if !strings.Contains(sent.URL, "preflight") {
				ways[sent.How]++
			}
			if sent.How == "fetch" {
				require.Equal(t, http.StatusAccepted, sent.Status, "the page can read the answer: %s", sent.URL)
			}
		}
		require.EqualValues(t, http.StatusAccepted, visits[i].Results["preflight"])
	}
	require.Positive(t, ways["beacon"])
	require.Positive(t, ways["fetch"])
	require.Positive(t, deflated)
	eventually(t, "all events are stored", func() bool {
		return metrics(t, s.address)[`spillway_admitted_items_total{class="default",stream="rum"}`] >= float64(len(want))
	})
	requireStored(t, s.address, "rum", len(want))
	require.ElementsMatch(t, want, filed(t, data, "rum"))
	t.Logf("%d events in %d requests (%d fetch, %d beacon, %d deflated)", len(want), ways["fetch"]+ways["beacon"], ways["fetch"], ways["beacon"], deflated)
}

// TestBrowserOfAnotherOrigin: the SDK on a page that may not send hears nothing, and
// nothing of it is stored; with API keys, the client token is the key.
func TestBrowserOfAnotherOrigin(t *testing.T) {
	dir, _, _ := browserPeer(t)
	shop := startShop(t, filepath.Join(dir, "node_modules/@datadog/browser-rum/bundle"))
	data := t.TempDir()
	keys := filepath.Join(data, "keys.yaml")
	// The digest of "secret".
	require.NoError(t, os.WriteFile(keys, []byte("keys: [{name: shop, sha256: 2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b, streams: [rum]}]\n"), 0o600))
	s := startSpillway(t, data, freeAddress(t), quiet+fmt.Sprintf("api_keys_file: %s\nrum: {allowed_origins: ['%s']}\nsinks: {none: {discard: {}}, files: {file: {path: '%s'}}}\n"+
		"streams: {metrics: {sink: none}, rum: {sink: files}}\n", keys, shop.URL, data), "")
	other := strings.Replace(shop.URL, "127.0.0.1", "localhost", 1)
	address := func(base, token string) string {
		return base + "/shop?" + url.Values{"how": {"plain"}, "to": {"http://" + s.address + "/ddrumproxy"}, "token": {token}}.Encode()
	}
	visits := browse(t, address(other, "secret"), address(shop.URL, "wrong"), address(shop.URL, "secret"))
	for _, v := range visits[:2] {
		for _, sent := range v.Sent {
			require.NotEqual(t, http.StatusAccepted, sent.Status)
		}
	}
	require.Contains(t, visits[0].Results["preflight"], "TypeError")
	require.EqualValues(t, http.StatusForbidden, visits[1].Results["preflight"], "a page that may send can read why it was refused")
	events, _ := visits[2].events(t)
	eventually(t, "all events are stored", func() bool {
		return metrics(t, s.address)[`spillway_admitted_items_total{class="default",stream="rum"}`] >= float64(len(events))
	})
	requireStored(t, s.address, "rum", len(events))
	require.Len(t, filed(t, data, "rum"), len(events))
}
