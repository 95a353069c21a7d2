package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/policy"
)

// checkPolicyFile prints what each class of a policy may spend, or fails with
// every problem.
func checkPolicyFile(out io.Writer, path string, ingesters int, format string) error {
	if ingesters < 1 {
		return fmt.Errorf("--ingesters: %d is not a number of ingesters; it must be 1 or more", ingesters)
	}
	if path == "" { // what kingpin makes of -
		path = os.Stdin.Name()
	}
	data, err := readFile(path)
	if err != nil {
		return err
	}
	set, err := loadPolicy(data, path, ingesters)
	if err != nil {
		return err
	}
	if format == "json" {
		return printJSON(out, set.Report())
	}
	return set.Report().WriteText(out)
}

// checkedConfig is what check config --format=json prints.
type checkedConfig struct {
	Config any           `json:"config"`
	Policy policy.Report `json:"policy"`
}

// checkConfigFile prints the whole configuration, defaults included, and its
// policy, or fails with every problem.
func checkConfigFile(out io.Writer, path, format string) error {
	l, err := load(path, 0)
	if err != nil {
		return err
	}
	text, err := yaml.Marshal(l.config)
	if err != nil {
		return err
	}
	if format == "json" {
		var config any
		if err := yaml.Unmarshal(text, &config); err != nil {
			return err
		}
		return printJSON(out, checkedConfig{config, l.policy.Report()})
	}
	fmt.Fprintf(out, "# The configuration with every default.\n%s\n", text)
	return l.policy.Report().WriteText(out)
}

func printJSON(out io.Writer, v any) error {
	enc := json.NewEncoder(out)
	enc.SetIndent("", "  ")
	return enc.Encode(v)
}
