// SPDX-License-Identifier: Apache-2.0

package ocimanifest_test

import (
	"math"
	"strconv"
	"strings"
	"testing"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

const aDigest = `"sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"`

func descriptor(size int64) string {
	return `{"digest": ` + aDigest + `, "size": ` + strconv.FormatInt(size, 10) + `}`
}

func TestParseRejectsAmbiguousDocuments(t *testing.T) {
	t.Parallel()
	const kind, index = ocispec.MediaTypeImageManifest, ocispec.MediaTypeImageIndex
	config := `"schemaVersion": 2, "config": ` + descriptor(1)
	for body, want := range map[string]struct{ kind, cause string }{
		`{` + config + `}`: {kind, ""},
		`{"schemaVersion": 2, "manifests": [` + descriptor(1) + `]}`:      {index, ""},
		`{` + config + `, "manifests": []}`:                               {kind, "ambiguous"},
		`{` + config + `, "Manifests": []}`:                               {kind, "ambiguous"},
		`{"schemaVersion": 2, "manifests": [], "layers": []}`:             {index, "ambiguous"},
		`{` + config + `, "mediaType": "` + index + `"}`:                  {kind, "came as"},
		`{"schemaVersion": 1, "config": ` + descriptor(1) + `}`:           {kind, "schema version 1"},
		`{"schemaVersion": 2, "config": ` + descriptor(-1) + `}`:          {kind, "size -1"},
		`{"schemaVersion": 2, "config": {"digest": "../../etc/passwd"}}`:  {kind, "digest"},
		`{"schemaVersion": 2, "config": ` + descriptor(1) + `, "a": null`: {kind, "manifest: "},
		`{}`: {"text/html", "not an image"},
	} {
		d, err := ocimanifest.Parse(want.kind, []byte(body))
		if want.cause == "" {
			require.NoError(t, err, body)
			assert.Equal(t, want.kind == index, d.IsIndex())
			continue
		}
		assert.ErrorContains(t, err, want.cause, body)
	}
}

func TestSizesDoNotOverflow(t *testing.T) {
	t.Parallel()
	d := ocimanifest.Document{Config: ocispec.Descriptor{Size: 1}, Layers: []ocispec.Descriptor{{Size: 2}, {Size: 3}}}
	size, err := d.Size()
	require.NoError(t, err)
	assert.Equal(t, int64(6), size)
	d.Layers = append(d.Layers, ocispec.Descriptor{Size: math.MaxInt64})
	_, err = d.Size()
	assert.ErrorContains(t, err, "overflow")
}

// A release catalog has a layer for each image. They are not mounted.
func TestLayersOfAnArtifactAreNotStacked(t *testing.T) {
	t.Parallel()
	layer := `{"mediaType":"application/x","digest":` + aDigest + `,"size":1}`
	document := func(config string) []byte {
		return []byte(`{"schemaVersion":2,"config":{"mediaType":"` + config + `","digest":` + aDigest + `,"size":2},"layers":[` + layer + strings.Repeat(","+layer, ocimanifest.MaxLayers) + `]}`)
	}
	_, err := ocimanifest.Parse(ocispec.MediaTypeImageManifest, document(ocispec.MediaTypeEmptyJSON))
	require.NoError(t, err)
	_, err = ocimanifest.Parse(ocispec.MediaTypeImageManifest, document(ocispec.MediaTypeImageConfig))
	require.ErrorIs(t, err, ocimanifest.ErrTooMany)
}
