package tsdb

import (
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	promtsdb "github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/tsdb/chunkenc"
	"github.com/prometheus/prometheus/util/compression"
)

// Options say where and how the database keeps its data, and what a query may
// cost. DefaultOptions alone knows the defaults; start from it.
type Options struct {
	// Path is the data folder. It is made if it is missing and belongs to one
	// process at a time. No default.
	Path string `yaml:"path"`

	// RetentionTime is how long samples are kept; 0 keeps them for good.
	// Default 15d.
	RetentionTime model.Duration `yaml:"retention_time"`
	// RetentionBytes is how many bytes all blocks together may take: the oldest
	// block goes first. The write-ahead log is not counted. 0 is no limit, the
	// default.
	RetentionBytes int64 `yaml:"retention_bytes"`

	// OutOfOrderWindow is how much older than the newest sample of the whole
	// database a sample may be and still be stored out of order. 0 takes samples
	// of a series in order only, and nothing older than about an hour. Default
	// 2h: a Prometheus sender keeps what it could not send for about as long, so
	// it can catch up whatever others wrote in the meantime. Of two values for one
	// time that is not the newest of its series both count as stored, as with
	// Prometheus' own receiver, and a query shows one of them.
	OutOfOrderWindow model.Duration `yaml:"out_of_order_window"`
	// MaxExemplars is how many exemplars are kept, the newest; 0 keeps none.
	// Each takes some hundred bytes of memory. Default 100000.
	MaxExemplars int64 `yaml:"max_exemplars"`
	// MaxFamilies is of how many metric families type, help and unit are kept
	// for /api/v1/metadata; 0 keeps none. Default 50000.
	MaxFamilies int `yaml:"max_families"`

	// StartTimestamps keeps the start timestamp of every float sample of remote
	// write 2.0. Float chunks are then encoded as XOR2, which Prometheus reads
	// from version 3.11 on. Default true.
	StartTimestamps bool `yaml:"start_timestamps"`
	// HistogramStartTimestamps keeps those of native histograms too. Their chunk
	// encoding is experimental: a later version may not be able to read it, and
	// the blocks written with it are lost then. Default false.
	HistogramStartTimestamps bool `yaml:"histogram_start_timestamps"`

	// WALCompression is "none", "snappy" or "zstd". Snappy about halves the log
	// for little CPU, zstd makes it smaller for more. Default snappy.
	WALCompression string `yaml:"wal_compression"`
	// WALSegmentBytes is the size of a file of the write-ahead log, a multiple
	// of 32768. Default 134217728 (128 MiB).
	WALSegmentBytes int `yaml:"wal_segment_bytes"`
	// MinBlockDuration is the time range of a block that is cut from memory: a
	// longer one takes more memory and replays longer. Default 2h.
	MinBlockDuration model.Duration `yaml:"min_block_duration"`
	// MaxBlockDuration is the time range up to which blocks are merged. 0, the
	// default, is a tenth of RetentionTime, at most 31d.
	MaxBlockDuration model.Duration `yaml:"max_block_duration"`
	// MinFreeBytes is how much space the file system must have left for writes
	// to be taken; with less they are refused, to be sent again. A disk that is
	// full in the middle of a write costs a replay of the log, and repairing the
	// log needs room for one segment: so no less than WALSegmentBytes is wise. 0
	// does not look. Default 134217728 (128 MiB).
	MinFreeBytes int64 `yaml:"min_free_bytes"`
	// Isolation hides a batch from queries until all of it is there. A remote
	// write batch is an arbitrary piece of what a sender has, not one scrape, so
	// that little is won for some CPU and memory per series. Default false.
	Isolation bool `yaml:"isolation"`

	// QueryTimeout ends a query that takes longer. Default 2m.
	QueryTimeout model.Duration `yaml:"query_timeout"`
	// QueryMaxSamples ends a query that would hold more samples in memory.
	// Default 50000000, about 800 MB.
	QueryMaxSamples int `yaml:"query_max_samples"`
	// QueryConcurrency is how many queries run at once, the others wait.
	// Default 20.
	QueryConcurrency int `yaml:"query_concurrency"`
	// QueryLookback is how old the newest sample of a series may be to count as
	// its current value. Default 5m.
	QueryLookback model.Duration `yaml:"query_lookback"`

	// Logger gets what the database has to say; nil is silence.
	Logger *slog.Logger `yaml:"-"`
	// Registerer gets the metrics of sink, database and query engine; nil drops
	// them.
	Registerer prometheus.Registerer `yaml:"-"`
}

// walPageBytes is the unit in which the write-ahead log is written (pageSize of
// Prometheus' tsdb/wlog).
const walPageBytes = 32 << 10

// DefaultOptions returns the options of a folder with everything else at its
// default.
func DefaultOptions(path string) Options {
	return Options{
		Path:             path,
		RetentionTime:    model.Duration(15 * 24 * time.Hour),
		OutOfOrderWindow: model.Duration(2 * time.Hour),
		MaxExemplars:     100_000,
		MaxFamilies:      50_000,
		StartTimestamps:  true,
		WALCompression:   compression.Snappy,
		WALSegmentBytes:  128 << 20,
		MinBlockDuration: model.Duration(2 * time.Hour),
		MinFreeBytes:     128 << 20,
		QueryTimeout:     model.Duration(2 * time.Minute),
		QueryMaxSamples:  50_000_000,
		QueryConcurrency: 20,
		QueryLookback:    model.Duration(5 * time.Minute),
	}
}

// Validate returns everything that is wrong with the options, each problem
// named as it is written in the configuration.
func (o *Options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.Path != "", "path: is missing: name the data folder")
	check(o.RetentionTime >= 0, "retention_time: %s is negative", o.RetentionTime)
	check(o.RetentionBytes >= 0, "retention_bytes: %d is negative", o.RetentionBytes)
	check(o.OutOfOrderWindow >= 0, "out_of_order_window: %s is negative", o.OutOfOrderWindow)
	check(o.MaxExemplars >= 0, "max_exemplars: %d is negative", o.MaxExemplars)
	check(o.MaxFamilies >= 0, "max_families: %d is negative", o.MaxFamilies)
	check(!o.HistogramStartTimestamps || o.StartTimestamps,
		"histogram_start_timestamps: has no effect without start_timestamps")
	switch o.WALCompression {
	case compression.None, compression.Snappy, compression.Zstd:
	default:
		check(false, `wal_compression: %q is not "none", "snappy" or "zstd"`, o.WALCompression)
	}
	check(o.WALSegmentBytes > 0 && o.WALSegmentBytes%walPageBytes == 0,
		"wal_segment_bytes: %d is not a multiple of %d", o.WALSegmentBytes, walPageBytes)
	check(time.Duration(o.MinBlockDuration) >= time.Second, "min_block_duration: %s is below 1s", o.MinBlockDuration)
	check(o.MaxBlockDuration == 0 || o.MaxBlockDuration >= o.MinBlockDuration,
		"max_block_duration: %s is below min_block_duration %s", o.MaxBlockDuration, o.MinBlockDuration)
	check(o.MinFreeBytes >= 0, "min_free_bytes: %d is negative", o.MinFreeBytes)
	check(o.QueryTimeout > 0, "query_timeout: %s is not above 0", o.QueryTimeout)
	check(o.QueryMaxSamples > 0, "query_max_samples: %d is not above 0", o.QueryMaxSamples)
	check(o.QueryConcurrency > 0, "query_concurrency: %d is not above 0", o.QueryConcurrency)
	check(o.QueryLookback > 0, "query_lookback: %s is not above 0", o.QueryLookback)
	return errors.Join(errs...)
}

// maxBlock follows Prometheus: blocks that are merged further than a tenth of
// the retention keep too much past it.
func (o *Options) maxBlock() time.Duration {
	if o.MaxBlockDuration != 0 {
		return time.Duration(o.MaxBlockDuration)
	}
	longest := 31 * 24 * time.Hour
	if o.RetentionTime > 0 {
		longest = min(longest, time.Duration(o.RetentionTime)/10)
	}
	return max(longest, time.Duration(o.MinBlockDuration))
}

// database translates the options into those of the library.
func (o *Options) database() *promtsdb.Options {
	d := promtsdb.DefaultOptions()
	d.RetentionDuration = time.Duration(o.RetentionTime).Milliseconds()
	d.MaxBytes = o.RetentionBytes
	d.MinBlockDuration = time.Duration(o.MinBlockDuration).Milliseconds()
	d.MaxBlockDuration = o.maxBlock().Milliseconds()
	d.WALSegmentSize = o.WALSegmentBytes
	d.WALCompression = o.WALCompression
	d.OutOfOrderTimeWindow = time.Duration(o.OutOfOrderWindow).Milliseconds()
	d.EnableExemplarStorage = true
	d.MaxExemplars = o.MaxExemplars
	d.IsolationDisabled = !o.Isolation
	if o.StartTimestamps {
		d.EnableSTStorage = true
		d.FloatChunkEncoding = chunkenc.EncXOR2
	}
	d.EnableHistogramSTEncoding = o.HistogramStartTimestamps
	return d
}
