// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// Image describes an image to publish: a web server (cmd/answer) that listens on HOST:PORT, its argument, and answers
// with Answer. Equal descriptions give equal digests.
type Image struct {
	Answer    string // empty: Publish uses the long tag
	Layers    []Layer
	Created   time.Time
	Labels    map[string]string
	Platforms []string // for example "linux/arm64"; none: this machine's; several: an index
	OCI       bool     // OCI media types instead of Docker's
}

// Layer is a layer with one file of incompressible bytes, which depend only on Seed.
type Layer struct {
	Seed  uint64
	Size  int64
	Zeros bool   // zero bytes, compressed
	File  string // its path; empty: data/SEED
	Text  string // its content, instead of the bytes
}

// Content returns the content of the layer's file.
func (l Layer) Content() io.Reader {
	if l.Text != "" {
		return strings.NewReader(l.Text)
	}
	if l.Zeros {
		return io.LimitReader(zeros{}, l.Size)
	}
	return io.LimitReader(rand.NewChaCha8(seed(l.Seed)), l.Size)
}

// level returns the compression level: incompressible bytes are not compressed.
func (l Layer) level() int {
	if l.Zeros || l.Text != "" {
		return gzip.BestSpeed
	}
	return gzip.NoCompression
}

// zeros is an endless file of zeros.
type zeros struct{}

// Read reads zeros.
func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// made is the common interface of an image and an index.
type made interface {
	remote.Taggable
	Digest() (v1.Hash, error)
}

// answers are the packed programs of all images, by path: a function that returns one and its error. Compressing it
// takes longer than the rest of an image, so a process does it once.
var answers sync.Map

func packedAnswer(path string) (packed, error) {
	once, _ := answers.LoadOrStore(path, sync.OnceValues(func() (packed, error) {
		text, err := os.ReadFile(path)
		if err != nil {
			return packed{}, err
		}
		return pack("answer", int64(len(text)), gzip.BestSpeed, bytes.NewReader(text))
	}))
	return once.(func() (packed, error))()
}

func (i Image) build(answer string) (made, error) {
	layers, err := i.layers(answer)
	if err != nil {
		return nil, err
	}
	if len(i.Platforms) == 0 {
		return i.forPlatform(layers, "linux/"+runtime.GOARCH)
	}
	if len(i.Platforms) == 1 {
		return i.forPlatform(layers, i.Platforms[0])
	}
	index := mutate.IndexMediaType(empty.Index, types.DockerManifestList)
	if i.OCI {
		index = empty.Index
	}
	for _, platform := range i.Platforms {
		image, err := i.forPlatform(layers, platform)
		if err != nil {
			return nil, err
		}
		p, err := v1.ParsePlatform(platform)
		if err != nil {
			return nil, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: p}})
	}
	return index, nil
}

func (i Image) forPlatform(layers []v1.Layer, platform string) (v1.Image, error) {
	p, err := v1.ParsePlatform(platform)
	if err != nil {
		return nil, err
	}
	image := empty.Image
	if i.OCI {
		image = mutate.ConfigMediaType(mutate.MediaType(image, types.OCIManifestSchema1), types.OCIConfigJSON)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Variant = p.OS, p.Architecture, p.Variant
	config.Created = v1.Time{Time: i.Created.UTC()}
	config.Config = v1.Config{
		Entrypoint: []string{"/answer"}, Cmd: []string{"pause"}, // a sandbox is started without arguments
		Env: []string{"ANSWER=" + i.Answer}, Labels: i.Labels,
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	return mutate.AppendLayers(image, layers...)
}

// layers returns the layer of the program at the path answer, and the image's own.
func (i Image) layers(answer string) ([]v1.Layer, error) {
	media := types.DockerLayer
	if i.OCI {
		media = types.OCILayer
	}
	first, err := packedAnswer(answer)
	layers := []v1.Layer{layer{first, media}}
	for _, l := range i.Layers {
		if err != nil {
			return nil, err
		}
		var next packed
		path, size := cmp.Or(l.File, fmt.Sprintf("data/%d", l.Seed)), max(l.Size, int64(len(l.Text)))
		next, err = pack(path, size, l.level(), l.Content())
		layers = append(layers, layer{next, media})
	}
	return layers, err
}

func seed(s uint64) [32]byte {
	var key [32]byte
	copy(key[:], fmt.Sprint(s))
	return key
}

// packed is one executable file as a compressed tar archive.
type packed struct {
	digest, diff v1.Hash // of the compressed and the uncompressed archive
	bytes        []byte
}

// pack reads the content once: tarball.LayerFromOpener reads it for each digest, which under the race detector takes
// most of the time of a test of images.
func pack(path string, size int64, level int, content io.Reader) (packed, error) {
	var compressed bytes.Buffer
	if level == gzip.NoCompression {
		compressed.Grow(int(size + size/1024 + 4096)) // with the headers of gzip's blocks and of tar
	}
	compressor, err := gzip.NewWriterLevel(&compressed, level)
	if err != nil {
		return packed{}, err
	}
	diff := sha256.New()
	archive := tar.NewWriter(io.MultiWriter(compressor, diff))
	err = archive.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: size, Format: tar.FormatPAX})
	if err == nil {
		_, err = io.Copy(archive, content)
	}
	if err = errors.Join(err, archive.Close(), compressor.Close()); err != nil {
		return packed{}, err
	}
	digest := sha256.Sum256(compressed.Bytes())
	return packed{digest: hash(digest[:]), diff: hash(diff.Sum(nil)), bytes: compressed.Bytes()}, nil
}

func hash(sum []byte) v1.Hash { return v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(sum)} }

// layer is a packed file as a layer of an image.
type layer struct {
	packed

	media types.MediaType
}

// Digest returns the digest of the compressed layer.
func (l layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID returns the digest of the uncompressed layer.
func (l layer) DiffID() (v1.Hash, error) { return l.diff, nil }

// Compressed returns the compressed layer.
func (l layer) Compressed() (io.ReadCloser, error) {
	return io.NopCloser(bytes.NewReader(l.bytes)), nil
}

// Uncompressed returns the uncompressed layer.
func (l layer) Uncompressed() (io.ReadCloser, error) { return gzip.NewReader(bytes.NewReader(l.bytes)) }

// Size returns the number of compressed bytes.
func (l layer) Size() (int64, error) { return int64(len(l.bytes)), nil }

// MediaType returns Docker's media type or that of OCI.
func (l layer) MediaType() (types.MediaType, error) { return l.media, nil }
