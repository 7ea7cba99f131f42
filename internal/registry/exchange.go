// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strings"

	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/distribution/reference"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// endpoint is one repository on one host.
type endpoint struct {
	host       docker.RegistryHost
	repository string // as the pod manifest names it, with the namespace
	namespace  string
	path       string // of the repository within the namespace
	mirror     bool
}

func newEndpoint(named reference.Named, host docker.RegistryHost) endpoint {
	namespace := reference.Domain(named)
	// docker.io is a name only; its registry is another host.
	self := host.Host == namespace || namespace == "docker.io" && host.Host == "registry-1.docker.io"
	return endpoint{
		host:       host,
		repository: named.Name(),
		namespace:  namespace,
		path:       reference.Path(named),
		mirror:     !self,
	}
}

// url is the URL of a thing in the repository. A mirror is told the namespace
// in the query, as containerd does: it may stand for several.
func (e endpoint) url(parts ...string) *url.URL {
	u := &url.URL{
		Scheme: e.host.Scheme,
		Host:   e.host.Host,
		Path:   path.Join("/", e.host.Path, e.path, path.Join(parts...)),
	}
	return e.withNamespace(u)
}

func (e endpoint) withNamespace(u *url.URL) *url.URL {
	if query := u.Query(); e.mirror && query.Get("ns") != e.namespace {
		query.Set("ns", e.namespace)
		u.RawQuery = query.Encode()
	}
	return u
}

// question is one request for metadata.
type question struct {
	method string
	url    *url.URL
	accept string
	limit  int64 // bytes of the answer's body
	offset int64 // where the body is to begin
}

// answer is what a host said with status 200.
type answer struct {
	header   http.Header
	body     []byte // empty for HEAD
	insecure bool   // nobody proved that it is from that host
}

// exchange puts a question to a host and reads the answer. Errors are SourceErrors.
func (r *Registry) exchange(ctx context.Context, e endpoint, q question) (answer, error) {
	ctx, cancel := context.WithTimeout(asking(ctx), exchangeTimeout)
	defer cancel()
	resp, err := r.send(ctx, e, q)
	if err != nil {
		return answer{}, err
	}
	body, err := readBody(resp, q.limit)
	if err != nil {
		return answer{}, e.failed(err)
	}
	return answer{header: resp.Header, body: body, insecure: insecure(resp)}, nil
}

// send puts a question to a host: once, and once more where a 401 told what the
// host wants to see. The status is 200, or 206 from an offset. Errors are
// SourceErrors.
func (r *Registry) send(ctx context.Context, e endpoint, q question) (*http.Response, error) {
	ctx = docker.WithScope(ctx, "repository:"+e.path+":pull")
	var responses []*http.Response
	for {
		resp, err := e.send(ctx, q)
		switch {
		case err != nil:
			return nil, e.failed(err)
		case resp.StatusCode == http.StatusOK, resp.StatusCode == http.StatusPartialContent && q.offset > 0:
			return resp, nil
		}
		discard(resp)
		if resp.StatusCode != http.StatusUnauthorized {
			return nil, e.refused(resp, nil, r.now())
		}
		responses = append(responses, resp)
		if err := e.host.Authorizer.AddResponses(ctx, responses); err != nil || len(responses) > 1 {
			return nil, e.refused(resp, err, r.now())
		}
	}
}

// send makes one request. The host's own headers come first, as in containerd.
func (e endpoint) send(ctx context.Context, q question) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, q.method, q.url.String(), nil)
	if err != nil {
		return nil, err
	}
	if e.host.Header != nil {
		req.Header = e.host.Header.Clone()
	}
	req.Header.Add("Accept", q.accept)
	if q.offset > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", q.offset))
	}
	if err := e.host.Authorizer.Authorize(ctx, req); err != nil {
		return nil, fmt.Errorf("authorize: %w", plain(err))
	}
	resp, err := e.host.Client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	return resp, nil
}

// readBody reads and closes the body. What is over the limit is not drained:
// closing ends the connection.
func readBody(resp *http.Response, limit int64) ([]byte, error) {
	data, err := outside.ReadAll(resp.Body, limit)
	if err := errors.Join(err, resp.Body.Close()); err != nil {
		return nil, fmt.Errorf("body: %w", err)
	}
	return data, nil
}

// discard reads the little that a refusal has to say, so that the connection
// can be used again; one that says more is closed.
func discard(resp *http.Response) {
	_, _ = io.CopyN(io.Discard, resp.Body, maxToken)
	_ = resp.Body.Close()
}

// insecure is true where one hop, redirects included, had no TLS or skip_verify:
// then there is no verified chain.
func insecure(resp *http.Response) bool {
	for ; resp != nil; resp = resp.Request.Response {
		if resp.TLS == nil || len(resp.TLS.VerifiedChains) == 0 {
			return true
		}
	}
	return false
}

// sameOrigin compares scheme, host and port.
func sameOrigin(a, b *url.URL) bool {
	return a.Scheme == b.Scheme && strings.EqualFold(a.Hostname(), b.Hostname()) && port(a) == port(b)
}

func port(u *url.URL) string {
	if p := u.Port(); p != "" {
		return p
	}
	if u.Scheme == "http" {
		return "80"
	}
	return "443"
}
