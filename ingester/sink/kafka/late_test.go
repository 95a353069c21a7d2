package kafka

import (
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/spillway-telemetry/spillway/ingester"
)

// A broker that answers only when the timeout is over may have stored the batch, and
// nobody knows. The sender is asked to send it again: at worst it is there twice.
func TestAnAnswerAfterTheTimeoutCountsAsNone(t *testing.T) {
	c := cluster(t)
	o := testOptions(c.ListenAddrs())
	o.Timeout = model.Duration(300 * time.Millisecond)
	s := openSink(t, o)
	require.NoError(t, s.Write(t.Context(), batch(t, "a-0")))
	late, arrived := make(chan struct{}), make(chan struct{}, 100)
	c.ControlKey(int16(kmsg.Produce), func(kmsg.Request) (kmsg.Response, error, bool) {
		c.KeepControl()
		c.SleepControl(func() {
			arrived <- struct{}{}
			<-late
		})
		return nil, nil, false
	})
	b := batch(t, "a-1")
	var e *ingester.SinkError
	require.ErrorAs(t, s.Write(t.Context(), b), &e)
	require.False(t, e.Final)
	require.Zero(t, b.Groups[0].Rejected)
	require.Empty(t, b.Rejections())
	<-arrived
	close(late)
	o.Timeout = model.Duration(5 * time.Second)
	again := openSink(t, o)
	require.NoError(t, again.Write(t.Context(), batch(t, "a-1")))
	require.Contains(t, bodiesOf(consume(t, o.Brokers, "otlp_logs", nil)), "a-1")
}
