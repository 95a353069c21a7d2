package main

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/relabel"
)

// explainOptions are the flags of spillway explain.
type explainOptions struct {
	configFile, url, stream, labels, format string
}

func (o *explainOptions) run(out io.Writer) error {
	var e *ingester.Explanation
	var err error
	switch {
	case (o.configFile == "") == (o.url == ""):
		return fmt.Errorf("explain wants either --config.file, or --url of a running Spillway")
	case o.url != "":
		e, err = o.ask()
	default:
		e, err = o.compute()
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
func (o *explainOptions) ask() (*ingester.Explanation, error) {
	query := url.Values{"stream": {o.stream}, "labels": {o.labels}}
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(strings.TrimSuffix(o.url, "/") + "/api/v1/explain?" + query.Encode())
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		var problem struct{ Error string }
		_ = json.NewDecoder(resp.Body).Decode(&problem)
		return nil, fmt.Errorf("%s answers %s: %s", o.url, resp.Status, problem.Error)
	}
	e := &ingester.Explanation{}
	return e, json.NewDecoder(resp.Body).Decode(e)
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

func writeExplanation(out io.Writer, e *ingester.Explanation) {
	fmt.Fprintf(out, "%s: %s\n\nstream %s\n", strings.ToUpper(e.Outcome[:1])+e.Outcome[1:], e.Why, e.Stream)
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
