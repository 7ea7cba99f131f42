// SPDX-License-Identifier: Apache-2.0

package node

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
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
	Zeros bool // zero bytes, compressed
}

// Content returns the content of the layer's file data/SEED.
func (l Layer) Content() io.Reader {
	if l.Zeros {
		return io.LimitReader(zeros{}, l.Size)
	}
	return io.LimitReader(rand.NewChaCha8(seed(l.Seed)), l.Size)
}

// level returns the compression level: incompressible bytes are not compressed.
func (l Layer) level() int {
	if l.Zeros {
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

// program is the program in every image. Compressing its layer takes longer than the rest of an image, so a node does
// it once.
type program struct {
	path string

	lock   sync.Mutex
	layers map[bool]v1.Layer // by Image.OCI
}

func (p *program) layer(i Image) (v1.Layer, error) {
	p.lock.Lock()
	defer p.lock.Unlock()
	if layer, made := p.layers[i.OCI]; made {
		return layer, nil
	}
	text, err := os.ReadFile(p.path)
	if err != nil {
		return nil, err
	}
	layer, err := i.layer("answer", int64(len(text)), gzip.BestSpeed, func() io.Reader { return bytes.NewReader(text) })
	if err == nil {
		p.layers[i.OCI] = layer
	}
	return layer, err
}

// forget releases the layers: 16 MB per node, or 80 with the race detector. Package testing keeps each parallel test
// with its cleanups, and so its node, until the last test has ended.
func (p *program) forget() {
	p.lock.Lock()
	defer p.lock.Unlock()
	clear(p.layers)
}

func (i Image) build(answer *program) (made, error) {
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

func (i Image) layers(answer *program) ([]v1.Layer, error) {
	first, err := answer.layer(i)
	layers := []v1.Layer{first}
	for _, l := range i.Layers {
		if err != nil {
			return nil, err
		}
		var next v1.Layer
		next, err = i.layer(fmt.Sprintf("data/%d", l.Seed), l.Size, l.level(), l.Content)
		layers = append(layers, next)
	}
	return layers, err
}

func seed(s uint64) [32]byte {
	var key [32]byte
	copy(key[:], fmt.Sprint(s))
	return key
}

// layer packs one executable file and keeps the compressed layer in memory: go-containerregistry reads a layer several
// times, for its digests and to send it.
func (i Image) layer(path string, size int64, level int, content func() io.Reader) (v1.Layer, error) {
	media := types.DockerLayer
	if i.OCI {
		media = types.OCILayer
	}
	open := func() (io.ReadCloser, error) {
		r, w := io.Pipe()
		go func() {
			archive := tar.NewWriter(w)
			err := archive.WriteHeader(&tar.Header{Name: path, Mode: 0o755, Size: size, Format: tar.FormatPAX})
			if err == nil {
				_, err = io.Copy(archive, content())
			}
			if err == nil {
				err = archive.Close()
			}
			_ = w.CloseWithError(err)
		}()
		return r, nil
	}
	return tarball.LayerFromOpener(open, tarball.WithMediaType(media), tarball.WithCompressedCaching,
		tarball.WithCompressionLevel(level))
}
