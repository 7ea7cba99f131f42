// SPDX-License-Identifier: Apache-2.0

package node

import (
	"net/http"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
)

// Publish pushes an image as the Open Build Service does: under the long tag, and moves the intermediate and the short
// tag to it. It returns the digest.
func (r *Registry) Publish(repository, long string, image Image) string {
	r.node.tb.Helper()
	if image.Answer == "" {
		image.Answer = long
	}
	return r.Push(repository, image, r.tagsOf(repository, long)...)
}

// tagsOf returns the tags of a release: the long one and the floating ones.
func (r *Registry) tagsOf(repository, long string) []string {
	r.node.tb.Helper()
	intermediate, _, found := strings.Cut(long, "-build")
	short, _, _ := strings.Cut(intermediate, "-rev")
	if !found || short == intermediate {
		r.node.tb.Fatalf("node: publish %s:%s: not a long tag", repository, long)
	}
	return []string{long, intermediate, short}
}

// Push pushes an image under the given tags, possibly none, and returns the digest of the manifest or index.
func (r *Registry) Push(repository string, image Image, tags ...string) string {
	r.node.tb.Helper()
	digest, err := r.push(repository, image, tags)
	if err != nil {
		r.node.tb.Fatalf("node: push %s: %v", repository, err)
	}
	return digest
}

func (r *Registry) push(repository string, image Image, tags []string) (string, error) {
	repo, err := r.repository(repository)
	if err != nil {
		return "", err
	}
	pushed, err := image.build(r.answer)
	if err != nil {
		return "", err
	}
	digest, err := pushed.Digest()
	if err != nil {
		return "", err
	}
	switch p := pushed.(type) {
	case v1.ImageIndex:
		err = remote.WriteIndex(repo.Digest(digest.String()), p, r.past()...)
	case v1.Image:
		err = remote.Write(repo.Digest(digest.String()), p, r.past()...)
	}
	for _, tag := range tags {
		if err == nil {
			err = remote.Tag(repo.Tag(tag), pushed, r.past()...)
		}
	}
	return digest.String(), err
}

// Tag creates or moves a tag; from is a tag or a digest of the repository.
func (r *Registry) Tag(repository, from, tag string) {
	r.node.tb.Helper()
	repo, err := r.repository(repository)
	if err == nil {
		var found *remote.Descriptor
		if found, err = remote.Get(reference(repo, from), r.past()...); err == nil {
			err = remote.Tag(repo.Tag(tag), found, r.past()...)
		}
	}
	if err != nil {
		r.node.tb.Fatalf("node: tag %s:%s: %v", repository, tag, err)
	}
}

// Delete deletes a manifest; its tags stay in the list and answer 404, as in distribution.
func (r *Registry) Delete(repository, digest string) {
	r.node.tb.Helper()
	repo, err := r.repository(repository)
	if err == nil {
		err = remote.Delete(repo.Digest(digest), r.past()...)
	}
	if err != nil {
		r.node.tb.Fatalf("node: delete %s@%s: %v", repository, digest, err)
	}
}

func (r *Registry) repository(repository string) (name.Repository, error) {
	return name.NewRepository(r.Ref(repository), name.Insecure)
}

func reference(repo name.Repository, from string) name.Reference {
	if strings.HasPrefix(from, "sha256:") {
		return repo.Digest(from)
	}
	return repo.Tag(from)
}

// past returns options that send requests to the registry itself, bypassing the front. The scheme is forced, because
// the front may use HTTPS.
func (r *Registry) past() []remote.Option {
	return []remote.Option{remote.WithContext(r.node.tb.Context()), remote.WithTransport(roundTrip(
		func(request *http.Request) (*http.Response, error) {
			plain := request.Clone(request.Context())
			plain.URL.Scheme = "http"
			return r.backend.RoundTrip(plain)
		}))}
}

// roundTrip makes a function an http.RoundTripper.
type roundTrip func(*http.Request) (*http.Response, error)

// RoundTrip calls f.
func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
