package sink

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
)

// HTTPOptions are the options that all destinations reached by HTTP have. They
// are a part of a destination's own options.
type HTTPOptions struct {
	// Endpoints are the addresses to send to. They lead to the same storage and
	// share the load by least writes in flight; broken ones are left out and
	// probed. At least one; http or https; no two alike. Give one address for each
	// server rather than one name for all, unless a load balancer stands behind
	// it. No default.
	Endpoints []*config.URL `yaml:"endpoints"`

	// Timeout is how long one endpoint may take to answer, connecting included,
	// as a Prometheus duration (10s). When it is over the next endpoint is tried,
	// so keep it well below the senders' own timeout (30s in Prometheus): there
	// must be time left for that. Default: 10s.
	Timeout model.Duration `yaml:"timeout"`

	// MaxConnectionsPerEndpoint is the most connections, and the most writes in
	// flight, from this ingester to one endpoint. Ingesters x this is what an
	// endpoint must be able to hold. At the limit a batch waits for a connection.
	// gRPC and HTTP/2 carry that many writes over fewer connections. Default: 64.
	MaxConnectionsPerEndpoint int `yaml:"max_connections_per_endpoint"`

	// Headers are sent with every request, such as X-Scope-OrgID. Headers that the
	// protocol or the client sets itself are refused; Authorization has the
	// fields below. What server.forward_headers and an API key pass on wins over
	// them. Default: none.
	Headers map[string]string `yaml:"headers,omitempty"`

	// HTTPClientConfig has the fields that Prometheus has for its HTTP clients,
	// with the same meaning: basic_auth, authorization, bearer_token,
	// bearer_token_file, oauth2, tls_config, proxy_url, no_proxy,
	// proxy_from_environment, proxy_connect_header, http_headers, enable_http2
	// (default: false). follow_redirects is always false, since a POST that is
	// redirected may arrive without its body, and fields that end in _ref are
	// refused, since there is no secret manager.
	HTTPClientConfig config.HTTPClientConfig `yaml:",inline"`
}

// DefaultHTTPOptions are the options of which nothing was set.
func DefaultHTTPOptions() HTTPOptions {
	return HTTPOptions{Timeout: model.Duration(10 * time.Second), MaxConnectionsPerEndpoint: 64}
}

// SetDirectory makes the relative names of files relative to dir, the directory
// of the configuration file.
func (o *HTTPOptions) SetDirectory(dir string) { o.HTTPClientConfig.SetDirectory(dir) }

// Problems lists what is wrong with the options, each with the field as the user
// wrote it. It changes nothing. example is an address that would be right.
func (o *HTTPOptions) Problems(example string) []error {
	errs := o.endpointErrors(example)
	if o.Timeout <= 0 {
		errs = append(errs, fmt.Errorf("timeout is %s: it must be above 0", o.Timeout))
	}
	if o.MaxConnectionsPerEndpoint < 1 {
		errs = append(errs, fmt.Errorf("max_connections_per_endpoint is %d: it must be at least 1", o.MaxConnectionsPerEndpoint))
	}
	for name := range o.Headers {
		if reservedHeader(name) {
			errs = append(errs, fmt.Errorf("headers: %s is set by the protocol or by another field of the configuration; remove it", name))
		}
	}
	if o.HTTPClientConfig.FollowRedirects {
		errs = append(errs, errors.New("follow_redirects is true: a redirected POST may arrive without its body; remove the field and name the final address under endpoints"))
	}
	if _, err := o.httpConfig(); err != nil {
		errs = append(errs, err)
	}
	return errs
}

func (o *HTTPOptions) endpointErrors(example string) []error {
	if len(o.Endpoints) == 0 {
		return []error{fmt.Errorf("endpoints is empty: name at least one address, such as %s", example)}
	}
	var errs []error
	seen := make(map[string]bool)
	for i, u := range o.Endpoints {
		if u == nil || u.URL == nil {
			errs = append(errs, fmt.Errorf("endpoints[%d] is empty: name an address or remove it", i))
			continue
		}
		name := endpointName(u.URL)
		if u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
			errs = append(errs, fmt.Errorf("endpoints[%d] is %q: it must be a whole address that starts with http:// or https://", i, name))
		}
		if seen[name] {
			errs = append(errs, fmt.Errorf("endpoints[%d] is %q, which is there already: two that differ at most in user or query count as one", i, name))
		}
		seen[name] = true
	}
	return errs
}

// endpointName is an address as metrics, logs and errors show it: without user,
// password and query, which may be secret.
func endpointName(u *url.URL) string {
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// reservedHeader reports whether a header must not be set by configuration.
func reservedHeader(name string) bool {
	_, reserved := config.ReservedHeaders[http.CanonicalHeaderKey(name)]
	return reserved || strings.EqualFold(name, RetryHeader) || strings.HasPrefix(strings.ToLower(name), "grpc-")
}

// httpConfig is the client configuration, validated and with its old spellings
// (bearer_token) replaced by the new ones.
func (o *HTTPOptions) httpConfig() (config.HTTPClientConfig, error) {
	c := o.HTTPClientConfig
	if c.Authorization != nil {
		// Validate completes it, and the options are not ours to change.
		a := *c.Authorization
		c.Authorization = &a
	}
	if err := c.Validate(); err != nil {
		return c, err
	}
	if err := c.TLSConfig.Validate(); err != nil {
		return c, fmt.Errorf("tls_config: %w", err)
	}
	return c, nil
}
