// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// clock is a fake clock moved by tests.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func (c *clock) option(o *Options) { o.Now = c.now }

// busy answers every request with a status, and Retry-After if it is not empty.
func busy(status int, retryAfter string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if retryAfter != "" {
			w.Header().Set("Retry-After", retryAfter)
		}
		w.WriteHeader(status)
	}
}

func sourceError(t testing.TB, err error) *release.SourceError {
	t.Helper()
	var source *release.SourceError
	require.ErrorAs(t, err, &source)
	return source
}

// ways returns all kinds of requests to a host.
func (f *fake) ways(t testing.TB, r *guarded) map[string]func() error {
	return map[string]func() error{
		"resolve": func() error { return f.poll(t, r) },
		"tags": func() error {
			_, err := r.Tags(t.Context(), f.repository())
			return err
		},
		"describe": func() error {
			_, err := r.Describe(t.Context(), f.repository(), digest.FromString("any"))
			return err
		},
		"pull locates": func() error {
			_, err := r.Locate(t.Context(), f.repository(), digest.FromString("any"))
			return err
		},
		"pull fetches": func() error { return fetch(t, r, f.repository(), "any") },
	}
}

func (f *fake) poll(t testing.TB, r *guarded) error {
	t.Helper()
	_, err := r.Resolve(t.Context(), release.Reference{Repository: f.repository(), Tag: "1"})
	return err
}

func fetch(t testing.TB, r *guarded, repository, layer string) error {
	t.Helper()
	body, err := r.Fetch(t.Context(), repository, layerOf(layer))
	require.NoError(t, err)
	defer func() { _ = body.Close() }()
	_, err = io.ReadAll(body)
	return err
}

func TestRetryAfterIsObeyedToTheSecond(t *testing.T) {
	t.Parallel()
	const wait = 90 * time.Second
	date := newClock().now().Add(wait).Format(http.TimeFormat)
	for _, status := range []int{http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		for _, retryAfter := range []string{"90", date} {
			for _, first := range []string{"resolve", "tags", "describe", "pull locates", "pull fetches"} {
				t.Run(fmt.Sprintf("%d %s %s", status, retryAfter, first), func(t *testing.T) {
					t.Parallel()
					f, c := newFake(t), newClock()
					f.tag("1", f.image(t, "linux", "amd64", nil))
					f.answer(busy(status, retryAfter))
					r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option)
					until := c.now().Add(wait)

					source := sourceError(t, f.ways(t, r)[first]())
					assert.Equal(t, &release.SourceError{
						Repository: f.repository(), Host: f.host(), Status: status, RetryAt: until,
						Cause: causeOfStatus(status), Err: source.Err,
					}, source)
					assert.ErrorContains(t, source, fmt.Sprintf("upstream %s: %d %s", f.host(), status, http.StatusText(status)))
					require.Len(t, f.log(), 1, "containerd's resolver repeats what it may")
					assert.Equal(t, uint64(1), r.Counts().Requests)

					f.answer(nil)
					c.advance(wait - time.Second)
					for way, ask := range f.ways(t, r) {
						source := sourceError(t, ask())
						assert.True(t, source.Unasked, way)
						assert.Equal(t, status, source.Status, way)
						assert.Equal(t, until, source.RetryAt, way)
						assert.EqualError(t, source, fmt.Sprintf(
							"%s: upstream %s: asked to wait until 2026-11-21T12:01:30Z (%d)", f.repository(), f.host(), status), way)
					}
					assert.Len(t, f.log(), 1, "one second early")

					c.advance(time.Second)
					require.NoError(t, f.poll(t, r))
					assert.Len(t, f.log(), 2)
				})
			}
		}
	}
}

// restart passes the saved state of a daemon to its successor.
func restart(t testing.TB, before *guarded, after *guarded) record.Pace {
	t.Helper()
	data, err := json.Marshal(before.Pace())
	require.NoError(t, err)
	var kept record.Pace
	require.NoError(t, json.Unmarshal(data, &kept))
	after.Resume(kept)
	return kept
}

func TestWaitSurvivesARestart(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	f.tag("1", f.image(t, "linux", "amd64", nil))
	f.answer(busy(http.StatusTooManyRequests, "3600"))
	dir := certsD(t, f.host(), plainHTTP(f.host()))
	before, _ := newRegistry(t, dir, c.option)
	assert.Zero(t, before.Pace())
	require.Error(t, f.poll(t, before))
	f.answer(nil)

	c.advance(time.Hour - time.Second)
	after, _ := newRegistry(t, dir, c.option)
	kept := restart(t, before, after)
	until := newClock().now().Add(time.Hour)
	assert.Equal(t, map[string]record.Wait{f.host(): {Until: until, Status: http.StatusTooManyRequests}}, kept.Waits)
	source := sourceError(t, f.poll(t, after))
	assert.True(t, source.Unasked)
	assert.Equal(t, until, source.RetryAt)
	assert.Len(t, f.log(), 1)

	// A person's request asks once, and who waits for it hears that.
	asked := 0
	poll := func() error {
		ctx := release.WithAsking(t.Context(), func() { asked++ })
		_, err := after.Resolve(ctx, release.Reference{Repository: f.repository(), Tag: "1"})
		return err
	}
	assert.True(t, sourceError(t, poll()).Unasked)
	assert.Zero(t, asked)
	f.answer(busy(http.StatusServiceUnavailable, "1"))
	after.TryAgain()
	assert.False(t, sourceError(t, poll()).Unasked)
	for way, ask := range f.ways(t, after) {
		assert.True(t, sourceError(t, ask()).Unasked, way)
	}
	assert.Len(t, f.log(), 2)
	f.answer(nil)
	after.TryAgain()
	require.NoError(t, poll(), "it is back: nobody waits for the rest of its time")
	require.NoError(t, f.poll(t, after))
	assert.Equal(t, 2, asked)

	c.advance(time.Second)
	assert.Zero(t, after.Pace(), "what is over is not kept")
	require.NoError(t, f.poll(t, after))
}

func TestResume(t *testing.T) {
	t.Parallel()
	c := newClock()
	r, _ := newRegistry(t, t.TempDir(), c.option)
	at := func(d time.Duration) record.Wait {
		return record.Wait{Until: c.now().Add(d), Status: http.StatusTooManyRequests}
	}
	r.Resume(record.Pace{Waits: map[string]record.Wait{
		"over.example.com": at(0), "now.example.com": at(time.Second), "most.example.com": at(maxRetryAfter),
		"clock.example.com": at(maxRetryAfter + time.Second), "later.example.com": at(time.Minute), "sooner.example.com": at(time.Minute),
	}})
	r.Resume(record.Pace{Waits: map[string]record.Wait{
		"later.example.com": at(time.Hour), "sooner.example.com": at(time.Second),
	}})
	assert.Equal(t, record.Pace{Waits: map[string]record.Wait{
		"now.example.com": at(time.Second), "most.example.com": at(maxRetryAfter),
		"later.example.com": at(time.Hour), "sooner.example.com": at(time.Minute),
	}}, r.Pace())

	c.advance(-time.Minute)
	assert.NotContains(t, r.Pace().Waits, "most.example.com", "the clock was set back: it would be more than a day by now")
}

func TestWaitsAreBounded(t *testing.T) {
	t.Parallel()
	c := newClock()
	r, _ := newRegistry(t, t.TempDir(), c.option)
	many := record.Pace{Waits: map[string]record.Wait{}}
	for i := range maxPaced + 10 {
		many.Waits[strconv.Itoa(i)+".example.com"] = record.Wait{Until: c.now().Add(time.Minute), Status: http.StatusTooManyRequests}
	}
	r.Resume(many)
	assert.Len(t, r.Pace().Waits, maxPaced)
	c.advance(time.Minute)
	next := map[string]record.Wait{"next.example.com": {Until: c.now().Add(time.Minute), Status: http.StatusServiceUnavailable}}
	r.Resume(record.Pace{Waits: next})
	assert.Equal(t, next, r.Pace().Waits)
}

func TestTheOtherHostsAreAsked(t *testing.T) {
	t.Parallel()
	mirror, upstream, c := newFake(t), newFake(t), newClock()
	upstream.tag("1", upstream.image(t, "linux", "amd64", nil))
	mirror.answer(busy(http.StatusServiceUnavailable, "60"))
	r, _ := newRegistry(t, certsD(t, upstream.host(), plainHTTP(upstream.host())+fmt.Sprintf("[host.\"http://%s\"]\n", mirror.host())), c.option)
	for range 2 {
		got, err := r.Resolve(t.Context(), release.Reference{Repository: upstream.repository(), Tag: "1"})
		require.NoError(t, err)
		assert.Equal(t, upstream.host(), got.Host)
	}
	assert.Len(t, mirror.log(), 1)

	upstream.answer(busy(http.StatusTooManyRequests, "30"))
	source := sourceError(t, upstream.poll(t, r))
	assert.Equal(t, upstream.host(), source.Host)
	assert.False(t, source.Unasked, "one was asked")
	assert.Equal(t, c.now().Add(30*time.Second), source.RetryAt)
	assert.EqualError(t, source, fmt.Sprintf("%s: upstream %s: 429 Too Many Requests (mirror %s: asked to wait until 2026-11-21T12:01:00Z (503))",
		upstream.repository(), upstream.host(), mirror.host()))
	source = sourceError(t, upstream.poll(t, r))
	assert.True(t, source.Unasked, "none was")

	c.advance(30 * time.Second)
	upstream.answer(busy(http.StatusTooManyRequests, "300"))
	source = sourceError(t, upstream.poll(t, r))
	assert.Equal(t, c.now().Add(30*time.Second), source.RetryAt, "the mirror's, which is first")
}

func TestTokenServerIsASeparateHost(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	f.tag("1", f.image(t, "linux", "amd64", nil))
	s := newTokenServer(t, f)
	given := s.Config.Handler
	s.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if s.count() == 0 {
			w.Header().Set("Retry-After", "60")
			s.set(http.StatusTooManyRequests, 0, "")
			defer s.set(0, 0, "")
		}
		given.ServeHTTP(w, req)
	})
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option)
	until := c.now().Add(time.Minute)

	source := sourceError(t, f.poll(t, r))
	assert.Equal(t, f.host(), source.Host)
	assert.Equal(t, http.StatusTooManyRequests, source.Status)
	assert.Equal(t, until, source.RetryAt)
	assert.ErrorContains(t, source, s.Listener.Addr().String()+": authorize: 429 Too Many Requests")
	assert.Contains(t, r.Pace().Waits, s.Listener.Addr().String())
	assert.NotContains(t, r.Pace().Waits, f.host())

	c.advance(time.Minute - time.Second)
	for way, ask := range f.ways(t, r) {
		source = sourceError(t, ask())
		assert.True(t, source.Unasked, way)
		assert.Equal(t, until, source.RetryAt, way)
		assert.ErrorContains(t, source, s.Listener.Addr().String()+": authorize: asked to wait until 2026-11-21T12:01:00Z (429)", way)
	}
	assert.Equal(t, 1, s.count())
	assert.Equal(t, uint64(1), r.Counts().Tokens)

	c.advance(time.Second)
	require.NoError(t, f.poll(t, r))
	assert.Equal(t, 2, s.count())
}

func (s *tokens) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.asked)
}

func TestRedirectTargetIsASeparateHost(t *testing.T) {
	t.Parallel()
	f, c := newFake(t), newClock()
	asked := 0
	store := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		asked++
		busy(http.StatusServiceUnavailable, "60")(w, req)
	}))
	t.Cleanup(store.Close)
	f.answer(func(w http.ResponseWriter, req *http.Request) {
		http.Redirect(w, req, store.URL+"/blob?signature="+secret, http.StatusTemporaryRedirect)
	})
	r, _ := newRegistry(t, certsD(t, f.host(), plainHTTP(f.host())), c.option)
	for i, want := range []string{"503 Service Unavailable", "asked to wait until 2026-11-21T12:01:00Z (503)"} {
		source := sourceError(t, f.poll(t, r))
		assert.Equal(t, f.host(), source.Host)
		assert.Equal(t, i == 1, source.Unasked)
		assert.ErrorContains(t, source, store.Listener.Addr().String()+": "+want)
	}
	assert.Equal(t, 1, asked)
	require.Error(t, fetch(t, r, f.repository(), "any"))
	assert.Equal(t, 1, asked)
	assert.Contains(t, r.Pace().Waits, store.Listener.Addr().String())
	assert.NotContains(t, r.Pace().Waits, f.host())
}
