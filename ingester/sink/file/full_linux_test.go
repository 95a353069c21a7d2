package file

import (
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// A disk that is full lets a write end half way. A limit of the size of files does the
// same, to the process: so the test runs itself.
func TestAHalfWrittenLineIsTakenBack(t *testing.T) {
	const folder = "SPILLWAY_TEST_FULL"
	if os.Getenv(folder) == "" {
		cmd := exec.Command(os.Args[0], "-test.run=^TestAHalfWrittenLineIsTakenBack$", "-test.v")
		cmd.Env = append(os.Environ(), folder+"="+t.TempDir())
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		require.Contains(t, string(out), "--- PASS: TestAHalfWrittenLineIsTakenBack")
		return
	}
	o := DefaultOptions(os.Getenv(folder))
	s := open(t, o)
	signal.Ignore(syscall.SIGXFSZ)
	var old syscall.Rlimit
	require.NoError(t, syscall.Getrlimit(syscall.RLIMIT_FSIZE, &old))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: 1000, Max: old.Max}))
	require.NoError(t, s.Write(t.Context(), batch(t, "a")))
	var e *ingester.SinkError
	require.ErrorAs(t, s.Write(t.Context(), batch(t, strings.Repeat("b", 2000))), &e)
	require.False(t, e.Final)
	require.Positive(t, e.RetryAfter)
	path := s.streams[ingester.Logs].active()
	require.NotEmpty(t, path, "the same file goes on")
	require.NoError(t, s.Write(t.Context(), batch(t, "c")))
	require.NoError(t, syscall.Setrlimit(syscall.RLIMIT_FSIZE, &old))
	require.Equal(t, path, s.streams[ingester.Logs].active())
	require.Equal(t, []string{"a", "c"}, bodies(t, o.Path))
	require.NoError(t, s.Close())
}
