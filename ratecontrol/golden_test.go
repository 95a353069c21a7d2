package ratecontrol

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/policy"
)

var update = flag.Bool("update", false, "rewrite the tables in testdata/ratecontrol")

// TestScenarios replays the files of testdata/ratecontrol. Each is a policy, a
// line "---- logs/CLASS, N ingesters", what is sent, a line "----", and the
// table that came of it:
//
//	send 50/s for 10s            evenly spaced, the first at once
//	send 50/s for 10s by 5       five at the same instant
//	send 1/s for 10s cost 10     each of ten items, all or none
//	idle 1h
//
// -update rewrites the tables: look at the difference as at a picture.
func TestScenarios(t *testing.T) {
	files, err := filepath.Glob("../testdata/ratecontrol/*.txt")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			data, err := os.ReadFile(file)
			require.NoError(t, err)
			parts := strings.SplitN(string(data), "\n----", 3)
			require.Len(t, parts, 3, "want policy, script and table")
			title, script, _ := strings.Cut(parts[1], "\n")
			var class string
			var ingesters int
			_, err = fmt.Sscanf(strings.Replace(title, ",", " ,", 1), " logs/%s , %d ingesters", &class, &ingesters)
			require.NoError(t, err, title)

			s := newScenario(t, parts[0], ingesters, class)
			for _, line := range strings.Split(script, "\n") {
				s.play(t, line)
			}
			got := "\n" + s.table()
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(parts[0]+"\n----"+parts[1]+"\n----"+got), 0o644))
				return
			}
			require.Equal(t, parts[2], got)
		})
	}
}

// scenario plays one class against a virtual clock.
type scenario struct {
	limiter *Limiter
	class   int
	now     int64
	rows    []row
}

// row is what happened in a second, or in an idle time.
type row struct {
	from, span        int64 // ns
	offered, admitted int64
	level             float64
}

func newScenario(t *testing.T, yaml string, ingesters int, class string) *scenario {
	set, err := policy.Load([]byte(yaml), "policy.yaml", ingesters)
	require.NoError(t, err)
	p := set.Stream("logs")
	return &scenario{limiter: NewLimiter(p, 0), class: id(t, p, class)}
}

func (s *scenario) play(t *testing.T, line string) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	args := map[string]string{}
	for i := 0; i+1 < len(words); i += 2 {
		args[words[i]] = words[i+1]
	}
	span := func(key string) int64 {
		d, err := time.ParseDuration(args[key])
		require.NoError(t, err, line)
		return int64(d)
	}
	number := func(text, otherwise string) int64 {
		if text == "" {
			text = otherwise
		}
		n, err := strconv.ParseInt(text, 10, 64)
		require.NoError(t, err, line)
		return n
	}
	switch words[0] {
	case "send":
		s.send(number(strings.TrimSuffix(args["send"], "/s"), ""), span("for"), number(args["by"], "1"), number(args["cost"], "1"))
	case "idle":
		s.advance(row{from: s.now, span: span("idle")})
	default:
		require.Fail(t, "no such line", line)
	}
}

// send offers rate requests per second in bunches.
func (s *scenario) send(rate, span, bunch, cost int64) {
	sent := int64(0)
	for begin := s.now; s.now < begin+span; {
		r := row{from: s.now, span: second}
		for ; ; sent++ {
			at := begin + (sent/bunch*bunch)*second/rate
			if at >= s.now+second {
				break
			}
			r.offered += cost
			if s.limiter.Take(s.class, cost, at) {
				r.admitted += cost
			}
		}
		s.advance(r)
	}
}

func (s *scenario) advance(r row) {
	s.now += r.span
	r.level = s.limiter.Tokens(s.class, s.now)
	s.rows = append(s.rows, r)
}

// table plots a row per second: # admitted, . dropped.
func (s *scenario) table() string {
	const width = 50
	var b strings.Builder
	most, offered, admitted := int64(1), int64(0), int64(0)
	for _, r := range s.rows {
		most = max(most, r.offered)
		offered, admitted = offered+r.offered, admitted+r.admitted
	}
	fmt.Fprintf(&b, "%8s %8s %8s %8s %10s\n", "from", "offered", "admitted", "dropped", "level then")
	for _, r := range s.rows {
		bar := strings.Repeat("#", int(r.admitted*width/most)) +
			strings.Repeat(".", int(r.offered*width/most-r.admitted*width/most))
		line := fmt.Sprintf("%8s %8d %8d %8d %10.2f  %s", time.Duration(r.from), r.offered, r.admitted, r.offered-r.admitted, r.level, bar)
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	fmt.Fprintf(&b, "%8s %8d %8d %8d\n", "all", offered, admitted, offered-admitted)
	return b.String()
}
