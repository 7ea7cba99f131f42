// SPDX-License-Identifier: Apache-2.0

// Command mkimage writes a container image of one static program as an archive in the OCI layout, which skopeo, crane,
// podman and docker read. The image contains only the program. The same programs give the same bytes.
//
//	mkimage NAME VERSION SECONDS ARCH=PROGRAM... >NAME.oci.tar
//
// SECONDS is the time of all files and of the image, since 1970.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "crypto/sha256" // for digests
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

func main() {
	if len(os.Args) < 5 {
		fmt.Fprintln(os.Stderr, "usage: mkimage NAME VERSION SECONDS ARCH=PROGRAM...")
		os.Exit(2)
	}
	if err := run(os.Stdout, os.Args[1], os.Args[2], os.Args[3], os.Args[4:]); err != nil {
		fmt.Fprintf(os.Stderr, "mkimage: %v\n", err)
		os.Exit(1)
	}
}

func run(out io.Writer, name, version, seconds string, programs []string) error {
	at, err := strconv.ParseInt(seconds, 10, 64)
	if err != nil {
		return fmt.Errorf("time: %w", err)
	}
	l := archive{tar: tar.NewWriter(out), name: name, version: version, at: time.Unix(at, 0).UTC()}
	index := ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex, Annotations: l.notes(),
	}
	for _, program := range programs {
		arch, file, _ := strings.Cut(program, "=")
		manifest, err := l.image(arch, file)
		if err != nil {
			return fmt.Errorf("%s: %w", program, err)
		}
		index.Manifests = append(index.Manifests, manifest)
	}
	return l.end(index)
}

// archive is an OCI layout being written.
type archive struct {
	tar           *tar.Writer
	name, version string
	at            time.Time
}

// image writes the image of one architecture.
func (l *archive) image(arch, file string) (ocispec.Descriptor, error) {
	plain, err := l.files(file)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	var packed bytes.Buffer
	gz, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	if _, err = gz.Write(plain); err == nil {
		err = gz.Close()
	}
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	layer, err := l.blob(ocispec.MediaTypeImageLayerGzip, packed.Bytes())
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	platform := ocispec.Platform{OS: "linux", Architecture: arch}
	config, err := l.document(ocispec.MediaTypeImageConfig, ocispec.Image{
		Created: &l.at, Platform: platform,
		RootFS:  ocispec.RootFS{Type: "layers", DiffIDs: []digest.Digest{digest.FromBytes(plain)}},
		Config:  ocispec.ImageConfig{Entrypoint: []string{"/" + l.name}, Labels: l.notes()},
		History: []ocispec.History{{Created: &l.at, CreatedBy: "mkimage " + l.name}},
	})
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	manifest, err := l.document(ocispec.MediaTypeImageManifest, ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: config, Layers: []ocispec.Descriptor{layer},
	})
	manifest.Platform = &platform
	return manifest, err
}

// files returns the program as an uncompressed layer.
func (l *archive) files(file string) ([]byte, error) {
	program, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	err = w.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: l.name, Mode: 0o755, Size: int64(len(program)), ModTime: l.at, Format: tar.FormatUSTAR,
	})
	if err == nil {
		_, err = w.Write(program)
	}
	if err == nil {
		err = w.Close()
	}
	return out.Bytes(), err
}

// notes returns the labels of the image and the annotations of its index.
func (l *archive) notes() map[string]string {
	return map[string]string{
		ocispec.AnnotationTitle: l.name, ocispec.AnnotationVersion: l.version, ocispec.AnnotationLicenses: "Apache-2.0",
		ocispec.AnnotationSource: "https://github.com/kubic-project/image-update-agent",
	}
}

// end writes the index of the image and the other files of a layout.
func (l *archive) end(image ocispec.Index) error {
	named, err := l.document(ocispec.MediaTypeImageIndex, image)
	if err != nil {
		return err
	}
	named.Annotations = map[string]string{ocispec.AnnotationRefName: l.version}
	index, err := json.Marshal(ocispec.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageIndex,
		Manifests: []ocispec.Descriptor{named},
	})
	if err == nil {
		err = l.file(ocispec.ImageIndexFile, index)
	}
	if err == nil {
		err = l.file(ocispec.ImageLayoutFile, []byte(`{"imageLayoutVersion":"`+ocispec.ImageLayoutVersion+`"}`))
	}
	if err == nil {
		err = l.tar.Close()
	}
	return err
}

// document writes a value as a blob.
func (l *archive) document(mediaType string, v any) (ocispec.Descriptor, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return ocispec.Descriptor{}, err
	}
	return l.blob(mediaType, data)
}

func (l *archive) blob(mediaType string, data []byte) (ocispec.Descriptor, error) {
	d := digest.FromBytes(data)
	err := l.file(path.Join(ocispec.ImageBlobsDir, d.Algorithm().String(), d.Encoded()), data)
	return ocispec.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(data))}, err
}

// file writes a file of the archive.
func (l *archive) file(name string, data []byte) error {
	err := l.tar.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(data)), ModTime: l.at, Format: tar.FormatUSTAR,
	})
	if err == nil {
		_, err = l.tar.Write(data)
	}
	return err
}
