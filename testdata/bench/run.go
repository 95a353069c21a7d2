package main

import (
	"context"
	"fmt"
	"os"
	"time"
)

// measurement is one run of one receiver.
type measurement struct {
	driven
	cpu  time.Duration // user and system time of the receiver
	peak int64         // bytes resident at most since its start
	note string        // what makes the run unlike the others, if anything does
}

// perCPUSecond is the figure that everything is about.
func (m measurement) perCPUSecond() float64 { return float64(m.items) / m.cpu.Seconds() }

// bench is what all runs share.
type bench struct {
	sink *sink
	dir  string // of the receivers' files
	say  func(format string, args ...any)
}

// running is a receiver that is being sent requests.
type running struct {
	*process
	*receiver
	driver *driver
	next   int // the number of the next request
	sent   int64
}

// with starts a receiver, lets it see every series once, calls f and ends it.
func (b *bench) with(ctx context.Context, rc *receiver, r *requests, connections int, f func(*running) error) error {
	dir, err := os.MkdirTemp(b.dir, "run-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	address, err := freeAddress()
	if err != nil {
		return err
	}
	b.sink.samples.Store(0)
	p, err := rc.start(ctx, dir, address, b.sink.url)
	if err != nil {
		return err
	}
	defer p.kill()
	run := &running{process: p, receiver: rc, driver: newDriver("http://"+address+r.path(), r.message, connections)}
	defer run.driver.client.CloseIdleConnections()
	if _, err = b.send(ctx, run, r, r.parts*max(1, r.warm)); err == nil {
		err = f(run)
	}
	if err != nil {
		p.kill()
		return fmt.Errorf("%s: %w\n%s", rc.name, err, p.log.String())
	}
	return nil
}

// send sends n requests and waits until what is forwarded later has arrived.
func (b *bench) send(ctx context.Context, run *running, r *requests, n int) (driven, error) {
	d, err := run.driver.send(ctx, r, run.next, n)
	run.next += n
	run.sent += d.items
	if err == nil && run.answersFirst {
		err = b.sink.await(ctx, run.sent)
	}
	return d, err
}

// measure runs a receiver once and measures n requests of series that it knows.
func (b *bench) measure(ctx context.Context, rc *receiver, r *requests, connections, n int) (m measurement, err error) {
	err = b.with(ctx, rc, r, connections, func(run *running) error {
		before, err := run.cpu()
		if err != nil {
			return err
		}
		if m.driven, err = b.send(ctx, run, r, n); err != nil {
			return err
		}
		after, err := run.cpu()
		if err != nil {
			return err
		}
		m.cpu = after - before
		if m.peak, err = run.memory(); err != nil {
			return err
		}
		var own metrics
		if !rc.noMetrics {
			if own, err = run.metrics(); err != nil {
				return err
			}
		}
		m.note, err = rc.check(own, run.sent, b.sink.samples.Load())
		return err
	})
	return m, err
}
