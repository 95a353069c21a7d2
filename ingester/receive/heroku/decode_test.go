package heroku

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive"
	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

var at = time.Date(2026, 11, 30, 8, 0, 0, 0, time.UTC)

func run(t testing.TB, body, token string) ([]receivetest.Record, *decoder, error) {
	t.Helper()
	var out receive.Records
	var d decoder
	out.Reset(nil, "heroku", at, receive.Bounds{Bytes: 1 << 20, Grow: func(int64) bool { return true }})
	err := d.frames(&out, []byte(body))
	if err == nil {
		err = d.write(&out, token)
	}
	return receivetest.Records(t, out.Bytes()), &d, err
}

// frame counts octets as RFC 6587 says.
func frame(lines ...string) string {
	var b strings.Builder
	for _, l := range lines {
		fmt.Fprintf(&b, "%d %s", len(l), l)
	}
	return b.String()
}

func TestDrainedLines(t *testing.T) {
	body := frame(
		"<190>1 2012-11-30T06:45:29.123456+00:00 host app web.3 - State changed from starting to up\n",
		"<158>1 2012-11-30T06:45:26+00:00 host heroku router - at=info method=GET\n",
	)
	got, d, err := run(t, body, "d.73ea")
	require.NoError(t, err)
	require.Zero(t, d.invalid)
	require.Equal(t, []receivetest.Record{
		{
			Resource:   map[string]any{"drain_token": "d.73ea", "host_name": "host"},
			Attributes: map[string]any{"app_name": "app", "proc_id": "web.3", "log_type": "app"},
			Body:       "State changed from starting to up", Time: uint64(time.Date(2012, 11, 30, 6, 45, 29, 123456e3, time.UTC).UnixNano()), Severity: 9, Level: "info",
		},
		{
			Resource:   map[string]any{"drain_token": "d.73ea", "host_name": "host"},
			Attributes: map[string]any{"app_name": "heroku", "proc_id": "router", "log_type": "heroku"},
			Body:       "at=info method=GET", Time: uint64(time.Date(2012, 11, 30, 6, 45, 26, 0, time.UTC).UnixNano()), Severity: 9, Level: "info",
		},
	}, got)
}

func TestWhatAllLinesShareIsOfTheResource(t *testing.T) {
	got, _, err := run(t, frame("<190>1 t host app web.1 - a\n", "<190>1 t host app web.1 - b\n"), "")
	require.NoError(t, err)
	require.Equal(t, map[string]any{"host_name": "host", "app_name": "app", "proc_id": "web.1", "log_type": "app"}, got[1].Resource)
	require.Equal(t, map[string]any{"timestamp": "t"}, got[1].Attributes, "a time that cannot be read is kept")
}

func TestStructuredData(t *testing.T) {
	for rest, want := range map[string][2]string{
		`[a b="c"] m`:                {`[a b="c"]`, "m"},
		`[a b="c\"]" d="e"][f g=""]`: {`[a b="c\"]" d="e"][f g=""]`, ""},
		`[info] started`:             {"", "[info] started"},
		`[a b="c"]m`:                 {"", `[a b="c"]m`},
		`[a b="c`:                    {"", `[a b="c`},
		`[`:                          {"", "["},
		`- text`:                     {"", "- text"},
		``:                           {"", ""},
	} {
		data, message := structuredData(rest)
		require.Equal(t, want, [2]string{data, message}, rest)
	}
}

func TestOneBadLineAmongGoodOnes(t *testing.T) {
	got, d, err := run(t, frame("<190>1 t h a p - good", "no syslog", "<999>1 t h a p - x", "<190>2 t h a p - x", "<190>1 t h", "<13>1 - - - - -")+"\n", "")
	require.NoError(t, err)
	require.Equal(t, 4, d.invalid)
	require.Len(t, got, 2)
	require.Equal(t, "", got[1].Body)
}

func TestFramesThatDoNotAddUp(t *testing.T) {
	for _, body := range []string{"x", "12 short", "-1 x", "99999999999999 x", " x", "5 <190", "<190>1 t h a p - no frame"} {
		_, _, err := run(t, body, "")
		require.Error(t, err, body)
	}
	got, _, err := run(t, "", "")
	require.NoError(t, err)
	require.Empty(t, got)
}

func TestRandomLines(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 8))
	for range 300 {
		var lines, want []string
		for range rng.IntN(20) {
			message := strings.Repeat("é1 <9>", rng.IntN(9))
			lines = append(lines, "<190>1 2023-11-14T22:13:20Z h a p - "+message)
			want = append(want, message)
		}
		got, d, err := run(t, frame(lines...), "")
		require.NoError(t, err)
		require.Zero(t, d.invalid)
		for i, r := range got {
			require.Equal(t, want[i], r.Body)
		}
		require.Len(t, got, len(want))
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(frame("<190>1 2012-11-30T06:45:29+00:00 h a web.1 - [a b=\"c\"] x\n"), "d")
	f.Fuzz(func(t *testing.T, body, token string) {
		got, d, err := run(t, body, token)
		if err == nil {
			require.Len(t, got, len(d.lines))
		}
	})
}
