package kafka

import (
	"context"
	"crypto/tls"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/rand"
	"net"
	"net/http"
	"net/http/httptest"
	"sort"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/segmentio/kafka-go"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.opentelemetry.io/collector/pdata/plog"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

// batch is a batch of log records with these bodies, each under a resource of its
// own that is named by what stands before the body's first dash.
func batch(tb testing.TB, bodies ...string) *ingester.Batch {
	tb.Helper()
	ld := plog.NewLogs()
	for _, text := range bodies {
		rl := ld.ResourceLogs().AppendEmpty()
		service, _, _ := strings.Cut(text, "-")
		rl.Resource().Attributes().PutStr("service.name", service)
		rl.ScopeLogs().AppendEmpty().LogRecords().AppendEmpty().Body().SetStr(text)
	}
	raw, err := (&plog.ProtoMarshaler{}).MarshalLogs(ld)
	require.NoError(tb, err)
	b := &ingester.Batch{Stream: ingester.Logs, Format: ingester.OTLPLogs, Whole: true}
	require.True(tb, sink.Describe(b, raw))
	require.Len(tb, b.Groups, len(bodies))
	return b
}

func testOptions(addrs []string) Options {
	o := DefaultOptions()
	o.Brokers = addrs
	o.CreateTopics = CreateTopics{Partitions: 4, ReplicationFactor: 1}
	o.Timeout = model.Duration(5 * time.Second)
	return o
}

func openSink(t *testing.T, o Options) *Sink {
	t.Helper()
	s, err := New(o, slog.New(slog.DiscardHandler), nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func cluster(t *testing.T, opts ...kfake.Opt) *kfake.Cluster {
	t.Helper()
	c, err := kfake.NewCluster(append([]kfake.Opt{kfake.NumBrokers(3)}, opts...)...)
	require.NoError(t, err)
	t.Cleanup(c.Close)
	return c
}

// consumed is a record that was read back.
type consumed struct {
	partition int
	key, body string
	headers   []kafka.Header
}

// consume reads a topic from its start to its present end.
func consume(t *testing.T, addrs []string, topic string, transport kafka.RoundTripper) (all []consumed) {
	t.Helper()
	client := &kafka.Client{Addr: kafka.TCP(addrs...), Timeout: 10 * time.Second, Transport: transport}
	m, err := client.Metadata(t.Context(), &kafka.MetadataRequest{Topics: []string{topic}})
	require.NoError(t, err)
	for _, p := range m.Topics[0].Partitions {
		offsets, err := client.ListOffsets(t.Context(), &kafka.ListOffsetsRequest{Topics: map[string][]kafka.OffsetRequest{topic: {kafka.LastOffsetOf(p.ID)}}})
		require.NoError(t, err)
		end := offsets.Topics[topic][0].LastOffset
		for at := int64(0); at < end; {
			f, err := client.Fetch(t.Context(), &kafka.FetchRequest{Topic: topic, Partition: p.ID, Offset: at, MinBytes: 1, MaxBytes: 16 << 20, MaxWait: time.Second})
			require.NoError(t, err)
			require.NoError(t, f.Error)
			for {
				r, err := f.Records.ReadRecord()
				if err != nil {
					break
				}
				value, err := kafka.ReadAll(r.Value)
				require.NoError(t, err)
				key, err := kafka.ReadAll(r.Key)
				require.NoError(t, err)
				if r.Offset >= at {
					all = append(all, records(t, consumed{partition: p.ID, key: string(key), headers: r.Headers}, value)...)
					at = r.Offset + 1
				}
			}
		}
	}
	return all
}

// records reads a message with OpenTelemetry's own code.
func records(t *testing.T, c consumed, value []byte) (all []consumed) {
	ld, err := (&plog.ProtoUnmarshaler{}).UnmarshalLogs(value)
	require.NoError(t, err)
	for _, rl := range ld.ResourceLogs().All() {
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				c.body = lr.Body().Str()
				all = append(all, c)
			}
		}
	}
	return all
}

func bodiesOf(all []consumed) (bodies []string) {
	for _, c := range all {
		bodies = append(bodies, c.body)
	}
	sort.Strings(bodies)
	return bodies
}

func TestEveryRecordArrivesAndSeriesKeepTheirOrder(t *testing.T) {
	for _, compression := range []string{"none", "gzip", "snappy", "lz4", "zstd"} {
		c := cluster(t)
		o := testOptions(c.ListenAddrs())
		o.Compression = compression
		s := openSink(t, o)
		require.NoError(t, s.Start(t.Context(), []ingester.Stream{ingester.Logs}))
		var want []string
		for i := range 20 {
			var bodies []string
			for service := range 10 {
				bodies = append(bodies, fmt.Sprintf("service%d-%02d", service, i))
			}
			b := batch(t, bodies...)
			b.Headers = http.Header{"X-Scope-Orgid": {"team-a"}}
			b.Groups[i%10].Verdict = ingester.DroppedRatelimit
			b.Whole = false
			require.NoError(t, s.Write(t.Context(), b))
			want = append(want, append(bodies[:i%10], bodies[i%10+1:]...)...)
		}
		all := consume(t, o.Brokers, "otlp_logs", nil)
		sort.Strings(want)
		require.Equal(t, want, bodiesOf(all))
		partition, last, used := map[string]int{}, map[string]string{}, map[int]bool{}
		for _, r := range all {
			service, number, _ := strings.Cut(r.body, "-")
			if p, ok := partition[service]; ok {
				require.Equal(t, p, r.partition, "a resource stays in its partition")
				require.Less(t, last[service], number, "in order")
			}
			partition[service], last[service], used[r.partition] = r.partition, number, true
			require.Equal(t, strconv.Itoa(r.partition), r.key)
			require.Equal(t, []kafka.Header{{Key: "x-scope-orgid", Value: []byte("team-a")}}, r.headers)
		}
		require.Greater(t, len(used), 1, "the load is spread")
	}
}

func TestMessagesAreSplitAndTooLargeItemsRejected(t *testing.T) {
	c := cluster(t)
	o := testOptions(c.ListenAddrs())
	o.MaxMessageBytes = 4 << 10
	s := openSink(t, o)
	var bodies []string
	for i := range 40 {
		bodies = append(bodies, fmt.Sprintf("one-%02d-%s", i, strings.Repeat("x", 500)))
	}
	b := batch(t, append(bodies, "two-"+strings.Repeat("y", 5<<10))...)
	require.NoError(t, s.Write(t.Context(), b))
	require.EqualValues(t, 1, b.Groups[40].Rejected)
	require.Zero(t, b.Groups[39].Rejected)
	require.Equal(t, bodies, bodiesOf(consume(t, o.Brokers, "otlp_logs", nil)))
	// Nothing of a batch is left.
	require.NoError(t, s.Write(t.Context(), batch(t, "two-"+strings.Repeat("y", 5<<10))))
}

func TestTopicsAreMadeOrChecked(t *testing.T) {
	c := cluster(t, kfake.SeedTopics(7, "there"))
	o := testOptions(c.ListenAddrs())
	o.Topics["logs"], o.Topics["traces"] = "there", "missing"
	s := openSink(t, o)
	require.NoError(t, s.Start(t.Context(), ingester.Streams()))
	n, err := s.topics.count(t.Context(), "there", time.Now())
	require.NoError(t, err)
	require.Equal(t, 7, n)
	require.Len(t, c.PartitionInfos("missing"), 4)

	o.Topics["events"] = "also missing"
	o.CreateTopics.Partitions = 0
	strict := openSink(t, o)
	require.NoError(t, strict.Start(t.Context(), []ingester.Stream{ingester.Logs}))
	require.ErrorContains(t, strict.Start(t.Context(), []ingester.Stream{ingester.Events}), `topics.events: topic "also missing": the topic does not exist: make it, or set create_topics.partitions`)
}

// A cluster that is away at the start is waited for by senders, not by the program.
func TestAClusterThatIsAwayIsNoError(t *testing.T) {
	o := testOptions([]string{"127.0.0.1:1"})
	o.Timeout = model.Duration(300 * time.Millisecond)
	s := openSink(t, o)
	require.NoError(t, s.Start(t.Context(), ingester.Streams()))
	var e *ingester.SinkError
	require.ErrorAs(t, s.Write(t.Context(), batch(t, "a-1")), &e)
	require.False(t, e.Final)
	require.Positive(t, e.RetryAfter)
	began := time.Now()
	require.Error(t, s.Write(t.Context(), batch(t, "a-1")))
	require.Less(t, time.Since(began), time.Duration(o.Timeout), "it is left alone")
}

// fail answers count produce requests, all if it is -1, with an error.
func fail(c *kfake.Cluster, err *kerr.Error, count int) {
	c.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Produce}, Err: err, Count: count})
}

func TestErrorsThatPassAreTriedAgain(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.NotLeaderForPartition, kerr.NotEnoughReplicas, kerr.LeaderNotAvailable, kerr.KafkaStorageError} {
		c := cluster(t)
		o := testOptions(c.ListenAddrs())
		s := openSink(t, o)
		fail(c, code, 3)
		require.NoError(t, s.Write(t.Context(), batch(t, "a-1", "b-2", "c-3")), code.Message)
		require.Equal(t, []string{"a-1", "b-2", "c-3"}, bodiesOf(consume(t, o.Brokers, "otlp_logs", nil)))
	}
}

// A cluster that stays without enough replicas, or refuses us, leaves the batch with
// its sender.
func TestErrorsThatStayRefuseTheBatch(t *testing.T) {
	for code, want := range map[*kerr.Error]string{
		kerr.NotEnoughReplicas:        "topic otlp_logs, partition",
		kerr.TopicAuthorizationFailed: "Topic Authorization Failed",
		kerr.MessageTooLarge:          "set max_message_bytes to what the topic's max.message.bytes allows",
	} {
		c := cluster(t)
		o := testOptions(c.ListenAddrs())
		o.Timeout = model.Duration(500 * time.Millisecond)
		s := openSink(t, o)
		fail(c, code, -1)
		var e *ingester.SinkError
		require.ErrorAs(t, s.Write(t.Context(), batch(t, "a-1")), &e)
		require.False(t, e.Final, code.Message)
		require.ErrorContains(t, e, want)
		require.Empty(t, consume(t, o.Brokers, "otlp_logs", nil))
	}
}

func TestCredentials(t *testing.T) {
	c := cluster(t, kfake.EnableSASL(), kfake.Superuser("SCRAM-SHA-256", "u", "right"), kfake.Superuser("PLAIN", "u", "right"))
	for _, mechanism := range []string{"scram-sha-256", "plain"} {
		o := testOptions(c.ListenAddrs())
		o.SASL = &SASL{Mechanism: mechanism, Username: "u", Password: "right"}
		s := openSink(t, o)
		require.NoError(t, s.Write(t.Context(), batch(t, "a-1")))
		o.SASL = &SASL{Mechanism: mechanism, Username: "u", Password: "wrong"}
		o.Timeout = model.Duration(time.Second)
		require.Error(t, openSink(t, o).Write(t.Context(), batch(t, "b-2")))
	}
}

// Every produce request waits for all in-sync replicas.
func TestAllReplicasAcknowledge(t *testing.T) {
	c := cluster(t)
	var others, all atomic.Int32
	c.ControlKey(int16(kmsg.Produce), func(req kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		if req.(*kmsg.ProduceRequest).Acks == -1 {
			all.Add(1)
		} else {
			others.Add(1)
		}
		return nil, nil, false
	})
	require.NoError(t, openSink(t, testOptions(c.ListenAddrs())).Write(t.Context(), batch(t, "a-1", "b-2", "c-3")))
	require.Positive(t, all.Load())
	require.Zero(t, others.Load())
}

// However many batches wait, so many connections and one more for metadata.
func TestConnectionsAreBounded(t *testing.T) {
	c := cluster(t, kfake.NumBrokers(1))
	o := testOptions(c.ListenAddrs())
	o.MaxConnectionsPerBroker, o.CreateTopics.Partitions = 3, 16
	s := openSink(t, o)
	var dialled atomic.Int32
	dial := s.transport.Dial
	s.transport.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialled.Add(1)
		return dial(ctx, network, address)
	}
	var wg sync.WaitGroup
	for w := range 20 {
		wg.Go(func() {
			for i := range 5 {
				if err := s.Write(t.Context(), batch(t, fmt.Sprintf("a%d-%d", w, i), fmt.Sprintf("b%d-%d", w, i), fmt.Sprintf("c%d-%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	require.Len(t, consume(t, o.Brokers, "otlp_logs", nil), 300)
	// The address that the cluster is found by is one more group of connections.
	require.LessOrEqual(t, dialled.Load(), int32(o.MaxConnectionsPerBroker+2))
}

func TestTLS(t *testing.T) {
	server := httptest.NewTLSServer(nil) // for its certificate
	defer server.Close()
	c := cluster(t, kfake.NumBrokers(1), kfake.TLS(&tls.Config{Certificates: server.TLS.Certificates}))
	ca := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	o := testOptions(c.ListenAddrs())
	o.Timeout = model.Duration(2 * time.Second)
	o.TLSConfig = &config.TLSConfig{CA: ca}
	require.NoError(t, openSink(t, o).Write(t.Context(), batch(t, "a-1")))
	o.TLSConfig = &config.TLSConfig{}
	require.ErrorContains(t, openSink(t, o).Write(t.Context(), batch(t, "a-1")), "certificate")
	o.TLSConfig = nil
	require.Error(t, openSink(t, o).Write(t.Context(), batch(t, "a-1")))
}

// A broker is killed and restarted in mid-traffic, on the same ports and data. What
// was acknowledged is there, whatever happened; each record is known by its body.
func TestNothingAcknowledgedIsLostInARestart(t *testing.T) {
	dir := t.TempDir()
	c, err := kfake.NewCluster(kfake.NumBrokers(2), kfake.DataDir(dir), kfake.SyncWrites())
	require.NoError(t, err)
	var ports []int
	for _, addr := range c.ListenAddrs() {
		port, err := strconv.Atoi(addr[strings.LastIndex(addr, ":")+1:])
		require.NoError(t, err)
		ports = append(ports, port)
	}
	o := testOptions(c.ListenAddrs())
	o.Timeout = model.Duration(time.Second)
	s := openSink(t, o)
	ctx, cancel := context.WithCancel(t.Context())
	var mu sync.Mutex
	acked, refused := map[string]bool{}, 0
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				bodies := []string{fmt.Sprintf("w%d-%d", w, i), fmt.Sprintf("v%d-%d", w, i)}
				err := s.Write(context.Background(), batch(t, bodies...))
				mu.Lock()
				if err != nil {
					refused++
				}
				for _, b := range bodies {
					acked[b] = acked[b] || err == nil
				}
				mu.Unlock()
			}
		})
	}
	grown := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			count := 0
			for _, ok := range acked {
				if ok {
					count++
				}
			}
			return count >= n
		}
	}
	require.Eventually(t, grown(200), time.Minute, time.Millisecond)
	c.Close()
	require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return refused > 0 }, time.Minute, time.Millisecond)
	mu.Lock()
	before := len(acked)
	mu.Unlock()
	c, err = kfake.NewCluster(kfake.NumBrokers(2), kfake.DataDir(dir), kfake.SyncWrites(), kfake.Ports(ports...))
	require.NoError(t, err)
	defer c.Close()
	require.Eventually(t, grown(before+200), time.Minute, time.Millisecond)
	cancel()
	wg.Wait()
	found := map[string]bool{}
	for _, r := range consume(t, o.Brokers, "otlp_logs", nil) {
		found[r.body] = true
	}
	for body, ok := range acked {
		if ok {
			require.True(t, found[body], "%s was acknowledged and is lost", body)
		}
	}
}

// Whatever is in a batch, each admitted record is in one message, in the partition of
// its key, and messages keep to their limit.
func TestMessagesHoldEverythingOnce(t *testing.T) {
	s := openSink(t, func() Options { o := testOptions([]string{"127.0.0.1:1"}); o.MaxMessageBytes = 2 << 10; return o }())
	rnd := rand.New(rand.NewSource(1))
	for range 100 {
		var bodies, want []string
		for i := range rnd.Intn(50) {
			bodies = append(bodies, fmt.Sprintf("s%d-%d-%s", rnd.Intn(9), i, strings.Repeat("x", rnd.Intn(300))))
		}
		b := batch(t, bodies...)
		for i := range b.Groups {
			if rnd.Intn(4) == 0 {
				b.Groups[i].Verdict = ingester.DroppedRatelimit
				b.Whole = false
				continue
			}
			want = append(want, bodies[i])
		}
		messages, tooLarge, err := s.messages(b, 5)
		require.NoError(t, err)
		require.Empty(t, tooLarge)
		var got []consumed
		of := map[string]int{}
		for _, m := range messages {
			require.LessOrEqual(t, len(m.value), s.options.MaxMessageBytes)
			for _, r := range records(t, consumed{partition: m.partition}, m.value) {
				service, _, _ := strings.Cut(r.body, "-")
				if p, ok := of[service]; ok {
					require.Equal(t, p, m.partition)
				}
				of[service] = m.partition
				got = append(got, r)
			}
		}
		sort.Strings(want)
		require.Equal(t, want, bodiesOf(got))
	}
}

func TestOptionsProblems(t *testing.T) {
	o := DefaultOptions()
	o.Brokers = []string{"kafka"}
	o.Topics["logs"], o.Topics["spans"] = "otlp_spans", "x"
	o.CreateTopics = CreateTopics{-1, 0}
	o.Compression, o.MaxMessageBytes, o.Timeout, o.MaxConnectionsPerBroker = "br", 1, 0, 0
	o.SASL = &SASL{Mechanism: "gssapi"}
	err := o.Validate()
	for _, want := range []string{
		`brokers[0] is "kafka": it must be host:port`, `topics.traces is "otlp_spans", which logs has already`, "topics.spans: there is no such stream",
		"create_topics.partitions is -1", "create_topics.replication_factor is 0", `compression is "br"`, "max_message_bytes is 1", "timeout is 0s",
		"max_connections_per_broker is 0", `sasl.mechanism is "gssapi"`, "sasl.username is empty", "exactly one of password and password_file",
	} {
		require.ErrorContains(t, err, want)
	}
}
