// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// patient is a host that records early requests, by the agent's clock.
type patient struct {
	*fake
	clock *clock

	mu       sync.Mutex
	until    time.Time // end of its Retry-After
	together bool      // concurrent requests: a request after a Retry-After may already have been sent
	wished   bool      // in this step
	early    []string
}

func newPatient(t testing.TB, c *clock) *patient {
	p := &patient{fake: newFake(t), clock: c}
	p.tag("1", p.image(t, "linux", "amd64", nil))
	return p
}

// say sets the next answers: a status, with Retry-After in one of its forms, or a closed connection (0).
func (p *patient) say(status int, wait time.Duration, asDate bool) {
	p.answer(func(w http.ResponseWriter, req *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		now := p.clock.now()
		if onItsWay := p.together && p.wished; now.Before(p.until) && !onItsWay {
			p.early = append(p.early, fmt.Sprintf("%s %s at %s, %s early", req.Method, req.URL, now, p.until.Sub(now)))
		}
		switch {
		case status == 0:
			panic(http.ErrAbortHandler)
		case status == http.StatusOK:
			return
		case status == http.StatusNotFound: // Retry-After does not count here
		case wait > 0 && asDate:
			at := roundUp(now.Add(wait))
			w.Header().Set("Retry-After", at.Format(http.TimeFormat))
			p.until, p.wished = later(p.until, at), true
		case wait > 0:
			w.Header().Set("Retry-After", strconv.Itoa(int(wait/time.Second)))
			p.until, p.wished = later(p.until, now.Add(wait.Truncate(time.Second))), true
		}
		w.WriteHeader(status)
	})
}

// step begins a step of the history.
func (p *patient) step(together bool) (early []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.together, p.wished = together, false
	return p.early
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// For any answers of hosts, times, kinds of requests and restarts of the daemon: no request is sent before the second
// that the host named, and one after it is sent.
func TestNoRequestIsEverEarly(t *testing.T) {
	t.Parallel()
	c := newClock()
	mirror, upstream := newPatient(t, c), newPatient(t, c)
	dir := certsD(t, upstream.host(), plainHTTP(upstream.host())+fmt.Sprintf("[host.\"http://%s\"]\n", mirror.host()))
	rapid.Check(t, func(rt *rapid.T) {
		c.advance(maxRetryAfter) // the waits of the last history are over
		mirror.answer(nil)
		upstream.answer(nil)
		options := []func(*Options){c.option}
		if rapid.Bool().Draw(rt, "budget") {
			options = append(options, budgetOf(rapid.IntRange(1, 50).Draw(rt, "per hour")))
		}
		r, _ := newRegistry(t, dir, options...)
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			host := rapid.SampledFrom([]*patient{mirror, upstream}).Draw(rt, "host")
			switch rapid.SampledFrom([]string{"say", "say", "time", "time", "restart", "ask", "ask", "ask", "ask together"}).Draw(rt, "step") {
			case "say":
				host.say(
					rapid.SampledFrom([]int{0, 200, 404, 429, 429, 500, 502, 503, 503, 504}).Draw(rt, "status"),
					time.Duration(rapid.Int64Range(0, int64(3*time.Minute)).Draw(rt, "wait")), rapid.Bool().Draw(rt, "date"))
			case "time":
				c.advance(time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(rt, "later")))
			case "restart":
				again, _ := newRegistry(t, dir, options...)
				restart(t, r, again)
				r.Close()
				r = again
			case "ask":
				askAny(t, rt, r, upstream, rapid.SampledFrom([]string{"resolve", "tags", "describe", "pull locates", "pull fetches"}).Draw(rt, "way"))
			case "ask together":
				mirror.step(true)
				upstream.step(true)
				var group sync.WaitGroup
				for range 6 {
					group.Go(func() { _ = upstream.poll(t, r) })
				}
				group.Wait()
			}
			if early := append(mirror.step(false), upstream.step(false)...); len(early) > 0 {
				rt.Fatal(early)
			}
		}
		defer func() { r.Close() }()
		c.advance(time.Hour) // all waits and the circuit breaker are over, the budget is full
		mirror.say(http.StatusOK, 0, false)
		before := len(mirror.log())
		if err := upstream.poll(t, r); err != nil || len(mirror.log()) != before+1 {
			rt.Fatal("not asked when it may be", err)
		}
	})
}

// askAny sends a request, and compares the error with the requests: Unasked if and only if nothing was sent.
func askAny(t testing.TB, rt *rapid.T, r *guarded, upstream *patient, way string) {
	before := r.Counts().Requests
	err := upstream.ways(t, r)[way]()
	source, ok := errors.AsType[*release.SourceError](err)
	sent := r.Counts().Requests - before
	if ok && source.Unasked != (sent == 0) {
		rt.Fatalf("%d requests, and %v", sent, err)
	}
	if !ok && sent == 0 {
		rt.Fatal("nothing sent, and no word of it")
	}
}

// roundUp returns the next whole second.
func roundUp(t time.Time) time.Time { return t.Add(time.Second - 1).Truncate(time.Second) }
