package telemetry

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/prometheus/prompb"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/policy"
	"github.com/spillway-telemetry/spillway/relabel"
)

// store keeps the series of a batch as text.
type store struct {
	series map[string]float64
	fail   error
}

func (s *store) Write(_ context.Context, b *ingester.Batch) error {
	if s.fail != nil {
		return s.fail
	}
	for i := range b.Groups {
		var ts, set prompb.TimeSeries
		if err := errors.Join(ts.Unmarshal(b.Message(&b.Groups[i])), set.Unmarshal(b.Labels(&b.Groups[i]))); err != nil {
			return err
		}
		key := ""
		for _, l := range set.Labels {
			key += fmt.Sprintf("%s=%q ", l.Name, l.Value)
		}
		s.series[key] = ts.Samples[0].Value
		if ts.Samples[0].Timestamp != 12345 {
			return fmt.Errorf("%s has the time %d", key, ts.Samples[0].Timestamp)
		}
	}
	return nil
}

// TestWrite stores every kind of metric, exempt from a policy that drops
// everything, with the labels that were asked for.
func TestWrite(t *testing.T) {
	set, err := policy.Load([]byte("streams: {metrics: {rate: 0, burst: 1}}"), "policy.yaml", 1)
	require.NoError(t, err)
	rules, err := relabel.Parse(nil)
	require.NoError(t, err)
	sink := &store{series: map[string]float64{}}
	settings := ingester.Settings{
		Exempt:     ingester.ExemptLabel{Label: "kfuse", Value: "true"},
		Limits:     ingester.LabelLimits{Names: 10, NameBytes: 100, ValueBytes: 100, SetBytes: 1000},
		RouteBytes: 1 << 20,
	}
	for _, s := range ingester.Streams() {
		settings.Streams[s] = ingester.StreamSettings{Rules: rules, Policy: set.Stream(s.String()), Sink: sink}
	}
	in, err := ingester.New(settings, 1<<20, nil)
	require.NoError(t, err)

	reg := prometheus.NewRegistry()
	counter := prometheus.NewCounterVec(prometheus.CounterOpts{Name: "c_total"}, []string{"job", "empty"})
	counter.WithLabelValues("theirs", "").Add(3)
	histogram := prometheus.NewHistogram(prometheus.HistogramOpts{Name: "h", Buckets: []float64{0.5, 2}})
	histogram.Observe(1)
	summary := prometheus.NewSummary(prometheus.SummaryOpts{Name: "s", Objectives: map[float64]float64{0.5: 0.1}})
	summary.Observe(4)
	reg.MustRegister(counter, histogram, summary)

	w := Writer{Ingester: in, Gatherer: reg, Labels: map[string]string{"job": "spillway"}}
	require.NoError(t, w.Write(context.Background(), time.UnixMilli(12345)))
	const ours = `job="spillway" kfuse="true" `
	require.Equal(t, map[string]float64{
		`__name__="c_total" ` + ours:                 3,
		`__name__="h_bucket" ` + ours + `le="0.5" `:  0,
		`__name__="h_bucket" ` + ours + `le="2" `:    1,
		`__name__="h_bucket" ` + ours + `le="+Inf" `: 1,
		`__name__="h_sum" ` + ours:                   1,
		`__name__="h_count" ` + ours:                 1,
		`__name__="s" ` + ours + `quantile="0.5" `:   4,
		`__name__="s_sum" ` + ours:                   4,
		`__name__="s_count" ` + ours:                 1,
	}, sink.series)
	status := in.RateControl().Streams["metrics"]
	require.EqualValues(t, 9, status.Exempt)
	require.EqualValues(t, 9, status.Received)

	sink.fail = errors.New("the disk is full")
	require.ErrorContains(t, w.Write(context.Background(), time.UnixMilli(12345)), "the disk is full")
}
