package main

import (
	"bufio"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// metrics are a receiver's own, by the text before the value.
type metrics map[string]float64

// metrics asks the receiver.
func (p *process) metrics() (metrics, error) {
	resp, err := http.Get("http://" + p.address + "/metrics")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	m := make(metrics)
	lines := bufio.NewScanner(resp.Body)
	for lines.Scan() {
		line := lines.Text()
		at := strings.LastIndexByte(line, ' ')
		if at < 0 || line[0] == '#' {
			continue
		}
		v, err := strconv.ParseFloat(line[at+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("metric %q: %w", line, err)
		}
		m[strings.TrimSpace(line[:at])] = v
	}
	return m, lines.Err()
}

// sum adds up the series of a counter that carry all the given labels.
func (m metrics) sum(name string, labels ...string) int64 {
	total := 0.0
	for series, v := range m {
		rest, ok := strings.CutPrefix(series, name)
		ok = ok && (rest == "" || rest[0] == '{')
		for _, l := range labels {
			ok = ok && strings.Contains(rest, l)
		}
		if ok {
			total += v
		}
	}
	return int64(total)
}
