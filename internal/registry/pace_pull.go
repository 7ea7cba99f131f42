// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/containerd/containerd/v2/core/remotes"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/errdefs"
	"github.com/distribution/reference"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent"
)

// Resolver gives containerd's own resolver over the same hosts, connections and
// tokens, for pulls. It obeys the same pace, and sends nothing twice: what
// containerd v2.4.2 would repeat at once (429, 408, 5xx, timeouts, up to five
// times) comes from memory. Where hosts gave no answer, the error is an
// agent.SourceError, and "not found" only where all of them said so.
func (r *Registry) Resolver() remotes.Resolver { return resolver{r} }

type resolver struct{ registry *Registry }

// Resolve finds out what a reference names.
func (p resolver) Resolve(ctx context.Context, ref string) (string, ocispec.Descriptor, error) {
	e, err := p.begin(ref)
	if err != nil {
		return "", ocispec.Descriptor{}, err
	}
	name, desc, err := e.resolver().Resolve(withKind(ctx, kindPull), ref)
	return name, desc, e.told(err)
}

// Fetcher fetches what a digest names.
func (p resolver) Fetcher(_ context.Context, ref string) (remotes.Fetcher, error) {
	if _, err := p.begin(ref); err != nil {
		return nil, err
	}
	return remotes.FetcherFunc(func(ctx context.Context, desc ocispec.Descriptor) (io.ReadCloser, error) {
		e, err := p.begin(ref)
		if err != nil {
			return nil, err
		}
		ctx = withKind(ctx, kindPull)
		fetcher, err := e.resolver().Fetcher(ctx, ref)
		if err != nil {
			return nil, err
		}
		body, err := fetcher.Fetch(ctx, desc)
		if err != nil {
			return nil, e.told(err)
		}
		if seekable, ok := body.(io.ReadSeekCloser); ok {
			return &fetched{seekable, e, speedometer{least: p.registry.leastSpeed}}, nil
		}
		return body, nil
	}), nil
}

// Pusher makes it a remotes.Resolver; nothing here pushes.
func (resolver) Pusher(context.Context, string) (remotes.Pusher, error) {
	return nil, errdefs.ErrNotImplemented
}

// fetched is a body whose request containerd sends with the first Read.
type fetched struct {
	io.ReadSeekCloser
	errand *errand
	speed  speedometer
}

func (f *fetched) Read(p []byte) (int, error) {
	began := time.Now()
	n, err := f.ReadSeekCloser.Read(p)
	if err == nil {
		err = f.speed.read(time.Since(began), n)
	}
	if err != nil && !errors.Is(err, io.EOF) {
		err = f.errand.broken(err)
	}
	return n, err
}

// errand is one thing that a pull wants to know or to have, from whichever host.
type errand struct {
	registry *Registry
	named    reference.Named

	mu     sync.Mutex
	failed []*agent.SourceError // one of each host that gave no answer, in their order
	from   endpoint             // who answered last
	status map[string]int       // of what must not be sent again
}

func (p resolver) begin(ref string) (*errand, error) {
	named, err := reference.ParseNormalizedNamed(ref)
	if err != nil {
		return nil, fmt.Errorf("registry: reference %q: %w", ref, err)
	}
	return &errand{registry: p.registry, named: reference.TrimNamed(named), status: map[string]int{}}, nil
}

// resolver is containerd's for this errand.
func (e *errand) resolver() remotes.Resolver {
	return docker.NewResolver(docker.ResolverOptions{
		Hosts:   e.hosts,
		Headers: http.Header{"User-Agent": {e.registry.net.userAgent}},
	})
}

func (e *errand) hosts(namespace string) ([]docker.RegistryHost, error) {
	kept, err := e.registry.hosts.Of(namespace)
	if err != nil {
		return nil, err
	}
	hosts := slices.Clone(kept)
	for i := range hosts {
		o := once{errand: e, endpoint: newEndpoint(e.named, kept[i]), next: kept[i].Client.Transport}
		client := *kept[i].Client
		client.Transport = o
		hosts[i].Client, hosts[i].Authorizer = &client, onceAuthorizer{kept[i].Authorizer, o}
	}
	return hosts, nil
}

// told is the error of an errand, without what containerd's words add to it.
func (e *errand) told(err error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	has := slices.ContainsFunc(e.failed, func(f *agent.SourceError) bool { return f.Status != http.StatusNotFound })
	if err == nil || !has {
		return err
	}
	return weightiest(e.failed)
}

// note keeps why a host gave no answer. It may be asked in two ways, as a
// manifest and as a blob: then the first reason is the one that says more.
func (e *errand) note(f *agent.SourceError) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, known := range e.failed {
		if known.Host != f.Host {
			continue
		}
		if !f.Unasked && f.Status != http.StatusNotFound || known.Status == http.StatusNotFound {
			e.failed[i] = f
		}
		return
	}
	e.failed = append(e.failed, f)
}

// well forgets who gave no answer, as somebody did.
func (e *errand) well(from endpoint) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.failed, e.from = nil, from
}

// broken is the error of a body that ended too early, with its host.
func (e *errand) broken(err error) error {
	err = e.told(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, ok := errors.AsType[*agent.SourceError](err); ok || e.from.host.Host == "" {
		return err
	}
	return e.from.failed(err)
}

// once sends the requests of an errand to one host.
type once struct {
	errand   *errand
	endpoint endpoint
	next     http.RoundTripper
}

func (o once) RoundTrip(req *http.Request) (*http.Response, error) {
	key := req.Method + " " + req.URL.String() + " " + req.Header.Get("Range")
	o.errand.mu.Lock()
	status := o.errand.status[key]
	o.errand.mu.Unlock()
	if status != 0 {
		return remembered(req, status), closeBody(req)
	}
	resp, err := o.next.RoundTrip(req)
	if err != nil {
		f := o.endpoint.failed(final(plain(err)))
		o.errand.note(f)
		return nil, f
	}
	status = resp.StatusCode
	switch {
	case status < http.StatusMultipleChoices:
		o.errand.well(o.endpoint)
	case status != http.StatusUnauthorized: // else a token may help
		o.errand.note(o.endpoint.refused(resp, nil, o.errand.registry.now()))
		o.errand.mu.Lock()
		o.errand.status[key] = status
		o.errand.mu.Unlock()
	}
	return resp, nil
}

// remembered is an answer that was given before.
func remembered(req *http.Request, status int) *http.Response {
	return &http.Response{
		Status: fmt.Sprintf("%d %s", status, http.StatusText(status)), StatusCode: status,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: http.Header{}, Body: http.NoBody, Request: req,
	}
}

// onceAuthorizer notes what the authorizer could not get.
type onceAuthorizer struct {
	docker.Authorizer
	once once
}

func (a onceAuthorizer) Authorize(ctx context.Context, req *http.Request) error {
	err := a.Authorizer.Authorize(ctx, req)
	if err == nil {
		return nil
	}
	f := a.once.endpoint.failed(fmt.Errorf("authorize: %w", final(plain(err))))
	a.once.errand.note(f)
	return f
}

func (a onceAuthorizer) AddResponses(ctx context.Context, responses []*http.Response) error {
	err := a.Authorizer.AddResponses(ctx, responses)
	if err != nil {
		a.once.errand.note(a.once.endpoint.refused(responses[len(responses)-1], err, a.once.errand.registry.now()))
	}
	return err
}

// final words an error that containerd takes for a passing one as one that it
// does not try again.
func final(err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	timeout, ok := errors.AsType[net.Error](err)
	if ok && timeout.Timeout() || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New(err.Error())
	}
	return err
}
