package remotewrite

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
)

// scrape is the series of one sender as they stand on the wire, with what their
// labels are.
type scrape struct {
	rng    *rand.Rand
	series [][]byte
	labels []string
}

// add puts a series in at place i. Its labels are of few values, so that many
// series start alike; some stand behind the sample, as no known sender writes them.
func (s *scrape) add(t *testing.T, i int) {
	ls := []prompb.Label{{Name: "__name__", Value: "m"}, {Name: "a", Value: fmt.Sprint(s.rng.IntN(2))}, {Name: "b", Value: fmt.Sprint(s.rng.IntN(2))}, {Name: "c", Value: "1"}}
	ls = ls[:2+s.rng.IntN(3)]
	front := len(ls)
	if s.rng.IntN(4) == 0 {
		front = s.rng.IntN(len(ls) + 1)
	}
	head, err := (&prompb.TimeSeries{Labels: ls[:front], Samples: []prompb.Sample{{Value: 1, Timestamp: 1_700_000_000_000}}}).Marshal()
	require.NoError(t, err)
	tail, err := (&prompb.TimeSeries{Labels: ls[front:]}).Marshal()
	require.NoError(t, err)
	s.series = append(s.series[:i:i], append([][]byte{append(head, tail...)}, s.series[i:]...)...)
	s.labels = append(s.labels[:i:i], append([]string{labelString(ls)}, s.labels[i:]...)...)
}

func (s *scrape) remove(i int) {
	s.series = append(s.series[:i:i], s.series[i+1:]...)
	s.labels = append(s.labels[:i:i], s.labels[i+1:]...)
}

func (s *scrape) body() (body []byte) {
	for _, series := range s.series {
		body = protowire.AppendTag(body, 1, protowire.BytesType)
		body = protowire.AppendBytes(body, series)
	}
	return body
}

// TestGuessedSeriesHaveTheirOwnLabels sends a scrape again and again while series
// come, go and change places. Whether a series was guessed, found or read, its key
// and its route belong to the labels that it has, and a scrape that did not change
// is guessed but for its first series.
func TestGuessedSeriesHaveTheirOwnLabels(t *testing.T) {
	s := newSystem(t, "", "- {source_labels: [a], regex: '[0-4]', target_label: low, replacement: 'yes'}")
	now := &scrape{rng: rand.New(rand.NewPCG(7, 7))}
	for i := range 30 {
		now.add(t, i)
	}
	for range 1000 {
		for range now.rng.IntN(4) {
			switch i := now.rng.IntN(len(now.series)); now.rng.IntN(3) {
			case 0:
				now.add(t, i)
			case 1:
				now.remove(i)
			default:
				j := now.rng.IntN(len(now.series))
				now.series[i], now.series[j] = now.series[j], now.series[i]
				now.labels[i], now.labels[j] = now.labels[j], now.labels[i]
			}
		}
		w := newWalker(s, now.body())
		require.NoError(t, w.walkV1())
		require.Len(t, w.b.Groups, len(now.labels))
		require.NoError(t, s.ingester.Process(t.Context(), w.b).Err)
		for i, want := range now.labels {
			g := &w.b.Groups[i]
			require.Equal(t, want, keyString(t, w.b.Bytes(g.Key)))
			require.Equal(t, want, keyString(t, g.Route.Sent()))
			require.Equal(t, string(w.b.Bytes(g.Key)), string(g.Route.Sent()))
		}
		w.memory.Release()
	}
	w := newWalker(s, now.body())
	defer w.memory.Release()
	require.NoError(t, w.walkV1())
	for i := range w.b.Groups {
		require.NotZero(t, w.b.Groups[i].Route, "series %d", i)
	}
}

func keyString(t *testing.T, key []byte) string {
	var ts prompb.TimeSeries
	require.NoError(t, ts.Unmarshal(key))
	return labelString(ts.Labels)
}
