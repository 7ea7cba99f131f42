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

// Two publishers publish the same ops as the same version, and the writes of its tag and of the channel cross. The one that has written
// last notices, and publishes another version.
func TestWritesOfTwoPublishersCross(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.begin(r.publisher(nil), "stage")
	var checked, tagged, published sync.WaitGroup // of the second, the first, the second
	for _, group := range []*sync.WaitGroup{&checked, &tagged, &published} {
		group.Add(1)
	}
	var stored sync.WaitGroup // the ops of both
	stored.Add(2)
	done := func(g *sync.WaitGroup) func() { return sync.OnceFunc(g.Done) }
	passed := done(&checked)
	const version = "stage-v00000002"
	transports := []around{
		{before: map[string]func(){version: checked.Wait, "stage": published.Wait}, after: map[string]func(){version: done(&tagged)}},
		{
			before: map[string]func(){version: func() { passed(); tagged.Wait() }},
			after:  map[string]func(){"stage": done(&published)},
		},
	}
	var publishers sync.WaitGroup
	for n, transport := range transports {
		put := done(&stored)
		transport.op = func() { put(); stored.Wait() }
		tag := []string{"4.0.0-rev1-build1.1", "4.0.0-rev1-build1.2"}[n]
		r.push("velum", tag, tag)
		publishers.Go(func() {
			_, err := r.add(r.publisher(func(o *publish.Options) {
				o.Now, o.Store.Transport = func() time.Time { return noon.Add(time.Duration(n) * time.Minute) }, transport
			}), "stage", "velum:"+tag)
			assert.NoError(t, err)
		})
	}
	publishers.Wait()
	p := r.publisher(nil)
	assert.Len(t, r.listed(p, "stage", "velum"), 2)
	findings, err := p.Verify(t.Context(), "stage", false)
	require.NoError(t, err)
	assert.Empty(t, findings)
}
