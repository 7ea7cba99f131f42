// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
	"github.com/kubic-project/image-update-agent/tags"
)

const digestHeader = "Docker-Content-Digest"

// Resolve returns the current digest of a tag: one HEAD request to the first host that may resolve.
func (r *Registry) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	return r.resolve(ctx, ref, func(e endpoint) (manifest, error) {
		found, err := e.locate(ctx, ref.Tag, "", false)
		if err == nil {
			e.documents.locate(ref.Repository, found)
		}
		return found, err
	})
}

// ResolveTo is Resolve for a tag that probably names a digest: one GET request. If the tag names it, Describe and Fetch
// send no request for that manifest.
func (r *Registry) ResolveTo(
	ctx context.Context, ref release.Reference, want digest.Digest,
) (release.Resolved, error) {
	if err := want.Validate(); err != nil {
		return release.Resolved{}, fmt.Errorf("registry: %q: digest %q: %w", ref, outside.Text(want.String()), err)
	}
	return r.resolve(ctx, ref, func(e endpoint) (manifest, error) { return e.resolveTo(ctx, ref.Tag, want) })
}

func (r *Registry) resolve(
	ctx context.Context, ref release.Reference, ask func(endpoint) (manifest, error),
) (release.Resolved, error) {
	if tags.Classify(ref.Tag) == tags.ClassInvalid {
		return release.Resolved{}, fmt.Errorf("registry: %q: %w", ref, tags.ErrInvalid)
	}
	var skipped *release.SourceError
	return each(ctx, r, ref.Repository, mayResolve, func(e endpoint) (release.Resolved, error) {
		found, err := ask(e)
		if err != nil {
			if f, is := errors.AsType[*release.SourceError](err); is && f.Status != http.StatusNotFound { // a mirror may lack it
				skipped = f
			}
			return release.Resolved{}, err
		}
		return release.Resolved{
			Digest: found.desc.Digest, Host: e.host.Host, Mirror: e.mirror, Insecure: found.insecure,
			HostsIgnored: r.hosts.IgnoredFor(e.namespace), Skipped: skipped,
		}, nil
	})
}

// locate asks one host for the digest of a tag, or for a digest (d, else empty); with sized also for type and size. It
// uses HEAD, and GET if the host refuses HEAD or sends too little; both happen behind caches.
func (e endpoint) locate(ctx context.Context, name string, d digest.Digest, sized bool) (manifest, error) {
	u := e.url("manifests", name)
	a, err := e.head(ctx, u, acceptManifests)
	get := hasStatus(err, http.StatusMethodNotAllowed)
	if get {
		a, err = e.get(ctx, u, acceptManifests, maxManifest)
	}
	if err != nil {
		return manifest{}, answered(err)
	}
	var found manifest
	if get {
		found, err = e.read(a, d)
	} else {
		found, err = e.described(ctx, a, name, d, sized)
	}
	if f, is := errors.AsType[*release.SourceError](err); is && d == "" {
		f.Answered = true // containerd asks no other host after a 200, even if the answer is unusable
	}
	return found, err
}

// resolveTo asks one host for the content of a tag. The digest is that of the content; it keeps the wanted one.
func (e endpoint) resolveTo(ctx context.Context, tag string, want digest.Digest) (manifest, error) {
	a, err := e.get(ctx, e.url("manifests", tag), acceptManifests, maxManifest)
	if err != nil {
		return manifest{}, answered(err)
	}
	is := want.Algorithm().FromBytes(a.Body)
	if is == want {
		e.documents.keep(e.repository, want, a.Body)
	}
	return manifest{desc: ocispec.Descriptor{Digest: is}, insecure: a.Insecure}, nil
}

// described returns the descriptor from an answer to HEAD, or from GET if it is incomplete.
func (e endpoint) described(
	ctx context.Context, a transport.Answer, name string, d digest.Digest, sized bool,
) (manifest, error) {
	named := digest.Digest(a.Header.Get(digestHeader))
	if d != "" && named != "" && named != d {
		return manifest{}, e.failed(fmt.Errorf("has digest %q, not %s", outside.Text(named.String()), d))
	}
	desc := ocispec.Descriptor{Digest: cmp.Or(d, named)}
	desc.MediaType, _, _ = mime.ParseMediaType(a.Header.Get("Content-Type")) // empty: incomplete
	desc.Size, _ = strconv.ParseInt(a.Header.Get("Content-Length"), 10, 64)  // zero: incomplete
	if desc.Digest == "" || sized && (desc.MediaType == "" || desc.Size <= 0) {
		return e.manifest(ctx, name, d)
	}
	if err := desc.Digest.Validate(); err != nil {
		return manifest{}, e.failed(fmt.Errorf("digest %q: %w", outside.Text(desc.Digest.String()), err))
	}
	return manifest{desc: desc, insecure: a.Insecure}, nil
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
