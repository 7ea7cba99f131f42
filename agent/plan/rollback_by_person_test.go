// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/catalog"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
)

// A pod that a rollback has just pinned to a release of a set counts as running the set, before its health check.
func TestWhichPodsRunAReleaseOfASet(t *testing.T) {
	t.Parallel()
	const velum = "registry.suse.com/caasp/velum"
	old, set := digest.FromString("old"), digest.FromString("set")
	good := func(d digest.Digest) record.Good { return record.Good{Repository: velum, Running: d} }
	pinned := func(d digest.Digest) record.Override {
		return record.Override{Images: map[string]record.PinnedImage{"container velum": {Pin: release.Pin{Repository: velum, Digest: d}}}}
	}
	wellIs := func(d digest.Digest) map[string]record.Good {
		return map[string]record.Good{"velum.yaml/velum": good(d)}
	}
	pinnedTo := func(d digest.Digest) map[string]record.Override {
		return map[string]record.Override{"velum.yaml": pinned(d)}
	}
	for name, c := range map[string]struct {
		good map[string]record.Good
		pins map[string]record.Override
		file string // in kubelet's directory
		want []string
	}{
		"nothing is known":        {nil, nil, "velum.yaml", nil},
		"what ran well":           {wellIs(set), nil, "velum.yaml", []string{"velum.yaml"}},
		"another release":         {wellIs(old), nil, "velum.yaml", nil},
		"what a rollback pinned":  {nil, pinnedTo(set), "velum.yaml", []string{"velum.yaml"}},
		"it ran another well":     {wellIs(old), pinnedTo(set), "velum.yaml", []string{"velum.yaml"}},
		"pinned to another":       {nil, pinnedTo(old), "velum.yaml", nil},
		"both, once":              {wellIs(set), pinnedTo(set), "velum.yaml", []string{"velum.yaml"}},
		"a pod that is not there": {wellIs(set), pinnedTo(set), "other.yaml", nil},
	} {
		f := &facts{
			inv: node.Inventory{
				PodManifests: []node.PodFile{{Name: c.file}},
				Catalog: catalog.Listing{Images: map[string][]catalog.Listed{velum: {
					{Tag: "4.0.0-rev1-build1.2", Digest: set}, {Tag: "4.0.0-rev1-build1.1", Digest: old},
				}}},
			},
		}
		f.onDisk = node.ByName(f.inv.PodManifests)
		f.rec.Good, f.rec.Overrides = c.good, c.pins
		got := f.runsAny([]release.Reference{{Repository: velum, Tag: "4.0.0-rev1-build1.2"}})
		assert.ElementsMatch(t, c.want, got, name)
	}
}
