package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/prometheus/model/labels"
	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink/discard"
	"github.com/spillway-telemetry/spillway/relabel"
)

// testOptions are the flags of spillway test.
type testOptions struct {
	files  []string
	policy string // instead of the one that the files name, "" for that
	format string
}

func testCommand(app *kingpin.Application) (*kingpin.CmdClause, *testOptions) {
	o := &testOptions{}
	c := app.Command("test", "Check that label sets end where they should: in a class, or dropped by a rule.")
	c.HelpLong(`A test file names a configuration or a policy, and says what must become of label
sets. Buckets are full, so a class drops only what it always drops.

    config_file: spillway.yaml       # relabel rules, keys and policy; or policy_file: policy.yaml
    tests:
      - name: team a pays from its own budget
        series: up{team="a"}         # as PromQL writes it, or labels: {__name__: up, team: a}
        stream: metrics              # default: metrics
        api_key: team-a              # the name of a key that is assumed to send; default: none
        expect:                      # each is optional
          outcome: admitted          # admitted, exempt, dropped (relabel), dropped (ratelimit) or invalid
          class: team-a
          rule: 0                    # of the policy, counted from 0; -1: none matches
          relabel_rule: 2            # that drops it, counted from 0
          labels: {__name__: up, team: a}   # after relabelling, all of them

Relative names start at the test file's folder. The exit code is 0 if every test
passes, else 1, with a line for each difference.

Examples:

    spillway test policy_test.yaml
    spillway test policy_test.yaml --policy=new.yaml    # before it is put in force
    spillway test tests/*.yaml --format=json
`)
	c.Arg("FILE", "Files with tests.").Required().StringsVar(&o.files)
	c.Flag("policy", "A policy to test in place of the one that the files name.").PlaceHolder("FILE").StringVar(&o.policy)
	c.Flag("format", "text or json.").Default("text").EnumVar(&o.format, "text", "json")
	return c, o
}

// testFile is a file of tests.
type testFile struct {
	ConfigFile string     `yaml:"config_file"`
	PolicyFile string     `yaml:"policy_file"`
	Tests      []testCase `yaml:"tests"`
}

// testCase is one label set and what must become of it.
type testCase struct {
	Name   string            `yaml:"name"`
	Series string            `yaml:"series"`
	Labels map[string]string `yaml:"labels"`
	Stream string            `yaml:"stream"`
	APIKey string            `yaml:"api_key"`
	Expect testExpectation   `yaml:"expect"`
	line   int
}

// testExpectation has nil for what is not asked.
type testExpectation struct {
	Outcome     *string           `yaml:"outcome"`
	Class       *string           `yaml:"class"`
	Rule        *int              `yaml:"rule"`
	RelabelRule *int              `yaml:"relabel_rule"`
	Labels      map[string]string `yaml:"labels"`
}

// UnmarshalYAML remembers the line. It has the form in which a strict decoder
// stays strict.
func (c *testCase) UnmarshalYAML(unmarshal func(any) error) error {
	type testCaseFields testCase
	if err := unmarshal((*testCaseFields)(c)); err != nil {
		return err
	}
	if c.Stream == "" {
		c.Stream = ingester.Metrics.String()
	}
	return nil
}

// testResult is what one test came to.
type testResult struct {
	File   string           `json:"file"`
	Line   int              `json:"line"`
	Name   string           `json:"name"`
	Stream string           `json:"stream"`
	Series string           `json:"series"`
	Passed bool             `json:"passed"`
	Error  string           `json:"error,omitempty"`
	Why    string           `json:"why,omitempty"`
	Differ []testDifference `json:"differences,omitempty"`
}

// testDifference is one expectation that does not hold.
type testDifference struct {
	What string `json:"what"`
	Want string `json:"want"`
	Have string `json:"have"`
}

func (o *testOptions) run(stdout io.Writer) error {
	results := []testResult{}
	var problems []error
	for _, file := range o.files {
		r, err := runTestFile(file, o.policy)
		results = append(results, r...)
		problems = append(problems, err)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	failed := 0
	for _, r := range results {
		if !r.Passed {
			failed++
		}
	}
	if o.format == "json" {
		if err := printJSON(stdout, results); err != nil {
			return err
		}
	} else {
		writeTestResults(stdout, results)
	}
	if failed > 0 {
		return fmt.Errorf("%d of %s failed", failed, count(len(results), "test"))
	}
	return nil
}

// runTestFile reads a file and runs its tests. A policy that is named here is tested
// instead of the file's.
func runTestFile(path, policyFile string) ([]testResult, error) {
	data, err := readFile(path)
	if err != nil {
		return nil, err
	}
	if err := wrongKind(data, path, kindTests); err != nil {
		return nil, err
	}
	var f testFile
	if err := decodeStrict(data, path, &f); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, under(path, err)
	}
	f.number(data)
	in, err := f.ingester(filepath.Dir(path), policyFile)
	if err != nil {
		return nil, under(path, err)
	}
	var results []testResult
	for i := range f.Tests {
		r := f.Tests[i].run(in)
		r.File = path
		results = append(results, r)
	}
	return results, nil
}

// check returns every problem by its place in the file.
func (f *testFile) check() error {
	var problems []error
	complain := func(format string, args ...any) { problems = append(problems, fmt.Errorf(format, args...)) }
	if (f.ConfigFile == "") == (f.PolicyFile == "") {
		complain("name either a config_file or a policy_file to test")
	}
	if len(f.Tests) == 0 {
		complain("tests: there is none")
	}
	outcomes := []string{"admitted", "exempt", "dropped (relabel)", "dropped (ratelimit)", "invalid"}
	for i, c := range f.Tests {
		if (c.Series == "") == (c.Labels == nil) {
			complain("tests[%d]: needs either series or labels", i)
		}
		if _, ok := ingester.ParseStream(c.Stream); !ok {
			complain("tests[%d].stream: %q is not one of metrics, logs, traces, events, rum", i, c.Stream)
		}
		e := c.Expect
		if e.Outcome == nil && e.Class == nil && e.Rule == nil && e.RelabelRule == nil && e.Labels == nil {
			complain("tests[%d].expect: expects nothing; write a class or an outcome", i)
		}
		if e.Outcome != nil && !slices.Contains(outcomes, *e.Outcome) {
			complain("tests[%d].expect.outcome: %q is not one of: %s", i, *e.Outcome, strings.Join(outcomes, ", "))
		}
	}
	return errors.Join(problems...)
}

// number notes where each test begins. The file has been decoded already, so it
// has the form that is assumed here.
func (f *testFile) number(data []byte) {
	var doc struct{ Tests []yaml.Node }
	if yaml.Unmarshal(data, &doc) != nil {
		return
	}
	for i := range min(len(doc.Tests), len(f.Tests)) {
		f.Tests[i].line = doc.Tests[i].Line
	}
}

// ingester decides as the configuration and the policy say, and stores nothing.
func (f *testFile) ingester(dir, policyFile string) (*ingester.Ingester, error) {
	within := func(name string) string {
		if filepath.IsAbs(name) {
			return name
		}
		return filepath.Join(dir, name)
	}
	if f.ConfigFile != "" {
		l, err := load(within(f.ConfigFile), 0)
		if err != nil {
			return nil, err
		}
		if policyFile != "" {
			if err := l.replacePolicy(policyFile, max(1, l.config.Ingester.ReplicaCount)); err != nil {
				return nil, err
			}
		}
		return l.decider()
	}
	l := &loaded{config: defaultConfig(), rules: map[ingester.Stream]*relabel.Rules{}}
	if err := errors.Join(l.readRules()...); err != nil { // none
		return nil, err
	}
	if policyFile == "" {
		policyFile = within(f.PolicyFile)
	}
	if err := l.replacePolicy(policyFile, 1); err != nil {
		return nil, err
	}
	return l.decider()
}

// replacePolicy reads a policy for so many ingesters in place of the one that is there.
func (l *loaded) replacePolicy(path string, ingesters int) error {
	data, err := readFile(path)
	if err != nil {
		return err
	}
	l.policy, err = loadPolicy(data, path, ingesters)
	return err
}

// decider is an ingester that explains and stores nothing.
func (l *loaded) decider() (*ingester.Ingester, error) {
	nowhere := map[string]ingester.Sink{"": discard.Sink{}}
	for name := range l.config.Sinks {
		nowhere[name] = discard.Sink{}
	}
	return ingester.New(l.settings(nowhere), int64(l.config.Server.MaxRequestBytes), nil)
}

func (c *testCase) run(in *ingester.Ingester) testResult {
	series := c.Series
	if series == "" {
		series = labels.FromMap(c.Labels).String()
	}
	r := testResult{Line: c.line, Name: c.Name, Stream: c.Stream, Series: series}
	e, err := in.Explain(c.Stream, series, c.APIKey)
	if err != nil {
		r.Error = err.Error()
		return r
	}
	r.Why = e.Why
	r.Differ = c.Expect.differences(e)
	r.Passed = len(r.Differ) == 0
	return r
}

// differences compares what is asked with what happens.
func (x *testExpectation) differences(e *ingester.Explanation) (d []testDifference) {
	compare := func(what, want, have string) {
		if want != have {
			d = append(d, testDifference{what, want, have})
		}
	}
	if x.Outcome != nil {
		compare("outcome", *x.Outcome, e.Outcome)
	}
	if x.Class != nil {
		compare("class", *x.Class, e.Class)
	}
	if x.Rule != nil {
		have := "not asked"
		if e.Policy != nil {
			have = ruleText(e.Policy.Rule)
		}
		compare("rule", ruleText(*x.Rule), have)
	}
	if x.RelabelRule != nil {
		have := "none drops it"
		if n := len(e.Relabel); n > 0 && e.Relabel[n-1].Dropped {
			have = ruleText(n - 1)
		}
		compare("relabel rule", ruleText(*x.RelabelRule), have)
	}
	if x.Labels != nil && !maps.Equal(x.Labels, e.Relabelled) {
		compare("labels", labels.FromMap(x.Labels).String(), labels.FromMap(e.Relabelled).String())
	}
	return d
}

func ruleText(i int) string {
	if i < 0 {
		return "none"
	}
	return fmt.Sprint(i)
}

func writeTestResults(out io.Writer, results []testResult) {
	paint := painter(out)
	failed := 0
	for _, r := range results {
		if r.Passed {
			continue
		}
		failed++
		fmt.Fprintf(out, "%s %s:%d %s\n  %s %s\n", paint("FAIL", "bad"), r.File, r.Line, r.Name, r.Stream, r.Series)
		if r.Error != "" {
			fmt.Fprintf(out, "  %s\n", r.Error)
			continue
		}
		for _, d := range r.Differ {
			fmt.Fprintf(out, "  %s\n  %s\n", paint(fmt.Sprintf("- %s: %s", d.What, d.Want), "good"), paint(fmt.Sprintf("+ %s: %s", d.What, d.Have), "bad"))
		}
		fmt.Fprintf(out, "  why: %s\n", r.Why)
	}
	fmt.Fprintf(out, "%s: %s, %s\n", count(len(results), "test"), paint(fmt.Sprintf("%d passed", len(results)-failed), "good"), paint(fmt.Sprintf("%d failed", failed), map[bool]string{true: "bad", false: "dim"}[failed > 0]))
}
