package main

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// receiverCPU is what the receiver used while it was sent something: the figure
// that `spillway plan` starts from.
type receiverCPU struct {
	CPUSeconds        float64 `json:"cpu_seconds"`
	ItemsPerCPUSecond float64 `json:"items_per_cpu_second"`
}

// sendMeasured sends everything. Where --receiver-metrics names the receiver's
// metrics, the summary has its CPU time from before the first request to after the
// last answer.
func (g *generator) sendMeasured(ctx context.Context) (*loadSummary, error) {
	address := g.options.receiverMetrics
	if address == "" {
		return g.send(ctx), nil
	}
	before, err := cpuSeconds(ctx, address)
	if err != nil {
		return nil, fmt.Errorf("--receiver-metrics: %w", err)
	}
	s := g.send(ctx)
	after, err := cpuSeconds(context.WithoutCancel(ctx), address)
	if err != nil {
		return s, fmt.Errorf("--receiver-metrics: %w", err)
	}
	if after > before && s.answered() > 0 {
		s.Receiver = &receiverCPU{CPUSeconds: after - before, ItemsPerCPUSecond: float64(s.Items) / (after - before)}
	}
	return s, nil
}

// cpuSeconds reads process_cpu_seconds_total from an exposition.
func cpuSeconds(ctx context.Context, address string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return 0, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return 0, fmt.Errorf("%s answers %s with no metrics: %w", address, resp.Status, err)
	}
	metrics := families["process_cpu_seconds_total"].GetMetric()
	if len(metrics) != 1 {
		return 0, fmt.Errorf("%s answers %s without one process_cpu_seconds_total", address, resp.Status)
	}
	return metrics[0].GetCounter().GetValue(), nil
}
