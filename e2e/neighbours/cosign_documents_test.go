// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
)

// documentParts are an artifact's manifest and its descriptor in a list of referrers.
type documentParts struct {
	manifest ocispec.Manifest
	listed   ocispec.Descriptor // type and annotations in the list
	lost     bool
}

// documentOdd are the oddities of an artifact.
var documentOdd = map[string]func(*documentParts){
	plain: func(*documentParts) {},
	"a manifest whose type is its config's": func(p *documentParts) {
		p.manifest.ArtifactType, p.manifest.Config.MediaType = "", p.manifest.ArtifactType
	},
	"a manifest without a type":  func(p *documentParts) { p.manifest.ArtifactType = "" },
	"a manifest of another type": func(p *documentParts) { p.manifest.ArtifactType = "application/x" },
	"a list with another type":   func(p *documentParts) { p.listed.ArtifactType = ocispec.MediaTypeEmptyJSON },
	"a list without types":       func(p *documentParts) { p.listed.ArtifactType = "" },
	"a list without annotations": func(p *documentParts) { p.listed.Annotations = nil },
	"a manifest and a list without annotations": func(p *documentParts) {
		p.manifest.Annotations, p.listed.Annotations = nil, nil
	},
	"a manifest that says attestation": func(p *documentParts) {
		p.manifest.Annotations = map[string]string{bundlePredicate: "https://slsa.dev/provenance/v1"}
		p.listed.Annotations = p.manifest.Annotations
	},
	"a manifest without layers": func(p *documentParts) { p.manifest.Layers = nil },
	"a manifest with a layer twice": func(p *documentParts) {
		p.manifest.Layers = append(p.manifest.Layers, p.manifest.Layers[0])
	},
	"a layer of another type": func(p *documentParts) { p.manifest.Layers[0].MediaType = "application/octet-stream" },
	"a layer of bundle 0.1": func(p *documentParts) {
		p.manifest.Layers[0].MediaType = "application/vnd.dev.sigstore.bundle+json;version=0.1"
	},
	"a layer of bundle 0.3 as a parameter": func(p *documentParts) {
		aside := "application/vnd.dev.sigstore.bundle+json;version=0.3"
		p.manifest.Layers[0].MediaType, p.manifest.ArtifactType, p.listed.ArtifactType = aside, aside, aside
	},
	"a layer of another size":       func(p *documentParts) { p.manifest.Layers[0].Size++ },
	"a layer that is lost":          func(p *documentParts) { p.manifest.Layers[0].Digest = anotherDigest },
	"a manifest that is lost":       func(p *documentParts) { p.lost = true },
	"a manifest without a subject":  func(p *documentParts) { p.manifest.Subject = nil },
	"a manifest of another subject": func(p *documentParts) { p.manifest.Subject.Digest = anotherDigest },
	"a layer with a garbled digest": func(p *documentParts) { p.manifest.Layers[0].Digest = "garbled" },
}

// artifact returns the descriptor of a signature that refers to a digest, as a list has it.
func (c cosignImages) artifact(t *testing.T, r *cosignRegistry, s cosignSigned) ocispec.Descriptor {
	t.Helper()
	of := r.Manifests[s.of]
	p := documentParts{manifest: ocispec.Manifest{
		Subject: &ocispec.Descriptor{MediaType: of.MediaType, Digest: s.of, Size: int64(len(of.Body))},
	}}
	if s.way == "referrers" {
		p.manifest.ArtifactType, p.manifest.Layers = simpleReferrer, []ocispec.Descriptor{c.simple(t, r, s)}
	} else {
		p.manifest.ArtifactType = bundleLayer
		p.manifest.Layers = []ocispec.Descriptor{r.blob(bundleLayer, []byte(c.bundle(t, r, s)))}
	}
	if s.way == "bundle" {
		p.manifest.Annotations = map[string]string{bundlePredicate: signedPredicate}
	}
	p.listed = ocispec.Descriptor{ArtifactType: p.manifest.ArtifactType, Annotations: p.manifest.Annotations}
	documentOdd[s.in](&p)
	desc := r.image(t, p.manifest)
	if p.lost {
		delete(r.Manifests, desc.Digest)
	}
	desc.ArtifactType, desc.Annotations = p.listed.ArtifactType, p.listed.Annotations
	return desc
}
