package remotewrite

import (
	"math/rand"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// FuzzEncode encodes requests of any bytes that a lax receiver lets through. It
// must not panic, and where Prometheus understands the request, the result is what
// the oracle says, but for series that were refused as a whole.
func FuzzEncode(f *testing.F) {
	for seed := range int64(6) {
		g := generator{rand.New(rand.NewSource(seed))}
		for _, from := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
			raw, err := g.request(from, 8).Marshal()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(raw, from == ingester.RemoteWrite2, uint64(0), uint64(0))
			f.Add(raw, from == ingester.RemoteWrite2, uint64(0x2d), uint64(0x0f))
			f.Add(raw, from == ingester.RemoteWrite2, uint64(0xfe), uint64(0x01))
		}
	}
	f.Fuzz(func(t *testing.T, raw []byte, v2 bool, drop, change uint64) {
		from := ingester.RemoteWrite1
		if v2 {
			from = ingester.RemoteWrite2
		}
		b, err := walk(from, raw)
		if err != nil {
			return
		}
		plans := make([]plan, len(b.Groups))
		for i := range plans {
			if drop>>(i%64)&1 == 1 {
				plans[i].verdict = ingester.DroppedRatelimit
			}
			if change>>(i%64)&1 == 1 {
				plans[i].labels = []prompb.Label{{Name: "__name__", Value: "a"}, {Name: "job", Value: "b"}}
			}
			plans[i].apply(&b.Groups[i])
		}
		in, inErr := decode(from, raw)
		for _, to := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
			e := newEncoder()
			got, err := decode(to, e.encode(b, to))
			if inErr != nil {
				continue
			}
			require.NoError(t, err)
			refused := make(map[int]bool)
			for _, r := range e.sent.refused {
				g := &b.Groups[r.group]
				require.True(t, g.Admitted())
				require.LessOrEqual(t, int64(r.items), g.Items())
				if from == to || to == ingester.RemoteWrite2 || malformed(b.Message(g)) {
					refused[int(r.group)] = true
				}
			}
			want, _ := expected(in, plans, from, to, refused)
			if from != to {
				// A 1.0 message may hold, unknown to it, what 2.0 calls a start.
				forgetStarts(want.Series)
				forgetStarts(got.Series)
			}
			require.Equal(t, want.Series, got.Series)
			require.Equal(t, want.Families, got.Families)
		}
	})
}

func forgetStarts(all []series) {
	for _, s := range all {
		for i := range s.Samples {
			s.Samples[i].start = 0
		}
		for i, raw := range s.Histograms {
			var h writev2.Histogram
			if err := h.Unmarshal([]byte(raw)); err != nil {
				panic(err)
			}
			s.Histograms[i] = withoutStart(h)
		}
	}
}

// malformed reports whether a series holds a group, the one thing that Prometheus
// reads and this package does not.
func malformed(message []byte) bool {
	for at := 0; at < len(message); {
		f, ok := nextField(message, at)
		if !ok {
			return true
		}
		if f.typ == wireBytes && f.num > 1 && f.num < 6 && malformed(message[f.body:f.end]) {
			return true
		}
		at = f.end
	}
	return false
}
