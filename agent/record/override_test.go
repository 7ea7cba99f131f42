// SPDX-License-Identifier: Apache-2.0

package record_test

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/manifests"
)

const followed = `apiVersion: v1
kind: Pod
metadata: {name: velum}
spec:
  containers:
  - name: velum
    image: r.io/velum:4.0.0 # a comment
    imagePullPolicy: Always
  - name: db
    image: r.io/db:1
  initContainers:
  - name: setup
    image: r.io/velum:4.0.0
    imagePullPolicy: IfNotPresent
`

// A pod is pinned to digests, and returns to the tags that it followed.
func TestOverride(t *testing.T) {
	t.Parallel()
	to := func(i manifests.Image) record.PinnedImage {
		if i.Container == "db" {
			return record.PinnedImage{}
		}
		return record.PinnedImage{Pin: pin(one), Tag: map[manifests.Kind]string{manifests.KindContainer: "4.0.0-rev1"}[i.Kind]}
	}
	o, err := record.Pin([]byte(followed), "it crashes", now, to)
	require.NoError(t, err)
	assert.True(t, o.Pending)
	assert.Equal(t, map[string]record.PinnedImage{
		place: {Pin: pin(one), Tag: "4.0.0-rev1", Follow: "4.0.0", Always: true}, "initContainer setup": {Pin: pin(one), Tag: "4.0.0", Follow: "4.0.0"},
	}, o.Images)
	assert.Contains(t, o.Data, "image: r.io/velum:4.0.0-rev1@"+one.String()+" # a comment\n    imagePullPolicy: IfNotPresent\n")
	assert.Contains(t, o.Data, "image: r.io/db:1\n")
	assert.Equal(t, "named by its digest since 2026-05-01T12:00:00Z, until a newer release is applied: it crashes", o.Note())
	assert.Equal(t, "4.0.0-rev1, 4.0.0", o.Releases())
	pinned := node.PodFile{Name: file, Data: []byte(o.Data)}
	back, err := o.Unpinned(pinned)
	require.NoError(t, err)
	assert.Equal(t, followed, string(back.Data))
	tagged, err := o.WithTags(pinned)
	require.NoError(t, err)
	assert.Contains(t, string(tagged.Data), "image: r.io/velum:4.0.0 # a comment\n    imagePullPolicy: IfNotPresent\n")
	assert.Equal(t, []manifests.Pinned{{Kind: manifests.KindInit, Container: "setup", Reference: "r.io/velum:4.0.0@" + one.String()}}, o.Pins([]string{"initContainer setup"}))
	replaced := o.Replacing(map[string]string{place: "4.0.0-rev2"})
	assert.Equal(t, "4.0.0-rev2", replaced.Images[place].Replaces)
	assert.Empty(t, o.Images[place].Replaces)

	o.From = digest.FromString(followed)
	assert.True(t, o.IsFor(followed))
	assert.True(t, o.IsFor(o.Data))
	assert.False(t, o.IsFor("edited"))
	assert.True(t, record.Override{}.IsFor("whatever"))
	broken := node.PodFile{Data: []byte("{")}
	for _, do := range []func(node.PodFile) (node.PodFile, error){o.Unpinned, o.WithTags} {
		is, err := do(broken)
		require.NoError(t, err, "the survey reports it")
		assert.Equal(t, broken, is)
	}
	_, err = record.Pin(broken.Data, "", now, to)
	assert.ErrorContains(t, err, "pod manifest: ")
}

func TestPlacesOfAnOverrideEnd(t *testing.T) {
	t.Parallel()
	start := func() *record.Record {
		var r record.Record
		r.Overrides.Set(file, record.Override{Data: "pinned", Images: map[string]record.PinnedImage{place: {Pin: pin(one)}, "container db": {Pin: pin(one)}}})
		return &r
	}
	r := start()
	r.EndPlaces(file, nil, nil)
	r.EndPlaces(file, []byte("pinned"), nil)
	r.EndPlaces("db.yaml", []byte("x"), []string{place})
	r.EndHealthyPlaces(file, nil, []record.Healthy{{Place: place, Pin: pin(one)}})
	assert.Equal(t, start(), r, "nothing has ended")
	r.EndPlaces(file, []byte("another"), nil)
	assert.Empty(t, r.Overrides[file].Data)
	assert.Len(t, r.Overrides[file].Images, 2)
	r.EndHealthyPlaces(file, nil, []record.Healthy{{Place: place, Pin: pin(two)}})
	assert.Len(t, r.Overrides[file].Images, 1)
	r.EndPlaces(file, nil, []string{"container db"})
	assert.Empty(t, r.Overrides)
}
