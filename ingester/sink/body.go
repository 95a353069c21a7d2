package sink

import (
	"errors"
	"io"
	"sync"
)

// payload lends bytes to the bodies of requests and can take them back.
//
// An http.Transport may go on reading the body of a request after it returned
// the response or an error, and the bytes belong to someone else as soon as Write
// returns. After takeBack no body reads them any more.
type payload struct {
	prefix []byte // sent first; nobody else's
	mu     sync.Mutex
	data   []byte
	gone   bool // taken back
}

// errTakenBack ends the reading of a body whose bytes were taken back. Nobody
// waits for that body any more.
var errTakenBack = errors.New("the write ended before its request was sent")

func (p *payload) size() int { return len(p.prefix) + len(p.data) }

func (p *payload) takeBack() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.data, p.gone = nil, true
}

// body is one reading of a payload, from its start. It has no WriteTo on purpose: bytes are
// copied under the lock, never lent to a connection.
type body struct {
	from *payload
	at   int
}

func (b *body) Read(p []byte) (int, error) {
	b.from.mu.Lock()
	defer b.from.mu.Unlock()
	if b.from.gone {
		return 0, errTakenBack
	}
	first := len(b.from.prefix)
	if b.at == first+len(b.from.data) {
		return 0, io.EOF
	}
	n := 0
	if b.at < first {
		n = copy(p, b.from.prefix[b.at:])
	} else {
		n = copy(p, b.from.data[b.at-first:])
	}
	b.at += n
	return n, nil
}
