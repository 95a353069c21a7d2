package main

import (
	"encoding/binary"
	"fmt"
	"math"
	"time"

	"github.com/golang/snappy"
	"google.golang.org/protobuf/encoding/protowire"
)

// The messages of the two versions of remote write, as senders name them.
const (
	loadMessage1 = "prometheus.WriteRequest"
	loadMessage2 = "io.prometheus.write.v2.Request"
)

// identityDigits is the width of the hexadecimal number that makes a series
// unlike all others: a fixed one, so that a new series overwrites an old one.
const identityDigits = 8

// timestampBytes is the width of a timestamp on the wire. A varint of seven bits
// a byte takes six for milliseconds from 1971 (2^35) to 2109 (2^42).
const timestampBytes = 6

// loadPart is one request's worth of series, encoded once:
//
//	labels of series 0 | value, time | labels of series 1 | value, time | ...
//
// Before each request the values and times are overwritten where they stand, and
// the number in the labels of the series that have to be new. What is left to do
// for a request is the compression. One sender owns a part.
type loadPart struct {
	raw      []byte
	spots    []loadSpot
	at       int64   // milliseconds, the time of the last request
	round    int     // requests made
	replaced int     // the next series to be replaced
	owed     float64 // series to be replaced, as a fraction that is carried on
}

// loadSpot says where a series lies in the encoded request.
type loadSpot struct {
	identity int // first of identityDigits digits
	value    int // 8 bytes little-endian, a tag, timestampBytes bytes
}

// loadLabels are the labels of series i, twelve of about 240 bytes, as a
// Prometheus beside a Kubernetes cluster sends them. The number of the series is
// in the value of "pod" alone.
func loadLabels(i int) [][2]string {
	return [][2]string{
		{"__name__", fmt.Sprintf("http_request_duration_seconds_%03d", i%100)},
		{"cluster", "eu-west-1-prod"},
		{"container", "server"},
		{"env", "prod"},
		{"handler", fmt.Sprintf("/api/v1/customers/orders/%d", i%50)},
		{"instance", fmt.Sprintf("10.0.%d.%d:8080", i/250%250, i%250)},
		{"job", "checkout-frontend"},
		{"le", "0.25"},
		{"method", "GET"},
		{"namespace", "shop"},
		{"pod", fmt.Sprintf("checkout-frontend-7d9f8b6c5-%0*x", identityDigits, i)},
		{"team", fmt.Sprintf("team-%02d", i%20)},
	}
}

// newLoadPart encodes series [from, to) for one of the two messages.
func newLoadPart(message string, from, to int) *loadPart {
	p := &loadPart{spots: make([]loadSpot, 0, to-from)}
	if message == loadMessage2 {
		p.encode2(from, to)
	} else {
		p.encode1(from, to)
	}
	return p
}

// encode1 writes a WriteRequest: field 1 a series, in it fields 1 the labels and
// 2 the sample.
func (p *loadPart) encode1(from, to int) {
	var series []byte
	for i := from; i < to; i++ {
		series = series[:0]
		spot := loadSpot{}
		for _, l := range loadLabels(i) {
			series = protowire.AppendTag(series, 1, protowire.BytesType)
			series = protowire.AppendVarint(series, uint64(stringSize(l[0])+stringSize(l[1])))
			series = appendString(series, 1, l[0])
			series = appendString(series, 2, l[1])
			if l[0] == "pod" {
				spot.identity = len(series) - identityDigits
			}
		}
		series, spot.value = appendSample(series)
		p.appendSeries(1, series, &spot)
	}
}

// encode2 writes a 2.0 Request: fields 4 the symbols, field 5 a series, in it
// fields 1 the references to symbols and 2 the sample.
func (p *loadPart) encode2(from, to int) {
	p.raw = appendString(p.raw, 4, "")
	refs := map[string]uint64{"": 0}
	end := make(map[string]int) // of a symbol in raw
	ref := func(s string) uint64 {
		n, known := refs[s]
		if !known {
			n = uint64(len(refs))
			refs[s] = n
			p.raw = appendString(p.raw, 4, s)
			end[s] = len(p.raw)
		}
		return n
	}
	all := make([][]byte, 0, to-from)
	for i := from; i < to; i++ {
		var packed []byte
		spot := loadSpot{}
		for _, l := range loadLabels(i) {
			packed = protowire.AppendVarint(packed, ref(l[0]))
			packed = protowire.AppendVarint(packed, ref(l[1]))
			if l[0] == "pod" {
				spot.identity = end[l[1]] - identityDigits
			}
		}
		all = append(all, packed)
		p.spots = append(p.spots, spot)
	}
	spots := p.spots
	p.spots = nil
	for i, packed := range all {
		series := protowire.AppendTag(nil, 1, protowire.BytesType)
		series = protowire.AppendBytes(series, packed)
		// appendSeries moves both places by where the series begins; the
		// identity lies in the symbols, before it.
		identity := spots[i].identity
		series, spots[i].value = appendSample(series)
		p.appendSeries(5, series, &spots[i])
		p.spots[i].identity = identity
	}
}

// appendSeries puts an encoded series behind the others and turns the places in
// it into places in the request.
func (p *loadPart) appendSeries(field protowire.Number, series []byte, spot *loadSpot) {
	p.raw = protowire.AppendTag(p.raw, field, protowire.BytesType)
	p.raw = protowire.AppendVarint(p.raw, uint64(len(series)))
	spot.identity += len(p.raw)
	spot.value += len(p.raw)
	p.raw = append(p.raw, series...)
	p.spots = append(p.spots, *spot)
}

// appendSample writes a sample, whose fields both messages number alike, with
// room for what is overwritten later, and says where the value is.
func appendSample(b []byte) (out []byte, value int) {
	b = protowire.AppendTag(b, 2, protowire.BytesType)
	b = protowire.AppendVarint(b, 1+8+1+timestampBytes)
	b = protowire.AppendTag(b, 1, protowire.Fixed64Type)
	value = len(b)
	b = protowire.AppendFixed64(b, 0)
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	return protowire.AppendVarint(b, 1<<35), value
}

func appendString(b []byte, field protowire.Number, s string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, s)
}

func stringSize(s string) int { return 1 + protowire.SizeBytes(len(s)) }

// next makes the part's next request, compressed into dst. Its samples carry the
// time now, or a millisecond more than the last if now is no later, so that no
// store has reason to refuse them. churn is the fraction of series that are new,
// whose numbers newSeries gives out.
func (p *loadPart) next(dst []byte, now time.Time, churn float64, newSeries func() int64) []byte {
	p.at = max(p.at+1, now.UnixMilli())
	p.round++
	p.owed += churn * float64(len(p.spots))
	for ; p.owed >= 1; p.owed-- {
		putHex(p.raw[p.spots[p.replaced].identity:][:identityDigits], uint64(newSeries()))
		p.replaced = (p.replaced + 1) % len(p.spots)
	}
	var stamp [timestampBytes]byte
	binary.PutUvarint(stamp[:], uint64(p.at))
	for i, s := range p.spots {
		binary.LittleEndian.PutUint64(p.raw[s.value:], math.Float64bits(loadValue(i, p.round)))
		copy(p.raw[s.value+8+1:], stamp[:])
	}
	return snappy.Encode(dst[:cap(dst)], p.raw)
}

// loadValue is a counter of its own speed for each series.
func loadValue(i, round int) float64 { return float64(1+i%997) * float64(round) }

func putHex(dst []byte, n uint64) {
	const digits = "0123456789abcdef"
	for i := len(dst) - 1; i >= 0; i-- {
		dst[i] = digits[n%16]
		n /= 16
	}
}
