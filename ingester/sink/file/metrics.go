package file

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/spillway-telemetry/spillway/ingester"
)

// metrics are those of one sink, each by stream.
type metrics struct {
	written, closed, failed, deleted, moved *prometheus.CounterVec
	kept                                    *prometheus.GaugeVec
}

func newMetrics(reg prometheus.Registerer) *metrics {
	f := promauto.With(reg)
	stream := []string{"stream"}
	return &metrics{
		written: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_file_written_bytes_total",
			Help: "Bytes of the lines that were stored, uncompressed.",
		}, stream),
		closed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_file_closed_files_total",
			Help: "Files that were closed because they were large or old enough.",
		}, stream),
		failed: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_file_failed_writes_total",
			Help: "Writes that failed and were taken back, on a full disk, say. Their senders were told to send again.",
		}, stream),
		deleted: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_file_deleted_bytes_total",
			Help: "Bytes of the closed files that were deleted because the stream's files took more than max_bytes.",
		}, stream),
		moved: f.NewCounterVec(prometheus.CounterOpts{
			Name: "spillway_sink_file_moved_files_total",
			Help: "Files that somebody renamed or deleted while they were being written. Nothing is acknowledged into them, and a new file is begun.",
		}, stream),
		kept: f.NewGaugeVec(prometheus.GaugeOpts{
			Name: "spillway_sink_file_bytes",
			Help: "Bytes that the files take, looked at once a second.",
		}, stream),
	}
}

// streamMetrics are those of one stream.
type streamMetrics struct {
	written, closed, failed, deleted, moved prometheus.Counter
	kept                                    prometheus.Gauge
}

func (m *metrics) of(s ingester.Stream) streamMetrics {
	name := s.String()
	return streamMetrics{
		m.written.WithLabelValues(name), m.closed.WithLabelValues(name), m.failed.WithLabelValues(name),
		m.deleted.WithLabelValues(name), m.moved.WithLabelValues(name), m.kept.WithLabelValues(name),
	}
}
