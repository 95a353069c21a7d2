//go:build e2e

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/collector/pdata/plog"
	"go.opentelemetry.io/collector/pdata/plog/plogotlp"
)

// shipper sends log records over OTLP/HTTP as an SDK does: it waits for each answer,
// and sends again what it is asked to send again. Every record is known by its body.
type shipper struct {
	url string

	mu      sync.Mutex
	acked   map[string]bool // false: sent, and not said to be stored
	retries int
}

func newShipper(address string) *shipper {
	return &shipper{url: "http://" + address + "/v1/logs", acked: map[string]bool{}}
}

// run ships batches from several senders until ctx ends.
func (s *shipper) run(ctx context.Context, t *testing.T, senders int) *sync.WaitGroup {
	var wg sync.WaitGroup
	for n := range senders {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				if !s.ship(ctx, t, n, i) {
					return
				}
			}
		})
	}
	return &wg
}

// ship sends one batch of five records until it is stored or ctx ends.
func (s *shipper) ship(ctx context.Context, t *testing.T, sender, number int) bool {
	ld := plog.NewLogs()
	var bodies []string
	rl := ld.ResourceLogs().AppendEmpty()
	rl.Resource().Attributes().PutStr("service.name", fmt.Sprint("sender-", sender))
	records := rl.ScopeLogs().AppendEmpty().LogRecords()
	for i := range 5 {
		body := fmt.Sprintf("s%d-%06d-%d", sender, number, i)
		bodies = append(bodies, body)
		lr := records.AppendEmpty()
		lr.Body().SetStr(body)
		lr.SetSeverityText("INFO")
		lr.Attributes().PutInt("number", int64(number))
	}
	raw, err := plogotlp.NewExportRequestFromLogs(ld).MarshalProto()
	if err != nil {
		t.Error(err)
		return false
	}
	s.note(bodies, false)
	for ctx.Err() == nil {
		resp, err := http.Post(s.url, "application/x-protobuf", bytes.NewReader(raw))
		if err == nil {
			body, _ := io.ReadAll(resp.Body)
			resp.Body.Close()
			switch resp.StatusCode {
			case http.StatusOK:
				s.note(bodies, true)
				return true
			case http.StatusServiceUnavailable, http.StatusTooManyRequests:
			default:
				t.Errorf("answered %d: %s", resp.StatusCode, body)
				return false
			}
		}
		s.mu.Lock()
		s.retries++
		s.mu.Unlock()
		select {
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
		}
	}
	return false
}

func (s *shipper) note(bodies []string, stored bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, b := range bodies {
		s.acked[b] = s.acked[b] || stored
	}
}

// stored counts the records that were said to be stored.
func (s *shipper) stored() (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, ok := range s.acked {
		if ok {
			n++
		}
	}
	return n
}

func (s *shipper) asked() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.retries
}

// logRecord is what is compared of a record.
type logRecord struct {
	body, service, severity string
	number                  int64
}

// recordsOf reads all records of a request that was stored.
func recordsOf(ld plog.Logs) (all []logRecord) {
	for _, rl := range ld.ResourceLogs().All() {
		service, _ := rl.Resource().Attributes().Get("service.name")
		for _, sl := range rl.ScopeLogs().All() {
			for _, lr := range sl.LogRecords().All() {
				number, _ := lr.Attributes().Get("number")
				all = append(all, logRecord{lr.Body().Str(), service.Str(), lr.SeverityText(), number.Int()})
			}
		}
	}
	return all
}

// requireStored holds what was read back against what was sent, field by field, and
// says how many records came twice.
func (s *shipper) requireStored(t *testing.T, found []logRecord) {
	t.Helper()
	times := map[string]int{}
	for _, r := range found {
		var sender, number, i int
		_, err := fmt.Sscanf(r.body, "s%d-%d-%d", &sender, &number, &i)
		require.NoError(t, err)
		require.Equal(t, logRecord{r.body, fmt.Sprint("sender-", sender), "INFO", int64(number)}, r)
		times[r.body]++
	}
	twice := 0
	for body, stored := range s.acked {
		if stored {
			require.NotZero(t, times[body], "%s was acknowledged and is lost", body)
		}
		if times[body] > 1 {
			twice++
		}
	}
	for body := range times {
		_, sent := s.acked[body]
		require.True(t, sent, "%s was never sent", body)
	}
	t.Logf("%d records acknowledged, %d found, %d of them more than once, %d requests sent again", s.stored(), len(times), twice, s.retries)
}

// requireConservedIn checks the law of items for a stream.
func requireConservedIn(t *testing.T, m map[string]float64, stream string) {
	t.Helper()
	s := `stream="` + stream + `"`
	require.Positive(t, sum(m, "spillway_received_items_total", s))
	require.Equal(t, sum(m, "spillway_received_items_total", s),
		sum(m, "spillway_invalid_items_total", s)+sum(m, "spillway_dropped_items_total", s)+
			sum(m, "spillway_exempt_items_total", s)+sum(m, "spillway_admitted_items_total", s)+sum(m, "spillway_refused_items_total", s))
}
