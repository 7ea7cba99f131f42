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
	"strings"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/platforms"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
	"github.com/kubic-project/image-update-agent/internal/registry/transport"
	"github.com/kubic-project/image-update-agent/tags"
)

const digestHeader = "Docker-Content-Digest"

// Resolve returns the current digest of a tag: one HEAD request to the first host that may resolve.
func (r *Registry) Resolve(ctx context.Context, ref release.Reference) (release.Resolved, error) {
	return r.ResolveTo(ctx, ref, "")
}

// ResolveTo is Resolve for a tag that probably names a digest (empty: any): one GET request. If the tag names it,
// Describe and Fetch send no request for that manifest.
func (r *Registry) ResolveTo(
	ctx context.Context, ref release.Reference, want digest.Digest,
) (release.Resolved, error) {
	if err := want.Validate(); want != "" && err != nil {
		return release.Resolved{}, fmt.Errorf("registry: %q: digest %q: %w", ref, outside.Text(want.String()), err)
	}
	if tags.Classify(ref.Tag) == tags.ClassInvalid {
		return release.Resolved{}, fmt.Errorf("registry: %q: %w", ref, tags.ErrInvalid)
	}
	var skipped *release.SourceError
	return each(ctx, r, ref.Repository, mayResolve, func(e endpoint) (release.Resolved, error) {
		found, err := e.resolve(ctx, ref.Tag, want)
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
	a, err := e.ask(ctx, transport.Question{Method: http.MethodHead, URL: u, Accept: acceptManifests})
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

// resolve asks one host for the digest of a tag; if one is wanted, for the content, which has the digest, and keeps it.
func (e endpoint) resolve(ctx context.Context, tag string, want digest.Digest) (manifest, error) {
	if want == "" {
		found, err := e.locate(ctx, tag, "", false)
		if err == nil {
			e.documents.locate(e.repository, found)
		}
		return found, err
	}
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

// acceptManifests are the kinds of manifest from which containerd runs images, in its order. A registry with OCI
// manifests answers 404 to a request that does not list their types.
var acceptManifests = strings.Join([]string{
	images.MediaTypeDockerSchema2Manifest,
	images.MediaTypeDockerSchema2ManifestList,
	ocispec.MediaTypeImageManifest,
	ocispec.MediaTypeImageIndex,
}, ", ")

// parseManifest parses a body of the kind in its Content-Type.
func parseManifest(contentType string, body []byte) (ocimanifest.Document, error) {
	kind, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return ocimanifest.Document{}, fmt.Errorf("manifest: content-type %q: %w", outside.Text(contentType), err)
	}
	if !images.IsManifestType(kind) && !images.IsIndexType(kind) {
		return ocimanifest.Document{}, fmt.Errorf("manifest: content-type %q: not an image", outside.Text(kind))
	}
	return ocimanifest.Parse(kind, body)
}

// manifest is a manifest or index from a host.
type manifest struct {
	desc     ocispec.Descriptor
	body     []byte // nil after a HEAD request
	insecure bool
}

// manifest fetches a manifest from one host. Without a given digest, it must have the digest that the host sends, if
// any.
func (e endpoint) manifest(ctx context.Context, name string, d digest.Digest) (manifest, error) {
	a, err := e.get(ctx, e.url("manifests", name), acceptManifests, maxManifest)
	if err != nil {
		return manifest{}, err
	}
	return e.read(a, d)
}

// read returns the manifest of an answer, which must have the digest; empty: the one that the host sends.
func (e endpoint) read(a transport.Answer, d digest.Digest) (manifest, error) {
	if d == "" {
		d = digest.Digest(a.Header.Get(digestHeader))
	}
	if d == "" {
		d = digest.FromBytes(a.Body)
	} else if err := verify(d, a.Body); err != nil {
		return manifest{}, e.failed(err)
	}
	doc, err := parseManifest(a.Header.Get("Content-Type"), a.Body)
	if err != nil {
		return manifest{}, e.failed(err)
	}
	desc := ocispec.Descriptor{MediaType: doc.MediaType, Digest: d, Size: int64(len(a.Body))}
	return manifest{desc, a.Body, a.Insecure}, nil
}

// Describe fetches the build of a digest for the node's platform: the manifest (in an index the matching one) and the
// image config, in two or three requests.
func (r *Registry) Describe(ctx context.Context, repository string, d digest.Digest) (release.Build, error) {
	if err := d.Validate(); err != nil {
		return release.Build{}, fmt.Errorf("registry: %s: digest %q: %w", repository, outside.Text(d.String()), err)
	}
	return each(ctx, r, repository, mayPull, func(e endpoint) (release.Build, error) {
		return e.describe(ctx, d, r.platform)
	})
}

func (e endpoint) describe(ctx context.Context, d digest.Digest, on platforms.MatchComparer) (release.Build, error) {
	from := ocimanifest.Content{
		Document: func(desc ocispec.Descriptor) (ocimanifest.Document, error) { return e.document(ctx, desc) },
		Config: func(desc ocispec.Descriptor) ([]byte, error) {
			a, err := e.sized(ctx, "blobs", desc, "*/*", ocimanifest.MaxConfig)
			if err == nil {
				e.documents.keep(e.repository, desc.Digest, a.Body)
			}
			return a.Body, err
		},
	}
	build, err := from.Describe(ocispec.Descriptor{Digest: d, Size: -1}, on)
	var noAnswer *release.SourceError
	var other ocimanifest.NotImage
	switch {
	case errors.Is(err, ocimanifest.ErrPlatform):
		return release.Build{}, fmt.Errorf("registry: %s@%s: %w", e.repository, d, release.ErrPlatform)
	case errors.As(err, &other):
		f := e.failed(other.Of(release.ErrNotImage))
		f.Answered = true // the digest has verified it: no host has anything else
		return release.Build{}, f
	case err != nil && !errors.As(err, &noAnswer):
		return release.Build{}, e.failed(err)
	}
	return release.Build(build), err
}

// document fetches a manifest or index by digest. A child of an index has the kind that the index names, whatever the
// host sends, as in containerd. It sends no request for one that ResolveTo has read and Resolve has located.
func (e endpoint) document(ctx context.Context, desc ocispec.Descriptor) (ocimanifest.Document, error) {
	if kind, body := e.documents.read(e.repository, desc.Digest); body != nil {
		if doc, err := parseManifest(kind, body); err == nil {
			return doc, nil
		}
	}
	a, err := e.sized(ctx, "manifests", desc, acceptManifests, maxManifest)
	if err != nil {
		return ocimanifest.Document{}, answered(err)
	}
	var doc ocimanifest.Document
	if desc.Size < 0 {
		doc, err = parseManifest(a.Header.Get("Content-Type"), a.Body)
	} else {
		doc, err = ocimanifest.Parse(desc.MediaType, a.Body)
	}
	if err == nil {
		e.documents.keep(e.repository, desc.Digest, a.Body)
	}
	return doc, err
}

// sized fetches the content of a descriptor and verifies it. Errors are SourceErrors.
func (e endpoint) sized(
	ctx context.Context, kind string, desc ocispec.Descriptor, accept string, limit int64,
) (transport.Answer, error) {
	a, err := e.get(ctx, e.url(kind, desc.Digest.String()), accept, limit)
	if err != nil {
		return transport.Answer{}, err
	}
	if err := verifySized(desc, a.Body); err != nil {
		return transport.Answer{}, e.failed(err)
	}
	return a, nil
}

// verifySized compares content with its descriptor. A negative size is unknown.
func verifySized(desc ocispec.Descriptor, content []byte) error {
	if desc.Size >= 0 && desc.Size != int64(len(content)) {
		return fmt.Errorf("%s: %d bytes, not %d", desc.Digest, len(content), desc.Size)
	}
	return verify(desc.Digest, content)
}
