// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

func TestHostWithoutAnswersIsLeftAlone(t *testing.T) {
	t.Parallel()
	for title, bad := range map[string]struct {
		answer http.HandlerFunc
		cause  string
		status int
	}{
		"torn off": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, "EOF", 0},
		"500":      {busy(500, ""), "500 Internal Server Error", 500},
		"502":      {busy(502, ""), "502 Bad Gateway", 502},
		"503":      {busy(503, ""), "503 Service Unavailable", 503},
		"504":      {busy(504, ""), "504 Gateway Timeout", 504},
		"503 over": {busy(503, "Wed, 21 Oct 2015 07:28:00 GMT"), "503 Service Unavailable", 503},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			f, c := newFake(t), newClock()
			f.tag("1", f.image(t, "linux", "amd64", nil))
			f.answer(bad.answer)
			r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option)
			for range openAfter {
				source := sourceError(t, f.poll(t, r))
				assert.False(t, source.Unasked)
				assert.Equal(t, bad.status, source.Status)
			}
			c.advance(openFor - 1)
			for way, ask := range f.ways(t, r) {
				source := sourceError(t, ask())
				assert.True(t, source.Unasked, way)
				assert.Equal(t, bad.status, source.Status, way)
				assert.Zero(t, source.RetryAt, "%s: the host has no wish", way)
				assert.EqualError(t, source, fmt.Sprintf("%s: upstream %s: not asked until 2026-11-21T12:01:00Z: %s",
					f.repository(), f.host(), bad.cause), way)
			}
			assert.Len(t, f.log(), openAfter)
			assert.Zero(t, r.Pace(), "not kept")

			c.advance(1)
			assert.False(t, sourceError(t, f.poll(t, r)).Unasked)
			assert.True(t, sourceError(t, f.poll(t, r)).Unasked, "once more is enough")
			r.TryAgain() // a person requests it
			assert.False(t, sourceError(t, f.poll(t, r)).Unasked)
			assert.True(t, sourceError(t, f.poll(t, r)).Unasked, "one answer that failed is enough then")
			f.answer(nil)
			r.TryAgain()
			require.NoError(t, f.poll(t, r), "the host is back: its old answer is not repeated")
			f.answer(bad.answer)
			for range openAfter {
				assert.False(t, sourceError(t, f.poll(t, r)).Unasked)
			}
			c.advance(openFor)
			f.answer(nil)
			require.NoError(t, f.poll(t, r))
			f.answer(bad.answer)
			for range openAfter {
				assert.False(t, sourceError(t, f.poll(t, r)).Unasked, "it has begun anew")
			}
			assert.True(t, sourceError(t, f.poll(t, r)).Unasked)
		})
	}
}

func TestAnyOtherAnswerCounts(t *testing.T) {
	t.Parallel()
	for _, status := range []int{400, 401, 403, 404, 408, 501} {
		f, c := newFake(t), newClock()
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option)
		for range 2 {
			f.answer(busy(500, ""))
			for range openAfter - 1 {
				require.Error(t, f.poll(t, r))
			}
			f.answer(busy(status, ""))
			assert.False(t, sourceError(t, f.poll(t, r)).Unasked, status)
		}
	}
}

func Test429WithoutRetryAfterIsEnough(t *testing.T) {
	t.Parallel()
	for _, retryAfter := range []string{"", "0", "soon", "Wed, 21 Oct 2015 07:28:00 GMT"} {
		f, c := newFake(t), newClock()
		f.answer(busy(429, retryAfter))
		r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option)
		source := sourceError(t, f.poll(t, r))
		assert.False(t, source.Unasked)
		assert.Equal(t, 429, source.Status)
		assert.Zero(t, source.RetryAt)
		c.advance(openFor - 1)
		source = sourceError(t, f.poll(t, r))
		assert.True(t, source.Unasked)
		assert.ErrorContains(t, source, "not asked until 2026-11-21T12:01:00Z: 429 Too Many Requests")
		c.advance(1)
		assert.False(t, sourceError(t, f.poll(t, r)).Unasked)
		assert.Len(t, f.log(), 2)
	}
}

func TestRetryAfterEndsTheCircuit(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	f.answer(busy(500, ""))
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option)
	for range openAfter - 1 {
		require.Error(t, f.poll(t, r))
	}
	f.answer(busy(503, "10"))
	require.Error(t, f.poll(t, r))
	c.advance(10 * time.Second)
	f.answer(busy(500, ""))
	for range openAfter {
		assert.False(t, sourceError(t, f.poll(t, r)).Unasked)
	}
	source := sourceError(t, f.poll(t, r))
	assert.True(t, source.Unasked)
	assert.Equal(t, 500, source.Status)
}

// A dead host costs one round of dials, for any number of images, and a second one for requests that started before the
// third dial had failed.
func TestDeadHostIsNotDialledForEachImage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const namespace = "dead.example.com"
		r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)))
		var dials atomic.Int32
		r.client.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			dials.Add(1)
			return noConnection(ctx, network, address)
		}
		start := time.Now()
		ask := func(i int) error {
			_, err := r.Resolve(t.Context(), release.Reference{Repository: fmt.Sprintf("%s/app%d", namespace, i), Tag: "1"})
			return err
		}
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() { assert.Equal(t, namespace, sourceError(t, ask(i)).Host) })
		}
		group.Wait()
		assert.LessOrEqual(t, time.Since(start), 2*dialTimeout)
		assert.LessOrEqual(t, dials.Load(), int32(connectionsPerHost+openAfter-1))

		start = time.Now()
		for i := range 20 {
			assert.True(t, sourceError(t, ask(i)).Unasked)
		}
		assert.Zero(t, time.Since(start))
	})
}

// A canceled caller says nothing about the host.
func TestCanceledCallerIsNotAFailure(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const namespace = "slow.example.com"
		r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)))
		r.client.Dial = noConnection
		for range 2 * openAfter {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := r.Resolve(ctx, release.Reference{Repository: namespace + "/app", Tag: "1"})
			cancel()
			assert.False(t, sourceError(t, err).Unasked)
		}
	})
}

// assertKept asks until three questions in a row open no connection: on a slow machine http.Transport closes one if it
// does not know 50 ms after the answer that the request was written. TestConnectionsAreBounded counts them in memory,
// and so exactly.
func assertKept(t *testing.T, r *guarded, ask func()) {
	t.Helper()
	start := time.Now()
	for kept := 0; kept < 3; kept++ {
		before := r.Counts()
		ask()
		after := r.Counts()
		require.Greater(t, after.Requests, before.Requests)
		if after.Connections > before.Connections {
			kept = -1
			require.Less(t, time.Since(start), time.Minute, "connections are not kept")
		}
	}
}

func TestConnectionsAreBounded(t *testing.T) {
	t.Parallel()
	for _, bound := range []int{0, 1, 2, 7} {
		want := bound
		if bound == 0 {
			want = connectionsPerHost
		}
		t.Run(fmt.Sprint(bound), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { connectionsAreBounded(t, bound, want) })
		})
	}
}

func connectionsAreBounded(t *testing.T, bound, want int) {
	const namespace = "bounded.example.com"
	f := &fake{content: map[string]served{}}
	f.tag("1", f.image(t, "linux", "amd64", nil))
	full := make(chan struct{}) // closed when the maximum number is running
	var under, most, begun atomic.Int32
	f.answer(func(http.ResponseWriter, *http.Request) {
		defer under.Add(-1)
		if n := under.Add(1); n > most.Load() {
			most.Store(n)
		}
		if begun.Add(1) == int32(want) {
			close(full)
		}
		<-full
	})
	r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)), func(o *Options) { o.ConnectionsPerHost = bound })
	r.client.Dial = inMemory(t, f)
	for range 2 {
		var group errgroup.Group
		for range 30 {
			group.Go(func() error {
				_, err := r.Resolve(t.Context(), release.Reference{Repository: namespace + "/app", Tag: "1"})
				return err
			})
		}
		require.NoError(t, group.Wait())
	}
	assert.Equal(t, uint64(want), r.Counts().Connections, "opened once, and kept")
	assert.LessOrEqual(t, most.Load(), int32(want))
	assert.Equal(t, uint64(60), r.Counts().Requests)
}

// Requests running at the time of the first 429 are completed; no waiting request is sent, though the connection is
// free before the answer is read.
func TestNoRequestAfterFirst429(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const namespace = "busy.example.com"
		f := &fake{content: map[string]served{}}
		full := make(chan struct{})
		var begun atomic.Int32
		f.answer(func(w http.ResponseWriter, req *http.Request) {
			if begun.Add(1) == connectionsPerHost {
				close(full)
			}
			<-full
			busy(http.StatusTooManyRequests, "60")(w, req)
		})
		r, _ := newRegistry(t, certsD(t, namespace, plainHTTP(namespace)), func(o *Options) {
			wrap := o.Wrap
			o.Wrap = func(next http.RoundTripper) http.RoundTripper { return readsLate{wrap(next)} }
		})
		r.client.Dial = inMemory(t, f)
		var group sync.WaitGroup
		for range 50 {
			group.Go(func() {
				_, err := r.Resolve(t.Context(), release.Reference{Repository: namespace + "/app", Tag: "1"})
				assert.Error(t, err)
			})
		}
		group.Wait()
		assert.Len(t, f.log(), connectionsPerHost)
		assert.Equal(t, uint64(connectionsPerHost), r.Counts().Requests)
	})
}

// readsLate returns an answer a second after it arrived.
type readsLate struct{ next http.RoundTripper }

func (l readsLate) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := l.next.RoundTrip(req)
	<-time.After(time.Second) // the bubble's time
	return resp, err
}

// Connecting may take seconds, in which the host may ask another request to wait.
func TestRequestIsHeldAfterConnecting(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())))
	r.client.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		r.Resume(record.Pace{Waits: map[string]record.Wait{f.host(): {Until: time.Now().Add(time.Minute), Status: http.StatusTooManyRequests}}})
		return new(net.Dialer).DialContext(ctx, network, address)
	}
	source := sourceError(t, f.poll(t, r))
	assert.True(t, source.Unasked)
	assert.ErrorContains(t, source, "asked to wait until")
	f.Close() // it has received everything by now
	assert.Empty(t, f.log())
	assert.Zero(t, r.Counts().Requests)
	assert.Equal(t, uint64(1), r.Counts().Connections)
}

// The connection of a refusal is reused.
func TestRefusalKeepsItsConnection(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		busy(http.StatusTooManyRequests, "1")(w, req)
		_, _ = fmt.Fprintf(w, "%1000s", "slow down")
	})
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option)
	assertKept(t, r, func() {
		_, err := r.Tags(t.Context(), f.repository())
		assert.False(t, sourceError(t, err).Unasked)
		c.advance(time.Second)
	})
}
