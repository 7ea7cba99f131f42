// SPDX-License-Identifier: Apache-2.0

package main

import (
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/statuspage"
	"github.com/kubic-project/image-update-agent/internal/node/contents"
)

// Each container that is offered another image is shown once, also while the image is still on its way.
func TestChangesOfNamedPods(t *testing.T) {
	t.Parallel()
	named := func(tag string) *status.Named { return &status.Named{Tag: tag, Digest: digest.FromString(tag)} }
	s := status.Status{Images: []status.ImageStatus{
		{PodManifest: "velum.yaml", Container: "web", Image: "r.io/site", Running: named("1"), Offered: named("2"), Staged: true},
		{PodManifest: "velum.yaml", Container: "db", Image: "r.io/db", Running: named("1"), Offered: named("2")},
		{PodManifest: "velum.yaml", Container: "down", Image: "r.io/down", Offered: named("2"), Staged: true},
		{PodManifest: "proxy.yaml", Container: "web", Image: "r.io/site", Running: named("1"), Offered: named("2"), Staged: true},
		{PodManifest: "proxy.yaml", Container: "same", Image: "r.io/same", Running: named("1"), Offered: named("1"), Staged: true},
		{PodManifest: "idle.yaml", Container: "idle", Image: "r.io/idle", Running: named("1")},
	}}
	for title, c := range map[string]struct{ names, want []string }{
		"all":              {nil, []string{"velum.yaml web", "velum.yaml db", "velum.yaml down", "proxy.yaml web"}},
		"a pod":            {[]string{"velum"}, []string{"velum.yaml web", "velum.yaml db", "velum.yaml down"}},
		"a pod twice":      {[]string{"proxy.yaml", "proxy"}, []string{"proxy.yaml web"}},
		"its image":        {[]string{"r.io/site", "proxy"}, []string{"velum.yaml web", "proxy.yaml web"}},
		"without an offer": {[]string{"idle"}, nil},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			all, err := offeredChanges(s, c.names)
			require.NoError(t, err)
			var got []string
			for _, i := range all {
				got = append(got, i.PodManifest+" "+i.Container)
			}
			assert.Equal(t, c.want, got)
		})
	}
	_, err := offeredChanges(s, []string{"velum", "salt"})
	require.ErrorIs(t, err, plan.ErrUnknownImage)
	require.ErrorContains(t, err, "salt")
}

// What cannot be compared is not known: no package is added or removed because one image has a list and the other not.
func TestOnlyListsOfOneKindAreCompared(t *testing.T) {
	t.Parallel()
	rpm, module := []contents.Package{{Format: contents.RPM, Name: "bash", Version: "1"}},
		[]contents.Package{{Format: contents.Go, Name: "go", Version: "1.26"}}
	dpkg := []contents.Package{{Format: contents.Dpkg, Name: "bash", Version: "1"}}
	for title, c := range map[string]struct {
		from, to []contents.Package
		changes  int
		err      string
	}{
		"the same":             {rpm, rpm, 0, ""},
		"another distribution": {rpm, dpkg, 2, ""},
		"programs":             {module, module, 0, ""},
		"none any more":        {rpm, nil, 0, "the running image has a package database, and the offered one no list of packages: what changes is not known"},
		"none before":          {nil, module, 0, "no list of packages, and the offered one only Go programs"},
		"a database is gone":   {append(module, dpkg...), module, 0, "a package database and Go programs, and the offered one only Go programs"},
		"programs beside it":   {dpkg, append(slices.Clone(dpkg), module...), 0, "a package database, and the offered one a package database and Go programs"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			var i statuspage.ImageChanges
			err := compareLists(&i, c.from, c.to)
			if c.err != "" {
				require.ErrorContains(t, err, c.err)
				assert.Nil(t, i.Packages)
				return
			}
			require.NoError(t, err)
			assert.NotNil(t, i.Packages)
			assert.Len(t, i.Packages, c.changes)
		})
	}
	var i statuspage.ImageChanges
	require.NoError(t, compareLists(&i, nil, nil))
	assert.Nil(t, i.Packages)
}
