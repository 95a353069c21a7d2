package remotewrite

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/prompb"
	writev2 "github.com/prometheus/prometheus/prompb/io/prometheus/write/v2"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
)

// TestBadBodies sends what cannot be read. Each is answered with a clear error,
// nothing reaches the sink and nothing stays in memory.
func TestBadBodies(t *testing.T) {
	good, err := one("__name__", "up").Marshal()
	require.NoError(t, err)
	bomb := binary.AppendUvarint(nil, uint64(testLimits.DecodedBytes)+1)
	huge := make([]byte, testLimits.BodyBytes+1)
	many := &prompb.WriteRequest{}
	for i := range testLimits.Series + 1 {
		many.Timeseries = append(many.Timeseries, series(1, 1, "__name__", fmt.Sprint(i)))
	}
	manyBody, err := many.Marshal()
	require.NoError(t, err)
	for _, c := range []struct {
		name   string
		packed []byte
		status int
	}{
		{"empty", nil, 400},
		{"not snappy", []byte("hello"), 400},
		{"truncated snappy", snappy.Encode(nil, good)[:10], 400},
		{"declared too large", append(bomb, 0), 413},
		{"declared far too large", []byte{0xff, 0xff, 0xff, 0xff, 0x0f}, 413},
		{"body too large", huge, 413},
		{"too many series", snappy.Encode(nil, manyBody), 413},
		{"truncated protobuf", snappy.Encode(nil, good[:len(good)-1]), 400},
		{"a varint without end", snappy.Encode(nil, bytes.Repeat([]byte{0xff}, 20)), 400},
		{"a group", snappy.Encode(nil, []byte{0x0b, 0x0c}), 400},
		{"a known field of another type", snappy.Encode(nil, []byte{0x08, 0x01}), 400},
		{"sample cut off", snappy.Encode(nil, []byte{0x0a, 0x04, 0x12, 0x05, 0x09, 0x00}), 400},
		{"label cut off", snappy.Encode(nil, []byte{0x0a, 0x02, 0x0a, 0x7f}), 400},
		{"label longer than an int", snappy.Encode(nil, append([]byte{0x0a, 0x0c, 0x0a}, bytes.Repeat([]byte{0xff}, 11)...)), 400},
	} {
		for _, contentType := range []string{contentTypeV1, contentTypeV2} {
			t.Run(c.name+" "+contentType, func(t *testing.T) {
				if contentType == contentTypeV2 && c.name == "too many series" {
					t.Skip("the body is a 1.0 message; 2.0 shares the check")
				}
				s := newSystem(t, "", "")
				rec := s.post(contentType, c.packed)
				require.Equal(t, c.status, rec.Code, rec.Body)
				require.NotEmpty(t, strings.TrimSpace(rec.Body.String()))
				require.Empty(t, s.sink.series)
				counts := s.requireConserved()
				require.EqualValues(t, 1, counts["invalid_batches"])
			})
		}
	}
}

// TestEmptyRequestIsFine: snappy of nothing is a request without series.
func TestEmptyRequestIsFine(t *testing.T) {
	s := newSystem(t, "", "")
	require.Equal(t, 204, s.post(contentTypeV1, snappy.Encode(nil, nil)).Code)
	require.Equal(t, 204, s.post(contentTypeV2, snappy.Encode(nil, nil)).Code)
}

// TestBadSeries puts one bad series between two good ones: they are stored, the
// bad one is invalid and counted with its reason, 2.0 says so.
func TestBadSeries(t *testing.T) {
	long := func(n int) string { return strings.Repeat("x", n) }
	var manyPairs []string
	for i := range 65 {
		manyPairs = append(manyPairs, fmt.Sprintf("l%03d", i), "v")
	}
	for _, c := range []struct {
		reason string
		pairs  []string
	}{
		{"no_labels", nil},
		{"no_metric_name", []string{"job", "x"}},
		{"empty_label_name", []string{"", "x", "__name__", "up"}},
		{"duplicate_label", []string{"__name__", "up", "a", "1", "a", "2"}},
		{"duplicate_label", []string{"__name__", "up", "a", "1", "a", "1"}},
		{"invalid_utf8", []string{"__name__", "\xc3\x28"}},
		{"invalid_utf8", []string{"__name__", "up", "\xc3\x28", "v"}},
		{"label_name_too_long", []string{"__name__", "up", long(257), "v"}},
		{"label_value_too_long", []string{"__name__", "up", "v", long(2049)}},
		{"too_many_labels", append([]string{"__name__", "up"}, manyPairs...)},
		{"labels_too_large", []string{"__name__", "up", "a", long(2048), "b", long(2048), "c", long(2048), "d", long(2048)}},
	} {
		t.Run(c.reason, func(t *testing.T) {
			req := one("__name__", "first")
			req.Timeseries = append(req.Timeseries, series(2, 2000, c.pairs...), series(3, 3000, "__name__", "last"))
			for _, v2 := range []bool{false, true} {
				s := newSystem(t, "", "")
				var rec *httptest.ResponseRecorder
				if v2 {
					rec = s.postV2(toV2(req))
					require.Equal(t, 400, rec.Code)
					require.Contains(t, rec.Body.String(), c.reason)
					require.Equal(t, "2", rec.Header().Get(samplesWritten))
				} else {
					rec = s.postV1(req)
					require.Equal(t, 204, rec.Code)
				}
				require.Len(t, s.sink.series, 2)
				counts := s.requireConserved()
				require.EqualValues(t, 1, counts["invalid_items"])
				require.EqualValues(t, 1, counts["invalid_reasons/"+c.reason])
				require.EqualValues(t, 2, counts["admitted_items"])
			}
		})
	}
}

// TestOnlyInvalid: a 1.0 request of which nothing is valid is a 400.
func TestOnlyInvalid(t *testing.T) {
	s := newSystem(t, "", "")
	rec := s.postV1(one("job", "x"))
	require.Equal(t, 400, rec.Code)
	require.Contains(t, rec.Body.String(), "no_metric_name")
}

// TestUnsortedLabels: 2.0 wants them sorted and calls the series invalid; those of
// 1.0, which vmagent does not sort, are sorted. Either may come first.
func TestUnsortedLabels(t *testing.T) {
	s := newSystem(t, "", "")
	req := one("job", "x", "__name__", "up")
	for range 2 {
		require.Equal(t, 204, s.postV1(req).Code)
		rec := s.postV2(toV2(req))
		require.Equal(t, 400, rec.Code)
		require.Contains(t, rec.Body.String(), "unsorted_labels")
	}
	require.Len(t, s.sink.series, 2)
	require.Equal(t, `"__name__"="up","job"="x",`, s.sink.series[0].labels)
	require.EqualValues(t, 2, s.requireConserved()["invalid_items"])
}

// TestHundredThousandLabels is one series that is far too large, quickly told.
func TestHundredThousandLabels(t *testing.T) {
	s := newSystem(t, "", "")
	var pairs []string
	for i := range 100_000 {
		pairs = append(pairs, fmt.Sprintf("l%06d", i), "v")
	}
	req := one(pairs...)
	req.Timeseries = append(req.Timeseries, series(1, 1, "__name__", "up"))
	require.Equal(t, 204, s.postV1(req).Code)
	require.Equal(t, 400, s.postV2(toV2(req)).Code)
	require.Len(t, s.sink.series, 2)
	require.EqualValues(t, 2, s.requireConserved()["invalid_items"])
}

// TestBadSymbols covers references that lead nowhere.
func TestBadSymbols(t *testing.T) {
	sample := []writev2.Sample{{Value: 1, Timestamp: 1}}
	good := writev2.TimeSeries{LabelsRefs: []uint32{1, 2}, Samples: sample}
	for name, bad := range map[string]writev2.TimeSeries{
		"out of range":     {LabelsRefs: []uint32{1, 9}, Samples: sample},
		"far out of range": {LabelsRefs: []uint32{math.MaxUint32, 1}, Samples: sample},
		"odd":              {LabelsRefs: []uint32{1, 2, 1}, Samples: sample},
		"exemplar":         {LabelsRefs: []uint32{1, 2}, Samples: sample, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{1, 9}}}},
		"exemplar, odd":    {LabelsRefs: []uint32{1, 2}, Samples: sample, Exemplars: []writev2.Exemplar{{LabelsRefs: []uint32{1}}}},
		"metadata's help":  {LabelsRefs: []uint32{1, 2}, Samples: sample, Metadata: writev2.Metadata{HelpRef: 9}},
		"metadata's unit":  {LabelsRefs: []uint32{1, 2}, Samples: sample, Metadata: writev2.Metadata{UnitRef: 9}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, "", "")
			rec := s.postV2(&writev2.Request{Symbols: []string{"", "__name__", "up"}, Timeseries: []writev2.TimeSeries{good, bad, good}})
			require.Equal(t, 400, rec.Code)
			require.Contains(t, rec.Body.String(), "bad_symbol")
			require.Equal(t, "2", rec.Header().Get(samplesWritten))
			require.EqualValues(t, 1, s.requireConserved()["invalid_items"])
		})
	}
}

// TestSymbolBomb refers to one large symbol again and again. The label sets that
// this stands for would fill 60 MB; they are spelt out one at a time, and each is
// bounded.
func TestSymbolBomb(t *testing.T) {
	s := newSystem(t, "", "")
	req := &writev2.Request{Symbols: []string{"", "__name__", strings.Repeat("x", 2000), strings.Repeat("y", 250), strings.Repeat("z", 250)}}
	for i := range 400 {
		refs := []uint32{1, 2, 3, 2, 4, 2}
		if i%2 == 0 {
			refs = append(refs, 4, 2, 4, 2)
		}
		req.Timeseries = append(req.Timeseries, writev2.TimeSeries{LabelsRefs: refs, Samples: []writev2.Sample{{Timestamp: 1}}})
	}
	rec := s.postV2(req)
	require.Equal(t, 400, rec.Code)
	require.Contains(t, rec.Body.String(), "labels_too_large")
	require.Equal(t, "200", rec.Header().Get(samplesWritten))
	counts := s.requireConserved()
	require.EqualValues(t, 200, counts["admitted_items"])
	require.LessOrEqual(t, s.gauge("spillway_route_bytes"), 2e6)
}

// TestSymbolsSpelledOut: a symbol stands once in the request and in every series for
// the store. All of them together have the room that a 1.0 request has.
func TestSymbolsSpelledOut(t *testing.T) {
	s := newSystem(t, "", "")
	for value, want := range map[int]int{1000: 204, 2000: 413} {
		req := &writev2.Request{Symbols: []string{"", "__name__", "m", "a", strings.Repeat("x", value)}}
		for range 3000 {
			req.Timeseries = append(req.Timeseries, writev2.TimeSeries{LabelsRefs: []uint32{1, 2, 3, 4}, Samples: []writev2.Sample{{Timestamp: 1}}})
		}
		rec := s.postV2(req)
		require.Equal(t, want, rec.Code, rec.Body.String())
		if want == 413 {
			require.Contains(t, rec.Body.String(), "max_decoded_bytes")
		}
	}
	require.EqualValues(t, 3000, s.requireConserved()["received_items"])
}

// TestManyItemsInFewBytes: two bytes are a sample, a histogram or an exemplar, and
// a sink may have to build each.
func TestManyItemsInFewBytes(t *testing.T) {
	for name, item := range map[string]string{"samples": "\x12\x00", "histograms": "\x22\x00", "exemplars": "\x1a\x00"} {
		t.Run(name, func(t *testing.T) {
			s := newSystem(t, "", "")
			series := append(ingester.AppendLabel(nil, "__name__", "up"), strings.Repeat(item, testLimits.Items+1)...)
			body := append(binary.AppendUvarint([]byte{0x0a}, uint64(len(series))), series...)
			require.Equal(t, 413, s.post(contentTypeV1, snappy.Encode(nil, body)).Code)
			s.requireConserved()
		})
	}
}

// TestManySymbols can never fit, and is not asked for again.
func TestManySymbols(t *testing.T) {
	s := newSystem(t, "", "")
	n := 16*testLimits.Series + 1
	require.Equal(t, 413, s.post(contentTypeV2, snappy.Encode(nil, bytes.Repeat([]byte{0x22, 0}, n))).Code)
	require.Equal(t, 413, s.post(contentTypeV1, snappy.Encode(nil, bytes.Repeat([]byte{0x1a, 0}, n))).Code)
	s.requireConserved()
}

// TestReaderBreaks: a sender that leaves in the middle of a body gives nothing.
func TestReaderBreaks(t *testing.T) {
	s := newSystem(t, "", "")
	req := httptest.NewRequest(http.MethodPost, "/api/v1/write", io.MultiReader(strings.NewReader("abc"), brokenReader{}))
	rec := httptest.NewRecorder()
	s.handler.ServeHTTP(rec, req)
	require.Equal(t, 400, rec.Code)
	s.requireConserved()
}

type brokenReader struct{}

func (brokenReader) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }
