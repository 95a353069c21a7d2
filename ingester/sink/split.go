package sink

import "github.com/spillway-telemetry/spillway/ingester"

// Split gives emit one request after the other that together hold the admitted
// groups for which keep, if it is not nil, reports true, each of at most limit bytes
// where its groups allow it. A request with a single group may be larger; then alone
// is that group, else -1. The bytes are valid until emit returns. The groups stay in
// their order. It stops at the first error of emit and returns it.
func (e *Encoder) Split(b *ingester.Batch, keep func(int) bool, limit int, emit func(request []byte, alone int) error) error {
	if b.Whole && keep == nil && b.Size <= limit {
		if len(b.Groups) == 0 {
			return nil
		}
		return emit(b.Body[:b.Size], -1)
	}
	var groups []int
	for i := range b.Groups {
		if b.Groups[i].Admitted() && (keep == nil || keep(i)) {
			groups = append(groups, i)
		}
	}
	return e.split(b, groups, limit, emit)
}

func (e *Encoder) split(b *ingester.Batch, groups []int, limit int, emit func([]byte, int) error) error {
	if len(groups) == 0 {
		return nil
	}
	first, last := groups[0], groups[len(groups)-1]
	next := 0
	raw := e.Encode(b, func(i int) bool {
		if i < first || i > last {
			return false
		}
		// Groups are asked for in their order.
		for next < len(groups) && groups[next] < i {
			next++
		}
		return next < len(groups) && groups[next] == i
	})
	switch {
	case len(raw) == 0:
		return nil
	case len(raw) <= limit:
		return emit(raw, -1)
	case len(groups) == 1:
		return emit(raw, first)
	}
	half := len(groups) / 2
	if err := e.split(b, groups[:half], limit, emit); err != nil {
		return err
	}
	return e.split(b, groups[half:], limit, emit)
}
