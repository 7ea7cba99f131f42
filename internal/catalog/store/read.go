// SPDX-License-Identifier: Apache-2.0

package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/registry/distspec"
)

// manifestTypes are the media types that a request for a manifest accepts.
var manifestTypes = strings.Join([]string{
	ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex,
	string(types.DockerManifestSchema2), string(types.DockerManifestList),
}, ", ")

// login is the way to read one repository, once the registry has said how to log in.
type login struct {
	mu     sync.Mutex
	client *http.Client
}

// reader returns the HTTP client that reads a repository.
func (c *Client) reader(ctx context.Context, repository name.Repository) (*http.Client, error) {
	is, _ := c.logins.LoadOrStore(repository.Name(), &login{})
	l := is.(*login) //nolint:forcetypeassert // nothing else is stored
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.client != nil {
		return l.client, nil
	}
	auth, err := authn.Resolve(ctx, c.keychain, repository)
	if err != nil {
		return nil, err
	}
	t, err := transport.NewWithContext(ctx, repository.Registry, auth, c.transport,
		[]string{repository.Scope(transport.PullScope)})
	if err != nil {
		return nil, err
	}
	l.client = &http.Client{Transport: t, CheckRedirect: checkRedirect}
	return l.client, nil
}

// ask sends a request that reads, and returns its answer if that has status 200.
func (c *Client) ask(
	ctx context.Context, method string, to name.Repository, u *url.URL, accept string,
) (*http.Response, error) {
	client, err := c.reader(ctx, to)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, method, u.String(), http.NoBody)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", accept)
	resp, err := client.Do(r)
	if err != nil {
		return nil, err
	}
	if err := transport.CheckError(resp, http.StatusOK); err != nil {
		_ = resp.Body.Close()
		return nil, err
	}
	return resp, nil
}

// urlOf returns the URL of something of a repository.
func urlOf(r name.Repository, parts ...string) *url.URL {
	return &url.URL{
		Scheme: r.Scheme(), Host: r.RegistryStr(),
		Path: "/v2/" + r.RepositoryStr() + "/" + strings.Join(parts, "/"),
	}
}

// document is a manifest with its media type.
type document struct {
	kind string
	body []byte
}

// Manifest returns a manifest; release.ErrNotFound if there is none.
func (c *Client) Manifest(
	ctx context.Context, repository, tagOrDigest string,
) (mediaType string, body []byte, err error) {
	d, err := get(ctx, c, repository, tagOrDigest, func(ref name.Reference) (document, error) {
		return c.manifest(ctx, ref)
	})
	return d.kind, d.body, err
}

// manifest reads a manifest, and compares it with the digest that was asked for, or that the registry gives.
func (c *Client) manifest(ctx context.Context, ref name.Reference) (document, error) {
	to := ref.Context()
	resp, err := c.ask(ctx, http.MethodGet, to, urlOf(to, "manifests", ref.Identifier()), manifestTypes)
	if err != nil {
		return document{}, err
	}
	defer resp.Body.Close()
	body, err := outside.ReadAll(resp.Body, maxManifest)
	if err != nil {
		return document{}, err
	}
	kind := resp.Header.Get("Content-Type")
	if plain, _, err := mime.ParseMediaType(kind); err == nil {
		kind = plain
	}
	is := digest.FromBytes(body)
	for _, want := range []string{ref.Identifier(), resp.Header.Get(digestHeader)} {
		if d := digest.Digest(want); d.Validate() == nil && d.Algorithm() == digest.SHA256 && d != is {
			return document{}, fmt.Errorf("has digest %s, want %s", is, d)
		}
	}
	return document{kind, body}, nil
}

// digestHeader names the digest of a manifest. Not every registry sends it.
const digestHeader = "Docker-Content-Digest"

// Head returns the digest that a tag names; release.ErrNotFound if there is none.
func (c *Client) Head(ctx context.Context, repository, tagOrDigest string) (digest.Digest, error) {
	return get(ctx, c, repository, tagOrDigest, func(ref name.Reference) (digest.Digest, error) {
		to := ref.Context()
		resp, err := c.ask(ctx, http.MethodHead, to, urlOf(to, "manifests", ref.Identifier()), manifestTypes)
		noHead := []int{http.StatusBadRequest, http.StatusMethodNotAllowed, http.StatusNotImplemented}
		switch {
		case err == nil:
			_ = resp.Body.Close()
			d := digest.Digest(resp.Header.Get(digestHeader))
			if d.Validate() == nil && d.Algorithm() == digest.SHA256 {
				return d, nil
			}
		case !slices.Contains(noHead, Status(err)):
			return "", err
		}
		doc, err := c.manifest(ctx, ref)
		if err != nil {
			return "", err
		}
		return digest.FromBytes(doc.body), nil
	})
}

// Blob returns a blob, and verifies its size and digest.
func (c *Client) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	if desc.Size > maxBlob {
		return nil, fmt.Errorf("%s: %s: %w: %d bytes", repository, desc.Digest, outside.ErrTooLarge, desc.Size)
	}
	return get(ctx, c, repository, desc.Digest.String(), func(ref name.Reference) ([]byte, error) {
		to := ref.Context()
		resp, err := c.ask(ctx, http.MethodGet, to, urlOf(to, "blobs", ref.Identifier()), "*/*")
		if err != nil {
			return nil, err
		}
		defer resp.Body.Close()
		data, err := outside.ReadAll(resp.Body, desc.Size)
		if err == nil && digest.FromBytes(data) != desc.Digest {
			err = fmt.Errorf("has digest %s", digest.FromBytes(data))
		}
		return data, err
	})
}

// Referrers lists nothing: catalogs are signed under tags.
func (c *Client) Referrers(context.Context, string, digest.Digest) ([]ocispec.Descriptor, error) {
	return nil, release.ErrNotFound
}

// errTorn: a page of a tag list is not there, though the one before names it.
var errTorn = errors.New("incomplete list")

// Tags lists the tags of a repository, each once; none if it does not exist. A list of which a part
// is missing is an error.
func (c *Client) Tags(ctx context.Context, repository string) ([]string, error) {
	r, err := c.repository(repository)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, listTimeout, &timeoutError{"tag list: incomplete", listTimeout})
	defer cancel()
	var l *distspec.TagList
	err = repeat(ctx, func() error {
		l, err = c.list(ctx, r)
		return err
	})
	if is := kindOf(err); errors.Is(is, release.ErrNotFound) {
		return nil, nil
	} else if err != nil {
		return nil, fmt.Errorf("%s: tag list: %w", r, is)
	}
	return l.Tags, nil
}

// list reads all pages.
func (c *Client) list(ctx context.Context, r name.Repository) (*distspec.TagList, error) {
	l, err := distspec.Lister{
		PageSize: pageSize, MaxPages: maxPages, MaxTags: maxTags, MaxBytes: maxTagList, Status: Status,
		Get: func(page *url.URL, read func(http.Header, io.Reader) error) (http.Header, error) {
			resp, err := c.ask(ctx, http.MethodGet, r, page, "application/json")
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			return resp.Header, read(resp.Header, resp.Body)
		},
	}.Read(urlOf(r, "tags", "list"))
	if l.Pages > 1 && Status(err) == http.StatusNotFound { // it says nothing about the repository
		err = fmt.Errorf("%w: page %d: 404", errTorn, l.Pages)
	}
	return l, err
}
