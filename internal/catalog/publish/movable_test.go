// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/catalog"
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
		return &http.Response{
			StatusCode: status, Header: http.Header{}, Request: r, ProtoMajor: 1, ProtoMinor: 1,
			Body: io.NopCloser(strings.NewReader(`{"errors":[{"code":"` + code + `","message":"the tag is immutable"}]}`)),
		}, nil
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
					_, err := change(t.Context(), r.publisher(with), request{
						Channel: "stage", Do: catalog.ActionRefresh, New: true, Out: out,
					})
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
				r.push("velum", "one", "4.0.0-rev1-build1.1")
				_, err := r.add(p, "stage", "velum:4.0.0-rev1-build1.1")
				require.NoError(t, err)
				findings, err := p.Verify(t.Context(), "stage", false)
				require.NoError(t, err)
				assert.Empty(t, findings)
			})
		}
	}
}
