// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// reboot is a reboot: what the package brought meanwhile is rendered before kubelet
// starts, and the daemon starts last.
func (w *world) reboot() []plan.BootStep {
	w.t.Helper()
	w.Node.PowerOff()
	steps, err := w.Agent().Boot(w.t.Context())
	require.NoError(w.t, err)
	require.NoError(w.t, plan.BootErrors(steps))
	w.Node.SetKubelet(true)
	w.Node.Sync()
	w.restart()
	return steps
}

// brings is a template of velum with that tag, as an update of the system has it.
func (w *world) brings(tag string) {
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":"+tag))
}

// becomes asserts what Boot did with the only pod manifest.
func becomes(t *testing.T, steps []plan.BootStep, do plan.Verb, reason string) {
	t.Helper()
	if do == "" && reason == "" {
		assert.Empty(t, steps)
		return
	}
	require.Len(t, steps, 1)
	assert.Equal(t, do, steps[0].Do)
	assert.Contains(t, steps[0].Reason, reason)
}

// The system's update brought a template of another version.
func TestBootWritesTheTemplatesOfTheNewSystem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		second := w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.brings("4.0.1-rev1")
		becomes(t, w.reboot(), plan.StepWrite, "its template is another")
		w.runs("velum.yaml", "velum", second.Digest)
		assert.Equal(t, 1, w.Node.Starts("velum.yaml", "velum")-1, "it started once since the boot")
		w.check()
		s := w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.True(t, image(s, "velum.yaml", "velum").Adopted)
		w.idle()
		assert.NotEqual(t, first.Digest, second.Digest)
	})
}

// What is offered and not approved is no template's.
func TestBootAppliesNoOffer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Registry.Release(velum, "4.0.0", 2, "2.1")
		s := w.check()
		require.Equal(t, status.StateStaged, s.State)
		becomes(t, w.reboot(), "", "")
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// The packages bring a pod, or take one away.
func TestBootWithNewAndRemovedPods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1"))
		becomes(t, w.reboot(), plan.StepWrite, "its template is new")
		w.runs("db.yaml", "db", db.Digest)
		w.check()
		w.observe()
		w.idle()
		w.Node.PutTemplate("db.yaml", nil)
		becomes(t, w.reboot(), plan.StepRemove, "its template is gone")
		assert.Empty(t, w.Node.PodManifest("db.yaml"))
		w.Node.PutTemplate("more.yaml", podYAML("more", "more="+mariadb+":__TAG__"))
		becomes(t, w.reboot(), "", "no tag is known for __TAG__")
		assert.Empty(t, w.Node.PodManifest("more.yaml"))
	})
}

// A rolled back pod stays until a template brings another release. Then the daemon's first
// cycle does not pin the old digest again.
func TestBootAfterARollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := rolledBackOnce(t)
		pinned := w.Node.PodManifest("velum.yaml")
		w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":__TAG__"), "  hostNetwork: true\n"...))
		becomes(t, w.reboot(), "", "")
		assert.Equal(t, pinned, w.Node.PodManifest("velum.yaml"))
		w.runs("velum.yaml", "velum", first.Digest)

		second := w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.brings("4.0.1-rev1")
		w.Node.PowerOff()
		steps, err := w.Agent().Boot(t.Context())
		require.NoError(t, err)
		becomes(t, steps, plan.StepWrite, "its template is another")
		w.restart()
		w.observe() // before kubelet has started anything
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), velum+":4.0.1-rev1\n")
		w.Node.SetKubelet(true)
		w.Node.Sync()
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// The system is rolled back: its older pod manifest would start what is denied.
func TestBootWithAnOlderEtcAndADenial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		older := w.Node.PodManifest("velum.yaml")
		w.bad(1, "9.9")
		w.apply()
		pinned := w.Node.PodManifest("velum.yaml")
		require.NotEqual(t, older, pinned)
		w.Node.PutPodManifest("velum.yaml", []byte(older))
		becomes(t, w.reboot(), plan.StepWrite, "")
		assert.Equal(t, pinned, w.Node.PodManifest("velum.yaml"))
		w.runs("velum.yaml", "velum", first.Digest)
		w.observe()
		w.observe()
		w.idle()
	})
}

// What was rolled back had a container that the template has no more: it does not come
// back, neither at the next boot nor while the pod has not started.
func TestBootAfterARollbackOfSeveralContainers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		w.bad(1, "9.9")
		w.apply()
		require.Contains(t, w.Node.PodManifest("velum.yaml"), "mariadb")
		w.brings("4.0.0")
		becomes(t, w.reboot(), plan.StepWrite, "its template is another")
		without := w.Node.PodManifest("velum.yaml")
		assert.NotContains(t, without, "mariadb")
		becomes(t, w.reboot(), "", "")
		w.Node.PowerOff()
		w.restart()
		w.observe()
		assert.Equal(t, without, w.Node.PodManifest("velum.yaml"))
	})
}

// What was set aside when the power went comes back.
func TestBootPutsPodManifestsBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		files, err := w.Node.PodManifests(t.Context())
		require.NoError(t, err)
		w.Node.PowerOff()
		require.NoError(t, w.Node.SetAside(t.Context(), files[0]))
		becomes(t, w.reboot(), "", "")
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// A file that cannot be written stops no other.
func TestBootThatCannotWriteReportsIt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.brings("4.0.1-rev1")
		w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0-rev1"))
		w.Node.PowerOff()
		a := w.Agent()
		a.Files = fullFor{w.Node, "db.yaml"}
		steps, err := a.Boot(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, plan.BootErrors(steps), "db.yaml: no space left on device")
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), "4.0.1-rev1")
		assert.Empty(t, w.Node.PodManifest("db.yaml"))
	})
}

// fullFor has no space for one file.
type fullFor struct {
	node.PodFiles
	name string
}

func (f fullFor) Write(ctx context.Context, was node.PodFile, data []byte) error {
	if was.Name == f.name {
		return errors.New("no space left on device")
	}
	return f.PodFiles.Write(ctx, was, data)
}

// The registry is not asked, and nothing is written a second time.
func TestBootAsksNoRegistryAndIsIdempotent(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.brings("4.0.1-rev1")
		w.Node.PowerOff()
		_, err := w.Agent().Boot(t.Context())
		require.NoError(t, err)
		assert.Zero(t, w.Registry.Counts())
		steps, err := w.Agent().Boot(t.Context())
		require.NoError(t, err)
		assert.Empty(t, steps)
	})
}
