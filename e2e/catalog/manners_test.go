// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// registryManners are what registries do, on the way to a real one: each may answer a request itself, or change the request or
// the response.
var registryManners = map[string]struct {
	answers  func(count int64, w http.ResponseWriter, r *http.Request, upstream string) bool
	rewrites func(r *http.Request)
	response func(r *http.Response) error
}{
	"plain": {},
	"no Docker-Content-Digest": {response: func(r *http.Response) error {
		r.Header.Del("Docker-Content-Digest")
		return nil
	}},
	"no delete": {answers: func(_ int64, w http.ResponseWriter, r *http.Request, _ string) bool {
		return r.Method == http.MethodDelete && says(w, http.StatusMethodNotAllowed, "UNSUPPORTED")
	}},
	"every fifth request fails": {answers: func(count int64, w http.ResponseWriter, _ *http.Request, _ string) bool {
		return count%5 == 0 && says(w, http.StatusInternalServerError, "UNKNOWN")
	}},
	"429 with Retry-After": {answers: func(count int64, w http.ResponseWriter, _ *http.Request, _ string) bool {
		if count%40 != 0 {
			return false
		}
		w.Header().Set("Retry-After", "1")
		return says(w, http.StatusTooManyRequests, "TOOMANYREQUESTS")
	}},
	"lists of three tags": {rewrites: func(r *http.Request) {
		if strings.HasSuffix(r.URL.Path, "/tags/list") {
			query := r.URL.Query()
			query.Set("n", "3")
			r.URL.RawQuery = query.Encode()
		}
	}},
	"immutable tags but stage and prod": {answers: immutable("stage", "prod")},
}

// says answers with an error of the distribution specification.
func says(w http.ResponseWriter, status int, code string) bool {
	w.WriteHeader(status)
	_, _ = fmt.Fprintf(w, `{"errors":[{"code":%q,"message":"m"}]}`, code)
	return true
}

// immutable refuses to move all other tags, as Harbor does.
func immutable(movable ...string) func(int64, http.ResponseWriter, *http.Request, string) bool {
	return func(_ int64, w http.ResponseWriter, r *http.Request, upstream string) bool {
		_, tag, is := strings.Cut(r.URL.Path, "/catalog/manifests/")
		if !is || r.Method != http.MethodPut || slices.Contains(movable, tag) {
			return false
		}
		head, err := http.NewRequestWithContext(r.Context(), http.MethodHead, "http://"+upstream+r.URL.Path, http.NoBody)
		if err != nil {
			return says(w, http.StatusBadGateway, "UNKNOWN")
		}
		head.Header.Set("Accept", ocispec.MediaTypeImageManifest)
		resp, err := (&http.Client{Timeout: time.Minute}).Do(head)
		if err != nil {
			return says(w, http.StatusBadGateway, "UNKNOWN")
		}
		_ = resp.Body.Close()
		return resp.StatusCode == http.StatusOK && says(w, http.StatusPreconditionFailed, "PRECONDITION")
	}
}

// Each verb, one after the other, does the same on each registry.
func TestEachVerbOnEachMannerOfRegistries(t *testing.T) {
	t.Parallel()
	for name, m := range registryManners {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newPublishers(t, node.DockerRegistry)
			for n := range 4 {
				p.registry.Push("velum", node.Image{Answer: fmt.Sprint(n)}, fmt.Sprintf("4.0.0-rev1-build1.%d", n))
				p.registry.Push("etcd", node.Image{Answer: fmt.Sprint(n)}, fmt.Sprintf("3.6.0-rev1-build1.%d", n))
			}
			host := p.behind(t, m.answers, m.rewrites, m.response)
			velum, etcd := host+"/velum:4.0.0-rev1-build1.", host+"/etcd:3.6.0-rev1-build1."
			dir := t.TempDir()
			batch := filepath.Join(dir, "builds.txt")
			require.NoError(t, os.WriteFile(batch, []byte(velum+"1\n"+etcd+"1\n"), 0o600))
			for _, step := range []struct {
				verb string
				code int
				says string
			}{
				{"init stage prod", 0, "catalog:"},
				{"init stage", 1, "exists already"},
				{"add stage " + velum + "0 " + etcd + "0", 0, "version 2"},
				{"add stage --batch " + batch + " --set one", 0, "version 3"},
				{"diff stage prod", 0, "4.0.0-rev1-build1.1"},
				{"promote stage prod --set one --rollout 48h", 0, "version 2"},
				{"promote stage prod --all --soaked 24h", 3, ""},
				{"rollout prod velum etcd --pause", 0, "version 3"},
				{"rollout prod velum etcd --resume", 0, "version 4"},
				{"rollout prod", 0, "48 h"},
				{"add stage " + velum + "2", 0, "version 4"},
				{"withdraw stage " + velum + "2 --reason broken --instead 4.0.0-rev1-build1.1", 0, "version 5"},
				{"freeze stage --until 8h", 0, "version 6"},
				{"add stage " + velum + "3", 1, "frozen until"},
				{"unfreeze stage", 0, "version 7"},
				{"refresh prod --expires 90d", 0, "version 5"},
				{"promote prod --revert --reason wrong", 0, "version 6"},
				{"list", 0, "prod"},
				{"inspect stage velum", 0, "broken"},
				{"log stage velum", 0, "broken"},
				{"images stage", 0, "velum:4.0.0-rev1-build1.1@sha256:"},
				{"prune stage --older 24h", 3, ""},
				{"verify --images", 0, "no problems found"},
			} {
				args := append(strings.Fields(step.verb), "--trust", p.pub)
				if writes := []string{"init", "add", "promote", "rollout", "withdraw", "freeze", "unfreeze", "refresh", "prune"}; slices.Contains(writes, args[0]) {
					args = append(args, "--key", p.key)
				}
				out, errs, code := p.run(t, args...)
				require.Equal(t, step.code, code, "%s: %s%s", step.verb, out, errs)
				assert.Contains(t, out+errs, step.says, step.verb)
			}
		})
	}
}

// A registry that moves no tag: the first command says which must move, and leaves no tag.
func TestImmutableTagsAreFoundFirst(t *testing.T) {
	t.Parallel()
	p := newPublishers(t, node.DockerRegistry)
	var movable atomic.Bool
	refuses := immutable()
	p.behind(t, func(n int64, w http.ResponseWriter, r *http.Request, upstream string) bool {
		return !movable.Load() && refuses(n, w, r, upstream)
	}, nil, nil)
	_, errs, code := p.run(t, "init", "stage", "--key", p.key)
	assert.Equal(t, 1, code)
	assert.Contains(t, errs, "stage: the registry does not let this tag move")
	assert.Contains(t, errs, "hint: exclude the channel's tag")
	_, errs, _ = p.run(t, "list")
	assert.Contains(t, errs, "the catalog has no channel")
	movable.Store(true)
	p.does(t, "init", "stage", "--key", p.key)
	assert.Contains(t, p.does(t, "verify", "--trust", p.pub), "no problems found")
}

// behind puts a proxy before the registry, and returns its host.
func (p *publishers) behind(
	t *testing.T, answers func(int64, http.ResponseWriter, *http.Request, string) bool, rewrites func(*http.Request),
	response func(*http.Response) error,
) (host string) {
	t.Helper()
	to, err := url.Parse("http://" + p.registry.Host)
	require.NoError(t, err)
	forward := httputil.NewSingleHostReverseProxy(to)
	forward.ModifyResponse = response
	var count atomic.Int64
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if answers != nil && answers(count.Add(1), w, r, p.registry.Host) {
			return
		}
		if rewrites != nil {
			rewrites(r)
		}
		forward.ServeHTTP(w, r)
	}))
	t.Cleanup(proxy.Close)
	host = strings.TrimPrefix(proxy.URL, "http://")
	p.env = append(p.env, "IMAGE_CATALOG="+host+"/catalog")
	return host
}
