package tsdb

import (
	"bytes"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"syscall"
	"testing"
	"time"

	"github.com/golang/snappy"
	remoteapi "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/prometheus/prompb"
	"github.com/prometheus/prometheus/storage/remote"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// benchVariants are the database options that cost something per sample.
func benchVariants() map[string]func(*Options) {
	return map[string]func(*Options){
		"default":   func(*Options) {},
		"isolation": func(o *Options) { o.Isolation = true },
		"xor":       func(o *Options) { o.StartTimestamps = false },
		"nowalcomp": func(o *Options) { o.WALCompression = "none" },
		"inorder":   func(o *Options) { o.OutOfOrderWindow = 0 },
	}
}

// BenchmarkWriteKnown writes 2,000 known series again and again. Compare with
// BenchmarkPrometheusReceiver, which does the same to the same database.
func BenchmarkWriteKnown(b *testing.B) {
	for name, with := range benchVariants() {
		b.Run(name, func(b *testing.B) {
			o := testOptions(b)
			with(&o)
			s := openTest(b, o)
			const n = 2000
			base := time.Now().Add(-time.Hour).UnixMilli()
			batch := newTestBatch(b, routes{}, series1(n, base, 1))
			require.NoError(b, s.Write(b.Context(), batch))
			b.ReportAllocs()
			i := int64(0)
			cpu := startCPU()
			for b.Loop() {
				i++
				setTimes(batch, base+i)
				if err := s.Write(b.Context(), batch); err != nil {
					b.Fatal(err)
				}
			}
			cpu.report(b, n)
		})
	}
}

// setTimes overwrites the timestamps in the body, which all take six bytes.
func setTimes(b *ingester.Batch, t int64) {
	var buf [8]byte
	k := 0
	for v := uint64(t); ; v >>= 7 {
		if v < 0x80 {
			buf[k] = byte(v)
			k++
			break
		}
		buf[k] = byte(v) | 0x80
		k++
	}
	for i := range b.Groups {
		copy(b.Body[int(b.Groups[i].Field.End)-k:b.Groups[i].Field.End], buf[:k])
	}
}

func BenchmarkPrometheusReceiver(b *testing.B) {
	for name, with := range benchVariants() {
		b.Run(name, func(b *testing.B) {
			o := testOptions(b)
			with(&o)
			s := openTest(b, o)
			const n = 2000
			base := time.Now().Add(-time.Hour).UnixMilli()
			h := remote.NewWriteHandler(slog.New(slog.DiscardHandler), nil, s.db, remoteapi.MessageTypes{remoteapi.WriteV1MessageType}, false, false)
			batch := newTestBatch(b, routes{}, series1(n, base, 1))
			bodies := make([][]byte, 0, b.N)
			for i := range b.N {
				setTimes(batch, base+int64(i))
				bodies = append(bodies, snappy.Encode(nil, batch.Body))
			}
			b.ReportAllocs()
			b.ResetTimer()
			cpu := startCPU()
			for _, body := range bodies {
				r := httptest.NewRequest(http.MethodPost, "/api/v1/write", bytes.NewReader(body))
				r.Header.Set("Content-Type", "application/x-protobuf")
				r.Header.Set("Content-Encoding", "snappy")
				w := httptest.NewRecorder()
				h.ServeHTTP(w, r)
				if w.Code/100 != 2 {
					b.Fatal(w.Code, w.Body.String())
				}
			}
			cpu.report(b, n)
		})
	}
}

// cpuClock measures what the process uses, which other processes on the machine
// disturb less than the time that passes.
type cpuClock struct{ start time.Duration }

func startCPU() cpuClock { return cpuClock{cpuTime()} }

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func (c cpuClock) report(b *testing.B, samples int) {
	b.ReportMetric(float64(cpuTime()-c.start)/float64(b.N)/float64(samples), "cpu-ns/sample")
}

// BenchmarkWriteSmall has many senders of ten samples each.
func BenchmarkWriteSmall(b *testing.B) {
	for _, senders := range []int{1, 8, 64} {
		b.Run(fmt.Sprint(senders), func(b *testing.B) {
			s := openTest(b, testOptions(b))
			base := time.Now().Add(-time.Hour).UnixMilli()
			b.SetParallelism(senders)
			b.ReportAllocs()
			b.ResetTimer()
			cpu := startCPU()
			ids := make(chan int, 10000)
			for i := range 10000 {
				ids <- i
			}
			b.RunParallel(func(pb *testing.PB) {
				req := series1(10, base, 1)
				id := fmt.Sprint(<-ids)
				for i := range req.Timeseries {
					req.Timeseries[i].Labels = append(req.Timeseries[i].Labels, prompb.Label{Name: "zone", Value: id})
				}
				batch := newTestBatch(b, routes{}, req)
				for t := base; pb.Next(); t++ {
					setTimes(batch, t)
					if err := s.Write(b.Context(), batch); err != nil {
						b.Fatal(err)
					}
				}
			})
			cpu.report(b, 10)
		})
	}
}
