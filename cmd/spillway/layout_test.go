package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The layout of the repository as a test, so that a reader may trust the picture
// in the design: who imports whom, what stands at the top, where clocks, state
// and metrics may be, how long a file may get. Each rule says in its message what
// is wrong and why the rule is there. The files are parsed in this process, since
// the test cache knows the files that a test reads, not those of a subprocess.

// TestLayout holds the repository against every rule.
func TestLayout(t *testing.T) {
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	repo, err := readRepo(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(repo.files, func(f *sourceFile) bool { return f.dir == "ingester" }) {
		t.Fatalf("no Go file of package ingester found under %s: the test looks at the wrong folder", root)
	}
	for _, b := range repo.breaches() {
		t.Error(b)
	}
}

// moduleRoot walks up from the package's folder to the one that holds go.mod.
func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("no go.mod in any folder above the test's: run it inside the repository")
		}
		dir = parent
	}
}

// repository is what the rules look at.
type repository struct {
	fset   *token.FileSet
	module string // the module's path
	top    []string
	files  []*sourceFile // all Go files of the module, by path
}

// sourceFile is one parsed Go file.
type sourceFile struct {
	path string // slash-separated, from the root
	dir  string // its folder, "." for the root
	// test files may keep state, read clocks and make metrics; they stand
	// under the rules of imports, names and length.
	test  bool
	lines int
	tree  *ast.File
}

// readRepo parses the Go files of the module at the root of fsys. It leaves out
// what Go leaves out (hidden folders, a package's testdata, modules of their own)
// and what .gitignore names at the top.
func readRepo(fsys fs.FS) (*repository, error) {
	mod, err := fs.ReadFile(fsys, "go.mod")
	if err != nil {
		return nil, err
	}
	line, _, _ := strings.Cut(string(mod), "\n")
	module, ok := strings.CutPrefix(line, "module ")
	if !ok {
		return nil, fmt.Errorf("go.mod: the first line is %q, not the module's path", line)
	}
	repo := &repository{fset: token.NewFileSet(), module: module}
	ignored, err := ignoredAtTop(fsys)
	if err != nil {
		return nil, err
	}
	entries, err := fs.ReadDir(fsys, ".")
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if slices.Contains(ignored, e.Name()) {
			continue
		}
		name := e.Name()
		if e.IsDir() {
			name += "/"
		}
		repo.top = append(repo.top, name)
		if err := repo.readUnder(fsys, e.Name()); err != nil {
			return nil, err
		}
	}
	return repo, nil
}

// ignoredAtTop lists the names that .gitignore anchors at the root, as `/bin/`.
// They are made by the Makefile or belong to who runs it.
func ignoredAtTop(fsys fs.FS) ([]string, error) {
	names := []string{".git"}
	text, err := fs.ReadFile(fsys, ".gitignore")
	if errors.Is(err, fs.ErrNotExist) {
		return names, nil
	}
	for line := range strings.Lines(string(text)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "/"); ok {
			names = append(names, strings.TrimSuffix(name, "/"))
		}
	}
	return names, err
}

func (r *repository) readUnder(fsys fs.FS, top string) error {
	return fs.WalkDir(fsys, top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipFolder(fsys, p)
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		return r.add(fsys, p)
	})
}

func skipFolder(fsys fs.FS, p string) error {
	name := path.Base(p)
	if strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
		return fs.SkipDir
	}
	if name == "testdata" && p != "testdata" {
		return fs.SkipDir
	}
	if _, err := fs.Stat(fsys, p+"/go.mod"); err == nil {
		return fs.SkipDir
	}
	return nil
}

func (r *repository) add(fsys fs.FS, p string) error {
	src, err := fs.ReadFile(fsys, p)
	if err != nil {
		return err
	}
	tree, err := parser.ParseFile(r.fset, p, src, parser.ParseComments)
	if err != nil {
		return err
	}
	r.files = append(r.files, &sourceFile{
		path:  p,
		dir:   path.Dir(p),
		test:  strings.HasSuffix(p, "_test.go") || strings.HasPrefix(p, "testdata/"),
		lines: strings.Count(string(src), "\n"),
		tree:  tree,
	})
	return nil
}

// breach is one place that breaks a rule.
type breach struct {
	path string
	line int // 0 for a whole file or folder
	text string
}

func (b breach) String() string {
	if b.line == 0 {
		return b.path + ": " + b.text
	}
	return fmt.Sprintf("%s:%d: %s", b.path, b.line, b.text)
}

// at makes a breach at a node of f.
func (r *repository) at(f *sourceFile, n ast.Node, format string, args ...any) breach {
	return breach{f.path, r.fset.Position(n.Pos()).Line, fmt.Sprintf(format, args...)}
}

// breaches holds every file against every rule.
func (r *repository) breaches() []breach {
	found := r.topBreaches()
	for _, f := range r.files {
		found = append(found, r.folderBreaches(f)...)
		found = append(found, r.importBreaches(f)...)
		found = append(found, r.lengthBreaches(f)...)
		if f.test {
			continue
		}
		found = append(found, r.clockBreaches(f)...)
		found = append(found, r.metricBreaches(f)...)
		found = append(found, r.stateBreaches(f)...)
	}
	return found
}

// topBreaches names what does not belong at the top of the repository.
func (r *repository) topBreaches() []breach {
	allowed := []string{
		"cmd/", "dashboards/", "governor/", "helm/", "ingester/", "policy/", "ratecontrol/", "relabel/", "testdata/",
		".ci/", ".dockerignore", ".gitignore", "CHANGELOG.md", "CONTRIBUTING.md", "Dockerfile", "LICENSE", "Makefile", "README.md", "go.mod", "go.sum",
	}
	var found []breach
	for _, name := range r.top {
		if !slices.Contains(allowed, name) {
			found = append(found, breach{name, 0, "does not belong at the top: a newcomer sees only what each owns one word, " +
				"so put it into the folder of the word that it is about"})
		}
	}
	return found
}

// folderBreaches checks that f's package has a home and a name that says something.
func (r *repository) folderBreaches(f *sourceFile) []breach {
	empty := []string{"base", "common", "helper", "helpers", "misc", "shared", "types", "util", "utils"}
	for _, name := range append(strings.Split(f.dir, "/"), strings.TrimSuffix(f.tree.Name.Name, "_test")) {
		if slices.Contains(empty, name) {
			return []breach{r.at(f, f.tree, "the name %q says nothing about what is in it: a function with one user "+
				"stands beside that user, with two it belongs to the word that it is about", name)}
		}
	}
	if !hasHome(f.dir) {
		return []breach{r.at(f, f.tree, "no Go package has its home in %s: they are relabel, policy, ratecontrol, governor, ingester, "+
			"ingester/receive/<protocol>, ingester/sink/<destination>, cmd/<binary> and cmd/<binary>/<part>, each the only owner of its word", f.dir)}
	}
	return nil
}

func hasHome(dir string) bool {
	parts := strings.Split(dir, "/")
	switch parts[0] {
	case "relabel", "policy", "ratecontrol", "governor":
		return len(parts) == 1
	case "ingester":
		return len(parts) == 1 || dir == "ingester/sink" || parts[1] == "receive" || len(parts) >= 3 && parts[1] == "sink"
	case "cmd":
		return len(parts) == 2 || len(parts) == 3
	}
	return parts[0] == "testdata"
}

// importBreaches checks f's imports of packages of this module.
func (r *repository) importBreaches(f *sourceFile) []breach {
	var found []breach
	for _, spec := range f.tree.Imports {
		to, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			continue
		}
		to, ours := strings.CutPrefix(to, r.module+"/")
		if !ours {
			continue
		}
		if why := whyNotImport(f.dir, to); why != "" {
			found = append(found, r.at(f, spec, "%s imports %s: %s", f.dir, to, why))
		}
	}
	return found
}

// whyNotImport returns why the package in folder from may not import the one in
// folder to, or "".
func whyNotImport(from, to string) string {
	within := func(dir, top string) bool { return dir == top || strings.HasPrefix(dir, top+"/") }
	fromTop, _, _ := strings.Cut(from, "/")
	four := []string{"relabel", "policy", "ratecontrol", "governor"}
	switch {
	case from == to: // a package's tests from outside
		return ""
	case fromTop == "cmd" && path.Dir(to) == from: // a binary and what was set apart of it
		return ""
	case within(to, "cmd"):
		return "cmd wires the others together, so nothing may need it"
	case within(to, "testdata"):
		return "testdata holds inputs and peers of tests, which is no code for others to build on"
	}
	switch fromTop {
	case "relabel", "policy", "governor":
		return fromTop + " is a leaf and imports nothing of ours, so that it can be read and tested alone"
	case "ratecontrol":
		if to != "policy" {
			return "ratecontrol spends what a policy says, so it imports policy and nothing else of ours"
		}
	case "ingester":
		if slices.Contains(four, to) || from != "ingester" && to == "ingester" || from != "ingester" && from != "ingester/sink" && within(to, part(from)) {
			return ""
		}
		if to == "ingester/sink" && within(from, to) {
			return "" // what destinations have in common
		}
		// Receivers share a front, and logs of every protocol travel as OTLP inside.
		if within(from, "ingester/receive") && from != "ingester/receive/otlp" && (to == "ingester/receive" || to == "ingester/receive/otlp" && from != "ingester/receive") {
			return ""
		}
		// Their tests share a reader of what they write.
		if within(from, "ingester/receive") && to == "ingester/receive/receivetest" {
			return ""
		}
		if from == "ingester/receive/otlp" && to == "ingester/receive" {
			return ""
		}
		if from == "ingester" {
			return "ingester imports relabel, policy, ratecontrol and governor only; cmd registers receivers and sinks with it"
		}
		return "receivers and sinks import ingester and the four below it, never each other: what two sinks need belongs to ingester/sink, what others share to ingester"
	}
	return ""
}

// part returns the receiver or sink that a folder under ingester belongs to, as
// ingester/sink/tsdb.
func part(dir string) string {
	parts := strings.Split(dir, "/")
	return strings.Join(parts[:min(3, len(parts))], "/")
}

// lengthBreaches counts the lines of f and of its functions.
func (r *repository) lengthBreaches(f *sourceFile) []breach {
	const (
		fileLines     = 600
		functionLines = 100
	)
	if ast.IsGenerated(f.tree) {
		return nil
	}
	var found []breach
	if f.lines > fileLines {
		found = append(found, breach{f.path, 0, fmt.Sprintf("%d lines, more than %d: it holds more than one thought, split it", f.lines, fileLines)})
	}
	for _, d := range f.tree.Decls {
		fn, ok := d.(*ast.FuncDecl)
		if !ok {
			continue
		}
		lines := r.fset.Position(fn.End()).Line - r.fset.Position(fn.Pos()).Line + 1
		if lines > functionLines {
			found = append(found, r.at(f, fn, "function %s has %d lines, more than %d: name its steps as functions", fn.Name.Name, lines, functionLines))
		}
	}
	return found
}
