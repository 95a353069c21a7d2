package main

import (
	"bytes"
	"context"
	"net"
	"net/http"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func oneRecord() plogotlp.ExportRequest {
	logs := plog.NewLogs()
	logs.ResourceLogs().AppendEmpty().ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr("line")
	return plogotlp.NewExportRequestFromLogs(logs)
}

// otlpProcess runs a whole process with OTLP on ports of its own.
func otlpProcess(t *testing.T) (p *process, stop func() error) {
	t.Helper()
	path := testFiles(t, "sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}, logs: {sink: none}, events: {sink: none}}\n", "")
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	data = bytes.ReplaceAll(data, []byte("otlp_grpc_listen_address: '', otlp_http_listen_address: ''"), []byte("otlp_grpc_listen_address: '127.0.0.1:0', otlp_http_listen_address: '127.0.0.1:0'"))
	require.NoError(t, os.WriteFile(path, data, 0o644))
	l, err := load(path, 0)
	require.NoError(t, err)
	p, err = newProcess(l, path)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- p.run(ctx) }()
	return p, func() error {
		cancel()
		return <-done
	}
}

// TestOTLPListeners serves OTLP on its own two ports and on the one that serves
// everything, says so in /metrics, and asks senders to come back once it stops.
func TestOTLPListeners(t *testing.T) {
	t.Chdir(t.TempDir()) // streams without a sink are kept below ./data
	p, stop := otlpProcess(t)
	conn, err := grpc.NewClient(p.otlpServers[0].listener.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	require.NoError(t, err)
	defer conn.Close()
	client := plogotlp.NewGRPCClient(conn)
	_, err = client.Export(t.Context(), oneRecord(), grpc.WaitForReady(true))
	require.NoError(t, err)

	body, err := oneRecord().MarshalProto()
	require.NoError(t, err)
	for _, address := range []net.Addr{p.otlpServers[1].listener.Addr(), p.server.HTTPListenAddr()} {
		for _, path := range []string{"/v1/logs", "/ingester/otlp/v1/logs", "/ingester/otlp/k8s_events"} {
			resp, err := http.Post("http://"+address.String()+path, "application/x-protobuf", bytes.NewReader(body))
			require.NoError(t, err)
			resp.Body.Close()
			require.Equal(t, 200, resp.StatusCode, path)
		}
	}
	text := p.get(t, "GET", "/metrics", nil).Body.String()
	require.Contains(t, text, `spillway_admitted_items_total{class="default",stream="logs"} 5`)
	require.Contains(t, text, `spillway_admitted_items_total{class="default",stream="events"} 2`)

	require.NoError(t, stop())
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = client.Export(ctx, oneRecord())
	require.Equal(t, codes.Unavailable, status.Code(err), "%v", err)
}

// TestOTLPPortTaken starts without OTLP's default ports where another program has
// them, and refuses to start without one that was asked for.
func TestOTLPPortTaken(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	p := testProcess(t, "sinks: {none: {discard: {}}}\nstreams: {metrics: {sink: none}}\n", "")
	require.Empty(t, p.otlpServers, "an empty address is no listener")
	require.ErrorContains(t, p.addOTLP("otlp_grpc_listen_address", taken.Addr().String(), nil, nil), "cannot listen on "+taken.Addr().String())
	require.True(t, isDefaultOTLP("127.0.0.1:4317"))
	require.False(t, isDefaultOTLP("127.0.0.1:4319"))
}

// TestOTLPProblems names every option of OTLP that cannot be meant.
func TestOTLPProblems(t *testing.T) {
	c := defaultOTLPConfig()
	require.Empty(t, c.problems())
	c.TranslationStrategy, c.MaxAttributes, c.MaxBuckets = "Loud", 0, 0
	c.PromoteAllResourceAttributes, c.PromoteResourceAttributes = true, []string{"a"}
	require.Len(t, c.problems(), 4)
	c.PromoteAllResourceAttributes, c.IgnoreResourceAttributes = false, []string{"b"}
	require.Len(t, c.problems(), 4)
}
