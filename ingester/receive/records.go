package receive

import (
	"encoding/binary"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// Field numbers of the messages that Records writes, from OTLP's published
// definitions (opentelemetry.proto.collector.logs.v1, logs.v1, common.v1).
const (
	fieldResourceLogs = 1 // ExportLogsServiceRequest.resource_logs

	fieldResource  = 1 // ResourceLogs.resource
	fieldScopeLogs = 2 // ResourceLogs.scope_logs

	fieldResourceAttributes = 1 // Resource.attributes

	fieldScope      = 1 // ScopeLogs.scope
	fieldScopeName  = 1 // InstrumentationScope.name
	fieldLogRecords = 2 // ScopeLogs.log_records

	fieldTime           = 1 // LogRecord, fixed64
	fieldSeverityNumber = 2
	fieldSeverityText   = 3
	fieldBody           = 5
	fieldAttributes     = 6
	fieldDropped        = 7
	fieldObserved       = 11 // fixed64
	fieldEventName      = 12
)

// Records writes log records one after the other as the bytes of an OTLP
// ExportLogsServiceRequest. Nothing is built on the way: an attribute is encoded
// when it is said.
//
// A record is begun by what is said of it and ended by Add or Discard. Records
// that follow each other with the same resource attributes stand in one
// ResourceLogs. A resource that many records have in common is said once, between
// Hold and Release. The zero value is not ready; Reset makes it so. It is reused from
// request to request by one goroutine at a time.
type Records struct {
	// Resource and Attributes are those of the record being written.
	Resource, Attributes Attributes

	out      []byte
	scope    []byte // the encoded InstrumentationScope.name
	observed uint64
	reserved int // how many bytes of out were taken from the budget
	count    int
	spending
	scratch int // bytes that records are put together in, as far as they are paid for
	// repeated counts the bytes of resources that were said for each record anew.
	repeated int
	// resourceLogs and scopeLogs are where the content of the open messages starts,
	// 0 when none is open; sameAs is the resource that they are for.
	resourceLogs, scopeLogs int
	sameAs                  []byte
	// held says that Resource is kept from record to record, opened that the open
	// messages are for it.
	held, opened bool

	record []byte // LogRecord fields but attributes
	body   bool
}

// Reset forgets everything and appends to into from now on. The scope says which
// receiver wrote the records; observed is when they came in.
func (r *Records) Reset(into []byte, scope string, observed time.Time, bounds Bounds) {
	r.Resource.reset(fieldResourceAttributes)
	r.Attributes.reset(fieldAttributes)
	r.out, r.scope = into[:0], append(r.scope[:0], scope...)
	r.observed, r.reserved, r.count = unixNano(observed), 0, 0
	r.spending, r.scratch, r.repeated = spending{Bounds: bounds}, r.scratchBytes(), 0
	r.resourceLogs, r.scopeLogs, r.sameAs = 0, 0, r.sameAs[:0]
	r.held, r.opened = false, false
	r.record, r.body = r.record[:0], false
}

// Time sets when it happened, in nanoseconds since 1970. 0 stands for unknown.
func (r *Records) Time(nanos uint64) {
	if nanos != 0 {
		r.record = protowire.AppendTag(r.record, fieldTime, protowire.Fixed64Type)
		r.record = binary.LittleEndian.AppendUint64(r.record, nanos)
	}
}

// Severity sets the level as it was sent, and the number that OTLP has for it.
func (r *Records) Severity(level string) {
	if n := SeverityNumber(level); n != 0 {
		r.record = protowire.AppendTag(r.record, fieldSeverityNumber, protowire.VarintType)
		r.record = protowire.AppendVarint(r.record, uint64(n))
	}
	if level != "" {
		r.record = protowire.AppendTag(r.record, fieldSeverityText, protowire.BytesType)
		r.record = appendText(r.record, level)
	}
}

// Body sets the text of the record.
func (r *Records) Body(text string) {
	r.body = true
	var at int
	r.record, at = openMessage(r.record, fieldBody)
	r.record = appendStringValue(r.record, text)
	r.record = closeMessage(r.record, at)
}

// HasBody reports whether the record being written has a body.
func (r *Records) HasBody() bool { return r.body }

// EventName makes the record an event of that name.
func (r *Records) EventName(name string) {
	r.record = protowire.AppendTag(r.record, fieldEventName, protowire.BytesType)
	r.record = appendText(r.record, name)
}

// Hold makes what Resource says that of every record to come, until Release: it is
// encoded and compared once, however many they are.
func (r *Records) Hold() { r.held, r.opened = true, false }

// Release ends what Hold began, and forgets the resource.
func (r *Records) Release() {
	r.held, r.opened = false, false
	r.Resource.reset(fieldResourceAttributes)
}

// repeats is how many times Bounds.Bytes the resources may have together that are said
// for each record anew but written only once. It bounds the work that, say, a long
// parameter of the address causes for each of very many tiny records.
const repeats = 4

// Add ends the record and puts it behind the others. Its error ends the request.
func (r *Records) Add() error {
	defer r.Discard()
	if n := r.scratchBytes(); n > r.scratch {
		if err := r.Spend(n - r.scratch); err != nil {
			return err
		}
		r.scratch = n
	}
	around := 0
	if !r.opened {
		around = len(r.Resource.encoded) + len(r.scope)
		r.repeated += len(r.Resource.encoded)
	}
	if r.repeated/repeats > r.Bounds.Bytes {
		return ErrTooLarge
	}
	if err := r.reserve(len(r.record) + len(r.Attributes.encoded) + around + headers); err != nil {
		return err
	}
	if !r.opened {
		r.openFor(r.Resource.encoded)
		r.opened = r.held
	}
	at := 0
	r.out, at = openMessage(r.out, fieldLogRecords)
	r.out = append(r.out, r.record...)
	r.out = append(r.out, r.Attributes.encoded...)
	if n := r.Attributes.repeated; n > 0 {
		r.out = protowire.AppendTag(r.out, fieldDropped, protowire.VarintType)
		r.out = protowire.AppendVarint(r.out, uint64(n))
	}
	r.out = protowire.AppendTag(r.out, fieldObserved, protowire.Fixed64Type)
	r.out = binary.LittleEndian.AppendUint64(r.out, r.observed)
	r.out = closeMessage(r.out, at)
	r.count++
	return nil
}

// headers is more than all tags, lengths and numbers take that a record brings with
// it, those of a ResourceLogs of its own included.
const headers = 96

// reserve makes room for n more bytes.
func (r *Records) reserve(n int) error {
	need := len(r.out) + n
	if need > r.Bounds.Bytes {
		return ErrTooLarge
	}
	if need <= r.reserved {
		return nil
	}
	step := max(need-r.reserved, min(max(32<<10, r.reserved), r.Bounds.Bytes-r.reserved))
	if !r.Grow(int64(step)) {
		return ErrNoMemory
	}
	r.reserved += step
	r.out = slices.Grow(r.out, r.reserved-len(r.out))
	return nil
}

// Discard forgets the record being written.
func (r *Records) Discard() {
	if !r.held {
		r.Resource.reset(fieldResourceAttributes)
	}
	r.Attributes.reset(fieldAttributes)
	r.record, r.body = r.record[:0], false
}

// scratchBytes is how large the buffers are that records are put together in.
func (r *Records) scratchBytes() int {
	return cap(r.record) + r.Attributes.bytes() + r.Resource.bytes()
}

// Count is how many records were added.
func (r *Records) Count() int { return r.count }

// Bytes ends the request and returns it. It is valid until the next Reset, and
// nothing may be added to it.
func (r *Records) Bytes() []byte {
	r.closeResource()
	return r.out
}

// openFor makes a ScopeLogs for a resource the innermost open message.
func (r *Records) openFor(resource []byte) {
	if r.resourceLogs != 0 && slices.Equal(r.sameAs, resource) {
		return
	}
	r.closeResource()
	r.sameAs = append(r.sameAs[:0], resource...)
	r.out, r.resourceLogs = openMessage(r.out, fieldResourceLogs)
	if len(resource) > 0 {
		r.out = protowire.AppendTag(r.out, fieldResource, protowire.BytesType)
		r.out = protowire.AppendBytes(r.out, resource)
	}
	r.out, r.scopeLogs = openMessage(r.out, fieldScopeLogs)
	at := 0
	r.out, at = openMessage(r.out, fieldScope)
	r.out = protowire.AppendTag(r.out, fieldScopeName, protowire.BytesType)
	r.out = protowire.AppendBytes(r.out, r.scope)
	r.out = closeMessage(r.out, at)
}

func (r *Records) closeResource() {
	if r.resourceLogs == 0 {
		return
	}
	r.out = closeMessage(r.out, r.scopeLogs)
	r.out = closeMessage(r.out, r.resourceLogs)
	r.resourceLogs, r.scopeLogs = 0, 0
}

// openMessage appends the tag of a nested message and a byte for its length, and
// returns where the content starts.
func openMessage(dst []byte, field protowire.Number) ([]byte, int) {
	dst = protowire.AppendTag(dst, field, protowire.BytesType)
	dst = append(dst, 0)
	return dst, len(dst)
}

// closeMessage writes the length of the message whose content starts at start. A
// length that needs more than one byte moves the content: that is one copy for
// each level of nesting, and cheaper than to find out lengths beforehand.
func closeMessage(dst []byte, start int) []byte {
	size := len(dst) - start
	extra := protowire.SizeVarint(uint64(size)) - 1
	if extra > 0 {
		dst = slices.Grow(dst, extra)[:len(dst)+extra]
		copy(dst[start+extra:], dst[start:start+size])
	}
	protowire.AppendVarint(dst[:start-1], uint64(size))
	return dst
}

func unixNano(t time.Time) uint64 { return uint64(max(0, t.UnixNano())) }
