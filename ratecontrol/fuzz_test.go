package ratecontrol

import (
	"encoding/binary"
	"math/big"
	"testing"
)

// FuzzBucket compares the bucket with the oracle. Nine bytes are a call: what
// it is, and a number that is a cost (low 4 bytes) and a step of the clock (high
// 4 bytes) to the power that the first byte says.
func FuzzBucket(f *testing.F) {
	f.Add(uint64(1), uint64(3), int64(1), []byte("take it.\x00take it\xff again"))
	f.Add(uint64(125), uint64(4), int64(19_500), []byte("\x01\x00\x10\x00\x00\x00\x00\x10\x00\x81\xff\xff\x00\x00\x00\x00\x00\xff"))
	f.Add(uint64(1e9), uint64(1), int64(1<<53), []byte("\x23\xff\xff\xff\xff\xff\xff\xff\xff\x43\x01\x00\x00\x00\x01\x00\x00\x00"))
	f.Add(uint64(9_999_999_999), uint64(7), int64(30_000), make([]byte, 90))
	f.Fuzz(func(t *testing.T, num, den uint64, burst int64, calls []byte) {
		if num == 0 || den == 0 || burst < 1 {
			return
		}
		rate := new(big.Rat).SetFrac(new(big.Int).SetUint64(num), new(big.Int).SetUint64(den))
		r := newTrial(t, rate, burst, -1)
		calls = calls[:min(len(calls), 9*300)]
		now, taken := int64(-1), int64(0)
		for ; len(calls) >= 9; calls = calls[9:] {
			kind := calls[0]
			n := int64(binary.LittleEndian.Uint32(calls[1:])) << (kind & 3 * 7)
			by := int64(binary.LittleEndian.Uint32(calls[5:])) << (kind >> 2 & 7 * 4)
			switch {
			case kind>>5 == 7 && taken > 0:
				n = 1 + n%taken
				taken -= n
				r.run(step{n: n, back: true})
				continue
			case kind>>5 == 6:
				r.takeAt(now-by, n, &taken)
			default:
				now = min(now+by, 1<<62)
				r.takeAt(now, n, &taken)
			}
		}
		r.checkB1()
	})
}

func (r *trial) takeAt(now, n int64, taken *int64) {
	before := r.admitted
	r.run(step{now: now, n: max(1, n)})
	if r.admitted > before {
		*taken += max(1, n)
	}
}
