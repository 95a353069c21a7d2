package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/prometheus/prometheus/promql/parser"
	"gopkg.in/yaml.v3"
)

// rule is one recording rule (record) or alert (alert) with what Prometheus
// evaluates. The words @installation and @class in expr stand for lists of labels.
type rule struct {
	record, alert string
	expr          string
	wait          string // for how long an alert's expression must hold; its `for`
	severity      string // critical: act now; warning: act today; info: know
	labels        map[string]string
	summary       string
	description   string
	// zero and empty are as those of a query.
	zero, empty string
}

// ruleFile is one file for Prometheus, and one PrometheusRule for its operator.
type ruleFile struct {
	name   string
	groups []ruleGroup
}

type ruleGroup struct {
	name  string
	rules []rule
}

func ruleFiles() []ruleFile {
	return []ruleFile{
		{"spillway", []ruleGroup{
			// In one group, so that the alerts see what was recorded at the same instant.
			{"spillway-classes", append(classRules(), classAlerts()...)},
			{"spillway-processes", processAlerts()},
		}},
		{"spillway-old-names", []ruleGroup{{"spillway-old-names", oldNames()}}},
	}
}

// installation is what tells one installation of Spillway from another. Where
// Spillway is scraped and its own metrics arrive in the same store as well, kfuse tells the
// two apart, so that nothing is counted twice.
const installation = "cluster, namespace, job, kfuse"

func withInstallation(expr string) string {
	return strings.NewReplacer("@installation", installation, "@class", installation+", stream, class").Replace(expr)
}

// runbooks is where the annotations of alerts lead.
const runbooks = "https://github.com/spillway-telemetry/spillway/blob/main/dashboards/RUNBOOKS.md#"

// The shapes of the files.
type (
	groupsYAML struct {
		Groups []groupYAML `yaml:"groups"`
	}
	groupYAML struct {
		Name  string     `yaml:"name"`
		Rules []ruleYAML `yaml:"rules"`
	}
	ruleYAML struct {
		Record      string            `yaml:"record,omitempty"`
		Alert       string            `yaml:"alert,omitempty"`
		Expr        string            `yaml:"expr"`
		For         string            `yaml:"for,omitempty"`
		Labels      map[string]string `yaml:"labels,omitempty"`
		Annotations map[string]string `yaml:"annotations,omitempty"`
	}
	objectYAML struct {
		APIVersion string       `yaml:"apiVersion"`
		Kind       string       `yaml:"kind"`
		Metadata   metadataYAML `yaml:"metadata"`
		Spec       groupsYAML   `yaml:"spec"`
	}
	metadataYAML struct {
		Name   string            `yaml:"name"`
		Labels map[string]string `yaml:"labels"`
	}
)

func (r rule) yaml() (ruleYAML, error) {
	expr, err := readable(withInstallation(r.expr))
	if err != nil {
		return ruleYAML{}, fmt.Errorf("%s%s: %w", r.record, r.alert, err)
	}
	out := ruleYAML{Record: r.record, Alert: r.alert, Expr: expr, For: r.wait, Labels: r.labels}
	if r.alert != "" {
		out.Labels = map[string]string{"severity": r.severity}
		out.Annotations = map[string]string{
			"summary":     r.summary,
			"description": r.description,
			"runbook_url": runbooks + strings.ToLower(r.alert),
		}
	}
	return out, nil
}

// readable breaks an expression into lines.
func readable(expr string) (string, error) {
	e, err := parser.NewParser(parser.Options{}).ParseExpr(expr)
	if err != nil {
		return "", err
	}
	return parser.Prettify(e), nil
}

func (f ruleFile) yaml() (groupsYAML, error) {
	var out groupsYAML
	for _, g := range f.groups {
		group := groupYAML{Name: g.name}
		for _, r := range g.rules {
			one, err := r.yaml()
			if err != nil {
				return out, err
			}
			group.Rules = append(group.Rules, one)
		}
		out.Groups = append(out.Groups, group)
	}
	return out, nil
}

// texts are the file as Prometheus reads it, and the same as a PrometheusRule.
func (f ruleFile) texts() (plain, object []byte, err error) {
	groups, err := f.yaml()
	if err != nil {
		return nil, nil, fmt.Errorf("rule file %s: %w", f.name, err)
	}
	if plain, err = encode(groups); err != nil {
		return nil, nil, err
	}
	object, err = encode(objectYAML{
		APIVersion: "monitoring.coreos.com/v1",
		Kind:       "PrometheusRule",
		Metadata:   metadataYAML{Name: f.name, Labels: map[string]string{"app.kubernetes.io/name": "spillway"}},
		Spec:       groups,
	})
	return plain, object, err
}

func encode(v any) ([]byte, error) {
	var out bytes.Buffer
	out.WriteString("# Made by testdata/dashboards: change it there, then run `make golden`.\n")
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	err := e.Encode(v)
	return out.Bytes(), err
}
