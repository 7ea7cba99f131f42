// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"mime"
	"net/http"
	"net/url"
	"path"
	"slices"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
)

// endpoint is one repository on one host.
type endpoint struct {
	client     *transport.Client
	host       docker.RegistryHost
	repository string // as in the pod manifest, with the namespace
	namespace  string
	path       string // the repository within the namespace
	mirror     bool
	note       func(private bool) // called for each answer
	documents  *documents         // for the pull that follows
}

func (r *Registry) endpoint(namespace, path string, host docker.RegistryHost) endpoint {
	repository := namespace + "/" + path
	// docker.io is only a name; its registry is another host.
	self := host.Host == namespace || namespace == "docker.io" && host.Host == "registry-1.docker.io"
	return endpoint{
		client: r.client, host: host, mirror: !self,
		repository: repository, namespace: namespace, path: path,
		documents: &r.documents,
		note:      func(private bool) { r.private.Store(repository, private) },
	}
}

// url returns a URL in the repository. A mirror gets the namespace in the query, as in containerd, because it may
// mirror several.
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

// head sends a HEAD request. Errors are SourceErrors.
func (e endpoint) head(ctx context.Context, u *url.URL, accept string) (transport.Answer, error) {
	return e.ask(ctx, transport.Question{Method: http.MethodHead, URL: u, Accept: accept})
}

// get sends a GET request for at most limit bytes. Errors are SourceErrors.
func (e endpoint) get(ctx context.Context, u *url.URL, accept string, limit int64) (transport.Answer, error) {
	return e.ask(ctx, transport.Question{URL: u, Accept: accept, Limit: limit})
}

func (e endpoint) ask(ctx context.Context, q transport.Question) (transport.Answer, error) {
	q.Repository = e.path
	a, err := e.client.Ask(ctx, e.host, q)
	if err == nil && isPage(a.Header) {
		err = errPage
	}
	if err != nil {
		return transport.Answer{}, e.failed(err)
	}
	e.note(a.Private)
	return a, nil
}

// errPage: the server is not a registry but, for example, a proxy that requires a login.
var errPage = errors.New("answers with a web page (text/html): a login page, or not a registry")

// isPage reports whether an answer is for people.
func isPage(h http.Header) bool {
	kind, _, _ := mime.ParseMediaType(h.Get("Content-Type"))
	return kind == "text/html"
}

// hasStatus reports whether a host answered with one of the statuses.
func hasStatus(err error, statuses ...int) bool {
	source, ok := errors.AsType[*release.SourceError](err)
	return ok && slices.Contains(statuses, source.Status)
}
