package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// receiverCPU is what the receiver used while it was sent something, the figure
// that `spillway plan` starts from, and what it did not store meanwhile.
type receiverCPU struct {
	CPUSeconds        float64 `json:"cpu_seconds"`
	ItemsPerCPUSecond float64 `json:"items_per_cpu_second"`
	// Dropped and Refused are items of all its senders, 0 where it is no Spillway.
	Dropped int64 `json:"dropped_items"`
	Refused int64 `json:"refused_items"`
}

// unstored is the part of so many items, 0 to 1, that the receiver did not store.
func (r *receiverCPU) unstored(items int64) float64 {
	return float64(r.Dropped+r.Refused) / float64(max(1, items))
}

// mostUnstored is the part from which a measurement says too little about storing.
const mostUnstored = 0.01

// sendMeasured sends everything. Where --receiver-metrics names the receiver's
// metrics, the summary has what they say of the time from before the first request
// to after the last answer.
func (g *generator) sendMeasured(ctx context.Context) (*loadSummary, error) {
	address := g.options.receiverMetrics
	if address == "" {
		return g.send(ctx), nil
	}
	before, err := readReceiver(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("--receiver-metrics: %w", err)
	}
	s := g.send(ctx)
	after, err := readReceiver(context.WithoutCancel(ctx), address)
	if err != nil {
		return s, fmt.Errorf("--receiver-metrics: %w", err)
	}
	if cpu := after.cpu - before.cpu; cpu > 0 && s.answered() > 0 {
		s.Receiver = &receiverCPU{
			CPUSeconds: cpu, ItemsPerCPUSecond: float64(s.Items) / cpu,
			Dropped: int64(after.dropped - before.dropped), Refused: int64(after.refused - before.refused),
		}
	}
	return s, nil
}

// receiverCounters are since the start of the receiver.
type receiverCounters struct{ cpu, dropped, refused float64 }

// readReceiver reads an exposition.
func readReceiver(ctx context.Context, address string) (c receiverCounters, err error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return c, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return c, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return c, fmt.Errorf("%s answers %s with no metrics: %w", address, resp.Status, err)
	}
	sum := func(name string) (total float64) {
		for _, m := range families[name].GetMetric() {
			total += m.GetCounter().GetValue()
		}
		return total
	}
	if len(families["process_cpu_seconds_total"].GetMetric()) != 1 {
		return c, fmt.Errorf("%s answers %s without one process_cpu_seconds_total", address, resp.Status)
	}
	return receiverCounters{sum("process_cpu_seconds_total"), sum("spillway_dropped_items_total"), sum("spillway_refused_items_total")}, nil
}
