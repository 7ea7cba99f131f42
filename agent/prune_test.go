// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"slices"
	"testing"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// update publishes a rebuild of velum, stages and applies it.
func (w *world) update(build string) release.Release {
	w.t.Helper()
	r := w.Registry.Release(velum, "4.0.0", 1, build)
	require.Equal(w.t, status.StateStaged, w.check().State)
	out, s := w.apply("velum")
	require.Equal(w.t, status.ResultApplied, out[0].Result, s.Reason)
	w.Node.Forget() // kubelet removes the dead containers of a former pod
	w.observe()     // lets go what the applied pod needed
	return r
}

func (w *world) there(r release.Release) bool {
	return slices.Contains(w.Node.Names(r.Digest), r.StagedName())
}

func TestOldReleasesArePrunedAfterTheProof(t *testing.T) {
	t.Parallel()
	for keep, stay := range map[int][]bool{0: {false, false, false}, 1: {false, false, true}, 2: {false, true, true}} {
		w, first := running(t)
		w.Policy.Prune.Keep = keep
		w.restart()
		second, third := w.update("1.2"), w.update("1.3")
		fourth := w.update("1.4")
		for n, r := range []release.Release{first, second, third} {
			assert.Equal(t, stay[n], w.there(r), "keep %d: release %d", keep, n+1)
			assert.Equal(t, stay[n], w.Node.Pinned(velum, r.Digest), "keep %d: pin of release %d", keep, n+1)
		}
		assert.True(t, w.there(fourth))
		w.idle()
	}
}

func TestOvertakenStagedReleaseIsPruned(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.check()
	require.True(t, w.there(second))
	third := w.Registry.Release(velum, "4.0.0", 1, "1.3")
	w.check()
	w.observe()
	assert.False(t, w.there(second), "it never ran, and is not offered any more")
	assert.True(t, w.there(third))
	assert.True(t, w.there(first), "it runs")
	w.idle()
}

func TestReleaseIsNotPruned(t *testing.T) {
	t.Parallel()
	for name, prevent := range map[string]func(w *world, old release.Release){
		"while the new one crashes": func(w *world, _ release.Release) {
			c, _ := w.Node.Container("velum.yaml", "velum")
			w.Node.Crash(c.Digests[0], true)
			w.Node.Restart("velum.yaml", "velum")
		},
		"that another pod uses": func(w *world, old release.Release) { w.Node.Others = []digest.Digest{old.Config} },
		"while a pod is unclear": func(w *world, _ release.Release) {
			w.Node.PutBroken("other.yaml", assert.AnError)
		},
		"that a pin of another image needs": func(w *world, old release.Release) {
			w.Registry.Tag(mariadb, "10.0", old.Digest)
			w.Registry.Restore(mariadb, old.Digest, old.Build)
			w.Policy.Images = []release.Reference{{Repository: mariadb, Tag: "10.0"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, old := running(t)
			w.update("1.2")
			prevent(w, old)
			w.Policy.Prune.Keep = 0
			w.restart()
			w.check()
			w.observe()
			assert.True(t, w.there(old))
		})
	}
	w, old := running(t)
	w.update("1.2")
	w.Policy.Prune.Keep = 0
	w.restart()
	w.check()
	w.observe()
	assert.False(t, w.there(old), "nothing prevents it")
}

func TestForeignImagesArePrunedWhereAsked(t *testing.T) {
	t.Parallel()
	for _, asked := range []bool{false, true} {
		w, _ := running(t)
		foreign := map[string]bool{ // name: is an old release of a followed repository
			velum + ":3.9.0-rev4":          true,
			velum + ":3.9.0-rev4-build2.1": true,
			velum + ":latest":              false,
			"docker.io/library/busybox:1":  false,
			mariadb + ":10.0-rev1":         false, // nobody follows it
		}
		for name := range foreign {
			w.Node.Hold(name, digest.FromString(name))
		}
		w.Policy.Prune.Foreign = asked
		w.restart()
		w.check()
		for name, old := range foreign {
			assert.Equal(t, !old || !asked, len(w.Node.Names(digest.FromString(name))) > 0, "asked %v: %s", asked, name)
		}
		w.idle()
	}
}

// CRI gives each image that it pulls two aliases. They are pruned with the image, unless another
// client has a name for it.
func TestAliasesArePrunedWithTheirImage(t *testing.T) {
	t.Parallel()
	for _, shared := range []bool{false, true} {
		w, first := running(t)
		w.Policy.Prune.Keep = 0
		w.restart()
		names := []string{velum + "@" + first.Digest.String(), first.Config.String()}
		if shared {
			names = append(names, "docker.io/someone/else:1")
		}
		for _, name := range names {
			w.Node.Hold(name, first.Digest)
		}
		w.update("1.2")
		assert.False(t, w.there(first))
		want := []string{}
		if shared {
			want = names
		}
		assert.ElementsMatch(t, want, w.Node.Names(first.Digest))
	}
}

// Of two names of the same old image neither keeps what CRI made beside them.
func TestAliasesArePrunedWithAllNamesOfTheirImage(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	old := digest.FromString("old")
	for _, name := range []string{velum + ":3.9.0-rev4", velum + ":3.9.0-rev4-build2.1", velum + "@" + old.String()} {
		w.Node.Hold(name, old)
	}
	w.Policy.Prune.Foreign = true
	w.restart()
	w.check()
	assert.Empty(t, w.Node.Names(old))
	w.idle()
}

// What is tracked has no rollback target: the old release stays until the new one is
// there.
func TestTrackedReleaseStaysUntilTheNextIsStaged(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.0"}, {Repository: velum, Tag: "4.0.0-rev1"}}
	old := w.big(velum, "4.0.0", 1, "1.1")
	require.Equal(t, status.StateCurrent, w.check().State)
	next := w.big(velum, "4.0.0", 1, "1.2")
	w.Node.SetDisk(10*gib, mib)
	w.check()
	w.observe()
	assert.True(t, w.there(old))
	assert.True(t, w.Node.Pinned(velum, old.Digest))
	w.Node.SetDisk(10*gib, gib)
	w.observe()
	assert.True(t, w.there(next))
	w.observe()
	assert.False(t, w.there(old))
	assert.False(t, w.Node.Pinned(velum, old.Digest))
	w.idle()
}

// A disk under pressure has kubelet remove what has ended.
func TestRemovedInitContainerDoesNotPreventPruning(t *testing.T) {
	t.Parallel()
	for _, up := range []bool{true, false} {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "init:setup="+velum+":4.0.0"))
		w.check()
		w.check()
		w.Node.RemoveContainer("velum.yaml", "setup")
		if !up {
			w.Node.RemoveContainer("velum.yaml", "velum")
		}
		overtaken := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		require.True(t, w.there(overtaken))
		w.Registry.Release(velum, "4.0.0", 1, "1.3")
		w.check()
		w.observe()
		assert.Equal(t, !up, w.there(overtaken), "up %v", up)
	}
}

// CRI does not report the images of volumes.
func TestImagesOfVolumesStay(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	mounted := w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":4.0.0"),
		"  volumes:\n  - name: data\n    image:\n      reference: "+mariadb+":10.0\n"...))
	w.check()
	require.True(t, w.there(mounted))
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.Registry.Release(mariadb, "10.0", 1, "1.2")
	w.check()
	w.observe()
	w.observe()
	assert.True(t, w.there(mounted))
}
