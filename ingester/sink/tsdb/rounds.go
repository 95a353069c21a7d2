package tsdb

import (
	"errors"
	"sync"
)

// rounds lets batches that wait for the lane share one commit. The first to
// arrive leads: it waits for the lane while others join it, closes the round and
// commits for all. So one commit runs while the next round fills, nobody waits
// for company, and no goroutine is needed.
type rounds struct {
	mu   sync.Mutex
	open *round // takes batches; nil if nobody waits for the lane
}

type round struct {
	batches []*staged
	done    chan struct{}
	err     error // set before done is closed
}

// errPanicked is what everybody is told after a panic in a commit: the library
// may have left locks behind, which nothing but the end of the process opens.
var errPanicked = errors.New("the embedded database panicked while writing: restart the process, which loses nothing that was acknowledged")

// join adds a batch to the open round and returns what became of that round.
func (r *rounds) join(w *staged, lane sync.Locker, commit func([]*staged) error) error {
	r.mu.Lock()
	if own := r.open; own != nil {
		own.batches = append(own.batches, w)
		r.mu.Unlock()
		<-own.done
		return own.err
	}
	own := &round{batches: []*staged{w}, done: make(chan struct{}), err: errPanicked}
	r.open = own
	r.mu.Unlock()

	lane.Lock()
	defer lane.Unlock()
	r.mu.Lock()
	r.open = nil
	r.mu.Unlock()
	defer close(own.done)
	own.err = commit(own.batches)
	return own.err
}
