package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . FOLDER\nwrites the dashboards and rules into FOLDER, which is dashboards/ of the repository")
		os.Exit(2)
	}
	if err := write(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "dashboards:", err)
		os.Exit(1)
	}
}

// files is everything that the folder dashboards/ has from this program, by name.
func files() (map[string][]byte, error) {
	out := map[string][]byte{}
	for _, b := range boards() {
		text, err := b.render()
		if err != nil {
			return nil, err
		}
		out[b.file] = text
	}
	for _, f := range ruleFiles() {
		plain, object, err := f.texts()
		if err != nil {
			return nil, err
		}
		out["rules/"+f.name+".yaml"], out["rules/prometheusrule/"+f.name+".yaml"] = plain, object
	}
	return out, nil
}

func write(folder string) error {
	all, err := files()
	if err != nil {
		return err
	}
	for name, text := range all {
		path := filepath.Join(folder, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
