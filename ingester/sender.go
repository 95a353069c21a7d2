package ingester

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"
	"golang.org/x/net/http/httpguts"
	"gopkg.in/yaml.v3"
)

// Sender is who an API key belongs to.
type Sender struct {
	Name   string
	Labels labels.Labels // added to everything that the key sends, before relabelling
	Exempt bool          // may use the exempt label
	// Headers are set on what a sink sends on, over what the request says. Read only.
	Headers http.Header
	streams []Stream // nil: all
	scope   uint32
}

// Origin is where a batch comes from. It holds on to the rules that were in force
// when the sender was recognised, so that a reload in the meantime does not judge
// a batch with one configuration's sender and another's rules.
type Origin struct {
	Sender *Sender // nil: a sender without an API key
	rules  *generation
}

// ownScope is the scope of Spillway's own telemetry.
const ownScope = 1<<32 - 1

// ownSender sends Spillway's own telemetry: always exempt, on the label that
// marks it.
func ownSender() *Sender { return &Sender{Name: "spillway", Exempt: true, scope: ownScope} }

// Sends reports whether the sender may send to a stream.
func (s *Sender) Sends(stream Stream) bool {
	return s == nil || s.streams == nil || slices.Contains(s.streams, stream)
}

// Keys are the API keys that may send. nil asks for none; Keys without a key let
// nobody in, since a key file that lost its content must not open the door.
type Keys struct {
	byDigest map[[sha256.Size]byte]*Sender
	source   [sha256.Size]byte // digest of the file
}

// keyFile is what ParseKeys reads.
type keyFile struct {
	Keys []keyEntry `yaml:"keys"`
}

type keyEntry struct {
	Name    string            `yaml:"name"`
	SHA256  string            `yaml:"sha256"`
	Labels  map[string]string `yaml:"labels"`
	Streams []string          `yaml:"streams"`
	Exempt  bool              `yaml:"exempt"`
	Headers map[string]string `yaml:"headers"`
}

// ParseKeys reads an API key file. It names every problem, not only the first.
func ParseKeys(data []byte, filename string) (*Keys, error) {
	var file keyFile
	dec := yaml.NewDecoder(strings.NewReader(string(data)))
	dec.KnownFields(true)
	if err := dec.Decode(&file); err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%s: %w", filename, err)
	}
	keys := &Keys{byDigest: make(map[[sha256.Size]byte]*Sender, len(file.Keys)), source: sha256.Sum256(data)}
	names := make(map[string]bool, len(file.Keys))
	var problems []error
	for i, e := range file.Keys {
		sender, digest, err := e.sender(uint32(i + 1))
		switch {
		case err != nil:
		case names[e.Name]:
			err = fmt.Errorf("name %q stands twice", e.Name)
		case keys.byDigest[digest] != nil:
			err = fmt.Errorf("the same key as %q", keys.byDigest[digest].Name)
		}
		if err != nil {
			problems = append(problems, fmt.Errorf("%s: keys[%d]: %w", filename, i, err))
			continue
		}
		names[e.Name] = true
		keys.byDigest[digest] = sender
	}
	return keys, errors.Join(problems...)
}

func (e keyEntry) sender(scope uint32) (*Sender, [sha256.Size]byte, error) {
	var digest [sha256.Size]byte
	if e.Name == "" {
		return nil, digest, errors.New("name is missing")
	}
	raw, err := hex.DecodeString(e.SHA256)
	if err != nil || len(raw) != sha256.Size {
		return nil, digest, fmt.Errorf("sha256 of %q must be the 64 hexadecimal digits of the key's SHA-256", e.Name)
	}
	copy(digest[:], raw)
	s := &Sender{Name: e.Name, Labels: labels.FromMap(e.Labels), Exempt: e.Exempt, scope: scope}
	for name, value := range e.Headers {
		if !httpguts.ValidHeaderFieldName(name) || !httpguts.ValidHeaderFieldValue(value) {
			return nil, digest, fmt.Errorf("headers of %q: %q: %q is not a header of HTTP", e.Name, name, value)
		}
		if s.Headers == nil {
			s.Headers = http.Header{}
		}
		s.Headers.Set(name, value)
	}
	for _, name := range e.Streams {
		stream, ok := ParseStream(name)
		if !ok {
			return nil, digest, fmt.Errorf("streams of %q: %q is not one of metrics, logs, traces, events, rum", e.Name, name)
		}
		s.streams = append(s.streams, stream)
	}
	return s, digest, nil
}

// required says that no batch is taken without a key.
func (k *Keys) required() bool { return k != nil }

// Empty reports whether there is no key at all.
func (k *Keys) Empty() bool { return len(k.byDigest) == 0 }

// equal reports whether both came from the same file content.
func (k *Keys) equal(o *Keys) bool {
	return k == o || k != nil && o != nil && k.source == o.source
}

// find returns the sender that a token belongs to. Only digests are compared,
// in constant time, so that the time taken says nothing about a token.
func (k *Keys) find(token string) *Sender {
	digest := sha256.Sum256([]byte(token))
	for have, sender := range k.byDigest {
		if subtle.ConstantTimeCompare(have[:], digest[:]) == 1 {
			return sender
		}
	}
	return nil
}

// Errors of Authenticate.
var (
	ErrNoKey       = errors.New("this ingester wants an API key: send it as 'Kf-Api-Key: KEY' or 'Authorization: Bearer KEY'")
	ErrUnknownKey  = errors.New("this API key is not known here")
	ErrWrongStream = errors.New("this API key may not send to this stream")
)

// Where a key is looked for, beside Authorization.
const (
	apiKeyHeader    = "Kf-Api-Key"
	apiKeyParameter = "kf-api-key"
)

// Authenticate finds out who sends a request. Without configured keys everybody
// may, and the sender is nil.
func (in *Ingester) Authenticate(r *http.Request, stream Stream) (Origin, error) {
	return in.AuthenticateToken(PresentedKey(r), stream)
}

// AuthenticateToken is Authenticate for protocols that carry their API key in a place
// of their own. An empty token is none.
func (in *Ingester) AuthenticateToken(token string, stream Stream) (Origin, error) {
	g := in.generation.Load()
	if !g.keys.required() {
		return Origin{rules: g}, nil
	}
	if token == "" {
		return Origin{}, ErrNoKey
	}
	sender := g.keys.find(token)
	switch {
	case sender == nil:
		return Origin{}, ErrUnknownKey
	case !sender.Sends(stream):
		return Origin{}, ErrWrongStream
	}
	return Origin{Sender: sender, rules: g}, nil
}

// PresentedKey is the API key that a request carries: in Kf-Api-Key, as a bearer token
// or as the parameter kf-api-key; empty if there is none.
func PresentedKey(r *http.Request) string {
	if key := r.Header.Get(apiKeyHeader); key != "" {
		return key
	}
	if scheme, token, ok := strings.Cut(r.Header.Get("Authorization"), " "); ok && strings.EqualFold(scheme, "Bearer") {
		return strings.TrimSpace(token)
	}
	return r.URL.Query().Get(apiKeyParameter)
}
