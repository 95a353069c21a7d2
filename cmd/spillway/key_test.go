package main

import (
	"bytes"
	"encoding/json"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink/discard"
)

// TestMintedKeyIsInForceAsPrinted pastes what `key new` prints into the files, as a
// user would.
func TestMintedKeyIsInForceAsPrinted(t *testing.T) {
	var out, problems bytes.Buffer
	require.Zero(t, run([]string{"key", "new", "team-a", "--stream=logs", "--stream=rum", "--label=team=a \"b\"", "--header=X-Scope-OrgID=t1"}, &out, &problems), problems.String())
	parts := strings.SplitN(out.String(), "\n\n", 2)
	require.Len(t, parts, 2)
	secret := strings.Split(parts[0], "\n")[1]
	require.Regexp(t, "^kf_[0-9a-f]{64}$", secret)
	keys, policy, found := strings.Cut(parts[1], "# For the policy.")
	require.True(t, found)
	require.NotContains(t, parts[1], secret)

	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("keys.yaml", keys)
	require.Contains(t, policy, "matchers: ['team=\"a \\\"b\\\"\"']")
	policy = "#" + strings.ReplaceAll(policy, "classes:", "rate: 100\n        burst: 100\n        default: {rate: 10}\n        classes:")
	write("policy.yaml", policy)
	write("spillway.yaml", "api_keys_file: keys.yaml\npolicy_file: policy.yaml\n")
	l, err := load(filepath.Join(dir, "spillway.yaml"), 0)
	require.NoError(t, err, policy)
	nowhere := map[string]ingester.Sink{"": discard.Sink{}}
	for name := range l.config.Sinks {
		nowhere[name] = discard.Sink{}
	}
	in, err := ingester.New(l.settings(nowhere), 1<<20, nil)
	require.NoError(t, err)

	r := httptest.NewRequest("POST", "/", nil)
	r.Header.Set("Kf-Api-Key", secret)
	origin, err := in.Authenticate(r, ingester.Logs)
	require.NoError(t, err)
	require.Equal(t, "team-a", origin.Sender.Name)
	require.Equal(t, "t1", origin.Sender.Headers.Get("X-Scope-OrgID"))
	_, err = in.Authenticate(r, ingester.Metrics)
	require.ErrorIs(t, err, ingester.ErrWrongStream)
	e, err := in.Explain("logs", `{app="x"}`, "team-a")
	require.NoError(t, err)
	require.Equal(t, "team-a", e.Class)
	require.Contains(t, e.Outcome, "drop", "a new class has rate 0")
}

func TestMintedKeyAsJSON(t *testing.T) {
	var out, problems bytes.Buffer
	require.Zero(t, run([]string{"key", "new", "ops", "--exempt", "--format=json"}, &out, &problems))
	var m minted
	require.NoError(t, json.Unmarshal(out.Bytes(), &m))
	require.True(t, m.Entry.Exempt)
	require.Equal(t, map[string]string{"sender": "ops"}, m.Entry.Labels)
	require.Len(t, m.Policy, len(ingester.Streams()))
}

func TestKeysThatCannotBe(t *testing.T) {
	for _, args := range [][]string{{"a b"}, {"default"}, {"kfuse_cp_class"}, {"x", "--stream=metric"}, {"x", "--header=a b=c"}, {}} {
		var out, problems bytes.Buffer
		require.Equal(t, 1, run(append([]string{"key", "new"}, args...), &out, &problems), "%q", args)
		require.NotEmpty(t, problems.String())
		require.NotContains(t, out.String(), "kf_", "%q", args)
	}
}
