// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/identity"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// The sizes of the images to pull, in bytes before compression. Their content compresses to 46 %, like images of
// programs and text, so the large one has 200 MB on the wire, and the set 120 MB: twenty images of 20 MB that share two
// layers.
const (
	largeLayers = 8
	largeLayer  = 54_500_000
	setImages   = 20
	setShared   = 16_000_000 // each of the two
	setOwn      = 11_400_000
)

// pulledImage is one image in the registry, with everything that a pull must fetch.
type pulledImage struct {
	ref    string // by its floating tag
	digest digest.Digest
	config digest.Digest
	chain  digest.Digest    // of the topmost snapshot
	layers map[string]int64 // sizes by digest
}

// work is the images of one measurement.
type work struct {
	name   string
	images []pulledImage
	layers map[string]int64
	bytes  int64 // of all layers, without duplicates
}

// publishWorks pushes the images to the node's registry.
func publishWorks(b *testing.B, n *node.Node) []work {
	b.Helper()
	dir := filepath.Join(node.Cache(), "pulls", sized("v3-", "small-")+runtime.GOARCH)
	if _, err := os.Stat(dir); err != nil {
		b.Logf("making images in %s, once", dir)
		makeImages(b, dir)
	}
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(b, err)
	manifest, err := index.IndexManifest()
	require.NoError(b, err)
	works := []work{{name: "large"}, {name: "set"}}
	for i, d := range manifest.Manifests {
		image, err := index.Image(d.Digest)
		require.NoError(b, err)
		w := &works[min(i, 1)] // the large one is the first
		name := fmt.Sprintf("pulls/%s%d", w.name, i)
		n.Registry.PushMade(name, image, "1.0.0-rev1-build1.1", "1.0.0-rev1")
		w.images = append(w.images, describeImage(b, n.Registry.Ref(name+":1.0.0-rev1"), image))
	}
	for i := range works {
		w := &works[i]
		w.layers = map[string]int64{}
		for _, image := range w.images {
			maps.Copy(w.layers, image.layers)
		}
		for _, size := range w.layers {
			w.bytes += size
		}
		b.Logf("%s: %d images, %.1f MB in %d layers", w.name, len(w.images), float64(w.bytes)/1e6, len(w.layers))
	}
	return works
}

func describeImage(b *testing.B, ref string, image v1.Image) pulledImage {
	b.Helper()
	d, err := image.Digest()
	require.NoError(b, err)
	manifest, err := image.Manifest()
	require.NoError(b, err)
	config, err := image.ConfigFile()
	require.NoError(b, err)
	p := pulledImage{
		ref: ref, digest: digest.Digest(d.String()), config: digest.Digest(manifest.Config.Digest.String()),
		layers: map[string]int64{},
	}
	for _, l := range manifest.Layers {
		p.layers[l.Digest.String()] = l.Size
	}
	var layers []digest.Digest
	for _, l := range config.RootFS.DiffIDs {
		layers = append(layers, digest.Digest(l.String()))
	}
	p.chain = identity.ChainID(layers)
	return p
}

// makeImages writes an OCI layout with the large image, then the set. It is complete or absent.
func makeImages(b *testing.B, dir string) {
	b.Helper()
	require.NoError(b, os.MkdirAll(filepath.Dir(dir), 0o755))
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new") //nolint:usetesting // it is renamed into its place
	require.NoError(b, err)
	defer func() { _ = os.RemoveAll(fresh) }()
	out, err := layout.Write(filepath.Join(fresh, "layout"), empty.Index)
	require.NoError(b, err)
	var large []v1.Layer
	for i := range largeLayers {
		large = append(large, makeLayer(b, fresh, uint64(i), sized(int64(largeLayer), 200_000)))
	}
	require.NoError(b, out.AppendImage(makeImage(b, large...)))
	sharedSize, ownSize := sized(int64(setShared), 100_000), sized(int64(setOwn), 50_000)
	shared := []v1.Layer{makeLayer(b, fresh, 100, sharedSize), makeLayer(b, fresh, 101, sharedSize)}
	for i := range sized(setImages, 3) {
		own := makeLayer(b, fresh, uint64(200+i), ownSize)
		require.NoError(b, out.AppendImage(makeImage(b, shared[0], shared[1], own)))
	}
	if err := os.Rename(filepath.Join(fresh, "layout"), dir); err != nil {
		require.DirExists(b, dir, "made by somebody else meanwhile: %v", err)
	}
}

func makeImage(b *testing.B, layers ...v1.Layer) v1.Image {
	b.Helper()
	config, err := empty.Image.ConfigFile()
	require.NoError(b, err)
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	image, err := mutate.ConfigFile(empty.Image, config)
	require.NoError(b, err)
	image, err = mutate.AppendLayers(image, layers...)
	require.NoError(b, err)
	return image
}

// makeLayer makes a layer of files with sizes from 1 kB to 512 kB, as many small as large ones: the content depends
// only on the seed.
func makeLayer(b *testing.B, dir string, seed uint64, size int64) v1.Layer {
	b.Helper()
	source, words := rand.New(rand.NewPCG(seed, 0)), vocabulary()
	path := filepath.Join(dir, fmt.Sprintf("layer%d", seed))
	file, err := os.Create(path)
	require.NoError(b, err)
	packed := gzip.NewWriter(file)
	archive := tar.NewWriter(packed)
	for i := 0; size > 0; i++ {
		length := min(size, int64(1024*math.Exp(source.Float64()*math.Log(512))))
		size -= length
		name := fmt.Sprintf("usr/share/layer%d/%02d/%04d", seed, i%50, i)
		require.NoError(b, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: length, Format: tar.FormatPAX}))
		_, err := io.Copy(archive, bytes.NewReader(prose(source, words, int(length))))
		require.NoError(b, err)
	}
	require.NoError(b, archive.Close())
	require.NoError(b, packed.Close())
	require.NoError(b, file.Close())
	layer, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.DockerLayer))
	require.NoError(b, err)
	return layer
}

// prose returns bytes that compress like programs and text: frequent and rare words, with noise between them.
func prose(source *rand.Rand, words []string, length int) []byte {
	text := make([]byte, 0, length+32)
	for len(text) < length {
		if source.IntN(10) == 0 {
			text = binary.LittleEndian.AppendUint64(text, source.Uint64())
			continue
		}
		text = append(text, words[int(float64(len(words))*math.Pow(source.Float64(), 4))]...)
	}
	return text[:length]
}

// vocabulary returns the same words each time.
func vocabulary() []string {
	source := rand.New(rand.NewPCG(0, 1))
	words := make([]string, 4096)
	for i := range words {
		for range 4 + source.IntN(9) {
			words[i] += string(rune('a' + source.IntN(26)))
		}
		words[i] += " "
	}
	return words
}
