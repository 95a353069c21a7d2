package main

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
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

// receiverMetrics is where the receiver tells its CPU time: what the flag says,
// else /metrics of the server that is sent to.
func (o *loadOptions) receiverMetrics() string {
	if o.metricsURL != "" {
		return o.metricsURL
	}
	u, err := url.Parse(o.url)
	if err != nil {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: "/metrics"}).String()
}

// measured notes the receiver's CPU time and returns what completes the summary
// with the difference. A receiver that does not tell it leaves the summary alone:
// most are no Spillway.
func (g *generator) measured(ctx context.Context) func(*loadSummary) {
	address := g.options.receiverMetrics()
	before, err := cpuSeconds(ctx, address)
	return func(s *loadSummary) {
		after, again := cpuSeconds(context.WithoutCancel(ctx), address)
		if err != nil || again != nil || after <= before || s.answered() == 0 {
			return
		}
		s.Receiver = &receiverCPU{CPUSeconds: after - before, ItemsPerCPUSecond: float64(s.Items) / (after - before)}
	}
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
		return 0, err
	}
	for _, m := range families["process_cpu_seconds_total"].GetMetric() {
		return m.GetCounter().GetValue(), nil
	}
	return 0, fmt.Errorf("%s has no process_cpu_seconds_total", address)
}
