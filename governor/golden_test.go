package governor

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "rewrite the golden files in testdata/governor")

func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("..", "testdata", "governor", name)
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		return
	}
	if runtime.GOARCH != "amd64" {
		// Fused multiply-add rounds differently, and a simulation amplifies it.
		t.Logf("%s is not compared: it was made on amd64, this is %s", name, runtime.GOARCH)
		return
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	wantLines, gotLines := strings.Split(string(want), "\n"), strings.Split(got, "\n")
	for i := range min(len(wantLines), len(gotLines)) {
		require.Equal(t, wantLines[i], gotLines[i], "%s line %d: run with -update and look at the difference", name, i+1)
	}
	require.Equal(t, len(wantLines), len(gotLines), "lines of %s", name)
}
