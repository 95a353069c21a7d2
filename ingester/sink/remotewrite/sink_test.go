package remotewrite

import (
	"context"
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	gosnappy "github.com/golang/snappy"
	"github.com/prometheus/common/config"
	"github.com/stretchr/testify/require"

	"github.com/spillway-telemetry/spillway/ingester"
	"github.com/spillway-telemetry/spillway/ingester/sink"
)

func TestRequestsFollowTheSpecification(t *testing.T) {
	for format, want := range map[ingester.Format]http.Header{
		ingester.RemoteWrite1: {"Content-Type": {"application/x-protobuf"}, "X-Prometheus-Remote-Write-Version": {"0.1.0"}},
		ingester.RemoteWrite2: {"Content-Type": {"application/x-protobuf;proto=io.prometheus.write.v2.Request"}, "X-Prometheus-Remote-Write-Version": {"2.0.0"}},
	} {
		to := newServer(t, status(204, "", samplesWrittenHeader, "1"))
		o := testOptions(t, format, to.URL+"/api/v1/push?tenant=a")
		o.Headers = map[string]string{"x-scope-orgid": "platform"}
		b := smallBatch(t, format)
		require.NoError(t, openTestSink(t, o).Write(t.Context(), b))
		got := to.requests[0]
		require.Equal(t, b.Packed, got.body, "a whole batch leaves as the bytes that it came in")
		for name, value := range want {
			require.Equal(t, value, got.header[name])
		}
		require.Equal(t, "snappy", got.header.Get("Content-Encoding"))
		require.Equal(t, "platform", got.header.Get("X-Scope-OrgID"))
		require.Regexp(t, `^Spillway/`, got.header.Get("User-Agent"))
		require.NotContains(t, got.header, sink.RetryHeader)
	}
}

// What is encoded anew can be read by the usual decoder, and so can a whole batch
// that did not come compressed.
func TestRequestsAreSnappyBlocks(t *testing.T) {
	to := newServer(t, nil)
	s := newTestSink(t, ingester.RemoteWrite1, to.URL)
	big := newTestBatch(t, scrape(ingester.RemoteWrite1))
	for i := range big.Groups {
		if i%3 == 0 {
			big.Groups[i].Verdict = ingester.DroppedRelabel
		}
	}
	require.NoError(t, s.Write(t.Context(), big))
	raw, err := gosnappy.Decode(nil, to.requests[0].body)
	require.NoError(t, err)
	require.Equal(t, newEncoder().encode(big, ingester.RemoteWrite1), raw)

	b := smallBatch(t, ingester.RemoteWrite1)
	b.Packed = nil
	require.NoError(t, s.Write(t.Context(), b))
	raw, err = gosnappy.Decode(nil, to.requests[1].body)
	require.NoError(t, err)
	require.Equal(t, b.Body[:b.Size], raw)
}

func TestNothingAdmittedSendsNothing(t *testing.T) {
	to := newServer(t, nil)
	s := newTestSink(t, ingester.RemoteWrite2, to.URL)
	b := smallBatch(t, ingester.RemoteWrite2)
	b.Whole = false
	b.Groups[0].Verdict = ingester.DroppedRatelimit
	require.NoError(t, s.Write(t.Context(), b))

	// A series that cannot be converted is refused without a request.
	b = smallBatch(t, ingester.RemoteWrite1)
	b.Whole = false
	b.Groups[0].Field.End--
	require.NoError(t, s.Write(t.Context(), b))
	require.EqualValues(t, 1, b.Groups[0].Rejected)
	require.Zero(t, to.count())
}

func TestFinalAnswersAreFinal(t *testing.T) {
	long := strings.Repeat("reason ", 1000)
	for name, c := range map[string]struct {
		format ingester.Format
		answer http.HandlerFunc
		text   string
	}{
		"bad request":   {ingester.RemoteWrite1, status(400, "out of order\nsample"), "answered 400 Bad Request: out of order; sample"},
		"too large":     {ingester.RemoteWrite1, status(413, long), "answered 413 Request Entity Too Large: reason"},
		"nothing taken": {ingester.RemoteWrite2, status(400, "bad", samplesWrittenHeader, "0"), "bad"},
	} {
		t.Run(name, func(t *testing.T) {
			to, other := newServer(t, c.answer), newServer(t, c.answer)
			s := newTestSink(t, c.format, to.URL, other.URL)
			e := sinkError(t, s)
			require.True(t, e.Final)
			require.Zero(t, e.RetryAfter)
			require.ErrorContains(t, e, c.text)
			require.ErrorContains(t, e, to.URL)
			require.Less(t, len(e.Error()), 2*sink.LongestText)
			require.Equal(t, 1, to.count()+other.count(), "asking another endpoint cannot help")
			require.True(t, s.to.State(0, time.Now()).Healthy)
		})
	}
}

func TestALimitIsPassedOnAndNotEvaded(t *testing.T) {
	to, other := newServer(t, status(429, "tenant limit", "Retry-After", "17")), newServer(t, nil)
	s := newTestSink(t, ingester.RemoteWrite1, to.URL, other.URL)
	e := sinkError(t, s)
	require.False(t, e.Final)
	require.Equal(t, 17*time.Second, e.RetryAfter)
	require.ErrorContains(t, e, "answered 429 Too Many Requests: tenant limit")
	require.Zero(t, other.count())
	require.True(t, s.to.State(0, time.Now()).Healthy)
}

// An endpoint that fails, in whichever way, costs one attempt: the next takes the
// batch, and the failed one is left out.
func TestTheNextEndpointTakesWhatOneFailedToTake(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"500": status(500, "boom"),
		"503": status(503, "", "Retry-After", "3"),
		"401": status(401, "who are you"),
		"404": status(404, "no such page"),
		"415": status(415, "what is that"),
		"redirect": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		},
		"reset":              hijack(""),
		"reset in the head":  hijack("HTTP/1.1 204 No Con"),
		"not HTTP":           hijack("SSH-2.0-OpenSSH_9.6\r\n"),
		"500 cut off":        hijack("HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\nboo"),
		"500 with no length": hijack("HTTP/1.1 500 Oh\r\n\r\nboom"),
	} {
		t.Run(name, func(t *testing.T) {
			bad, good := newServer(t, answer), newServer(t, nil)
			s := newTestSink(t, ingester.RemoteWrite1, bad.URL, good.URL)
			require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
			require.Equal(t, 1, bad.count())
			require.Equal(t, "1", good.requests[0].header.Get(sink.RetryHeader))
			require.Equal(t, bad.requests[0].body, good.requests[0].body)
			require.False(t, s.to.State(0, time.Now()).Healthy)
			for range 3 {
				require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
			}
			require.Equal(t, 1, bad.count(), "it is left out")
		})
	}
}

// A client that followed a redirect would send a GET, or nothing, and believe the
// answer.
func TestRedirectsAreNotFollowed(t *testing.T) {
	elsewhere := newServer(t, nil)
	for code := 301; code <= 308; code++ {
		to := newServer(t, func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, elsewhere.URL, code) })
		e := sinkError(t, newTestSink(t, ingester.RemoteWrite1, to.URL))
		require.ErrorContains(t, e, "redirects are not followed")
		require.ErrorContains(t, e, elsewhere.URL)
		require.False(t, e.Final)
	}
	require.Zero(t, elsewhere.count())
}

// hijack writes raw bytes instead of an answer and closes the connection.
func hijack(raw string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = conn.Write([]byte(raw))
		_ = conn.Close()
	}
}

// The status line says that the batch is stored; what happens to the body after
// that changes nothing.
func TestAnAnswerWhoseBodyIsCutOffCounts(t *testing.T) {
	to := newServer(t, hijack("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nok"))
	require.NoError(t, newTestSink(t, ingester.RemoteWrite1, to.URL).Write(t.Context(), smallBatch(t, ingester.RemoteWrite1)))
}

func TestTheErrorNamesEveryEndpointAndItsReason(t *testing.T) {
	a, b := newServer(t, status(503, "compacting", "Retry-After", "40")), newServer(t, status(500, "disk full"))
	s := newTestSink(t, ingester.RemoteWrite1, a.URL, b.URL, "http://user:secret@127.0.0.1:1/?token=secret")
	e := sinkError(t, s)
	require.False(t, e.Final)
	require.ErrorContains(t, e, a.URL+" answered 503 Service Unavailable: compacting")
	require.ErrorContains(t, e, b.URL+" answered 500 Internal Server Error: disk full")
	require.ErrorContains(t, e, "http://127.0.0.1:1/ did not answer: dial tcp 127.0.0.1:1: connect: connection refused")
	require.NotContains(t, e.Error(), "secret")
	require.ErrorIs(t, e, sink.ErrNoEndpoint)
	require.Positive(t, e.RetryAfter)
	require.LessOrEqual(t, e.RetryAfter, sink.FirstWait, "the first that may be asked again decides")

	e = sinkError(t, s)
	require.ErrorContains(t, e, b.URL+" is left out for another ")
	require.ErrorContains(t, e, "it answered 500 Internal Server Error: disk full")
	require.Positive(t, e.RetryAfter)
	require.Equal(t, 1, a.count())

	alone := newTestSink(t, ingester.RemoteWrite1, a.URL)
	require.Equal(t, 40*time.Second, sinkError(t, alone).RetryAfter)
}

// Time stands still in these tests but for what they wait for.
func TestAHangingEndpointCostsOneTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, ingester.RemoteWrite1, hanging, answering(204))
		began := time.Now()
		require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
		require.Equal(t, timeout, time.Since(began))
		for range 10 {
			require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
		}
		require.Equal(t, timeout, time.Since(began))
		require.ErrorContains(t, s.to.State(0, time.Now()).Reason, "did not answer within the timeout of 2s")
	})
}

func TestAnEndpointThatComesBackIsFoundByRealTraffic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var alive bool
		asked := 0
		s := offline(t, ingester.RemoteWrite1, func(r *http.Request) (*http.Response, error) {
			asked++
			if alive {
				return answering(204)(r)
			}
			return refusing(r)
		}, answering(204))
		for range 600 {
			require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)), "the other endpoint takes what a probe costs")
			time.Sleep(100 * time.Millisecond)
		}
		// Waits of 0.25 to 0.5s, 0.5 to 1s, ... 7.5 to 15s in a minute.
		require.GreaterOrEqual(t, asked, 8)
		require.LessOrEqual(t, asked, 14)
		alive = true
		for !s.to.State(0, time.Now()).Healthy {
			require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
			time.Sleep(100 * time.Millisecond)
		}
		before := asked
		for range 10 {
			require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
		}
		require.Equal(t, 5, asked-before, "it has its share again")
	})
}

func TestTheLastEndpointIsNotAskedWhileItIsLeftOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := 0
		s := offline(t, ingester.RemoteWrite1, func(r *http.Request) (*http.Response, error) { asked++; return refusing(r) })
		for range 5 {
			e := sinkError(t, s)
			require.Positive(t, e.RetryAfter)
			require.LessOrEqual(t, e.RetryAfter, sink.FirstWait)
		}
		require.Equal(t, 1, asked)
		time.Sleep(sinkError(t, s).RetryAfter)
		sinkError(t, s)
		require.Equal(t, 2, asked, "the sender that waits as told is the probe")
	})
}

// A sender that leaves ends its write at once and says nothing of the endpoint.
func TestASenderThatLeavesBlamesNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, ingester.RemoteWrite1, hanging, hanging)
		gone := errors.New("client disconnected")
		ctx, cancel := context.WithCancelCause(t.Context())
		go func() {
			time.Sleep(timeout / 4)
			cancel(gone)
		}()
		began := time.Now()
		err := s.Write(ctx, smallBatch(t, s.format))
		require.ErrorIs(t, err, gone)
		require.Equal(t, timeout/4, time.Since(began))
		for i := range 2 {
			require.True(t, s.to.State(i, time.Now()).Healthy)
			require.Zero(t, s.to.State(i, time.Now()).InFlight)
		}
		var e *ingester.SinkError
		require.ErrorAs(t, err, &e)
		require.False(t, e.Final)

		// One that leaves after a long wait has found the endpoint out.
		ctx, cancelLate := context.WithTimeout(t.Context(), timeout/2)
		defer cancelLate()
		require.ErrorIs(t, s.Write(ctx, smallBatch(t, s.format)), context.DeadlineExceeded)
		require.False(t, s.to.State(0, time.Now()).Healthy && s.to.State(1, time.Now()).Healthy)
	})
}

func TestFullEndpointsEndTheWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := testOptions(t, ingester.RemoteWrite1, "http://a")
		o.MaxConnectionsPerEndpoint = 1
		s := openTestSink(t, o)
		release := make(chan struct{})
		s.to.Endpoints[0].Client.Transport = transport(func(r *http.Request) (*http.Response, error) {
			<-release
			return answering(204)(r)
		})
		done := make(chan error)
		go func() { done <- s.Write(t.Context(), smallBatch(t, s.format)) }()
		synctest.Wait()
		e := sinkError(t, s)
		require.ErrorIs(t, e, sink.ErrFull)
		require.ErrorContains(t, e, "http://a has all of its 1 connections in use")
		close(release)
		require.NoError(t, <-done)
	})
}

// A body that does not end delays the answer, which is known, by a second.
func TestABodyThatDoesNotEndIsNotWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := offline(t, ingester.RemoteWrite1, func(r *http.Request) (*http.Response, error) {
			resp, err := answering(200)(r)
			resp.Body = endless{r.Context()}
			return resp, err
		})
		began := time.Now()
		require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
		require.Equal(t, sink.DrainTime, time.Since(began))
	})
}

type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) { <-e.ctx.Done(); return 0, e.ctx.Err() }
func (endless) Close() error               { return nil }

func TestAPanicInTheClientGivesItsPlaceBack(t *testing.T) {
	s := offline(t, ingester.RemoteWrite1, func(*http.Request) (*http.Response, error) { panic("bug") })
	require.PanicsWithValue(t, "bug", func() { _ = s.Write(t.Context(), smallBatch(t, s.format)) })
	require.Zero(t, s.to.State(0, time.Now()).InFlight)
}

func TestCredentialsAreReadFromFiles(t *testing.T) {
	to := newServer(t, nil)
	file := filepath.Join(t.TempDir(), "token")
	o := testOptions(t, ingester.RemoteWrite1, to.URL)
	o.HTTPClientConfig.BearerTokenFile = file
	s := openTestSink(t, o)
	for _, token := range []string{"first", "second"} {
		require.NoError(t, os.WriteFile(file, []byte(token+"\n"), 0o600))
		require.NoError(t, s.Write(t.Context(), smallBatch(t, s.format)))
	}
	require.Equal(t, "Bearer first", to.requests[0].header.Get("Authorization"))
	require.Equal(t, "Bearer second", to.requests[1].header.Get("Authorization"))

	o = testOptions(t, ingester.RemoteWrite1, to.URL)
	o.HTTPClientConfig.BasicAuth = &config.BasicAuth{Username: "u", PasswordFile: file}
	require.NoError(t, openTestSink(t, o).Write(t.Context(), smallBatch(t, s.format)))
	require.Equal(t, "Basic dTpzZWNvbmQ=", to.requests[2].header.Get("Authorization"))
}
