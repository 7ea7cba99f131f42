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
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/klauspost/compress/zstd"
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
	dir := filepath.Join(node.Cache(), "pulls", "v4-"+runtime.GOARCH)
	if _, err := os.Stat(dir); err != nil {
		b.Logf("making images in %s, once", dir)
		makeImages(b, dir)
	}
	index, err := layout.ImageIndexFromPath(dir)
	require.NoError(b, err)
	manifest, err := index.IndexManifest()
	require.NoError(b, err)
	works := []work{{name: "large"}, {name: "set"}, {name: "large zstd"}, {name: "set zstd"}}
	for i, d := range manifest.Manifests {
		image, err := index.Image(d.Digest)
		require.NoError(b, err)
		// The large one is the first; then the set, and both with zstd.
		half := len(manifest.Manifests) / 2
		w := &works[2*(i/half)+min(i%half, 1)]
		name := fmt.Sprintf("pulls/%s%d", strings.ReplaceAll(w.name, " ", ""), i)
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

// makeImages writes an OCI layout with the large image, then the set, and both again with zstd. It is complete or
// absent.
func makeImages(b *testing.B, dir string) {
	b.Helper()
	require.NoError(b, os.MkdirAll(filepath.Dir(dir), 0o755))
	fresh, err := os.MkdirTemp(filepath.Dir(dir), "new") //nolint:usetesting // it is renamed into its place
	require.NoError(b, err)
	defer func() { _ = os.RemoveAll(fresh) }()
	out, err := layout.Write(filepath.Join(fresh, "layout"), empty.Index)
	require.NoError(b, err)
	layers := func(seed uint64, size int64) packed { return makeLayer(b, fresh, seed, size) }
	var large, set []packed
	for i := range largeLayers {
		large = append(large, layers(uint64(i), int64(largeLayer)))
	}
	sharedSize, ownSize := int64(setShared), int64(setOwn)
	shared := []packed{layers(100, sharedSize), layers(101, sharedSize)}
	for i := range setImages {
		set = append(set, layers(uint64(200+i), ownSize))
	}
	for packing := range shared[0] {
		var all []v1.Layer
		for _, l := range large {
			all = append(all, l[packing])
		}
		require.NoError(b, out.AppendImage(makeImage(b, all...)))
		for _, own := range set {
			require.NoError(b, out.AppendImage(makeImage(b, shared[0][packing], shared[1][packing], own[packing])))
		}
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

// packed is a layer, packed by gzip and by zstd.
type packed [2]v1.Layer

// makeLayer makes a layer of files with sizes from 1 kB to 512 kB, as many small as large ones: the content depends
// only on the seed.
func makeLayer(b *testing.B, dir string, seed uint64, size int64) (layers packed) {
	b.Helper()
	source, words := rand.New(rand.NewPCG(seed, 0)), vocabulary()
	var files []*os.File
	for range layers {
		file, err := os.Create(filepath.Join(dir, fmt.Sprintf("layer%d.%d", seed, len(files))))
		require.NoError(b, err)
		files = append(files, file)
	}
	gzips := gzip.NewWriter(files[0])
	zstds, err := zstd.NewWriter(files[1])
	require.NoError(b, err)
	archive := tar.NewWriter(io.MultiWriter(gzips, zstds))
	for i := 0; size > 0; i++ {
		length := min(size, int64(1024*math.Exp(source.Float64()*math.Log(512))))
		size -= length
		name := fmt.Sprintf("usr/share/layer%d/%02d/%04d", seed, i%50, i)
		require.NoError(b, archive.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: length, Format: tar.FormatPAX}))
		_, err := io.Copy(archive, bytes.NewReader(prose(source, words, int(length))))
		require.NoError(b, err)
	}
	for _, w := range []io.Closer{archive, gzips, zstds, files[0], files[1]} {
		require.NoError(b, w.Close())
	}
	for n, kind := range []types.MediaType{types.DockerLayer, types.OCILayerZStd} {
		layers[n], err = tarball.LayerFromFile(files[n].Name(), tarball.WithMediaType(kind))
		require.NoError(b, err)
	}
	return layers
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
