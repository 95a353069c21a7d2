package main

import (
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strconv"
	"strings"
)

// The rules of TestLayout that look into the code: clocks, metrics, state. They
// know names, not types: a rule asks which package an identifier was imported
// from, and takes a name that the file declares locally for something else.

// importName returns the name by which f refers to the package at importPath, or
// "" if it does not import it.
func importName(f *sourceFile, importPath string) string {
	for _, spec := range f.tree.Imports {
		p, err := strconv.Unquote(spec.Path.Value)
		if err != nil || p != importPath {
			continue
		}
		if spec.Name != nil {
			return spec.Name.Name
		}
		return path.Base(p)
	}
	return ""
}

// member returns the name that n selects from the package called pkg, as Now in
// time.Now, or "".
func member(n ast.Node, pkg string) string {
	sel, ok := n.(*ast.SelectorExpr)
	if !ok || pkg == "" {
		return ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok || x.Name != pkg || x.Obj != nil {
		return ""
	}
	return sel.Sel.Name
}

// clockBreaches: time is a parameter of all arithmetic. Of the governor only the
// actor in governor.go lives in real time, and what it calls is a calculation.
func (r *repository) clockBreaches(f *sourceFile) []breach {
	base := path.Base(f.path)
	law := f.dir == "governor" && strings.HasPrefix(base, "law")
	calculation := f.dir == "ratecontrol" || f.dir == "governor" && base != "governor.go"
	if !calculation && f.dir != "policy" {
		return nil
	}
	forbidden := []string{"Now", "Since", "Until"}
	if calculation {
		forbidden = append(forbidden, "Sleep", "After", "AfterFunc", "Tick", "NewTicker", "NewTimer")
	}
	clock := importName(f, "time")
	var found []breach
	ast.Inspect(f.tree, func(n ast.Node) bool {
		if name := member(n, clock); slices.Contains(forbidden, name) {
			found = append(found, r.at(f, n, "time.%s: time is a parameter here, so that a test decides what time it is; "+
				"the request reads the clock once and passes it on", name))
		}
		if _, ok := n.(*ast.GoStmt); ok && calculation {
			found = append(found, r.at(f, n, "starts a goroutine: this is a calculation, whoever calls it decides where it runs"))
		}
		return true
	})
	if clock == "." {
		found = append(found, r.at(f, f.tree, "imports time with a dot, which hides who reads the clock"))
	}
	if law || f.dir == "ratecontrol" {
		found = append(found, r.logBreaches(f)...)
	}
	return found
}

func (r *repository) logBreaches(f *sourceFile) []breach {
	for _, logger := range []string{"log", "log/slog", "github.com/go-kit/log"} {
		if importName(f, logger) != "" {
			return []breach{r.at(f, f.tree, "imports %s: a calculation returns what it found, its caller logs", logger)}
		}
	}
	return nil
}

// metricBreaches: metrics are one struct per package in metrics.go, registered
// where cmd says.
func (r *repository) metricBreaches(f *sourceFile) []breach {
	const client = "github.com/prometheus/client_golang/prometheus"
	prom, auto := importName(f, client), importName(f, client+"/promauto")
	metricsFile := path.Base(f.path) == "metrics.go"
	var found []breach
	ast.Inspect(f.tree, func(n ast.Node) bool {
		name := member(n, prom)
		switch {
		case isMetricConstructor(name) && !metricsFile:
			found = append(found, r.at(f, n, "prometheus.%s outside metrics.go: a package's metrics are one struct there, "+
				"so that all their names can be read in one place", name))
		case slices.Contains([]string{"MustRegister", "Register", "Unregister", "DefaultRegisterer", "DefaultGatherer"}, name):
			found = append(found, r.at(f, n, "prometheus.%s is shared by the whole process: use the Registerer that was passed", name))
		}
		if name := member(n, auto); strings.HasPrefix(name, "New") {
			found = append(found, r.at(f, n, "promauto.%s registers for the whole process: use promauto.With and the Registerer that was passed", name))
		}
		return true
	})
	if auto != "" && !metricsFile {
		found = append(found, r.at(f, f.tree, "imports promauto outside metrics.go: a package's metrics are one struct there"))
	}
	return found
}

func isMetricConstructor(name string) bool {
	for _, prefix := range []string{"NewCounter", "NewGauge", "NewHistogram", "NewSummary", "NewUntyped", "NewDesc", "NewConst", "MustNewConst"} {
		if strings.HasPrefix(name, prefix) {
			return true
		}
	}
	return false
}

// stateBreaches: no package state, only constants in disguise.
func (r *repository) stateBreaches(f *sourceFile) []breach {
	var found []breach
	for _, d := range f.tree.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				found = append(found, r.at(f, d, "func init runs at a time that nobody reads: cmd calls what has to be set up"))
			}
		case *ast.GenDecl:
			if d.Tok != token.VAR {
				continue
			}
			for _, spec := range d.Specs {
				found = append(found, r.variableBreaches(f, d, spec.(*ast.ValueSpec))...)
			}
		}
	}
	return found
}

// variableBreaches checks one line of a package's variables.
func (r *repository) variableBreaches(f *sourceFile, d *ast.GenDecl, spec *ast.ValueSpec) []breach {
	if embeds(d.Doc) || embeds(spec.Doc) {
		return nil // filled by the compiler
	}
	var found []breach
	for i, name := range spec.Names {
		if name.Name == "_" {
			continue // asks the compiler something, holds nothing
		}
		if name.Name == "version" && strings.HasPrefix(f.dir, "cmd/") {
			continue // written by the linker
		}
		var value ast.Expr
		if i < len(spec.Values) {
			value = spec.Values[i]
		}
		if why := whyState(f, name, value); why != "" {
			found = append(found, r.at(f, name, "package variable %s: %s", name.Name, why))
		}
		if at, where := r.changed(f.dir, name); at != nil {
			found = append(found, r.at(where, at, "writes to the package variable %s or lends its address: state belongs to a value that cmd makes and passes on", name.Name))
		}
	}
	return found
}

func embeds(doc *ast.CommentGroup) bool {
	return doc != nil && slices.ContainsFunc(doc.List, func(c *ast.Comment) bool { return strings.HasPrefix(c.Text, "//go:embed ") })
}

// whyState returns why a package variable with this value is more than a constant
// in disguise, or "". A disguise is needed because Go has no constants of these
// types.
func whyState(f *sourceFile, name *ast.Ident, value ast.Expr) string {
	switch v := value.(type) {
	case nil:
		return "without a value it waits to be written, which is state: it belongs to a value that cmd makes and passes on"
	case *ast.BasicLit:
		return "write const"
	case *ast.FuncLit:
		return "write func"
	case *ast.CallExpr:
		if isConstantCall(f, v) {
			return ""
		}
		return "its value is computed at start, in an order that nobody reads; errors.New, fmt.Errorf and regexp.MustCompile are allowed, " +
			"since what they make cannot be changed"
	case *ast.CompositeLit:
		if !isTable(v) {
			return "a struct here is state, or will be: write a function that returns it"
		}
		if name.IsExported() {
			return "another package could write to the table: write a function that returns it"
		}
		return ""
	}
	return "only errors, compiled patterns, embedded files and tables that are never written to stand here; the rest is state"
}

// isConstantCall recognises the calls whose results cannot be changed, and a
// conversion of a literal to a slice.
func isConstantCall(f *sourceFile, call *ast.CallExpr) bool {
	immutable := map[string][]string{
		"errors": {"New"},
		"fmt":    {"Errorf"},
		"regexp": {"MustCompile"},
		"math":   {"Inf", "NaN"},
	}
	for pkg, names := range immutable {
		if slices.Contains(names, member(call.Fun, importName(f, pkg))) {
			return true
		}
	}
	if _, ok := call.Fun.(*ast.ArrayType); ok && len(call.Args) == 1 {
		_, literal := call.Args[0].(*ast.BasicLit)
		return literal
	}
	return false
}

// isTable says that a composite literal is an array, a slice or a map.
func isTable(v *ast.CompositeLit) bool {
	switch v.Type.(type) {
	case *ast.ArrayType, *ast.MapType:
		return true
	}
	return false
}

// changed finds a place in the package in folder dir that writes to its variable
// name, or takes its address.
func (r *repository) changed(dir string, name *ast.Ident) (at ast.Node, where *sourceFile) {
	for _, f := range r.files {
		if f.dir != dir || f.test {
			continue
		}
		ast.Inspect(f.tree, func(n ast.Node) bool {
			for _, target := range targets(n) {
				id := root(target)
				if at == nil && id != nil && id.Name == name.Name && isPackageLevel(id, name) {
					at, where = n, f
				}
			}
			return at == nil
		})
	}
	return at, where
}

// targets returns the expressions that n writes to.
func targets(n ast.Node) []ast.Expr {
	switch n := n.(type) {
	case *ast.AssignStmt:
		return n.Lhs
	case *ast.IncDecStmt:
		return []ast.Expr{n.X}
	case *ast.RangeStmt:
		return []ast.Expr{n.Key, n.Value}
	case *ast.UnaryExpr:
		if n.Op == token.AND {
			return []ast.Expr{n.X}
		}
	case *ast.CallExpr:
		return writtenArgument(n)
	}
	return nil
}

// writtenArgument returns the first argument of the calls that write to it.
func writtenArgument(call *ast.CallExpr) []ast.Expr {
	if len(call.Args) == 0 {
		return nil
	}
	switch fn := call.Fun.(type) {
	case *ast.Ident:
		if slices.Contains([]string{"clear", "copy", "delete"}, fn.Name) {
			return call.Args[:1]
		}
	case *ast.SelectorExpr:
		writers := []string{"Copy", "DeleteFunc", "Insert", "Reverse", "Sort", "SortFunc", "SortStableFunc", "Slice", "Strings"}
		x, ok := fn.X.(*ast.Ident)
		if ok && slices.Contains([]string{"maps", "slices", "sort"}, x.Name) && slices.Contains(writers, fn.Sel.Name) {
			return call.Args[:1]
		}
	}
	return nil
}

// root returns the variable that an expression such as x.field[i] lies in.
func root(e ast.Expr) *ast.Ident {
	for {
		switch x := e.(type) {
		case *ast.Ident:
			return x
		case *ast.IndexExpr:
			e = x.X
		case *ast.SliceExpr:
			e = x.X
		case *ast.SelectorExpr:
			e = x.X
		case *ast.ParenExpr:
			e = x.X
		case *ast.StarExpr:
			e = x.X
		default:
			return nil
		}
	}
}

// isPackageLevel says that id means the package variable name and not a local one
// of the same name. The parser resolves names within a file; what it could not
// resolve is declared in another file of the package.
func isPackageLevel(id, name *ast.Ident) bool {
	return id.Obj == nil || id.Obj == name.Obj
}
