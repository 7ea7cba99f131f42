// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog/publish"
)

// immutable is a registry that moves no tag of a kind, and answers a deletion with a status; 0: it deletes.
type immutable struct {
	tags   string // a suffix; empty: all
	status int
	code   string
	delete int
}

func (i *immutable) RoundTrip(r *http.Request) (*http.Response, error) {
	refuse := func(status int, code string) (*http.Response, error) {
		return answered(r, status, `{"errors":[{"code":"`+code+`","message":"the tag is immutable"}]}`)
	}
	isTag := strings.Contains(r.URL.Path, "/manifests/") && !strings.Contains(r.URL.Path, "sha256:")
	switch {
	case r.Method == http.MethodDelete && i.delete != 0:
		return refuse(i.delete, "UNSUPPORTED")
	case r.Method == http.MethodPut && isTag && i.status != 0 && strings.HasSuffix(r.URL.Path, i.tags):
		head := r.Clone(r.Context())
		head.Method, head.Body, head.ContentLength = http.MethodHead, nil, 0
		is, err := http.DefaultTransport.RoundTrip(head)
		if err != nil {
			return nil, err
		}
		_ = is.Body.Close()
		if is.StatusCode == http.StatusOK {
			return refuse(i.status, i.code)
		}
	}
	return http.DefaultTransport.RoundTrip(r)
}

// The first command says that the tag of the channel must move, and leaves nothing that can be deleted. When it may
// move, the same command makes the channel.
func TestInitRefusesATagThatDoesNotMove(t *testing.T) {
	t.Parallel()
	private, public := newKey(t)
	for name, c := range map[string]struct {
		immutable

		left []string // tags
		says string
	}{
		"all":           {immutable{status: 400, code: "TAG_INVALID"}, nil, "the registry does not let this tag move"},
		"by pattern":    {immutable{tags: "/stage", status: 409, code: "DENIED"}, nil, "does not let this tag move"},
		"ECR":           {immutable{status: 400, code: "TAG_INVALID", delete: 405}, []string{"stage"}, "delete this tag"},
		"Harbor":        {immutable{tags: "/stage", status: 412, code: "PRECONDITION", delete: 412}, []string{"stage"}, "delete this tag"},
		"another tag":   {immutable{tags: "/prod", status: 412, code: "PRECONDITION"}, nil, ""},
		"no delete":     {immutable{delete: 405}, nil, ""},
		"nothing of it": {},
	} {
		for _, isHere := range []bool{true, false} { // signed here, or elsewhere
			t.Run(fmt.Sprint(name, " ", isHere), func(t *testing.T) {
				t.Parallel()
				r := newRig(t)
				rules := c.immutable
				with := func(o *publish.Options) {
					o.Store.Transport, o.Keys = &rules, []*publish.Key{parsedKey(t, private)}
				}
				init := func(out string) error {
					_, err := r.publisher(with).Change(t.Context(), "stage", publish.Refresh(time.Time{}), publish.How{New: true, Out: out})
					return err
				}
				dir := filepath.Join(t.TempDir(), "out")
				require.NoError(t, init(dir), "--out writes nothing into the registry")
				elsewhere := func() error {
					p := r.publisher(func(o *publish.Options) { with(o); o.Keys, o.All = nil, [][]byte{public} })
					_, err := p.PublishDir(t.Context(), dir, [][]byte{signed(t, private, filepath.Join(dir, publish.PayloadFile))}, false)
					return err
				}
				for range 2 {
					if c.says == "" {
						break
					}
					for _, err := range []error{init(""), elsewhere()} {
						assert.Equal(t, publish.KindImmutable, kindOf(err), "%v", err)
						require.ErrorContains(t, err, c.says)
						assert.ElementsMatch(t, c.left, r.tags())
					}
				}
				if c.says != "" {
					rules.status = 0
				}
				begin := elsewhere
				if isHere {
					begin = func() error { return init("") }
				}
				require.NoError(t, begin())
				p := r.publisher(with)
				r.lists(p, "stage", "", "velum:4.0.0-rev1-build1.1")
				r.isWell(p, "stage")
			})
		}
	}
}

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
			_, err := other.Change(t.Context(), "stage", publish.Refresh(time.Time{}), publish.How{New: true})
			if err != nil {
				assert.Equal(t, publish.KindExists, kindOf(err), "%v", err)
			}
			_, err = r.addSet(other, "stage", "", "velum:"+build(1))
			assert.NoError(t, err)
		}
		_, err := r.publisher(func(o *publish.Options) { o.Store.Transport = b }).Change(t.Context(), "stage", publish.Refresh(time.Time{}), publish.How{New: true})
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
		r.isWell(p, "stage", b.was)
	}
	assert.Equal(t, 3, tried, "two probes and a version")
}

// A publisher that finds the op of another one leaves the tag alone, because the other one is about to write it.
func TestInitLeavesTheTagToWhoHasBegun(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	var late beside
	begun := around{op: func() {}, before: map[string]func(){"stage-v00000001": sync.OnceFunc(func() {
		late = beside{t: t, was: "the op of the other one"}
		r.begin(r.publisher(func(o *publish.Options) { o.Store.Transport = &late }), "stage")
	})}}
	r.begin(r.publisher(func(o *publish.Options) { o.Store.Transport = begun }), "stage")
	assert.Positive(t, late.n)
	r.isWell(r.publisher(nil), "stage")
}
