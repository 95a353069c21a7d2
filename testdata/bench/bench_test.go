package main

import (
	"strings"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// TestRequests: the labels are what the bars say, and the sink counts each sample
// of either message.
func TestRequests(t *testing.T) {
	size := 0
	for _, l := range labelsOf(77, 4711, 20) {
		size += len(l.Name) + len(l.Value)
	}
	require.Len(t, labelsOf(77, 4711, 20), 12)
	require.InDelta(t, 240, size, 5)
	for message, field := range map[string]protowire.Number{message1: 1, message2: 5} {
		r, err := prepare(workload{message: message, series: 450, perRequest: 100, teams: 20, passes: 3, churn: 0.1}, time.Now())
		require.NoError(t, err)
		require.Equal(t, 5, r.parts)
		require.Len(t, r.bodies, 15)
		total := 0
		for _, body := range r.bodies {
			raw, err := snappy.Decode(nil, body.body)
			require.NoError(t, err)
			n, err := countSamples(raw, field)
			require.NoError(t, err)
			require.EqualValues(t, body.items, n)
			total += body.items
		}
		require.Equal(t, 3*450, total)
		_, err = countSamples([]byte{0x0a, 0x7f, 1}, field)
		require.Error(t, err)
	}
}

func TestParseBench(t *testing.T) {
	s := parseBench("goos: linux\nBenchmarkTake/refused-2 \t 1000 \t 12.5 ns/op \t 3 allocs/op\nBenchmarkTake/refused-2 10 11.5 ns/op 3 allocs/op\nPASS\n")
	v, err := s.of(`Take/refused(-\d+)?`, "ns/op")
	require.NoError(t, err)
	require.Equal(t, spread{11.5, 12, 12.5}, v)
	_, err = s.of("Take", "ns/op")
	require.Error(t, err)
}

func TestProfileInWords(t *testing.T) {
	shares := sharesOf([]byte(strings.Join([]string{
		"      flat  flat%   sum%        cum   cum%",
		"     0.32s 18.5% 18.39%      0.32s 18.39%  memeqbody",
		"     0.20s 11.5% 42.53%      0.20s 11.49%  github.com/klauspost/compress/s2.s2Decode",
		"     0.01s  1.0% 81.61%      0.22s 12.64%  github.com/spillway-telemetry/spillway/ingester/sink/remotewrite.(*encoder).one (inline)",
		"     0.01s  2.0% 81.61%      0.22s 12.64%  runtime.mallocgc",
	}, "\n")))
	require.Equal(t, map[string]float64{
		"comparing keys": 18.5, "snappy decode": 11.5, "the remote write sink": 1, "garbage collection, allocation and scheduling": 2,
	}, shares)
}

// TestConservedRefusesLoss: a run in which items went missing does not count.
func TestConservedRefusesLoss(t *testing.T) {
	m := metrics{
		`spillway_received_items_total{stream="metrics"}`: 100, `spillway_received_items_total{stream="logs"}`: 9,
		`spillway_admitted_items_total{class="a",stream="metrics"}`: 30, `spillway_admitted_items_total{class="b",stream="metrics"}`: 20,
		`spillway_dropped_items_total{class="b",reason="ratelimit",stream="metrics"}`: 50,
	}
	_, err := conserved("metrics", 0.5, 0.5)(m, 100, 50)
	require.NoError(t, err)
	for _, c := range [][2]int64{{100, 49}, {101, 50}, {100, 51}} {
		_, err = conserved("metrics", 0.5, 0.5)(m, c[0], c[1])
		require.Error(t, err)
	}
	_, err = conserved("metrics", 0, 0.01)(m, 100, 50)
	require.ErrorContains(t, err, "50 of 100 items dropped")
}
