// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// Kubelet's pull from a login page leaves a tag that names no image. It names again what runs, or ran well; the source
// has failed until it answers.
func TestTagThatNamesNoImageIsRestored(t *testing.T) {
	t.Parallel()
	ref := release.Reference{Repository: velum, Tag: "4.0.0-rev1"}
	for name, c := range map[string]struct {
		before   func(w *world, good release.Release)
		restored bool
	}{
		"of a container that runs": {func(*world, release.Release) {}, true},
		"of one that does not":     {func(w *world, _ release.Release) { w.Node.SetKubelet(false); w.Node.Restart("velum.yaml", "velum") }, true},
		"what was denied since is not": {func(w *world, good release.Release) {
			r := w.record()
			r.Denied = map[string]record.Denial{denied(good): {At: w.Clock.Now(), PodManifest: "velum.yaml"}}
			require.NoError(w.t, w.Disk.Save(w.t.Context(), r))
			w.restart()
		}, false},
		"what is lost cannot be": {func(w *world, good release.Release) { w.Node.Lose(good.Digest) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			good := w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
			w.cycle(source.PollAll)
			require.Contains(t, w.Node.Names(good.Digest), ref.String())
			c.before(w, good)

			w.Node.PullPage(ref)
			s := w.cycle(source.PollNone)
			assert.Equal(t, c.restored, slices.Contains(w.Node.Names(good.Digest), ref.String()))
			assert.True(t, w.Node.Pinned(velum, good.Digest), "the pin keeps the image")
			require.Len(t, s.Sources, 1)
			from := s.Sources[0]
			assert.Equal(t, release.CauseNoRegistry, from.Cause)
			assert.Contains(t, from.Error, "kubelet's pull of "+ref.String()+" got text/html, a login page or no registry; the tag names ")
			assert.NotNil(t, from.RetryAt, "it is asked again soon")
			assert.NotEqual(t, status.StateCurrent, s.State)
			if c.restored {
				assert.Contains(t, from.Error, "names "+good.Digest.String()+" again")
			} else {
				assert.Contains(t, from.Error, "names no image until it is pulled: ")
			}
			assert.Zero(t, w.cycle(source.PollAll).Sources[0].Failures, "the registry is back")
		})
	}
}

// A power cut before or after the restoring, or a disk that is full at it, is made good by the next cycle.
func TestPowerCutWhileATagIsRestored(t *testing.T) {
	t.Parallel()
	ref := release.Reference{Repository: velum, Tag: "4.0.0-rev1"}
	for when, how := range map[string]powerCut{"before": {}, "after": {after: true}, "full": {full: true}} {
		for at := 1; ; at++ {
			w := newWorld(t)
			good := w.Registry.Release(velum, "4.0.0", 1, "1.1")
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
			w.check()
			w.Node.PullPage(ref)
			cut := &powerCut{at: at, after: how.after, full: how.full}
			if !w.dies(cut, func(a *agent.Agent) { _, _ = a.Cycle(t.Context(), source.PollNone) }) {
				assert.Greater(t, at, 2, when)
				break
			}
			w.restart()
			w.observe()
			assert.Contains(t, w.Node.Names(good.Digest), ref.String(), "%s call %d: %s", when, at, cut.where)
			assert.Equal(t, status.StateCurrent, w.check().State)
		}
	}
}
