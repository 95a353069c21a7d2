//go:build e2e

package e2e

import (
	"fmt"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester/receive/receivetest"
)

// TestRealClientLibraries: what the official Elasticsearch client, Promtail's Loki
// client and Kubernetes' own types put on the wire is stored item by item, and the
// libraries hear what they need to hear.
func TestRealClientLibraries(t *testing.T) {
	const n = 500
	for _, c := range []struct {
		kind, path, stream string
		want               func(i int) receivetest.Record
	}{
		{"elasticsearch", "/ingester/api/v1/filebeat", "logs", func(i int) receivetest.Record {
			return receivetest.Record{Resource: map[string]any{"elasticsearch.index": "logs-e2e", "host.name": "h1"},
				Attributes: map[string]any{"elasticsearch.id": strconv.Itoa(i), "log.level": "error", "n": int64(i)}, Severity: 17, Level: "error"}
		}},
		{"loki", "", "logs", func(i int) receivetest.Record {
			level, number := []string{"info", "warn"}[i%2], []int32{9, 13}[i%2]
			return receivetest.Record{Resource: map[string]any{"app": "e2e", "level": level}, Attributes: map[string]any{}, Severity: number, Level: level}
		}},
		{"kubernetes", "", "events", func(i int) receivetest.Record {
			r := receivetest.Record{Resource: map[string]any{"k8s.namespace.name": "shop"}, Severity: 13, Level: "warning", EventName: "Warning",
				Attributes: map[string]any{"source": "kubernetes", "eventType": "Warning", "kube_namespace": "shop", "kube_kind": "Pod", "kube_name": "web-0",
					"k8s.event.reason": "Failed", "k8s.event.name": fmt.Sprint("e", i), "k8s.event.uid": "u", "k8s.object.kind": "Pod", "k8s.object.name": "web-0",
					"k8s.event.reporting_controller": "kubelet"}}
			if i%2 == 0 {
				r.Resource["k8s.node.name"] = "node-1"
				r.Attributes["k8s.event.count"] = int64(3)
			} else {
				r.Attributes["k8s.event.reporting_instance"] = "node-1"
			}
			return r
		}},
	} {
		t.Run(c.kind, func(t *testing.T) {
			data := t.TempDir()
			s := startSpillway(t, data, freeAddress(t), quiet+fmt.Sprintf("sinks: {none: {discard: {}}, files: {file: {path: '%s'}}}\n"+
				"streams: {metrics: {sink: none}, %s: {sink: files}}\n", data, c.stream), "")
			out, err := exec.Command(peer(t, "senders"), c.kind, "http://"+s.address+c.path, strconv.Itoa(n), "").CombinedOutput()
			require.NoError(t, err, "%s", out)
			requireStored(t, s.address, c.stream, n)
			var want []receivetest.Record
			for i := range n {
				r := c.want(i)
				r.Body, r.Time = fmt.Sprint("line ", i), uint64(1_700_000_000+i)*1e9
				want = append(want, r)
			}
			require.ElementsMatch(t, want, filed(t, data, c.stream))
		})
	}
}
