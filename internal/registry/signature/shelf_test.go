// SPDX-License-Identifier: Apache-2.0

package signature

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// shelf is a source with one repository from fixtures. A changed entry gets its new digest, as in a real registry.
type shelf struct {
	Repository string                    `json:"repository"`
	Index      digest.Digest             `json:"index"`
	Platform   digest.Digest             `json:"platform"`
	Tags       map[string]digest.Digest  `json:"tags"`
	Manifests  map[digest.Digest]onShelf `json:"manifests"`
	Blobs      map[digest.Digest]string  `json:"blobs"`
	References map[digest.Digest]string  `json:"referrers"`
	away       func(what string) error   // error for a request
	mu         sync.Mutex
	asked      []string
}

type onShelf struct {
	MediaType string `json:"mediaType"`
	Body      string `json:"body"`
}

var errAway = errors.New("registry is away")

func fixture(t testing.TB, name string) *shelf {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	require.NoError(t, err)
	s := &shelf{}
	require.NoError(t, json.Unmarshal(data, s))
	return s
}

func (s *shelf) ask(what string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked = append(s.asked, what)
	if s.away != nil {
		return s.away(what)
	}
	return nil
}

func (s *shelf) Manifest(ctx context.Context, repository, name string) (string, []byte, error) {
	if err := errors.Join(ctx.Err(), s.ask("manifest "+name)); err != nil {
		return "", nil, err
	}
	d, tagged := s.Tags[name]
	if !tagged {
		d = digest.Digest(name)
	}
	m, ok := s.Manifests[d]
	if !ok || repository != s.Repository {
		return "", nil, &release.SourceError{Repository: repository, Err: release.ErrNotFound}
	}
	return m.MediaType, []byte(m.Body), nil
}

func (s *shelf) Blob(ctx context.Context, _ string, desc ocispec.Descriptor) ([]byte, error) {
	if err := errors.Join(ctx.Err(), s.ask("blob "+desc.Digest.String())); err != nil {
		return nil, err
	}
	b, ok := s.Blobs[desc.Digest]
	if !ok {
		return nil, release.ErrNotFound
	}
	return []byte(b), nil
}

func (s *shelf) Referrers(ctx context.Context, _ string, d digest.Digest) ([]ocispec.Descriptor, error) {
	if err := errors.Join(ctx.Err(), s.ask("referrers "+d.String())); err != nil {
		return nil, err
	}
	var index ocispec.Index
	if err := json.Unmarshal([]byte(s.References[d]), &index); err != nil {
		return nil, release.ErrNotFound // as by default: no referrers
	}
	return index.Manifests, nil
}

func (s *shelf) blob(mediaType, body string) ocispec.Descriptor {
	d := digest.FromString(body)
	s.Blobs[d] = body
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(body))}
}

func (s *shelf) manifest(t testing.TB, layers []ocispec.Descriptor) digest.Digest {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"schemaVersion": 2, "mediaType": ocispec.MediaTypeImageManifest, "layers": layers,
		"config": s.blob("application/vnd.oci.image.config.v1+json", "{}"),
	})
	require.NoError(t, err)
	d := digest.FromBytes(body)
	s.Manifests[d] = onShelf{ocispec.MediaTypeImageManifest, string(body)}
	return d
}

// simple adds payloads with their signatures under the .sig tag of a digest.
func (s *shelf) simple(t testing.TB, d digest.Digest, layers ...ocispec.Descriptor) {
	t.Helper()
	s.Tags[strings.Replace(d.String(), ":", "-", 1)+".sig"] = s.manifest(t, layers)
}

// layer returns a payload with a signature.
func (s *shelf) layer(payload, encoded string) ocispec.Descriptor {
	desc := s.blob(simpleMediaType, payload)
	desc.Annotations = map[string]string{simpleAnnotation: encoded}
	return desc
}

// refer adds bundles as referrers of a digest.
func (s *shelf) refer(t testing.TB, d digest.Digest, bundles ...string) {
	t.Helper()
	var index ocispec.Index
	for _, each := range bundles {
		m := s.manifest(t, []ocispec.Descriptor{s.blob(bundleMediaType, each)})
		index.Manifests = append(index.Manifests, ocispec.Descriptor{
			MediaType: ocispec.MediaTypeImageManifest, Digest: m, ArtifactType: bundleMediaType, Size: 1,
		})
	}
	body, err := json.Marshal(index)
	require.NoError(t, err)
	s.References[d] = string(body)
}

// unsigned returns a repository with an unsigned image.
func unsigned() *shelf {
	s := &shelf{
		Repository: "registry.suse.com/caasp/v4/velum", Tags: map[string]digest.Digest{},
		Manifests: map[digest.Digest]onShelf{}, Blobs: map[digest.Digest]string{}, References: map[digest.Digest]string{},
		Index: digest.FromString("index"), Platform: digest.FromString("platform"),
	}
	return s
}

// stolen returns the payload and signature of a fixture's first layer.
func stolen(t testing.TB, s *shelf) (payload, encoded string) {
	t.Helper()
	m := s.Manifests[s.Tags[tagOf(s.Index)+".sig"]]
	var doc ocispec.Manifest
	require.NoError(t, json.Unmarshal([]byte(m.Body), &doc))
	require.NotEmpty(t, doc.Layers)
	return s.Blobs[doc.Layers[0].Digest], doc.Layers[0].Annotations[simpleAnnotation]
}

// bundleOf returns the first bundle of a fixture.
func bundleOf(t testing.TB, s *shelf) string {
	t.Helper()
	for _, b := range s.Blobs {
		if strings.Contains(b, bundleMediaType) {
			return b
		}
	}
	require.Fail(t, "no bundle")
	return ""
}

// with returns a verifier with some keys of testdata.
func with(t testing.TB, names ...string) *Verifier {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join("testdata", name+".pem"))
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(filepath.Join(dir, filepath.Base(name)+".pem"), data, 0o600))
	}
	return New(Options{Dirs: []string{dir}})
}

func ringOf(t testing.TB, names ...string) ring {
	t.Helper()
	r, err := with(t, names...).keys.current(t.Context())
	require.NoError(t, err)
	require.Len(t, r, len(names))
	return r
}

func (s *shelf) verify(t testing.TB, v *Verifier) (Verdict, error) {
	t.Helper()
	return v.Verify(t.Context(), s, s.Repository, s.Index, s.Platform)
}
