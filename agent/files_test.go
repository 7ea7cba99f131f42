// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// other keeps the template directory from being empty.
func (w *world) other() {
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("other.yaml", podYAML("other", "db="+mariadb+":10.0"))
}

func TestRemovalIsAppliedWhenApproved(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Node.PutTemplate("velum.yaml", nil)
	w.other()
	w.check()
	w.Registry.Down(agenttest.ErrRefused) // nothing is pulled for it

	out, s := w.apply("velum.yaml")

	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
	assert.Empty(t, w.Node.PodManifest("velum.yaml"))
	assert.Empty(t, podOf(s, "velum.yaml"))
	kept, history, _ := strings.Cut(w.Disk.JSON(), `"history":`)
	assert.NotContains(t, kept, "velum.yaml")
	assert.Contains(t, history, `"change":"remove"`)
	w.Registry.Down(nil)
	w.check()
	assert.False(t, w.Node.Pinned(velum, first.Digest), "nothing needs it any more")
	w.idle()
}

func TestConflictingWriteIsPlannedAgain(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	foreign := podYAML("velum", "velum="+velum+":4.0.0-rev1")
	w.Node.OnStage = func(_ context.Context, _ release.Release) error {
		w.Node.PutPodManifest("velum.yaml", foreign)
		return nil
	}

	s := w.check()

	assert.Equal(t, string(foreign), w.Node.PodManifest("velum.yaml"))
	assert.Equal(t, status.StateHeld, s.State)
	assert.Contains(t, s.Reason, "changed by another program or a person")
	assert.Equal(t, status.StateStaged, w.observe().State)
}

func TestBrokenFilesAffectNoOtherPod(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		breaks func(w *world)
		reason string
	}{
		"pod manifest that must not be read": {func(w *world) { w.Node.PutBroken("velum.yaml", errors.New("is a symlink")) }, "is a symlink"},
		"pod manifest of garbage":            {func(w *world) { w.Node.PutPodManifest("velum.yaml", []byte("\t: x")) }, "pod manifest"},
		"template of garbage":                {func(w *world) { w.Node.PutTemplate("velum.yaml", []byte("kind: List\n")) }, "template"},
		"template with a stray placeholder": {func(w *world) {
			w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":__TAG__"), "    args: ['--image="+etcd+":__TAG__']\n"...))
		}, "no tag is known"},
		"reference that is none": {func(w *world) {
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum=0123456789012345678901234567890123456789012345678901234567890123:1"))
		}, "line 8"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, first := running(t)
			w.other()
			c.breaks(w)

			s := w.check()

			assert.Equal(t, status.StateFailed, s.State)
			assert.Contains(t, s.Reason, c.reason)
			assert.Contains(t, podOf(s, "velum.yaml").Error, c.reason)
			assert.NotEmpty(t, w.Node.PodManifest("other.yaml"), "the others go on")
			assert.True(t, w.Node.Pinned(velum, first.Digest))
			out, _ := w.apply("velum.yaml")
			assert.Equal(t, status.ResultFailed, out[0].Result)
		})
	}
}

// What may be written after the first steps of a cycle is written in it, also where that
// is all there is to do: a new pod waits for no observation ten minutes later.
func TestNewPodIsWrittenOnceTheNodeIsNotBusy(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.Grain.SetBusy("update_in_progress is true")
	w.Node.OnStage = func(context.Context, release.Release) error { w.Grain.SetBusy(""); return nil }
	s := w.check()
	assert.NotEmpty(t, w.Node.PodManifest("velum.yaml"))
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	w.idle()
}
