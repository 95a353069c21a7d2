package sink

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/prometheus/common/config"
)

// newTransport builds the client of one endpoint. Prometheus's own constructor
// has no limit of connections, so the parts are put together here: its TLS and
// authentication around a transport of ours. Files are read again when they
// change. only2 asks for HTTP/2 without a negotiation, which gRPC needs.
func newTransport(o *HTTPOptions, only2 bool) (http.RoundTripper, error) {
	c, err := o.httpConfig()
	if err != nil {
		return nil, err
	}
	tlsConfig, err := config.NewTLSConfig(&c.TLSConfig)
	if err != nil {
		return nil, err
	}
	build := func(t *tls.Config) (http.RoundTripper, error) {
		return authenticate(&c, o.baseTransport(&c, t, only2))
	}
	if c.TLSConfig.CAFile == "" && c.TLSConfig.CertFile == "" && c.TLSConfig.KeyFile == "" {
		return build(tlsConfig)
	}
	files, err := tlsSecrets(&c.TLSConfig)
	if err != nil {
		return nil, err
	}
	return config.NewTLSRoundTripper(tlsConfig, files, build)
}

// A silent connection of gRPC is asked after pingAfter whether it is still there, and
// closed when no answer came for pingTimeout. Servers of gRPC close a connection that
// pings them a third time too often; an idle one is closed before that.
const (
	pingAfter   = 30 * time.Second
	pingTimeout = 10 * time.Second
)

func (o *HTTPOptions) baseTransport(c *config.HTTPClientConfig, t *tls.Config, only2 bool) *http.Transport {
	transport := &http.Transport{
		Proxy:               c.Proxy(),
		ProxyConnectHeader:  c.GetProxyConnectHeader(),
		TLSClientConfig:     t,
		DialContext:         (&net.Dialer{Timeout: time.Duration(o.Timeout), KeepAlive: 30 * time.Second}).DialContext,
		TLSHandshakeTimeout: time.Duration(o.Timeout),
		// Connections that were needed once are kept, or every burst would
		// connect again. Idle ones close after what most servers allow them.
		MaxConnsPerHost:     o.MaxConnectionsPerEndpoint,
		MaxIdleConnsPerHost: o.MaxConnectionsPerEndpoint,
		IdleConnTimeout:     90 * time.Second,
		DisableCompression:  true,
		Protocols:           new(http.Protocols),
		// A quarter of a megabyte of headers is no answer of this protocol.
		MaxResponseHeaderBytes: 256 << 10,
	}
	transport.Protocols.SetHTTP1(!only2)
	transport.Protocols.SetHTTP2(only2 || c.EnableHTTP2)
	transport.Protocols.SetUnencryptedHTTP2(only2)
	if only2 {
		// One connection carries every call, so a dead one has to be noticed.
		transport.HTTP2 = &http.HTTP2Config{SendPingTimeout: pingAfter, PingTimeout: pingTimeout}
	}
	return transport
}

// authenticate wraps a transport in what adds credentials and headers.
func authenticate(c *config.HTTPClientConfig, rt http.RoundTripper) (http.RoundTripper, error) {
	if a := c.Authorization; a != nil {
		credentials, err := secret(a.Credentials, a.CredentialsFile, a.CredentialsRef)
		if err != nil {
			return nil, err
		}
		rt = config.NewAuthorizationCredentialsRoundTripper(a.Type, credentials, rt)
	}
	if b := c.BasicAuth; b != nil {
		username, err := secret(config.Secret(b.Username), b.UsernameFile, b.UsernameRef)
		if err != nil {
			return nil, err
		}
		password, err := secret(b.Password, b.PasswordFile, b.PasswordRef)
		if err != nil {
			return nil, err
		}
		rt = config.NewBasicAuthRoundTripper(username, password, rt)
	}
	if o := c.OAuth2; o != nil {
		credentials, err := secret(o.ClientSecret, o.ClientSecretFile, o.ClientSecretRef)
		if o.ClientCertificateKey != "" || o.ClientCertificateKeyFile != "" || o.ClientCertificateKeyRef != "" {
			credentials, err = secret(o.ClientCertificateKey, o.ClientCertificateKeyFile, o.ClientCertificateKeyRef)
		}
		if err != nil {
			return nil, err
		}
		rt = config.NewOAuth2RoundTripper(credentials, o, rt)
	}
	if c.HTTPHeaders != nil {
		rt = config.NewHeadersRoundTripper(c.HTTPHeaders, rt)
	}
	return rt, nil
}

func tlsSecrets(t *config.TLSConfig) (s config.TLSRoundTripperSettings, err error) {
	ca, errCA := secret(config.Secret(t.CA), t.CAFile, t.CARef)
	cert, errCert := secret(config.Secret(t.Cert), t.CertFile, t.CertRef)
	key, errKey := secret(t.Key, t.KeyFile, t.KeyRef)
	return config.TLSRoundTripperSettings{CA: ca, Cert: cert, Key: key}, errors.Join(errCA, errCert, errKey)
}

// secret is the reader of a secret that is written out or in a file, nil if
// there is none.
func secret(text config.Secret, file, ref string) (config.SecretReader, error) {
	switch {
	case ref != "":
		return nil, errors.New("a field ending in _ref names a secret manager, and there is none: use the field ending in _file")
	case text != "":
		return config.NewInlineSecret(string(text)), nil
	case file != "":
		return config.NewFileSecret(file), nil
	}
	return nil, nil
}
