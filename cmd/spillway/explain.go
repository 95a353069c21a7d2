package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-telemetry/spillway/cmd/spillway/page"
	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/relabel"
)

// explanation is what becomes of a label set, and what became of its class lately.
type explanation struct {
	*ingester.Explanation
	// Recent is nil where no bucket is asked, and where no running Spillway remembers.
	Recent *page.Recent `json:"recent,omitempty"`
}

// explainOptions are the flags of spillway explain.
type explainOptions struct {
	configFile, url, stream, labels, format string
}

func (o *explainOptions) run(out io.Writer) error {
	var e explanation
	var err error
	switch {
	case (o.configFile == "") == (o.url == ""):
		return fmt.Errorf("explain wants either --config.file, or --url of a running Spillway")
	case o.url != "":
		e, err = o.ask()
	default:
		e.Explanation, err = o.compute()
	}
	if err != nil {
		return err
	}
	if o.format == "json" {
		return printJSON(out, e)
	}
	writeExplanation(out, e)
	return nil
}

// compute explains with a configuration file: buckets are full.
func (o *explainOptions) compute() (*ingester.Explanation, error) {
	l, err := load(o.configFile, 0)
	if err != nil {
		return nil, err
	}
	in, err := l.decider()
	if err != nil {
		return nil, err
	}
	return in.Explain(o.stream, o.labels, "")
}

// ask lets a running Spillway explain.
func (o *explainOptions) ask() (explanation, error) {
	var e explanation
	base, err := baseURL("--url", o.url)
	if err != nil {
		return e, err
	}
	query := url.Values{"stream": {o.stream}, "labels": {o.labels}}
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(base + "/api/v1/explain?" + query.Encode())
	if err != nil {
		return e, fmt.Errorf("--url: %w; is Spillway running there?", err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Error string }
		_ = json.NewDecoder(resp.Body).Decode(&problem)
		if problem.Error == "" {
			return e, notSpillway(base, resp.Status)
		}
		return e, fmt.Errorf("%s answers %s: %s", base, resp.Status, problem.Error)
	}
	if err := json.NewDecoder(resp.Body).Decode(&e); err != nil || e.Explanation == nil {
		return e, notSpillway(base, "something else than an explanation")
	}
	return e, nil
}

// baseURL checks the address of a server. A path is kept, for servers behind an
// ingress that strips it.
func baseURL(flag, address string) (string, error) {
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return "", fmt.Errorf("%s: %q is not a server's address, such as http://127.0.0.1:9900", flag, address)
	}
	return strings.TrimSuffix(address, "/"), nil
}

// notSpillway says what is wrong where an address answers, but not as Spillway does.
func notSpillway(base, answer string) error {
	hint := "is it a Spillway?"
	if u, err := url.Parse(base); err == nil && u.Path != "" {
		hint = fmt.Sprintf("write the server's address without a path: %s://%s", u.Scheme, u.Host)
	}
	return fmt.Errorf("--url: %s answers %s; %s", base, answer, hint)
}

func writeStep(out io.Writer, i int, s relabel.Step) {
	fmt.Fprintf(out, "relabel %d %s\n", i, s.Rule)
	switch {
	case s.Dropped:
		fmt.Fprintf(out, "  DROPS it: %s\n", s.Why)
	case s.Changed:
		fmt.Fprintf(out, "  makes it %s\n", s.After)
	default:
		fmt.Fprintf(out, "  changes nothing: %s\n", s.Why)
	}
}

// writeRecent says what the tokens of this moment do not: how the class fares.
func writeRecent(out io.Writer, class string, r *page.Recent) {
	if r == nil {
		return
	}
	fmt.Fprintf(out, "In the last %g s class %s was sent %d items and lost %d of them", r.Seconds, class, r.Offered, r.Dropped)
	if r.Dropped > 0 {
		fmt.Fprintf(out, " (%.1f %%): it is sent more than its budget", 100*float64(r.Dropped)/float64(r.Offered))
	}
	fmt.Fprintln(out)
}

func writeExplanation(out io.Writer, e explanation) {
	fmt.Fprintf(out, "%s: %s\n", strings.ToUpper(e.Outcome[:1])+e.Outcome[1:], e.Why)
	writeRecent(out, e.Class, e.Recent)
	fmt.Fprintf(out, "\nstream %s\n", e.Stream)
	for i, step := range e.Relabel {
		writeStep(out, i, step)
	}
	if e.Policy != nil {
		for i, rule := range e.Policy.Rules {
			mark := "no match"
			switch {
			case i == e.Policy.Rule:
				mark = "MATCH"
			case rule.Matches:
				mark = "would match, but comes later"
			}
			fmt.Fprintf(out, "rule %d -> %s: %s\n", i, rule.Class, mark)
			for _, m := range rule.Matchers {
				result := "fails"
				if m.Matches {
					result = "holds"
				}
				fmt.Fprintf(out, "  %s %s; the label is %q\n", m.Matcher, result, m.Value)
			}
		}
	}
	if b := e.Bucket; b != nil {
		tokens := "no bucket"
		if b.Tokens != nil {
			tokens = fmt.Sprintf("%.1f tokens", *b.Tokens)
		}
		fmt.Fprintf(out, "class %s: %g items/s and burst %d on this ingester (share %d%%), %s\n", b.Name, b.LocalRate, b.LocalBurst, b.Share, tokens)
	}
}
