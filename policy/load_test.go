package policy

import (
	"encoding/json"
	"flag"
	"io"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the expected reports and errors in testdata/policy")

// ingestersLine lets a test file say for how many ingesters it is loaded.
var ingestersLine = regexp.MustCompile(`^# ingesters: ([0-9]+)\n`)

// loadFile loads a file of testdata/policy, by default on 4 ingesters.
func loadFile(t *testing.T, path string) (*Set, error) {
	t.Helper()
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	n := 4
	if m := ingestersLine.FindSubmatch(data); m != nil {
		n, err = strconv.Atoi(string(m[1]))
		require.NoError(t, err)
	}
	return Load(data, filepath.Base(path), n)
}

func testFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join("..", "testdata", "policy", dir, "*.yaml"))
	require.NoError(t, err)
	require.NotEmpty(t, paths)
	return paths
}

// equalFile compares text with the file beside a test file.
func equalFile(t *testing.T, path, text string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(text), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), text)
}

// TestGoodFiles compares what each good file comes to with the report beside
// it.
func TestGoodFiles(t *testing.T) {
	for _, path := range testFiles(t, "good") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			set, err := loadFile(t, path)
			require.NoError(t, err)
			var b strings.Builder
			require.NoError(t, set.Report().WriteText(&b))
			equalFile(t, strings.TrimSuffix(path, ".yaml")+".txt", b.String())
		})
	}
}

// TestBadFiles compares the problems of each bad file with the text beside it.
func TestBadFiles(t *testing.T) {
	for _, path := range testFiles(t, "bad") {
		t.Run(filepath.Base(path), func(t *testing.T) {
			set, err := loadFile(t, path)
			require.Nil(t, set)
			var problems Problems
			require.ErrorAs(t, err, &problems)
			equalFile(t, strings.TrimSuffix(path, ".yaml")+".error", err.Error()+"\n")
			for i, p := range problems[1:] {
				require.LessOrEqual(t, problems[i].Line, p.Line)
			}
		})
	}
}

// TestHostileFiles reads files that are made to be slow or to be misread. They
// are refused, or read as what they are.
func TestHostileFiles(t *testing.T) {
	const stream = "streams: {logs: {rate: 100, burst: 100, %}}"
	for name, c := range map[string]struct{ file, want string }{
		"digits":      {strings.Replace(stream, "%", "default: {rate: "+strings.Repeat("9", 1<<20)+"}", 1), "is a number of 1048576 characters"},
		"exponent":    {strings.Replace(stream, "%", "default: {rate: 1e"+strings.Repeat("9", 50)+"}", 1), "the largest number"},
		"aliases":     {aliasBomb(), "is an alias"},
		"cycle":       {"streams: &a {logs: *a}", "is an alias"},
		"deep":        {"streams: " + strings.Repeat("[", 20000), "is not YAML"},
		"deep value":  {"streams: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000), "is a list"},
		"key":         {"streams: {? {a: b} : c}", "has a mapping as the name"},
		"null key":    {"streams: {~: 1}", "unknown stream"},
		"tagged":      {strings.Replace(stream, "%", "classes: [{name: !!binary YQ==, rate: 1}]", 1), "does not read as text"},
		"tagged list": {strings.Replace(stream, "%", "classes: !local []", 1), "is of the unknown type"},
		"long name":   {strings.Replace(stream, "%", strings.Repeat("x", 1000)+": 1", 1), `xx"...: unknown field`},
		"control":     {"streams: \x01", "is not YAML"},
		"not utf-8":   {"streams: \"\xff\"", "is not YAML"},
		"json tail":   {"{\"streams\": {}} {", "is not YAML"},
		"regexp":      {strings.Replace(stream, "%", `rules: [{class: a, matchers: ['a=~"((a{100}){100}){100}"']}]`, 1), "regexp"},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := Load([]byte(c.file), "test.yaml", 1)
			require.Nil(t, set)
			require.ErrorContains(t, err, c.want)
			require.Less(t, len(err.Error()), 4000)
		})
	}
	t.Run("json", func(t *testing.T) {
		require.NotNil(t, load(t, `{"streams": {"logs": {"rate": 100, "burst": 100}}}`, 1).Stream("logs"))
	})
}

// aliasBomb names a list of ten lists of ten lists and so on.
func aliasBomb() string {
	var b strings.Builder
	b.WriteString("a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n")
	for i := 1; i < 12; i++ {
		prev := "*a" + strconv.Itoa(i-1)
		b.WriteString("a" + strconv.Itoa(i) + ": &a" + strconv.Itoa(i) + " [" + strings.Repeat(prev+", ", 9) + prev + "]\n")
	}
	return b.String() + "streams: *a11\n"
}

// TestP2NothingIsAppliedInPart: one bad stream refuses the good ones too.
func TestP2NothingIsAppliedInPart(t *testing.T) {
	set, err := Load([]byte("streams: {logs: {rate: 100, burst: 100}, rum: {rate: -1, burst: 100}}"), "p.yaml", 1)
	require.Nil(t, set)
	require.EqualError(t, err, "p.yaml:1: streams.rum.rate: is -1: it must not be negative")
}

// FuzzLoad reads any file. It never panics; what it accepts keeps the rules of
// the arithmetic, checked here in integers alone, and can be reported.
func FuzzLoad(f *testing.F) {
	for _, dir := range []string{"good", "bad"} {
		paths, err := filepath.Glob(filepath.Join("..", "testdata", "policy", dir, "*.yaml"))
		if err != nil || len(paths) == 0 {
			f.Fatalf("no seeds in %s: %v", dir, err)
		}
		for _, path := range paths {
			data, err := os.ReadFile(path)
			if err != nil {
				f.Fatal(err)
			}
			f.Add(data, 4)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, ingesters int) {
		set, err := Load(data, "fuzz.yaml", ingesters)
		if err != nil {
			var problems Problems
			require.ErrorAs(t, err, &problems)
			require.NotEmpty(t, problems)
			require.Nil(t, set)
			return
		}
		for _, name := range streamNames {
			if p := set.Stream(name); p != nil {
				checkArithmetic(t, p, ingesters)
				require.True(t, p.SameRules(p))
			}
		}
		_, err = json.Marshal(set.Report())
		require.NoError(t, err)
		require.NoError(t, set.Report().WriteText(io.Discard))
	})
}

// checkArithmetic checks P2 to P7 on a policy that was accepted.
func checkArithmetic(t *testing.T, p *Policy, ingesters int) {
	sum := new(big.Rat)
	n := big.NewInt(int64(ingesters))
	hundred := big.NewRat(100, 1)
	for id, c := range p.Classes() {
		require.GreaterOrEqual(t, c.Rate.Sign(), 0)
		sum.Add(sum, c.Rate)
		back := new(big.Rat).Mul(c.RatePerIngester, new(big.Rat).SetInt(n))
		require.Zero(t, back.Cmp(c.Rate), "P4")
		require.True(t, c.Configured || id != p.Default())
		if c.Rate.Sign() == 0 {
			require.Equal(t, [2]int64{}, [2]int64{c.SharePercent, c.BurstPerIngester}, "P6")
			continue
		}
		require.True(t, c.Configured, "P7")
		// share <= 100 rate / cap < share + 1
		scaled := new(big.Rat).Mul(c.Rate, hundred)
		low := new(big.Rat).Mul(p.limits.rate, big.NewRat(c.SharePercent, 1))
		high := new(big.Rat).Mul(p.limits.rate, big.NewRat(c.SharePercent+1, 1))
		require.True(t, low.Cmp(scaled) <= 0 && scaled.Cmp(high) < 0, "P3")
		burst := new(big.Int).Mul(big.NewInt(p.limits.burst), big.NewInt(c.SharePercent))
		burst.Quo(burst, new(big.Int).Mul(n, big.NewInt(100)))
		if burst.Sign() == 0 {
			burst.SetInt64(1)
		}
		require.Equal(t, burst.Int64(), c.BurstPerIngester, "P5")
	}
	require.LessOrEqual(t, sum.Cmp(p.limits.rate), 0, "P2")
}
