// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

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
			findings, err := p.Verify(t.Context(), channel, false)
			require.NoError(t, err)
			assert.Empty(t, findings)
		})
	}
}

func done(g *sync.WaitGroup) func() { return sync.OnceFunc(g.Done) }

// inTurn ends one wait, and waits for another.
func inTurn(one, other *sync.WaitGroup) func() {
	end := done(one)
	return func() { end(); other.Wait() }
}
