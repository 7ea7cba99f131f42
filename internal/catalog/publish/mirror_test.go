// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"fmt"
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

// asked counts the requests for lists of tags and for signatures of one image.
type asked struct {
	repository string
	lists      string // what is done to them: "", "hidden" or "denied"

	mu           sync.Mutex
	list, signed int
}

func (a *asked) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := http.DefaultTransport.RoundTrip(r)
	path, is := strings.CutPrefix(r.URL.Path, "/v2/"+a.repository+"/")
	if err != nil || !is {
		return resp, err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case strings.HasSuffix(path, ".sig"):
		a.signed++
	case path == "tags/list":
		a.list++
		body := `{"name":"velum","tags":["` + build(0) + `"]}`
		switch a.lists {
		case "denied":
			resp.StatusCode = http.StatusForbidden
			fallthrough
		case "hidden":
			_ = resp.Body.Close()
			resp.Body, resp.ContentLength = io.NopCloser(bytes.NewBufferString(body)), int64(len(body))
		}
	}
	return resp, nil
}

// The number of requests goes by the number of images where there are no signatures, and none is missed where there are.
func TestCopiesAskForFewSignatures(t *testing.T) {
	t.Parallel()
	const releases = 10
	all := make([]int, releases)
	for n := range all {
		all[n] = n
	}
	for title, c := range map[string]struct {
		releases           int
		signed             []int // builds
		lists              string
		wantList, wantAsks int
	}{
		"no signature":                {releases: releases, wantList: 1, wantAsks: 2},
		"all are signed":              {releases: releases, signed: all, wantList: 1, wantAsks: releases},
		"one is signed":               {releases: releases, signed: all[4:5], wantList: 1, wantAsks: releases},
		"few releases":                {releases: 3, signed: all[1:2], wantAsks: 3},
		"a proxy that has served few": {releases: releases, signed: all[2:], lists: "hidden", wantList: 1, wantAsks: 1 + releases},
		"signed until a time":         {releases: releases, signed: all[:2], lists: "hidden", wantList: 1, wantAsks: 2 + releases},
		"no list":                     {releases: releases, signed: all[3:4], lists: "denied", wantList: 1, wantAsks: releases},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			p := r.publisher(nil)
			r.begin(p, "prod")
			var images []string
			for n := range c.releases {
				images = append(images, "velum:"+build(n))
			}
			r.lists(p, "prod", "", images...)
			var want []string
			for _, n := range c.signed {
				tag := catalog.SignatureTag(r.release(p, "prod", "velum:"+build(n)).Digest)
				want = append(want, fmt.Sprintf("%s %s", tag, r.push("velum", tag, tag)))
			}
			counted := &asked{repository: "velum", lists: c.lists}
			p = r.publisher(func(o *publish.Options) { o.Store.Transport = counted })
			v := r.read(p, "prod")
			copies, err := p.Copies(t.Context(), v, publish.Mirrored{})
			require.NoError(t, err)
			var got []string
			for _, each := range copies {
				if each.Kind == "signature" {
					got = append(got, fmt.Sprintf("%s %s", each.Tag, each.Digest))
				}
			}
			assert.ElementsMatch(t, want, got)
			assert.Equal(t, c.wantList, counted.list, "lists of tags")
			assert.Equal(t, c.wantAsks, counted.signed, "requests for signatures")
		})
	}
}
