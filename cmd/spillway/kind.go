package main

import (
	"fmt"
	"slices"

	"gopkg.in/yaml.v3"

	"github.com/spillway-telemetry/spillway/policy"
)

// fileKind is what a YAML file is for, in the words of its users.
type fileKind string

const (
	kindConfig  fileKind = "configuration"
	kindPolicy  fileKind = "policy"
	kindTests   fileKind = "file of tests"
	kindKeys    fileKind = "file of API keys"
	kindTraffic fileKind = "traffic file"
)

// looksLike guesses what a file is for by names that only one kind has; "" if it may
// be anything.
func looksLike(data []byte) fileKind {
	var top map[string]yaml.Node
	if yaml.Unmarshal(data, &top) != nil {
		return ""
	}
	has := func(names ...string) bool {
		return slices.ContainsFunc(names, func(name string) bool { _, ok := top[name]; return ok })
	}
	switch {
	case has("tests"):
		return kindTests
	case has("server", "ingester", "api_keys_file", "exempt", "telemetry", "otlp", "rum", "governor", "sinks", "log"):
		return kindConfig
	case has("keys"):
		return kindKeys
	case has("classes", "duration"):
		return kindTraffic
	}
	return streamsLookLike(top["streams"])
}

// streamsLookLike guesses by the fields of streams, which two kinds of files have.
func streamsLookLike(node yaml.Node) fileKind {
	var streams map[string]map[string]yaml.Node
	if node.Decode(&streams) != nil {
		return ""
	}
	for _, fields := range streams {
		for name := range fields {
			switch name {
			case "sink", "relabel_configs", "rate_limit_response":
				return kindConfig
			case "rate", "burst", "default", "classes", "rules":
				return kindPolicy
			}
		}
	}
	return ""
}

// wrongKind says that a file looks like another kind than is wanted, and what takes
// it; nil if it does not.
func wrongKind(data []byte, path string, want fileKind) error {
	have := looksLike(data)
	use := map[fileKind]string{
		kindConfig:  "use `spillway check config`, or name it with --config.file",
		kindPolicy:  "use `spillway check policy`, or name it as policy_file in a configuration",
		kindTests:   "use `spillway test`",
		kindKeys:    "name it as api_keys_file in a configuration",
		kindTraffic: "use `spillway simulate --traffic`",
	}[have]
	if have == "" || have == want {
		return nil
	}
	return fmt.Errorf("%s: this looks like a %s and not like a %s: %s", path, have, want, use)
}

// loadPolicy reads a policy for so many ingesters.
func loadPolicy(data []byte, path string, ingesters int) (*policy.Set, error) {
	if err := wrongKind(data, path, kindPolicy); err != nil {
		return nil, err
	}
	return policy.Load(data, path, ingesters)
}
