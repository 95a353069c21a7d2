package receive

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"
	"unsafe"
)

// Bounds is what one request may take while its items are read: a few hundred bytes on
// the wire can stand for millions of items, so every item is counted, and everything that
// grows with their number is taken from the budget, before it is there.
type Bounds struct {
	Bytes   int                // of what is written, and of what is decompressed on the way
	Items   int                // those that cannot be read as well; 0: any number
	Grow    func(n int64) bool // takes bytes from the budget of memory, as Memory.Grow does
	Context context.Context    // says whether anybody still waits for the answer; nil: somebody does
}

// Errors about a request, not about an item: see EndsRequest.
var (
	// ErrTooLarge says that what a request stands for does not fit into the size that
	// one request may have when decoded.
	ErrTooLarge = errors.New("what the request holds is larger than server.max_decoded_bytes allows")
	// ErrTooMany says that a request has too many items.
	ErrTooMany = errors.New("too many items in one request, counting those that cannot be read; server.max_items_per_request says how many it may have")
	// ErrNoMemory says that the budget of bytes in memory is used up.
	ErrNoMemory = errors.New("the budget of bytes in memory is used up")
	// ErrGone says that nobody waits for the answer any more.
	ErrGone = errors.New("the sender has gone before its request was read")
)

// EndsRequest reports whether an error is about the request as a whole, so that a
// decoder has to return it instead of going on with the next item.
func EndsRequest(err error) bool {
	return errors.Is(err, ErrTooLarge) || errors.Is(err, ErrTooMany) || errors.Is(err, ErrNoMemory) || errors.Is(err, ErrGone)
}

// spending is how much of its bounds a request has used.
type spending struct {
	Bounds
	items, steps int
	spent, taken int64
}

// stepsToLook is after how many steps a decoder looks whether it is still wanted: each
// takes well below a millisecond.
const stepsToLook = 256

// Item announces one more item, whether it can be read or not. Its error ends the
// request, as that of Wanted, which it includes.
func (s *spending) Item() error {
	if s.items++; s.Items > 0 && s.items > s.Items {
		return fmt.Errorf("%w, which is %d", ErrTooMany, s.Items)
	}
	return s.Wanted()
}

// Wanted announces a step of work that is no item, and is ErrGone once nobody waits for
// the answer.
func (s *spending) Wanted() error {
	if s.steps++; s.steps%stepsToLook == 0 && s.Context != nil && s.Context.Err() != nil {
		return ErrGone
	}
	return nil
}

// leastTaken is in what steps memory is taken from the budget that is needed bit by bit.
const leastTaken = 32 << 10

// Spend takes n bytes from the budget, for what is kept until the request is answered.
// Its error ends the request.
func (s *spending) Spend(n int) error {
	s.spent += int64(n)
	if s.spent <= s.taken {
		return nil
	}
	step := max(s.spent-s.taken, leastTaken)
	if !s.Grow(step) {
		return ErrNoMemory
	}
	s.taken += step
	return nil
}

// Append appends to a list that grows with the request, whose memory is taken from the
// budget first. Its error ends the request.
func Append[T any](out *Records, list []T, element T) ([]T, error) {
	if len(list) == cap(list) {
		more := max(len(list), 64)
		if err := out.Spend(more * int(unsafe.Sizeof(element))); err != nil {
			return list, err
		}
		list = append(make([]T, 0, len(list)+more), list...)
	}
	return append(list, element), nil
}

// refusalOf is the answer to a message that could not be decoded.
func (req *Request) refusalOf(err error) *Refusal {
	switch {
	case errors.Is(err, ErrTooLarge), errors.Is(err, ErrTooMany):
		return TooLarge("%v", err)
	case errors.Is(err, ErrNoMemory):
		return req.Protocol.NoMemory(req.Memory)
	case errors.Is(err, ErrGone):
		return &Refusal{Status: http.StatusServiceUnavailable, Text: err.Error(), Capacity: true, RetryAfter: time.Second}
	}
	return Malformed(err)
}
