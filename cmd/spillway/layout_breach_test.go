package main

import (
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/fstest"
)

// cleanRepo is a small repository that keeps every rule, with what each rule
// allows in it.
func cleanRepo() map[string]string {
	return map[string]string{
		"go.mod":                "module example.com/spillway\n\ngo 1.26\n",
		".gitignore":            "/bin/\n/data/\ndocs\n",
		".git/config":           "",
		"bin/spillway":          "",
		".ci/notgo.go":          "a hidden folder is not the module's",
		"CHANGELOG.md":          "",
		"CONTRIBUTING.md":       "",
		"LICENSE":               "",
		"README.md":             "",
		"go.sum":                "",
		"dashboards/x.json":     "",
		"helm/Chart.yaml":       "",
		"Makefile":              "",
		"relabel/rules.go":      "package relabel\n\nimport \"time\"\n\nfunc now() time.Time { return time.Now() }\n",
		"policy/policy.go":      "package policy\n\nimport \"time\"\n\nfunc every() <-chan time.Time { return time.Tick(1) }\n",
		"ratecontrol/bucket.go": "package ratecontrol\n\nimport (\n\t\"time\"\n\n\t_ \"example.com/spillway/policy\"\n)\n\ntype at = time.Time\n",
		"ratecontrol/bucket_test.go": "package ratecontrol_test\n\nimport (\n\t_ \"log\"\n\t\"time\"\n\n\t_ \"example.com/spillway/ratecontrol\"\n)\n\n" +
			"var start = time.Now()\n",
		"governor/law.go": "package governor\n\nimport clock \"time\"\n\nfunc next(now clock.Time) clock.Time { return now }\n",
		"governor/governor.go": "package governor\n\nimport (\n\t\"log/slog\"\n\t\"time\"\n)\n\n" +
			"func run() { go func() { slog.Info(\"x\", \"at\", time.Now()) }() }\n",
		"governor/snapshot.go": "package governor\n\nimport _ \"log/slog\"\n",
		"ingester/ingester.go": "package ingester\n\nimport (\n\t_ \"example.com/spillway/governor\"\n\t_ \"example.com/spillway/policy\"\n" +
			"\t_ \"example.com/spillway/ratecontrol\"\n\t_ \"example.com/spillway/relabel\"\n)\n",
		"ingester/metrics.go": "package ingester\n\nimport (\n\t\"github.com/prometheus/client_golang/prometheus\"\n" +
			"\t\"github.com/prometheus/client_golang/prometheus/promauto\"\n)\n\nfunc newMetrics(reg prometheus.Registerer) {\n" +
			"\tprometheus.NewCounter(prometheus.CounterOpts{})\n\tpromauto.With(reg).NewGauge(prometheus.GaugeOpts{})\n}\n",
		"ingester/table.go": "package ingester\n\nimport (\n\t\"errors\"\n\t\"fmt\"\n\t\"math\"\n\t\"regexp\"\n)\n\nvar names = [2]string{\"a\", \"b\"}\n\n" +
			"var codes = map[string]int{\"a\": 1}\n\nvar errGone = errors.New(\"gone\")\n\nvar word = regexp.MustCompile(`\\w`)\n\n" +
			"var errFull = fmt.Errorf(\"full: %w\", errGone)\n\nvar ends = [2]float64{}\n\nvar most, none = math.Inf(1), math.NaN()\n\nvar magic = []byte(\"abc\")\n\nvar _ error = errGone\n\n" +
			"func local() {\n\tnames := []string{\"c\"}\n\tnames[0] = \"d\"\n\t_ = -codes[\"a\"]\n\tprintln(codes)\n\tword.Copy(names[:])\n\tstrings.Join(names[:], \"\")\n\t_, _, _, _ = names, codes, word, magic\n}\n",
		"ingester/receive/otlp/otlp.go":         "package otlp\n\nimport _ \"example.com/spillway/ingester\"\n\nimport _ \"example.com/spillway/ingester/receive/otlp/wire\"\n",
		"ingester/receive/otlp/wire/wire.go":    "package wire\n\nfunc f(codes []int) { codes[0] = 1 }\n",
		"ingester/receive/otlp/wire/wire2.go":   "package wire\n\nfunc g() { word = nil }\n",
		"ingester/sink/tsdb/tsdb.go":            "package tsdb\n\nimport _ \"example.com/spillway/ingester\"\n\nimport _ \"example.com/spillway/policy\"\n",
		"ingester/sink/tsdb/testdata/broken.go": "not Go",
		"cmd/spillway/plan/plan.go":             "package plan\n\nimport _ \"example.com/spillway/ratecontrol\"\n",
		"cmd/spillway/main.go": "package main\n\nimport (\n\t_ \"embed\"\n\n\t_ \"example.com/spillway/cmd/spillway/plan\"\n\t_ \"example.com/spillway/ingester/receive/otlp\"\n" +
			"\t_ \"example.com/spillway/ingester/sink/tsdb\"\n)\n\nvar version = \"dev\"\n\n//go:embed page.html\nvar page string\n\nfunc main() {}\n",
		"testdata/e2e/e2e_test.go":        "package e2e\n\nvar state int\n",
		"testdata/peers/vmagent/go.mod":   "module other\n",
		"testdata/peers/vmagent/other.go": "package util\n",
	}
}

func layoutOf(t *testing.T, files map[string]string) []string {
	t.Helper()
	fsys := fstest.MapFS{}
	for p, text := range files {
		fsys[p] = &fstest.MapFile{Data: []byte(text)}
	}
	repo, err := readRepo(fsys)
	if err != nil {
		t.Fatal(err)
	}
	var texts []string
	for _, b := range repo.breaches() {
		texts = append(texts, b.String())
	}
	return texts
}

func TestLayoutAllows(t *testing.T) {
	for _, text := range layoutOf(t, cleanRepo()) {
		t.Error(text)
	}
}

// fakeBreach is a file that breaks one rule when it is added to the clean
// repository, and a part of the only message that must follow.
type fakeBreach struct{ path, text, want string }

func TestLayoutFindsBreaches(t *testing.T) {
	groups := map[string][]fakeBreach{
		"top":      topFakes(),
		"folders":  folderFakes(),
		"imports":  importFakes(),
		"length":   lengthFakes(),
		"clocks":   clockFakes(),
		"metrics":  metricFakes(),
		"state":    stateFakes(),
		"changing": changeFakes(),
	}
	for group, fakes := range groups {
		for i, fake := range fakes {
			t.Run(fmt.Sprintf("%s %d %s", group, i, fake.path), func(t *testing.T) {
				files := cleanRepo()
				maps.Copy(files, map[string]string{fake.path: fake.text})
				got := layoutOf(t, files)
				if len(got) != 1 {
					t.Fatalf("got %q, want one breach that says %q", got, fake.want)
				}
				// The folder alone is named for what does not belong at the top.
				where, text, _ := strings.Cut(got[0], ":")
				if !strings.HasPrefix(fake.path, where) || !strings.Contains(text, fake.want) {
					t.Errorf("got %q, want a breach in %s that says %q", got[0], fake.path, fake.want)
				}
			})
		}
	}
}

func TestLayoutSaysWhere(t *testing.T) {
	files := cleanRepo()
	files["relabel/x.go"] = "package relabel\n\nfunc init() {}\n" + strings.Repeat("\n", 600)
	got := layoutOf(t, files)
	if len(got) != 2 || !strings.HasPrefix(got[0], "relabel/x.go: 603 lines") || !strings.HasPrefix(got[1], "relabel/x.go:3: func init") {
		t.Errorf("got %q, want the length of the file without a line and func init at line 3", got)
	}
}

func TestLayoutNeedsAModule(t *testing.T) {
	for _, mod := range []string{"", "go 1.26\n"} {
		if _, err := readRepo(fstest.MapFS{"go.mod": {Data: []byte(mod)}}); err == nil {
			t.Errorf("go.mod %q: no error, but imports of ours cannot be told from others", mod)
		}
	}
}

func topFakes() []fakeBreach {
	return []fakeBreach{
		{"Vagrantfile", "", "does not belong at the top"},
		{".github/workflows/x.yml", "", "does not belong at the top"},
		{"docs/x.md", "", "does not belong at the top"},
		{"helm", "a file, not a folder", "does not belong at the top"},
	}
}

func folderFakes() []fakeBreach {
	fakes := []fakeBreach{
		{"ingester/sink/common/x.go", "package common\n", `the name "common" says nothing`},
		{"ingester/sink/tsdb/x.go", "package util\n", `the name "util" says nothing`},
		{"ingester/receive/otlp/types/x_test.go", "package types_test\n", `the name "types" says nothing`},
		{"ingester/receive/misc/x.go", "package words\n", `the name "misc" says nothing`},
		{"policy/matcher/x.go", "package matcher\n", "no Go package has its home in policy/matcher"},
		{"ingester/wire/x.go", "package wire\n", "no Go package has its home in ingester/wire"},
		{"cmd/x.go", "package main\n", "no Go package has its home in cmd"},
		{"cmd/spillway/plan/x/x.go", "package x\n", "no Go package has its home in cmd/spillway/plan/x"},
		{"helm/x.go", "package helm\n", "no Go package has its home in helm"},
	}
	for _, name := range []string{"base", "helper", "helpers", "shared", "utils"} {
		fakes = append(fakes, fakeBreach{"ingester/sink/" + name + "/x.go", "package words\n", fmt.Sprintf("the name %q says nothing", name)})
	}
	return fakes
}

func importFakes() []fakeBreach {
	imports := func(pkg string, paths ...string) string {
		text := "package " + pkg + "\n"
		for _, p := range paths {
			text += "\nimport _ \"example.com/spillway/" + p + "\"\n"
		}
		return text
	}
	return []fakeBreach{
		{"relabel/x.go", imports("relabel", "policy"), "relabel is a leaf"},
		{"policy/x.go", imports("policy", "relabel"), "policy is a leaf"},
		{"governor/x_test.go", imports("governor", "ratecontrol"), "governor is a leaf"},
		{"governor/x.go", imports("governor", "ingester"), "governor is a leaf"},
		{"ratecontrol/x.go", imports("ratecontrol", "policy", "governor"), "ratecontrol imports governor"},
		{"ratecontrol/x.go", imports("ratecontrol", "ingester"), "policy and nothing else of ours"},
		{"ingester/x.go", imports("ingester", "ingester/receive/otlp"), "ingester imports relabel, policy, ratecontrol and governor only"},
		{"ingester/x_test.go", imports("ingester_test", "ingester/sink/tsdb"), "ingester imports relabel, policy, ratecontrol and governor only"},
		{"ingester/receive/otlp/x.go", imports("otlp", "ingester/receive/heroku"), "never each other"},
		{"ingester/receive/otlp/x.go", imports("otlp", "ingester/sink/tsdb"), "never each other"},
		{"ingester/receive/otlp/x.go", imports("otlp", "ingester/receive/otlphttp"), "never each other"},
		{"ingester/sink/tsdb/x.go", imports("tsdb", "ingester/sink/file"), "never each other"},
		{"ingester/sink/x.go", imports("sink", "ingester/sink/tsdb"), "never each other"},
		{"ingester/receive/otlp/x.go", imports("otlp", "ingester/sink"), "never each other"},
		{"ingester/sink/tsdb/x.go", imports("tsdb", "ingester/receive/otlp/wire"), "never each other"},
		{"ingester/x.go", imports("ingester", "cmd/spillway"), "cmd wires the others together"},
		{"cmd/spillway/x.go", imports("main", "cmd/load"), "cmd wires the others together"},
		{"cmd/spillway/plan/x.go", imports("plan", "cmd/spillway/simulate"), "cmd wires the others together"},
		{"cmd/spillway/plan/x.go", imports("plan", "cmd/spillway"), "cmd wires the others together"},
		{"cmd/load/x.go", imports("main", "cmd/spillway/plan"), "cmd wires the others together"},
		{"cmd/spillway/x.go", imports("main", "testdata/load"), "testdata holds inputs"},
	}
}

func lengthFakes() []fakeBreach {
	function := func(lines int) string { return "func long() {\n" + strings.Repeat("\tprintln()\n", lines-2) + "}\n" }
	clean := cleanRepo()["relabel/rules.go"]
	return []fakeBreach{
		{"relabel/x.go", "package relabel\n" + strings.Repeat("\n", 600), "601 lines, more than 600"},
		{"relabel/x_test.go", "package relabel\n" + strings.Repeat("\n", 700), "701 lines, more than 600"},
		{"relabel/x.go", "package relabel\n\n" + function(101), "function long has 101 lines, more than 100"},
		// At the limits, and above them in a generated file, only the other breach is found.
		{"relabel/rules.go", clean + function(100) + "func init() {}\n", "func init"},
		{"relabel/x.go", "package relabel\n\nfunc init() {}\n" + strings.Repeat("\n", 597), "func init"},
		{"relabel/x.go", "// Code generated by a test. DO NOT EDIT.\n\npackage relabel\n\nfunc init() {}\n" + function(601), "func init"},
	}
}

func clockFakes() []fakeBreach {
	return []fakeBreach{
		{"ratecontrol/x.go", "package ratecontrol\n\nimport \"time\"\n\nfunc f() { time.Now() }\n", "time.Now: time is a parameter"},
		{"ratecontrol/x.go", "package ratecontrol\n\nimport clock \"time\"\n\nfunc f() { _ = clock.Now }\n", "time.Now: time is a parameter"},
		{"ratecontrol/x.go", "package ratecontrol\n\nimport \"time\"\n\nfunc f() { time.Sleep(1) }\n", "time.Sleep"},
		{"ratecontrol/x.go", "package ratecontrol\n\nimport . \"time\"\n\nvar _ Time\n", "imports time with a dot"},
		{"ratecontrol/x.go", "package ratecontrol\n\nfunc f() { go f() }\n", "starts a goroutine"},
		{"ratecontrol/x.go", "package ratecontrol\n\nimport _ \"log/slog\"\n", "imports log/slog"},
		{"ratecontrol/x.go", "package ratecontrol\n\nimport _ \"github.com/go-kit/log\"\n", "imports github.com/go-kit/log"},
		{"policy/x.go", "package policy\n\nimport \"time\"\n\nfunc f(t time.Time) { time.Since(t) }\n", "time.Since"},
		{"governor/law.go", "package governor\n\nimport \"time\"\n\nfunc f() { time.Until(time.Time{}) }\n", "time.Until"},
		{"governor/law_latency.go", "package governor\n\nimport _ \"log\"\n", "imports log"},
		{"governor/dispatch.go", "package governor\n\nfunc f() { go f() }\n", "starts a goroutine"},
		{"governor/dispatch.go", "package governor\n\nimport \"time\"\n\nfunc f() { time.NewTimer(1) }\n", "time.NewTimer"},
	}
}

func metricFakes() []fakeBreach {
	const prom = "import \"github.com/prometheus/client_golang/prometheus\"\n\n"
	const auto = "import \"github.com/prometheus/client_golang/prometheus/promauto\"\n\n"
	fakes := []fakeBreach{
		{"ingester/x.go", "package ingester\n\n" + prom + "func f() { prometheus.NewGaugeVec(prometheus.GaugeOpts{}, nil) }\n", "prometheus.NewGaugeVec outside metrics.go"},
		{"ingester/x.go", "package ingester\n\n" + prom + "func f() { prometheus.MustNewConstMetric(nil, 0, 1) }\n", "prometheus.MustNewConstMetric outside metrics.go"},
		{"ingester/metrics.go", "package ingester\n\n" + prom + "func f() { prometheus.MustRegister() }\n", "prometheus.MustRegister is shared by the whole process"},
		{"cmd/spillway/x.go", "package main\n\n" + prom + "func f() { g(prometheus.DefaultGatherer) }\n", "prometheus.DefaultGatherer is shared"},
		{"ingester/x.go", "package ingester\n\n" + auto + "func f() { promauto.With(nil) }\n", "imports promauto outside metrics.go"},
		{"ingester/metrics.go", "package ingester\n\n" + auto + "func f() { promauto.NewCounter(nil) }\n", "promauto.NewCounter registers for the whole process"},
	}
	for _, name := range []string{"Register", "Unregister", "DefaultRegisterer"} {
		text := "package ingester\n\n" + prom + "var _ = prometheus." + name + "\n"
		fakes = append(fakes, fakeBreach{"ingester/x.go", text, "prometheus." + name + " is shared by the whole process"})
	}
	for _, name := range []string{"NewCounterFunc", "NewHistogramVec", "NewSummary", "NewUntypedFunc", "NewDesc", "NewConstHistogram"} {
		text := "package ingester\n\n" + prom + "func f() { prometheus." + name + "() }\n"
		fakes = append(fakes, fakeBreach{"ingester/x.go", text, "prometheus." + name + " outside metrics.go"})
	}
	return fakes
}

func stateFakes() []fakeBreach {
	in := func(decl string) fakeBreach {
		return fakeBreach{path: "ingester/x.go", text: "package ingester\n\n" + decl + "\n"}
	}
	says := func(f fakeBreach, want string) fakeBreach { f.want = want; return f }
	return []fakeBreach{
		says(in("func init() {}"), "func init"),
		says(in("var count int"), "package variable count: without a value"),
		says(in("var a, b = map[string]int{}, 5"), "package variable b: write const"),
		says(in("var limit = 5"), "write const"),
		says(in("var version = \"dev\""), "write const"),
		says(in("var handle = func() {}"), "write func"),
		says(in("import \"os\"\n\nvar home = os.Getenv(\"HOME\")"), "computed at start"),
		says(in("import errors \"example.com/errors\"\n\nvar errBad = errors.New(\"bad\")"), "computed at start"),
		says(in("import \"sync\"\n\nvar pool = sync.Pool{}"), "a struct here is state"),
		says(in("var seen = make(map[string]bool)"), "computed at start"),
		says(in("var Codes = []int{1}"), "another package could write to the table"),
		says(in("type t struct{}\n\nvar shared = &t{}"), "the rest is state"),
		says(in("var raw = []byte(f())\n\nfunc f() string { return \"\" }"), "computed at start"),
	}
}

func changeFakes() []fakeBreach {
	var fakes []fakeBreach
	for _, statement := range []string{
		"names[0] = \"z\"", "codes[\"a\"]++", "delete(codes, \"a\")", "clear(codes)", "copy(names[:], nil)",
		"_ = &names", "for i, names[0] = range []string{\"\"} {\n\t\t_ = i\n\t}", "(names)[1] += \"x\"",
		"errGone = nil",
		"maps.Copy(codes, nil)", "maps.DeleteFunc(codes, nil)", "slices.Insert(names[:], 0)", "slices.Reverse(names[:])",
		"slices.Sort(names[:])", "slices.SortFunc(names[:], nil)", "slices.SortStableFunc(names[:], nil)",
		"sort.Slice(names[:], nil)", "sort.Strings(names[:])",
	} {
		text := "package ingester\n\nimport (\n\t\"maps\"\n\t\"slices\"\n\t\"sort\"\n)\n\nfunc f() {\n\tvar i int\n\t_ = i\n\t" + statement + "\n}\n"
		fakes = append(fakes, fakeBreach{"ingester/x.go", text, "writes to the package variable"})
	}
	// In the file of the variable itself, where the parser resolves its name.
	own := cleanRepo()["ingester/table.go"]
	return append(fakes, fakeBreach{"ingester/table.go", own + "\nfunc f() { names[0] = \"z\" }\n", "writes to the package variable names"})
}
