package page

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"path"
	"strings"
)

//go:embed assets
var assets embed.FS

// securityPolicy lets the page load its own files and ask its own server, and
// nothing else: no inline script or style, no frame around it, no form that leaves.
const securityPolicy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"

// Prefix is the path below which the page's files are.
const Prefix = "/page/"

// asset is one file as it is sent.
type asset struct {
	body       []byte
	kind, etag string
}

// Handler serves the page at / and its files below Prefix. A browser keeps them
// and asks each time whether they are still the same.
func Handler() http.Handler {
	files := map[string]asset{}
	entries, _ := assets.ReadDir("assets") // embedded: it is there
	for _, e := range entries {
		body, _ := assets.ReadFile("assets/" + e.Name())
		sum := sha256.Sum256(body)
		files[Prefix+e.Name()] = asset{body, kindOf(e.Name()), `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	files["/"] = files[Prefix+"index.html"]
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f, ok := files[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		f.serve(w, r)
	})
}

func (f asset) serve(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Content-Security-Policy", securityPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cache-Control", "no-cache")
	h.Set("Vary", "Accept")
	h.Set("ETag", f.etag)
	if r.Header.Get("If-None-Match") == f.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	h.Set("Content-Type", f.kind)
	_, _ = w.Write(f.body) // an error here is a client that left
}

// kindOf is the content type by the file's extension, the same on every machine.
func kindOf(file string) string {
	switch path.Ext(file) {
	case ".html":
		return "text/html; charset=utf-8"
	case ".css":
		return "text/css; charset=utf-8"
	case ".js":
		return "text/javascript; charset=utf-8"
	case ".svg":
		return "image/svg+xml"
	}
	return "application/octet-stream"
}

// WantsPage says that a request for / comes from a browser. Others, such as curl,
// get a list of the addresses.
func WantsPage(r *http.Request) bool { return strings.Contains(r.Header.Get("Accept"), "text/html") }
