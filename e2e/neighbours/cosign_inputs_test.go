// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/require"
)

// cosignSigned is one signature of an image: its key, its place and its oddity.
type cosignSigned struct {
	key string // a name of cosignKeys
	way string // simple, referrers, bundle or message
	odd string // a key of simpleOdd, bundleOdd or messageOdd
	in  string // oddity of the document that contains it: a key of documentOdd
	of  digest.Digest
}

// cosignImage is an image in a registry with its signatures.
type cosignImage struct {
	*cosignRegistry
	index, platform digest.Digest // platform is empty if the image is not an index
	signed          []cosignSigned
}

// String describes the image and its signatures.
func (i cosignImage) String() string {
	var all []string
	for _, s := range i.signed {
		of := map[digest.Digest]string{i.index: "the image", i.platform: "the platform"}[s.of]
		all = append(all, fmt.Sprintf("%s of %s by %s: %s, in %s", s.way, of, s.key, s.odd, s.in))
	}
	api := "with the API of referrers"
	if i.Lists == nil {
		api = "without the API of referrers"
	}
	return api + "\n" + strings.Join(all, "\n")
}

// cosignImages generates images.
type cosignImages struct {
	r    *rand.Rand
	keys cosignKeys
}

// alone returns every possible signature with exactly one oddity.
func (c cosignImages) alone() (all []cosignSigned) {
	for _, way := range slices.Sorted(maps.Keys(oddities)) {
		for _, odd := range oddities[way] {
			all = append(all, cosignSigned{way: way, odd: odd, in: plain})
		}
		for _, in := range slices.Sorted(maps.Keys(documentOdd)) {
			if way != "simple" {
				all = append(all, cosignSigned{way: way, odd: plain, in: in})
			}
		}
	}
	return all
}

// next returns an image with the given signatures, or with random ones.
func (c cosignImages) next(t *testing.T, one ...cosignSigned) cosignImage {
	t.Helper()
	i := cosignImage{cosignRegistry: &cosignRegistry{
		Repository: "app", Tags: map[string]digest.Digest{}, Manifests: map[digest.Digest]cosignDocument{},
		Blobs: map[digest.Digest][]byte{},
	}}
	c.publish(t, &i)
	i.signed = c.signatures(i, one)
	artifacts := map[digest.Digest][]ocispec.Descriptor{}
	layers := map[digest.Digest][]ocispec.Descriptor{}
	for _, s := range i.signed {
		if s.way == "simple" {
			layers[s.of] = append(layers[s.of], c.simple(t, i.cosignRegistry, s))
		} else {
			artifacts[s.of] = append(artifacts[s.of], c.artifact(t, i.cosignRegistry, s))
		}
	}
	for d, of := range layers {
		m := i.image(t, ocispec.Manifest{Layers: of})
		i.Tags[tagOfDigest(d)+".sig"] = m.Digest
	}
	c.list(t, i, artifacts)
	return i
}

// publish pushes the image to the registry, as an index or as a single image.
func (c cosignImages) publish(t *testing.T, i *cosignImage) {
	t.Helper()
	layer := i.blob(ocispec.MediaTypeImageLayer, fmt.Append(nil, "layer ", c.r.Uint64()))
	platform := i.image(t, ocispec.Manifest{Layers: []ocispec.Descriptor{layer}})
	i.index = platform.Digest
	if c.r.IntN(3) > 0 {
		platform.Platform = &ocispec.Platform{OS: "linux", Architecture: "amd64"}
		index := ocispec.Index{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
			Manifests: []ocispec.Descriptor{platform},
		}
		i.platform, i.index = platform.Digest, i.manifest(ocispec.MediaTypeImageIndex, inJSON(t, index)).Digest
	}
	if c.r.IntN(2) == 0 {
		i.Lists = map[digest.Digest][]byte{}
	}
}

// signatures returns up to four signatures, most of them odd.
func (c cosignImages) signatures(i cosignImage, one []cosignSigned) (all []cosignSigned) {
	for _, s := range one {
		s.key, s.of = oneOf(c.r, known...), i.index
		all = append(all, s)
	}
	if len(one) == 0 {
		for range c.r.IntN(12) % 5 {
			all = append(all, c.signature(i))
		}
	}
	return all
}

// signature returns a random signature.
func (c cosignImages) signature(i cosignImage) cosignSigned {
	s := cosignSigned{
		key: oneOf(c.r, append([]string{"stranger"}, known...)...), of: i.index, odd: plain, in: plain,
		way: oneOf(c.r, "simple", "simple", "referrers", "bundle", "bundle", "message"),
	}
	if i.platform != "" && c.r.IntN(3) == 0 {
		s.of = i.platform
	}
	if c.r.IntN(4) > 0 {
		s.odd = oneOf(c.r, oddities[s.way]...)
	}
	if s.way != "simple" && c.r.IntN(5) == 0 {
		s.in = oneOf(c.r, slices.Sorted(maps.Keys(documentOdd))...)
	}
	return s
}

// list adds the lists of referrers to the registry.
func (c cosignImages) list(t *testing.T, i cosignImage, artifacts map[digest.Digest][]ocispec.Descriptor) {
	t.Helper()
	for d, all := range artifacts {
		index := ocispec.Index{
			Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Manifests: all,
		}
		body := inJSON(t, index)
		if i.Lists != nil {
			i.Lists[d] = body
		} else {
			i.Tags[tagOfDigest(d)] = i.manifest(ocispec.MediaTypeImageIndex, body).Digest
		}
	}
}

// oddities are the names of the possible oddities, by the way to sign.
var oddities = map[string][]string{
	"simple":    slices.Sorted(maps.Keys(simpleOdd)),
	"referrers": slices.Sorted(maps.Keys(simpleOdd)),
	"bundle":    slices.Sorted(maps.Keys(bundleOdd)),
	"message":   slices.Sorted(maps.Keys(messageOdd)),
}

// plain is the name for no oddity.
const plain = "plain"

// image adds an image manifest, with an empty config unless it has one.
func (r *cosignRegistry) image(t *testing.T, m ocispec.Manifest) ocispec.Descriptor {
	t.Helper()
	m.SchemaVersion, m.MediaType = 2, ocispec.MediaTypeImageManifest
	if m.Config.Digest == "" {
		m.Config = r.blob(cmp.Or(m.Config.MediaType, ocispec.MediaTypeImageConfig), []byte("{}"))
	}
	if m.Layers == nil {
		m.Layers = []ocispec.Descriptor{}
	}
	return r.manifest(ocispec.MediaTypeImageManifest, inJSON(t, m))
}

func inJSON(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}

// tagOfDigest returns the tag under which cosign stores data for a digest.
func tagOfDigest(d digest.Digest) string { return strings.Replace(d.String(), ":", "-", 1) }
