package remotewrite

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"gopkg.in/yaml.v3"
)

// loadOptions decodes options as the program does: strictly, within another document.
func loadOptions(text string) (Options, error) {
	var c struct {
		RemoteWrite *Options `yaml:"remote_write"`
	}
	d := yaml.NewDecoder(strings.NewReader("remote_write:\n  " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n  ")))
	d.KnownFields(true)
	if err := d.Decode(&c); err != nil {
		return Options{}, err
	}
	return *c.RemoteWrite, c.RemoteWrite.Validate()
}

func TestOptionsDefaults(t *testing.T) {
	o, err := loadOptions(`endpoints: ["http://127.0.0.1:9009/api/v1/push"]`)
	require.NoError(t, err)
	want := DefaultOptions()
	want.Endpoints = []*config.URL{{URL: &url.URL{Scheme: "http", Host: "127.0.0.1:9009", Path: "/api/v1/push"}}}
	require.Equal(t, want, o)
	require.Equal(t, "prometheus.WriteRequest", o.ProtobufMessage)
	require.Equal(t, model.Duration(10*time.Second), o.Timeout)
	require.Equal(t, 64, o.MaxConnectionsPerEndpoint)
	require.False(t, o.HTTPClientConfig.FollowRedirects)
	require.False(t, o.HTTPClientConfig.EnableHTTP2)
}

func TestOptionsInFull(t *testing.T) {
	o, err := loadOptions(`
endpoints: [https://mimir-1/api/v1/push, https://mimir-2/api/v1/push]
protobuf_message: io.prometheus.write.v2.Request
timeout: 1m30s
max_connections_per_endpoint: 7
headers: {X-Scope-OrgID: platform}
basic_auth: {username: u, password_file: pass}
tls_config: {ca_file: ca.pem, server_name: mimir, min_version: TLS13}
http_headers: {X-Extra: {values: [a]}}
enable_http2: true
proxy_url: http://proxy:3128
no_proxy: 10.0.0.0/8
`)
	require.NoError(t, err)
	require.Len(t, o.Endpoints, 2)
	require.Equal(t, model.Duration(90*time.Second), o.Timeout)
	require.Equal(t, 7, o.MaxConnectionsPerEndpoint)
	require.Equal(t, "u", o.HTTPClientConfig.BasicAuth.Username)
	require.Equal(t, "proxy:3128", o.HTTPClientConfig.ProxyURL.Host)
	require.True(t, o.HTTPClientConfig.EnableHTTP2)
	o.SetDirectory("/etc/spillway")
	require.Equal(t, "/etc/spillway/pass", o.HTTPClientConfig.BasicAuth.PasswordFile)
	require.Equal(t, "/etc/spillway/ca.pem", o.HTTPClientConfig.TLSConfig.CAFile)
}

func TestOptionsProblems(t *testing.T) {
	const good = "endpoints: [http://a/push]\n"
	for text, want := range map[string]string{
		"timeout: 5s":                                                          "endpoints is empty",
		"endpoints: [mimir/api/v1/push]":                                       `endpoints[0] is "mimir/api/v1/push": it must be a whole address`,
		"endpoints: [ftp://mimir/push]":                                        "http:// or https://",
		"endpoints: [http://a/push, http://u:p@a/push]":                        `endpoints[1] is "http://a/push", which is there already`,
		"endpoints: [http://a/push, null]":                                     "endpoints[1] is empty",
		good + "endpoint: x":                                                   "field endpoint not found",
		good + "tls_config: {cafile: x}":                                       "field cafile not found",
		good + "basic_auth: {user: x}":                                         "field user not found",
		good + "protobuf_message: v2":                                          `protobuf_message is "v2": it must be prometheus.WriteRequest or io.prometheus.write.v2.Request`,
		good + "timeout: 0s":                                                   "timeout is 0s: it must be above 0",
		good + "timeout: 10":                                                   "not a valid duration string",
		good + "max_connections_per_endpoint: 0":                               "max_connections_per_endpoint is 0: it must be at least 1",
		good + "headers: {content-encoding: gzip}":                             "headers: content-encoding is set by the protocol",
		good + "headers: {Authorization: x}":                                   "headers: Authorization is set",
		good + "headers: {Retry-Attempt: x}":                                   "headers: Retry-Attempt is set",
		good + "follow_redirects: true":                                        "follow_redirects is true",
		good + "bearer_token: a\nbearer_token_file: b":                         "at most one of bearer_token & bearer_token_file",
		good + "basic_auth: {username: u}\nauthorization: {credentials: c}":    "at most one of",
		good + "tls_config: {cert_file: x}":                                    "exactly one of key or key_file must be configured",
		good + "authorization: {credentials_ref: x}":                           "",
		good + "timeout: -1s\nmax_connections_per_endpoint: -1":                "not a valid duration",
		good + "protobuf_message: x\nmax_connections_per_endpoint: -1":         "max_connections_per_endpoint is -1",
		"protobuf_message: x\nmax_connections_per_endpoint: -1\nendpoints: []": "endpoints is empty",
	} {
		o, err := loadOptions(text)
		if want == "" {
			require.NoError(t, err)
			_, err = New(o, nil, nil)
			require.ErrorContains(t, err, "_ref names a secret manager", text)
			continue
		}
		require.ErrorContains(t, err, want, text)
	}
}

// The options belong to the caller.
func TestOptionsAreNotChanged(t *testing.T) {
	o, err := loadOptions("endpoints: [http://a/push]\nauthorization: {credentials: c}")
	require.NoError(t, err)
	require.Empty(t, o.HTTPClientConfig.Authorization.Type)
	s := openTestSink(t, o)
	require.NotNil(t, s)
	require.Empty(t, o.HTTPClientConfig.Authorization.Type)
}
