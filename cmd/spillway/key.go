package main

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"

	"github.com/alecthomas/kingpin/v2"
	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/ingester"
)

// keyOptions are the flags of spillway key new.
type keyOptions struct {
	name, format string
	streams      []string
	labels       map[string]string
	headers      map[string]string
	exempt       bool
}

// keyCommand adds `key new` to the command line.
func keyCommand(app *kingpin.Application) (*kingpin.CmdClause, *keyOptions) {
	o := &keyOptions{labels: map[string]string{}, headers: map[string]string{}}
	key := app.Command("key", "API keys.")
	mint := key.Command("new", "Mint an API key: the secret, the entry for the file of API keys, and a class and a rule for the policy. "+
		"Example: spillway key new team-a --stream=logs --label=team=a")
	mint.Arg("NAME", "Who the key is for. Names the class, too.").Required().StringVar(&o.name)
	mint.Flag("stream", "A stream that the key may send to; may be repeated. All where none is named.").EnumsVar(&o.streams, streamNames()...)
	mint.Flag("label", "A label, name=value, for everything that the key sends; may be repeated. sender=NAME where there is none.").StringMapVar(&o.labels)
	mint.Flag("header", "A request header, name=value, for the sink; may be repeated. Example: --header=X-Scope-OrgID=team-a").StringMapVar(&o.headers)
	mint.Flag("exempt", "Let the key use the exempt label, whose data is never limited.").BoolVar(&o.exempt)
	mint.Flag("format", "text or json.").Default("text").EnumVar(&o.format, "text", "json")
	return mint, o
}

func streamNames() []string {
	var names []string
	for _, s := range ingester.Streams() {
		names = append(names, s.String())
	}
	return names
}

// mintedKey is the entry for the file of API keys.
type mintedKey struct {
	Name    string            `yaml:"name" json:"name"`
	SHA256  string            `yaml:"sha256" json:"sha256"`
	Labels  map[string]string `yaml:"labels,flow" json:"labels"`
	Streams []string          `yaml:"streams,flow,omitempty" json:"streams,omitempty"`
	Exempt  bool              `yaml:"exempt,omitempty" json:"exempt,omitempty"`
	Headers map[string]string `yaml:"headers,flow,omitempty" json:"headers,omitempty"`
}

// mintedPolicy is what goes into the policy of each stream.
type mintedPolicy struct {
	Classes []mintedClass `yaml:"classes" json:"classes"`
	Rules   []mintedRule  `yaml:"rules" json:"rules"`
}

type mintedClass struct {
	Name string  `yaml:"name" json:"name"`
	Rate float64 `yaml:"rate" json:"rate"`
}

type mintedRule struct {
	Class    string         `yaml:"class" json:"class"`
	Matchers []singleQuoted `yaml:"matchers,flow" json:"matchers"`
}

// singleQuoted is text that YAML takes as it is: the backslashes of a matcher are its
// own.
type singleQuoted string

// MarshalYAML puts it in single quotes.
func (s singleQuoted) MarshalYAML() (any, error) {
	return yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Style: yaml.SingleQuotedStyle, Value: string(s)}, nil
}

// minted is all that `key new` says.
type minted struct {
	Secret string                  `json:"secret"`
	Entry  mintedKey               `json:"entry"`
	Policy map[string]mintedPolicy `json:"policy"`
}

var className = regexp.MustCompile(`^[a-zA-Z0-9_.-]+$`)

// run mints a key and prints it. The secret is kept nowhere.
func (o *keyOptions) run(out io.Writer) error {
	if !className.MatchString(o.name) || o.name == ingester.DefaultClass || o.name == ingester.ExemptClass {
		return fmt.Errorf("%q cannot name a class: it must be letters, digits, '_', '.' and '-', and neither %s nor %s",
			o.name, ingester.DefaultClass, ingester.ExemptClass)
	}
	var random [32]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	m := o.mint("kf_" + hex.EncodeToString(random[:]))
	entry, err := yaml.Marshal(map[string][]mintedKey{"keys": {m.Entry}})
	if err != nil {
		return err
	}
	// What is refused later is better refused now.
	if _, err := ingester.ParseKeys(entry, "the new key"); err != nil {
		return err
	}
	if o.format == "json" {
		return printJSON(out, m)
	}
	classes, err := yaml.Marshal(map[string]any{"streams": m.Policy})
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(out, "# The API key. It is shown this once and stored nowhere.\n%s\n\n"+
		"# For the file that api_keys_file names.\n%s\n"+
		"# For the policy. Merge it into what is there: a class and a rule for each stream. A stream that\n"+
		"# is not there yet needs a rate and a burst beside them, and default gets what the classes leave.\n"+
		"# The class starts at rate 0, which drops everything: give it a rate.\n"+
		"# Put the rule before any other that matches the same data.\n%s", m.Secret, entry, classes)
	return err
}

func (o *keyOptions) mint(secret string) minted {
	digest := sha256.Sum256([]byte(secret))
	if len(o.labels) == 0 {
		o.labels["sender"] = o.name
	}
	m := minted{
		Secret: secret,
		Entry: mintedKey{Name: o.name, SHA256: hex.EncodeToString(digest[:]), Labels: o.labels, Streams: o.streams,
			Exempt: o.exempt, Headers: o.headers},
		Policy: map[string]mintedPolicy{},
	}
	var matchers []singleQuoted
	for _, name := range sortedKeys(o.labels) {
		matchers = append(matchers, singleQuoted(fmt.Sprintf("%s=%q", name, o.labels[name])))
	}
	class := mintedPolicy{Classes: []mintedClass{{Name: o.name}}, Rules: []mintedRule{{o.name, matchers}}}
	streams := o.streams
	if len(streams) == 0 {
		streams = streamNames()
	}
	for _, s := range streams {
		m.Policy[s] = class
	}
	return m
}
