package page

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func get(t *testing.T, path string, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest("GET", path, nil)
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := httptest.NewRecorder()
	Handler().ServeHTTP(rec, req)
	return rec
}

// TestNothingFromOutside: the page and what it loads name no other server, and
// hold nothing that the security policy would refuse.
func TestNothingFromOutside(t *testing.T) {
	outside := regexp.MustCompile(`(https?:)?//[a-z0-9-]+\.[a-z]`)
	namespace := "http://www.w3.org/2000/svg"
	entries, err := assets.ReadDir("assets")
	require.NoError(t, err)
	require.NotEmpty(t, entries)
	for _, e := range entries {
		rec := get(t, Prefix+e.Name())
		require.Equal(t, http.StatusOK, rec.Code)
		require.NotEqual(t, "application/octet-stream", rec.Header().Get("Content-Type"), e.Name())
		text := strings.ReplaceAll(rec.Body.String(), namespace, "")
		require.NotRegexp(t, outside, text, e.Name())
		for _, forbidden := range []string{"innerHTML", "outerHTML", "insertAdjacent", "document.write", "eval(", "new Function", " style=", " onclick=", "<script>", "<style"} {
			require.NotContains(t, text, forbidden, e.Name())
		}
	}
}

func TestHeaders(t *testing.T) {
	for _, path := range []string{"/", Prefix + "page.js", Prefix + "page.css"} {
		rec := get(t, path)
		require.Equal(t, http.StatusOK, rec.Code)
		policy := rec.Header().Get("Content-Security-Policy")
		require.Contains(t, policy, "default-src 'none'")
		require.Contains(t, policy, "frame-ancestors 'none'")
		require.NotContains(t, policy, "unsafe")
		require.Equal(t, "nosniff", rec.Header().Get("X-Content-Type-Options"))
		tag := rec.Header().Get("ETag")
		require.NotEmpty(t, tag)
		again := get(t, path, "If-None-Match", tag)
		require.Equal(t, http.StatusNotModified, again.Code)
		require.Zero(t, again.Body.Len())
	}
	require.Equal(t, http.StatusNotFound, get(t, Prefix+"nothing.js").Code)
	require.Equal(t, http.StatusNotFound, get(t, Prefix+"../page.go").Code)
	require.Equal(t, http.StatusNotFound, get(t, Prefix).Code)
}
