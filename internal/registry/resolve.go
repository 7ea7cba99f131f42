// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/opencontainers/go-digest"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/outside"
)

const digestHeader = "Docker-Content-Digest"

// head asks one host what a tag names. A host that refuses HEAD, or sends no
// digest with it (both happen behind caches), is asked for the manifest itself.
func (r *Registry) head(ctx context.Context, e endpoint, tag string) (agent.Resolved, error) {
	u := e.url("manifests", tag)
	a, err := r.exchange(ctx, e, question{http.MethodHead, u, acceptManifests, 0})
	var refused *agent.SourceError
	if errors.As(err, &refused) && refused.Status == http.StatusMethodNotAllowed {
		return r.get(ctx, e, tag)
	}
	if err != nil {
		return agent.Resolved{}, err
	}
	if a.header.Get(digestHeader) == "" {
		return r.get(ctx, e, tag)
	}
	return e.resolved(a, digest.Digest(a.header.Get(digestHeader)))
}

// get computes a tag's digest from its manifest.
func (r *Registry) get(ctx context.Context, e endpoint, tag string) (agent.Resolved, error) {
	a, err := r.exchange(ctx, e, question{http.MethodGet, e.url("manifests", tag), acceptManifests, maxManifest})
	if err != nil {
		return agent.Resolved{}, err
	}
	if _, err := parseManifest(a.header.Get("Content-Type"), a.body); err != nil {
		return agent.Resolved{}, e.failed(err)
	}
	computed := digest.FromBytes(a.body)
	if said := a.header.Get(digestHeader); said != "" {
		if err := verify(digest.Digest(said), a.body); err != nil {
			return agent.Resolved{}, e.failed(err)
		}
		computed = digest.Digest(said)
	}
	return e.resolved(a, computed)
}

func (e endpoint) resolved(a answer, d digest.Digest) (agent.Resolved, error) {
	if err := d.Validate(); err != nil {
		return agent.Resolved{}, e.failed(fmt.Errorf("digest %q: %w", outside.Text(d.String()), err))
	}
	return agent.Resolved{Digest: d, Host: e.host.Host, Mirror: e.mirror, Insecure: a.insecure}, nil
}

// verify compares content with its digest.
func verify(want digest.Digest, content []byte) error {
	if err := want.Validate(); err != nil {
		return fmt.Errorf("digest %q: %w", outside.Text(want.String()), err)
	}
	if got := want.Algorithm().FromBytes(content); got != want {
		return fmt.Errorf("content has digest %s, not %s", got, want)
	}
	return nil
}
