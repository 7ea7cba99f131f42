// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"errors"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

func kindOf(err error) publish.Kind {
	if all, ok := errors.AsType[*publish.BatchError](err); ok {
		err = all.Lines[0].Err
	}
	e, _ := errors.AsType[*publish.Error](err)
	if e == nil {
		return ""
	}
	return e.Kind
}

func TestRefreshSetsWhenAChannelExpires(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	p := r.publisher(nil)
	r.begin(p, "prod")
	r.does(p, "prod", publish.Refresh(noon.Add(24*time.Hour)), publish.How{})
	r.push("velum", "one", "4.0.0-rev1-build1.1")
	got, err := r.add(p, "prod", "velum:4.0.0-rev1-build1.1")
	require.NoError(t, err)
	assert.Equal(t, noon.Add(24*time.Hour), got.Expires, "an add leaves it")
	findings, err := p.Verify(t.Context(), "prod", false)
	require.NoError(t, err)
	assert.Equal(t, []publish.Finding{{Channel: "prod", Object: "prod", Problem: "expires at 2026-11-23T12:00:00Z"}}, findings)
}

// A publisher that dies at any request leaves a channel that reads well, and an op that the next
// publisher folds, or none.
func TestKilledAtEveryRequest(t *testing.T) {
	t.Parallel()
	private, _ := newKey(t)
	for _, isSigned := range []bool{false, true} {
		for _, after := range []bool{false, true} {
			for at := int64(1); ; at++ {
				r := newRig(t)
				sign := func(o *publish.Options) {
					if isSigned {
						o.Keys = []*publish.Key{parsedKey(t, private)}
					}
				}
				next := r.publisher(sign)
				r.begin(next, "stage")
				r.push("velum", "one", "4.0.0-rev1-build1.1")
				kill := &killed{at: at, after: after}
				_, err := r.add(r.publisher(func(o *publish.Options) { sign(o); o.Store.Transport = kill }), "stage", "velum:4.0.0-rev1-build1.1")
				isDone := err == nil
				if !isDone {
					require.ErrorIs(t, err, errKilled)
				}
				before := r.listed(next, "stage", "velum") // it can be read at any time
				got := r.does(next, "stage", publish.Settle, publish.How{})
				assert.Empty(t, got.Waiting)
				wasAsked := at > 1 || after // the first request stores the op
				if isDone || wasAsked {
					assert.Equal(t, []string{"4.0.0-rev1-build1.1"}, r.listed(next, "stage", "velum"), at)
				} else {
					assert.Empty(t, before)
				}
				r.isWell(next, "stage", at)
				if isDone {
					assert.Greater(t, at, int64(4))
					break
				}
			}
		}
	}
}

// A registry that fails each n-th request, or names no digests, is one to publish to.
func TestRegistriesThatAreNotWhatTheyShouldBe(t *testing.T) {
	t.Parallel()
	private, _ := newKey(t)
	for name, over := range map[string]func(http.RoundTripper) http.RoundTripper{
		"each second": func(r http.RoundTripper) http.RoundTripper { return &every{RoundTripper: r, n: 2} },
		"each third":  func(r http.RoundTripper) http.RoundTripper { return &every{RoundTripper: r, n: 3} },
		"each fourth": func(r http.RoundTripper) http.RoundTripper { return &every{RoundTripper: r, n: 4} },
		"each fifth":  func(r http.RoundTripper) http.RoundTripper { return &every{RoundTripper: r, n: 5} },
		"no digests":  func(r http.RoundTripper) http.RoundTripper { return bare{r} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			transport := over(direct{r.handler})
			synctest.Test(t, func(t *testing.T) { // a publisher waits before it repeats a request
				r.t = t
				p := r.publisher(func(o *publish.Options) { o.Store.Transport, o.Keys = transport, []*publish.Key{parsedKey(t, private)} })
				r.begin(p, "stage")
				r.lists(p, "stage", "", "velum:4.0.0-rev1-build1.1")
				r.isWell(p, "stage")
			})
		})
	}
}

// around calls functions before and after each PUT of a manifest's tag; op after that of an op.
type around struct {
	before, after map[string]func()
	op            func()
}

func (a around) RoundTrip(r *http.Request) (*http.Response, error) {
	tag := ""
	if _, name, is := strings.Cut(r.URL.Path, "/manifests/"); is && r.Method == http.MethodPut {
		tag = name
	}
	if do := a.before[tag]; do != nil {
		do()
	}
	resp, err := http.DefaultTransport.RoundTrip(r)
	if do := a.after[tag]; do != nil {
		do()
	} else if tag != "" && a.before[tag] == nil {
		a.op()
	}
	return resp, err
}

// Two publishers publish the same ops as the same version, and their writes cross. The one that has written last
// notices, and publishes another version.
func TestWritesOfTwoPublishersCross(t *testing.T) {
	t.Parallel()
	const version, channel = "stage-v00000002", "stage"
	for name, order := range map[string]func(checked, first, second, ended *sync.WaitGroup) [2]around{
		"the first names the channel last": func(checked, first, second, _ *sync.WaitGroup) [2]around {
			return [2]around{
				{
					before: map[string]func(){version: checked.Wait, channel: second.Wait},
					after:  map[string]func(){version: done(first)},
				},
				{
					before: map[string]func(){version: inTurn(checked, first)},
					after:  map[string]func(){channel: done(second)},
				},
			}
		},
		"the second names the channel after the first has published another version": func(
			checked, first, second, ended *sync.WaitGroup,
		) [2]around {
			return [2]around{
				{
					before: map[string]func(){version: checked.Wait, channel: second.Wait},
					after:  map[string]func(){version: done(first)},
				},
				{
					before: map[string]func(){version: inTurn(checked, first), channel: ended.Wait},
					after:  map[string]func(){version: done(second)},
				},
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			r.begin(r.publisher(nil), channel)
			var checked, first, second, ended, stored sync.WaitGroup
			for _, group := range []*sync.WaitGroup{&checked, &first, &second, &ended} {
				group.Add(1)
			}
			stored.Add(2) // the ops of both
			transports := order(&checked, &first, &second, &ended)
			var publishers sync.WaitGroup
			for n, transport := range transports {
				put := done(&stored)
				transport.op = func() { put(); stored.Wait() }
				tag := []string{"4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2"}[n]
				r.push("velum", tag, tag)
				publishers.Go(func() {
					_, err := r.add(r.publisher(func(o *publish.Options) {
						o.Now, o.Store.Transport = func() time.Time { return noon.Add(time.Duration(n) * time.Minute) }, transport
					}), channel, "velum:"+tag)
					assert.NoError(t, err)
					if n == 0 {
						ended.Done()
					}
				})
			}
			publishers.Wait()
			p := r.publisher(nil)
			assert.Len(t, r.listed(p, channel, "velum"), 2)
			r.isWell(p, channel)
		})
	}
}

func done(g *sync.WaitGroup) func() { return sync.OnceFunc(g.Done) }

// inTurn ends one wait, and waits for another.
func inTurn(one, other *sync.WaitGroup) func() {
	end := done(one)
	return func() { end(); other.Wait() }
}
