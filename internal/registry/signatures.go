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

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/tags"
)

// Limits of requests for signatures.
const (
	maxReferrerPages = 10   // of maxManifest bytes each
	maxReferrers     = 1000 // of a digest
)

// Manifest fetches the manifest or index of a tag or digest, of any kind, with its media type. A tag is requested from
// hosts with resolve. It returns release.ErrNotFound if every host answered 404.
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

// Blob fetches a small blob, as signatures are, and verifies its size and digest.
func (r *Registry) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	if err := desc.Digest.Validate(); err != nil {
		return nil, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(desc.Digest.String()), err)
	}
	if desc.Size < 0 || desc.Size > ocimanifest.MaxSignatureBlob {
		return nil, fmt.Errorf("registry: %s: blob %s: %w: %d bytes", repository, desc.Digest, outside.ErrTooLarge, desc.Size)
	}
	return each(ctx, r, repository, mayPull, func(e endpoint) ([]byte, error) {
		a, err := e.sized(ctx, "blobs", desc, "*/*", desc.Size)
		return a.Body, err
	})
}

// Referrers lists the manifests that refer to a digest, from a host with resolve, because the list can change. If a
// host has no such API, or an empty list, the next one is asked, as for a missing tag: a mirror often lacks the
// signatures. It returns release.ErrNotFound if no host has any.
func (r *Registry) Referrers(ctx context.Context, repository string, d digest.Digest) ([]ocispec.Descriptor, error) {
	if err := d.Validate(); err != nil {
		return nil, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(d.String()), err)
	}
	return each(ctx, r, repository, mayResolve, func(e endpoint) ([]ocispec.Descriptor, error) {
		return e.referrers(ctx, d)
	})
}

// referrers reads the list of one host page by page. It does not filter by artifact type, because
// go-containerregistry's registry compares the type of the config.
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
	// By the specification a registry without the API answers 404; the other codes are from validators and routers
	// before it.
	if hasStatus(err, http.StatusNotFound, http.StatusBadRequest, http.StatusMethodNotAllowed,
		http.StatusNotAcceptable, http.StatusNotImplemented) || errors.Is(err, errPage) {
		return nil, nil, e.notThere("referrers", errors.Unwrap(err))
	}
	if err != nil {
		return nil, nil, err
	}
	// A body that is not an index comes from a server that answers every unknown path.
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
