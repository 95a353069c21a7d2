package remotewrite

import (
	"fmt"
	"math/rand"
	"syscall"
	"testing"

	gosnappy "github.com/golang/snappy"
	"github.com/klauspost/compress/s2"
	klauspost "github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"

	"github.com/spillway-telemetry/spillway/ingester"
)

const benchSeries = 2000 // what Prometheus puts into a request

// scrape is a request as Prometheus makes it of a Kubernetes service: ten labels,
// one sample each, metadata in 2.0.
func scrape(format ingester.Format) interface{ Marshal() ([]byte, error) } {
	r := rand.New(rand.NewSource(1))
	v1 := &prompb.WriteRequest{}
	table := writev2.NewSymbolTable()
	v2 := &writev2.Request{}
	for i := range benchSeries {
		labels := []prompb.Label{
			{Name: "__name__", Value: fmt.Sprintf("http_server_requests_%d_total", i/50)},
			{Name: "cluster", Value: "prod-eu-west-1"}, {Name: "code", Value: fmt.Sprint(200 + i%5)},
			{Name: "container", Value: "api"}, {Name: "endpoint", Value: "metrics"},
			{Name: "handler", Value: fmt.Sprintf("/api/v1/things/%d", i%50)},
			{Name: "instance", Value: fmt.Sprintf("10.1.%d.%d:8080", i%7, i%200)}, {Name: "job", Value: "default/api"},
			{Name: "namespace", Value: "default"}, {Name: "pod", Value: fmt.Sprintf("api-7d9c6bb5f8-%x", r.Intn(200))},
		}
		value, at := r.Float64()*1000, 1_700_000_000_000+int64(r.Intn(15000))
		v1.Timeseries = append(v1.Timeseries, prompb.TimeSeries{Labels: labels, Samples: []prompb.Sample{{Value: value, Timestamp: at}}})
		var refs []uint32
		for _, l := range labels {
			refs = append(refs, table.Symbolize(l.Name), table.Symbolize(l.Value))
		}
		v2.Timeseries = append(v2.Timeseries, writev2.TimeSeries{
			LabelsRefs: refs, Samples: []writev2.Sample{{Value: value, Timestamp: at, StartTimestamp: at - 1e6}},
			Metadata: writev2.Metadata{Type: writev2.Metadata_METRIC_TYPE_COUNTER, HelpRef: table.Symbolize(fmt.Sprintf("Requests of kind %d.", i/50))},
		})
	}
	v2.Symbols = table.Symbols()
	if format == ingester.RemoteWrite1 {
		return v1
	}
	return v2
}

// workloads are what the rules can make of a request. A dropped half is spread
// evenly, which leaves the shortest runs to copy; the label that is added comes
// from two values.
func workloads(tb testing.TB, format ingester.Format) map[string]*ingester.Batch {
	all := make(map[string]*ingester.Batch)
	for _, name := range []string{"whole", "half", "changed", "half-changed", "tenth"} {
		b := newTestBatch(tb, scrape(format))
		in, err := decode(format, b.Body[:b.Size])
		if err != nil {
			tb.Fatal(err)
		}
		b.Whole = name == "whole"
		for i := range b.Groups {
			g := &b.Groups[i]
			if name == "half" && i%2 == 1 || name == "half-changed" && i%2 == 1 || name == "tenth" && i%10 > 0 {
				g.Verdict = ingester.DroppedRatelimit
			}
			if name == "changed" || name == "half-changed" {
				var labels []prompb.Label
				for _, l := range in.Series[i].Labels {
					labels = append(labels, prompb.Label{Name: l.name, Value: l.value})
				}
				setLabels(g, append(labels, prompb.Label{Name: "team", Value: fmt.Sprint("team-", i%2)}))
			}
		}
		all[name] = b
	}
	return all
}

func eachWorkload(b *testing.B, run func(b *testing.B, batch *ingester.Batch, to ingester.Format)) {
	for _, from := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
		batches := workloads(b, from)
		for _, to := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
			for _, name := range []string{"whole", "half", "changed", "half-changed", "tenth"} {
				b.Run(fmt.Sprintf("v%d-v%d/%s", from, to, name), func(b *testing.B) {
					b.ReportAllocs()
					defer perSeries(b)()
					run(b, batches[name], to)
				})
			}
		}
	}
}

// perSeries reports the processor time for each series of the request that came
// in. Unlike the time on the clock it holds on a machine that has other work.
func perSeries(b *testing.B) func() {
	used := func() int64 {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return u.Utime.Nano() + u.Stime.Nano()
	}
	before := used()
	return func() { b.ReportMetric(float64(used()-before)/float64(b.N)/benchSeries, "cpu-ns/series") }
}

// BenchmarkEncode is the encoding alone, per series of the batch that came in.
func BenchmarkEncode(b *testing.B) {
	eachWorkload(b, func(b *testing.B, batch *ingester.Batch, to ingester.Format) {
		e := newEncoder()
		for b.Loop() {
			e.encode(batch, to)
		}
	})
}

// BenchmarkPack is everything before the network: encoding, compressing, and
// nothing of both for a whole batch.
func BenchmarkPack(b *testing.B) {
	eachWorkload(b, func(b *testing.B, batch *ingester.Batch, to ingester.Format) {
		s := newTestSink(b, to, "http://127.0.0.1:1")
		for b.Loop() {
			s.unpack(s.pack(batch))
		}
	})
}

// BenchmarkSnappy compares the compressors, and is the yardstick for the others.
func BenchmarkSnappy(b *testing.B) {
	for _, format := range []ingester.Format{ingester.RemoteWrite1, ingester.RemoteWrite2} {
		raw, err := scrape(format).Marshal()
		if err != nil {
			b.Fatal(err)
		}
		packed, dst := gosnappy.Encode(nil, raw), make([]byte, 2*len(raw))
		for name, run := range map[string]func() int{
			"encode-golang":    func() int { return len(gosnappy.Encode(dst, raw)) },
			"encode-klauspost": func() int { return len(klauspost.Encode(dst, raw)) },
			"encode-s2":        func() int { return len(s2.EncodeSnappy(dst, raw)) },
			"decode-golang":    func() int { d, _ := gosnappy.Decode(dst, packed); return len(d) },
			"decode-s2":        func() int { d, _ := s2.Decode(dst, packed); return len(d) },
		} {
			b.Run(fmt.Sprintf("v%d/%s", format, name), func(b *testing.B) {
				n := 0
				defer perSeries(b)()
				for b.Loop() {
					n = run()
				}
				b.ReportMetric(float64(n)/benchSeries, "B/series")
			})
		}
	}
}
