package ingester

// CountInvalid counts items of a request that are in no batch, since a receiver
// could not read them: one bad log line among good ones, say. They were received,
// and are invalid.
func (in *Ingester) CountInvalid(stream Stream, n int64) {
	if n <= 0 {
		return
	}
	c := in.counters[stream]
	c.received.add(amount{items: n})
	c.invalid.add(amount{items: n})
	c.reason(ReasonMalformedItem.String(), n)
}
