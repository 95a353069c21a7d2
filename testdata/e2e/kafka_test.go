//go:build e2e

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/pmetric"
)

// broker is a real Apache Kafka, one node that is broker and controller.
type broker struct {
	java, jars, properties, address string
	*program
}

func newBroker(t *testing.T) *broker {
	t.Helper()
	dir := peer(t, "kafka")
	java, err := os.ReadFile(filepath.Join(dir, "java"))
	if errors.Is(err, os.ErrNotExist) {
		t.Skip("there is no Apache Kafka: build.sh found no Java, no Maven or no repository of jars, and said which")
	}
	require.NoError(t, err)
	data := t.TempDir()
	b := &broker{java: strings.TrimSpace(string(java)), jars: filepath.Join(dir, "*"), properties: filepath.Join(data, "server.properties"), address: freeAddress(t)}
	controller := freeAddress(t)
	require.NoError(t, os.WriteFile(b.properties, []byte(strings.Join([]string{
		"process.roles=broker,controller", "node.id=1", "controller.quorum.voters=1@" + controller,
		"listeners=PLAINTEXT://" + b.address + ",CONTROLLER://" + controller, "advertised.listeners=PLAINTEXT://" + b.address,
		"controller.listener.names=CONTROLLER", "listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
		"log.dirs=" + filepath.Join(data, "logs"), "auto.create.topics.enable=false", "default.replication.factor=1",
		"offsets.topic.replication.factor=1", "transaction.state.log.replication.factor=1", "transaction.state.log.min.isr=1",
	}, "\n")), 0o644))
	out, err := exec.Command(b.java, "-Xmx128m", "-XX:+UseSerialGC", "-cp", b.jars, "kafka.tools.StorageTool", "format", "-t", "MkU3OEVBNTcwNTJENDM2Qk", "-c", b.properties).CombinedOutput()
	require.NoError(t, err, "%s", out)
	return b
}

// run starts the broker and waits until it answers.
func (b *broker) run(t *testing.T) {
	t.Helper()
	b.program = start(t, b.java, "-Xmx256m", "-Xms64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-cp", b.jars, "kafka.Kafka", b.properties)
	eventually(t, "kafka answers", func() bool {
		conn, err := kafka.DialContext(t.Context(), "tcp", b.address)
		if err != nil {
			return false
		}
		defer conn.Close()
		brokers, err := conn.Brokers()
		return err == nil && len(brokers) == 1
	})
}

// read reads every message of a topic with kafka-go.
func (b *broker) read(t *testing.T, topic string) (values [][]byte) {
	t.Helper()
	conn, err := kafka.DialContext(t.Context(), "tcp", b.address)
	require.NoError(t, err)
	defer conn.Close()
	partitions, err := conn.ReadPartitions(topic)
	require.NoError(t, err)
	for _, p := range partitions {
		leader, err := kafka.DialLeader(t.Context(), "tcp", net.JoinHostPort(p.Leader.Host, fmt.Sprint(p.Leader.Port)), topic, p.ID)
		require.NoError(t, err)
		last, err := leader.ReadLastOffset()
		require.NoError(t, err)
		require.NoError(t, leader.Close())
		r := kafka.NewReader(kafka.ReaderConfig{Brokers: []string{b.address}, Topic: topic, Partition: p.ID, MaxWait: 100 * time.Millisecond})
		for at := int64(0); at < last; {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			m, err := r.ReadMessage(ctx)
			cancel()
			if errors.Is(err, io.EOF) {
				break
			}
			require.NoError(t, err)
			require.Equal(t, fmt.Sprint(p.ID), string(m.Key))
			values = append(values, m.Value)
			at = m.Offset + 1
		}
		require.NoError(t, r.Close())
	}
	return values
}

// TestKafkaKeepsWhatWasAcknowledged: a real broker is killed and restarted in
// mid-traffic. Senders hear 503 meanwhile, and every record that was acknowledged can
// be read back, as it was sent.
func TestKafkaKeepsWhatWasAcknowledged(t *testing.T) {
	b := newBroker(t)
	b.run(t)
	s := startSpillway(t, t.TempDir(), freeAddress(t), quiet+`
sinks:
  kafka: {kafka: {brokers: ["`+b.address+`"], timeout: 2s, create_topics: {partitions: 3}}}
streams: {metrics: {sink: kafka}, logs: {sink: kafka}, traces: {sink: kafka}, events: {sink: kafka}, rum: {sink: kafka}}
`, "")
	ship := newShipper(s.address)
	ctx, cancel := context.WithCancel(t.Context())
	senders := ship.run(ctx, t, 4)
	eventually(t, "records flow", func() bool { return ship.stored() >= 500 })
	b.kill()
	eventually(t, "senders are told to send again", func() bool { return ship.asked() >= 10 })
	before := ship.stored()
	b.run(t)
	eventually(t, "records flow again", func() bool { return ship.stored() >= before+500 })
	cancel()
	senders.Wait()
	requireConservedIn(t, metrics(t, s.address), "logs")
	var found []logRecord
	for _, value := range b.read(t, "otlp_logs") {
		ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(value)
		require.NoError(t, err)
		found = append(found, recordsOf(ld)...)
	}
	ship.requireStored(t, found)
	s.stop(t)
}

// TestRemoteWriteToKafka: what a real Prometheus sends by remote write is in the topic
// of metrics as OTLP, sample by sample.
func TestRemoteWriteToKafka(t *testing.T) {
	b := newBroker(t)
	b.run(t)
	s := startSpillway(t, t.TempDir(), freeAddress(t), quiet+`
sinks: {kafka: {kafka: {brokers: ["`+b.address+`"], create_topics: {partitions: 3}}}}
streams: {metrics: {sink: kafka}}
`, "")
	tg := startTarget(t, 50)
	prom, _ := startPrometheus(t, tg.address, "http://"+s.address+"/api/v1/write", message2)
	eventually(t, "some scrapes", func() bool { return tg.scrapes.Load() >= 5 })
	tg.closed.Store(true)
	eventually(t, "everything is sent", func() bool { return drained(t, prom) })
	want := raw(t, prom, `{__name__="e2e"}`)
	var have map[string][]string
	eventually(t, "every sample is in the topic", func() bool {
		have = map[string][]string{}
		for _, value := range b.read(t, "otlp_metrics") {
			md, err := (&pmetric.ProtoUnmarshaler{}).UnmarshalMetrics(value)
			require.NoError(t, err)
			collect(md, have)
		}
		return samplesIn(have) >= samplesIn(want)
	})
	require.Equal(t, want, have)
	m := metrics(t, s.address)
	requireConserved(t, m)
	require.Zero(t, sum(m, "spillway_invalid_items_total"))
	t.Logf("%d samples of %d series are in Kafka as Prometheus has them", samplesIn(have), len(have))
	s.stop(t)
}

// collect adds the samples of the target's gauge as a query API writes them.
func collect(md pmetric.Metrics, into map[string][]string) {
	for _, rm := range md.ResourceMetrics().All() {
		job, _ := rm.Resource().Attributes().Get("service.name")
		instance, _ := rm.Resource().Attributes().Get("service.instance.id")
		for _, sm := range rm.ScopeMetrics().All() {
			for _, m := range sm.Metrics().All() {
				if m.Name() != "e2e" {
					continue
				}
				for _, p := range m.Gauge().DataPoints().All() {
					if p.Flags().NoRecordedValue() {
						continue // the API does not return stale markers
					}
					labels := map[string]string{"__name__": m.Name(), "job": job.Str(), "instance": instance.Str()}
					for k, v := range p.Attributes().All() {
						if k != "cluster" {
							labels[k] = v.Str()
						}
					}
					key := labelKey(labels)
					at := fmt.Sprint(int64(p.Timestamp()) / 1e9)
					if ms := int64(p.Timestamp()) / 1e6 % 1000; ms > 0 {
						at += fmt.Sprintf(".%03d", ms)
					}
					into[key] = append(into[key], at+" "+fmt.Sprint(p.DoubleValue()))
				}
			}
		}
	}
}
