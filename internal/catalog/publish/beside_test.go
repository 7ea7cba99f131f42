// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// beside does something before the n-th request about the catalog, and notes which one that is. Unless
// that request writes the tag, nothing may try the tag from then on.
type beside struct {
	t  *testing.T
	at int
	do func()

	mu  sync.Mutex
	n   int
	was string
}

// writesTag is a request that writes the tag of the channel.
const writesTag = "PUT /v2/catalog/manifests/stage"

func (b *beside) RoundTrip(r *http.Request) (*http.Response, error) {
	if !strings.HasPrefix(r.URL.Path, "/v2/catalog/") {
		return http.DefaultTransport.RoundTrip(r)
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.n++; b.n == b.at {
		b.was = r.Method + " " + r.URL.Path
		b.do()
	}
	if r.Method+" "+r.URL.Path == writesTag {
		body, err := io.ReadAll(r.Body)
		require.NoError(b.t, err)
		r.Body = io.NopCloser(bytes.NewReader(body))
		isProbe := bytes.Contains(body, []byte("image-catalog.probe"))
		assert.False(b.t, b.was != "" && b.was != writesTag && isProbe, "the tag is tried after %s, and names a version", b.was)
	}
	return http.DefaultTransport.RoundTrip(r)
}

// While a publisher makes a channel, another one makes it and adds to it. Nothing of both is lost, and from the next
// request on the tag is not tried any more.
func TestInitBesideAnotherInit(t *testing.T) {
	t.Parallel()
	tried := 0
	for at := 1; ; at++ {
		r := newRig(t)
		b := &beside{t: t, at: at}
		b.do = func() {
			other := r.publisher(nil)
			_, err := change(t.Context(), other, request{Channel: "stage", Do: catalog.ActionRefresh, New: true})
			if err != nil {
				assert.Equal(t, publish.KindExists, kindOf(err), "%v", err)
			}
			_, err = r.addSet(other, "stage", "", "velum:"+build(1))
			assert.NoError(t, err)
		}
		_, err := change(t.Context(), r.publisher(func(o *publish.Options) { o.Store.Transport = b }), request{
			Channel: "stage", Do: catalog.ActionRefresh, New: true,
		})
		if err != nil {
			assert.Equal(t, publish.KindExists, kindOf(err), "%v", err)
		}
		if b.was == "" {
			break
		}
		if b.was == writesTag {
			tried++
		}
		p := r.publisher(nil)
		assert.Equal(t, []string{build(1)}, r.listed(p, "stage", "velum"), b.was)
		findings, err := p.Verify(t.Context(), "stage", true)
		require.NoError(t, err)
		assert.Empty(t, findings, b.was)
	}
	assert.Equal(t, 3, tried, "two probes and a version")
}

// A publisher that finds the op of another one leaves the tag alone, because the other one is about to write it.
func TestInitLeavesTheTagToWhoHasBegun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	request := request{Channel: "stage", Do: catalog.ActionRefresh, New: true}
	var late beside
	begun := around{op: func() {}, before: map[string]func(){"stage-v00000001": sync.OnceFunc(func() {
		late = beside{t: t, was: "the op of the other one"}
		_, err := change(t.Context(), r.publisher(func(o *publish.Options) { o.Store.Transport = &late }), request)
		assert.NoError(t, err)
	})}}
	_, err := change(t.Context(), r.publisher(func(o *publish.Options) { o.Store.Transport = begun }), request)
	require.NoError(t, err)
	assert.Positive(t, late.n)
	findings, err := r.publisher(nil).Verify(t.Context(), "stage", true)
	require.NoError(t, err)
	assert.Empty(t, findings)
}
