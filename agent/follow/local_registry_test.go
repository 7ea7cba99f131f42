// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/follow"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

const velum = "registry.suse.com/caasp/v4/velum"

func podOf(image string) node.PodFile {
	return node.PodFile{Name: "a.yaml", Data: []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: a}\nspec:\n" +
		"  containers:\n  - name: velum\n    image: " + image + "\n" +
		"  volumes:\n  - name: velum\n    image: {reference: registry.suse.com/other:1}\n")}
}

func sum(name string) digest.Digest { return digest.FromString(name) }

func TestLocalRegistryFactsOfATag(t *testing.T) {
	t.Parallel()
	good := record.Entries[record.Good]{record.GoodKey("a.yaml", "velum"): {Repository: velum, Running: sum("one")}}
	override := func(pending bool, tag string) record.Entries[record.Override] {
		return record.Entries[record.Override]{"a.yaml": {Pending: pending, Images: map[string]record.PinnedImage{
			"container velum": {Pin: release.Pin{Repository: velum, Digest: sum("old")}, Follow: tag},
		}}}
	}
	for title, c := range map[string]struct {
		image string
		rec   record.Record
		want  localregistry.Followed
	}{
		"nothing is known": {image: velum + ":4", want: localregistry.Followed{}},
		"it ran well":      {velum + ":4", record.Record{Good: good}, localregistry.Followed{Good: sum("one")}},
		"another repository ran well": {image: velum + ":4", rec: record.Record{Good: record.Entries[record.Good]{
			record.GoodKey("a.yaml", "velum"): {Repository: velum + "/old", Running: sum("one")},
		}}},
		"a rollback is to be applied": {
			velum + ":4", record.Record{Overrides: override(true, "4")}, localregistry.Followed{Pending: sum("old")},
		},
		"a rollback is applied":                 {image: velum + ":4", rec: record.Record{Overrides: override(false, "4")}},
		"a rollback of another tag":             {image: velum + ":4", rec: record.Record{Overrides: override(true, "5")}},
		"a rollback, no tag is written":         {velum, record.Record{Overrides: override(true, "latest")}, localregistry.Followed{Pending: sum("old")}},
		"a rollback of another tag than latest": {image: velum, rec: record.Record{Overrides: override(true, "4")}},
	} {
		c.want.Reference = release.Reference{Repository: velum, Tag: "4"}
		if c.image == velum {
			c.want.Tag = "latest"
		}
		inv := node.Inventory{PodManifests: []node.PodFile{podOf(c.image)}}
		assert.Equal(t, []localregistry.Followed{c.want}, follow.LocalRegistryFacts(inv, c.rec, policy.Policy{}).Followed, title)
	}
}

func TestLocalRegistryFactsOfImages(t *testing.T) {
	t.Parallel()
	pin := release.Pin{Repository: velum, Digest: sum("one")}
	inv := node.Inventory{Held: []node.HeldImage{
		{Name: "pin/one", Digest: sum("one"), Pin: true, Complete: true, Repository: velum, MediaType: "m", Size: 7},
		{Name: "pin/two", Digest: sum("two"), Pin: true, Repository: velum},
		{Name: velum + ":4.1", Digest: sum("two"), Staged: true, Repository: velum},
		{Name: velum + ":4", Digest: sum("one")},
	}}
	rec := record.Record{
		Releases: record.Entries[release.Release]{release.Key(velum, sum("one")): {Tag: "4"}},
		Denied:   record.Entries[record.Denial]{release.Key(velum+"/copy", sum("two")): {PodManifest: "a.yaml", Reason: "it fell"}},
		Private:  record.Entries[bool]{velum: true},
	}
	f := follow.LocalRegistryFacts(inv, rec, policy.Policy{ServePrivate: true})
	assert.Equal(t, []localregistry.Image{{Pin: pin, MediaType: "m", Size: 7}}, f.Images)
	assert.Equal(t, map[string]digest.Digest{velum + ":4": sum("one")}, f.Pulled)
	assert.Equal(t, release.Release{Tag: "4"}, f.Known(pin))
	assert.True(t, f.ServePrivate)
	assert.True(t, f.Private[velum])
	reason, denied := f.Denied(sum("two"))
	assert.True(t, denied)
	assert.Equal(t, "a.yaml: it fell", reason)
	_, denied = f.Denied(sum("one"))
	assert.False(t, denied)
}
