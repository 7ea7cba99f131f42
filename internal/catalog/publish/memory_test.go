// SPDX-License-Identifier: Apache-2.0

package publish_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/catalog"
)

// memory is a registry of one catalog without a network. It has every image. It can be copied.
type memory struct {
	mu        sync.Mutex
	tags      map[string]digest.Digest
	manifests map[digest.Digest][]byte
	blobs     map[digest.Digest][]byte
}

const memoryRepository = "registry.example.com/catalog"

func newMemory() *memory {
	return &memory{tags: map[string]digest.Digest{}, manifests: map[digest.Digest][]byte{}, blobs: map[digest.Digest][]byte{}}
}

func (m *memory) clone() *memory {
	return &memory{tags: maps.Clone(m.tags), manifests: maps.Clone(m.manifests), blobs: maps.Clone(m.blobs)}
}

func (m *memory) find(name string) (digest.Digest, []byte, error) {
	d := digest.Digest(name)
	if d.Validate() != nil {
		d = m.tags[name]
	}
	body, ok := m.manifests[d]
	if !ok {
		return "", nil, fmt.Errorf("%s: %w", name, release.ErrNotFound)
	}
	return d, body, nil
}

func (m *memory) Head(_ context.Context, repository, name string) (digest.Digest, error) {
	if repository != memoryRepository {
		return digest.Digest(name), nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	d, _, err := m.find(name)
	return d, err
}

func (m *memory) Manifest(_ context.Context, _, name string) (string, []byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, body, err := m.find(name)
	return ocispec.MediaTypeImageManifest, body, err
}

func (m *memory) Blob(_ context.Context, _ string, desc ocispec.Descriptor) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	data, ok := m.blobs[desc.Digest]
	if !ok {
		return nil, fmt.Errorf("%s: %w", desc.Digest, release.ErrNotFound)
	}
	return data, nil
}

func (m *memory) Tags(context.Context, string) ([]string, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []string
	for tag := range m.tags {
		out = append(out, tag)
	}
	return out, nil
}

func (m *memory) PutBlob(_ context.Context, _ string, data []byte) (catalog.BlobRef, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := digest.FromBytes(data)
	m.blobs[d] = data
	return catalog.BlobRef{Digest: d, Size: int64(len(data))}, nil
}

func (m *memory) PutManifest(_ context.Context, _, tag string, body []byte) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	d := digest.FromBytes(body)
	m.manifests[d], m.tags[tag] = body, d
	return nil
}

func (m *memory) Remove(_ context.Context, _ string, d digest.Digest) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.manifests, d)
	maps.DeleteFunc(m.tags, func(_ string, is digest.Digest) bool { return is == d })
	return nil
}

func (m *memory) Referrers(context.Context, string, digest.Digest) ([]ocispec.Descriptor, error) {
	return nil, release.ErrNotFound
}

// stopped is a registry that does something before the n-th request of its publisher, and, where it kills, answers none
// from then on.
type stopped struct {
	*memory

	at    int
	do    func()
	kills bool

	n    int
	what string // that request; empty: it did not come
}

// before counts a request. Publishers of these tests send one at a time.
func (s *stopped) before(ctx context.Context, what string) error {
	if s.n++; s.n == s.at {
		s.what = what
		if s.do != nil {
			s.do()
		}
	}
	if s.kills && s.n >= s.at {
		return errKilled
	}
	return ctx.Err()
}

func (s *stopped) Head(ctx context.Context, repository, name string) (digest.Digest, error) {
	if repository != memoryRepository {
		return s.memory.Head(ctx, repository, name)
	}
	if err := s.before(ctx, "HEAD "+name); err != nil {
		return "", err
	}
	return s.memory.Head(ctx, repository, name)
}

func (s *stopped) Manifest(ctx context.Context, repository, name string) (string, []byte, error) {
	if err := s.before(ctx, "GET "+name); err != nil {
		return "", nil, err
	}
	return s.memory.Manifest(ctx, repository, name)
}

func (s *stopped) Blob(ctx context.Context, repository string, desc ocispec.Descriptor) ([]byte, error) {
	if err := s.before(ctx, "GET blob"); err != nil {
		return nil, err
	}
	return s.memory.Blob(ctx, repository, desc)
}

func (s *stopped) Tags(ctx context.Context, repository string) ([]string, error) {
	if err := s.before(ctx, "GET tags"); err != nil {
		return nil, err
	}
	return s.memory.Tags(ctx, repository)
}

func (s *stopped) PutBlob(ctx context.Context, repository string, data []byte) (catalog.BlobRef, error) {
	if err := s.before(ctx, "PUT blob"); err != nil {
		return catalog.BlobRef{}, err
	}
	return s.memory.PutBlob(ctx, repository, data)
}

func (s *stopped) PutManifest(ctx context.Context, repository, tag string, body []byte) error {
	what := "PUT " + tag
	if strings.HasPrefix(tag, "op-") {
		what = "PUT op"
	}
	if err := s.before(ctx, what); err != nil {
		return err
	}
	return s.memory.PutManifest(ctx, repository, tag, body)
}

func (s *stopped) Remove(ctx context.Context, repository string, d digest.Digest) error {
	if err := s.before(ctx, "DELETE"); err != nil {
		return err
	}
	return s.memory.Remove(ctx, repository, d)
}
