package datadog

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
)

// Proxy is the address that the SDK's option proxy names. The SDK says in the
// parameter ddforward where a request should go, path and parameters; a function as
// proxy puts the path behind the address instead. RUM events and logs are taken, other
// tracks are not: there is no place for session replays and profiles.
func Proxy(rum, logs http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		target := *r.URL
		if forward := r.URL.Query().Get("ddforward"); forward != "" {
			u, err := url.Parse(forward)
			if err != nil {
				http.Error(rw, "ddforward is not an address: "+err.Error(), http.StatusBadRequest)
				return
			}
			target.Path, target.RawQuery = u.Path, merged(u.RawQuery, r.URL)
		}
		r = r.Clone(r.Context())
		r.URL = &target
		switch {
		case strings.HasSuffix(target.Path, "/api/v2/rum"):
			rum.ServeHTTP(rw, r)
		case strings.HasSuffix(target.Path, "/api/v2/logs"):
			logs.ServeHTTP(rw, r)
		default:
			http.Error(rw, "only /api/v2/rum and /api/v2/logs are taken here, not "+target.Path, http.StatusNotFound)
		}
	})
}

// merged adds what stands beside ddforward to the forwarded parameters, such as an
// API key in the configured address.
func merged(forwarded string, outer *url.URL) string {
	rest := outer.Query()
	rest.Del("ddforward")
	if len(rest) == 0 {
		return forwarded
	}
	return forwarded + "&" + rest.Encode()
}

// CrossOrigin lets pages of the given origins send, https://shop.example.com say;
// https://*.example.com is every host below, * every page. Other pages of other
// hosts are answered 403, before anything is read. A request without an origin is not a
// page's, and a page of the same host needs no permission.
func CrossOrigin(origins []string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		origin := r.Header.Get("Origin")
		if origin == "" {
			next.ServeHTTP(rw, r)
			return
		}
		h := rw.Header()
		h.Add("Vary", "Origin")
		if !sameHost(origin, r) && !slices.ContainsFunc(origins, func(o string) bool { return permits(o, origin) }) {
			http.Error(rw, "pages of "+origin+" may not send here; rum.allowed_origins lists those that may", http.StatusForbidden)
			return
		}
		h.Set("Access-Control-Allow-Origin", origin)
		// sendBeacon sends along cookies, so the browser asks for this.
		h.Set("Access-Control-Allow-Credentials", "true")
		if r.Method != http.MethodOptions {
			next.ServeHTTP(rw, r)
			return
		}
		h.Set("Access-Control-Allow-Methods", http.MethodPost)
		h.Set("Access-Control-Allow-Headers", "Content-Type, Content-Encoding, Kf-Api-Key, DD-API-KEY, Authorization")
		h.Set("Access-Control-Max-Age", "7200") // seconds; the most that Chromium heeds
		rw.WriteHeader(http.StatusNoContent)
	})
}

func sameHost(origin string, r *http.Request) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Host != "" && strings.EqualFold(u.Host, r.Host)
}

// permits says whether an entry of the configuration means an origin.
func permits(entry, origin string) bool {
	scheme, domain, wild := strings.Cut(entry, "://*.")
	switch {
	case entry == "*":
		return true
	case !wild:
		return strings.EqualFold(strings.TrimSuffix(entry, "/"), origin)
	}
	have, host, ok := strings.Cut(origin, "://")
	return ok && strings.EqualFold(have, scheme) && len(host) > len(domain)+1 &&
		strings.EqualFold(host[len(host)-len(domain)-1:], "."+domain)
}
