package policy

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// reference returns POLICY.md.
func reference(t *testing.T) string {
	t.Helper()
	data, err := os.ReadFile("POLICY.md")
	require.NoError(t, err)
	return string(data)
}

// documented returns the messages of a section's table by their text, as
// patterns in which the ellipsis is anything.
func documented(t *testing.T, section string) map[string]*regexp.Regexp {
	t.Helper()
	_, text, found := strings.Cut(reference(t), "\n## "+section+"\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "\n## ")
	out := map[string]*regexp.Regexp{}
	for _, m := range regexp.MustCompile("(?m)^\\| `(.*?)` \\|").FindAllStringSubmatch(text, -1) {
		pattern := strings.ReplaceAll(regexp.QuoteMeta(m[1]), "…", ".*")
		out[m[1]] = regexp.MustCompile("^" + pattern)
	}
	require.NotEmpty(t, out)
	return out
}

// checkDocumented checks that the reference has every message, and no other.
func checkDocumented(t *testing.T, rows map[string]*regexp.Regexp, messages []string) {
	t.Helper()
	for _, message := range messages {
		known := false
		for _, pattern := range rows {
			known = known || pattern.MatchString(message)
		}
		require.True(t, known, "not in POLICY.md: %s", message)
	}
	all := strings.Join(messages, "\n")
	for row, pattern := range rows {
		require.Regexp(t, "(?m)"+pattern.String(), all, "no file leads to the message %q", row)
	}
}

func TestReferenceHasEveryError(t *testing.T) {
	var messages []string
	for _, path := range testFiles(t, "bad") {
		_, err := loadFile(t, path)
		var problems Problems
		require.ErrorAs(t, err, &problems)
		for _, p := range problems {
			messages = append(messages, p.Message)
		}
	}
	checkDocumented(t, documented(t, "Errors"), messages)
}

func TestReferenceHasEveryWarning(t *testing.T) {
	var messages []string
	for _, path := range testFiles(t, "good") {
		set, err := loadFile(t, path)
		require.NoError(t, err)
		for _, w := range set.Warnings() {
			messages = append(messages, w.Message)
		}
	}
	checkDocumented(t, documented(t, "Warnings"), messages)
}

func TestReferenceExample(t *testing.T) {
	_, text, found := strings.Cut(reference(t), "```yaml\n")
	require.True(t, found)
	text, _, _ = strings.Cut(text, "```")
	file, err := os.ReadFile(filepath.Join("..", "testdata", "policy", "good", "example.yaml"))
	require.NoError(t, err)
	require.Equal(t, string(file), text)
}

// TestReferenceRegexpQuoting checks the two ways to write a backslash that the
// reference gives.
func TestReferenceRegexpQuoting(t *testing.T) {
	for _, m := range []string{`path=~"/v\\d+"`, "path=~`/v\\d+`"} {
		require.Contains(t, reference(t), "'"+m+"'")
		got, err := parseMatcher(m)
		require.NoError(t, err)
		require.Equal(t, `/v\d+`, got.Value)
	}
}
