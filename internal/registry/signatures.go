// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"context"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"net/url"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/distspec"
	"github.com/kubic-project/image-update-agent/internal/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/outside"
	"github.com/kubic-project/image-update-agent/tags"
)

// Bounds of what is asked for signatures.
const (
	maxReferrerPages = 10   // of maxManifest bytes each
	maxReferrers     = 1000 // of a digest
)

// Manifest fetches the manifest or index that a tag or digest names, whatever it
// is of, with its media type. A tag is asked of hosts with resolve. The error is
// release.ErrNotFound where every host said 404.
func (r *Registry) Manifest(ctx context.Context, repository, tagOrDigest string) (string, []byte, error) {
	d, err := digest.Parse(tagOrDigest)
	need := mayPull
	if err != nil {
		d, need = "", mayResolve
		if tags.Classify(tagOrDigest) == tags.ClassInvalid {
			return "", nil, fmt.Errorf("registry: %s: %q: %w", repository, outside.Text(tagOrDigest), tags.ErrInvalid)
		}
	}
	found, err := each(ctx, r, repository, need, func(e endpoint) (manifest, error) {
		return e.manifest(ctx, tagOrDigest, d)
	})
	return found.desc.MediaType, found.body, err
}

// Blob fetches a small blob, as signatures are; it has the size and the digest of
// its descriptor.
func (r *Registry) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	if err := desc.Digest.Validate(); err != nil {
		return nil, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(desc.Digest.String()), err)
	}
	if desc.Size < 0 || desc.Size > ocimanifest.MaxSignatureBlob {
		return nil, fmt.Errorf("registry: %s: blob %s: %w: %d bytes", repository, desc.Digest, outside.ErrTooLarge, desc.Size)
	}
	return each(ctx, r, repository, mayPull, func(e endpoint) ([]byte, error) {
		a, err := e.get(ctx, e.url("blobs", desc.Digest.String()), "*/*", desc.Size)
		if err != nil {
			return nil, err
		}
		if err := verifySized(desc, a.Body); err != nil {
			return nil, e.failed(err)
		}
		return a.Body, nil
	})
}

// Referrers lists the manifests that refer to a digest, from a host with resolve,
// for the list can change. A host that has no such API, or names none, hands over
// to the next one, as it does with a tag that it does not have: a mirror often
// lacks the signatures. The error is release.ErrNotFound where no host names any.
func (r *Registry) Referrers(ctx context.Context, repository string, d digest.Digest) ([]ocispec.Descriptor, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(d.String()), err)
	}
	return each(ctx, r, repository, mayResolve, func(e endpoint) ([]ocispec.Descriptor, error) {
		return e.referrers(ctx, d)
	})
}

// referrers reads the list of one host page by page. It is not asked for one
// artifact type only: go-containerregistry's registry takes the type of the config
// for it.
func (e endpoint) referrers(ctx context.Context, d digest.Digest) ([]ocispec.Descriptor, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, errListTime)
	defer cancel()
	u := e.url("referrers", d.String())
	var list []ocispec.Descriptor
	for page := 1; u != nil; page++ {
		if page > maxReferrerPages {
			return nil, e.failed(fmt.Errorf("referrers: more than %d pages", maxReferrerPages))
		}
		found, next, err := e.referrersPage(ctx, u)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
		if len(list) > maxReferrers {
			return nil, e.failed(fmt.Errorf("referrers: %w: over %d", outside.ErrTooLarge, maxReferrers))
		}
		if u = next; u != nil {
			u = e.withNamespace(u)
		}
	}
	if len(list) == 0 {
		return nil, e.notThere("referrers", errors.New("none"))
	}
	return list, nil
}

// referrersPage reads one page, and returns the URL of the next one.
func (e endpoint) referrersPage(ctx context.Context, u *url.URL) ([]ocispec.Descriptor, *url.URL, error) {
	a, err := e.get(ctx, u, ocispec.MediaTypeImageIndex, maxManifest)
	// A registry that does not know the API says 404 by the specification; the others are
	// of validators and routers before it.
	if hasStatus(err, http.StatusNotFound, http.StatusBadRequest, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusNotImplemented) || errors.Is(err, errPage) {
		return nil, nil, e.notThere("referrers", errors.Unwrap(err))
	}
	if err != nil {
		return nil, nil, err
	}
	// What is no index comes from a server that answers anything to a path that it
	// does not know.
	kind, _, err := mime.ParseMediaType(a.Header.Get("Content-Type"))
	if err != nil || !images.IsIndexType(kind) {
		return nil, nil, e.notThere("referrers", fmt.Errorf("content-type %q", outside.Text(kind)))
	}
	doc, err := parseManifest(kind, a.Body)
	if err != nil {
		return nil, nil, e.failed(fmt.Errorf("referrers: %w", err))
	}
	next, err := distspec.NextPage(u, a.Header.Values("Link"))
	if err != nil {
		return nil, nil, e.failed(fmt.Errorf("referrers: %w", err))
	}
	return doc.Manifests, next, nil
}
