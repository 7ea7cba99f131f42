// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"slices"
	"testing"

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
