// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// reboot reboots the node: Boot renders new templates before kubelet starts, and the daemon starts last.
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

// brings writes a template of velum with that tag, as an update of the system does.
func (w *world) brings(tag string) {
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":"+tag))
}

// becomes asserts Boot's step for the only pod manifest.
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

// An update of the system brings a template of another version.
func TestBootWritesTheTemplatesOfTheNewSystem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		second := w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.brings("4.0.1-rev1")
		becomes(t, w.reboot(), plan.StepWrite, "its template has changed")
		w.runs("velum.yaml", "velum", second.Digest)
		assert.Equal(t, 1, w.Node.Starts("velum.yaml", "velum")-1, "it started once since the boot")
		w.check()
		s := w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.True(t, image(s, "velum.yaml", "velum").PickedUp)
		w.idle()
		assert.NotEqual(t, first.Digest, second.Digest)
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
		becomes(t, steps, plan.StepWrite, "its template has changed")
		w.restart()
		w.observe() // before kubelet has started anything
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), velum+":4.0.1-rev1\n")
		w.Node.SetKubelet(true)
		w.Node.Sync()
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// After a rollback of the system, its older pod manifest would start a denied release.
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

// A pod manifest that was set aside at a power cut is put back.
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

// fullFor fails writes of one file for lack of space.
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

// Boot asks no registry, and a second run writes nothing.
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

func (w *world) boots() []plan.BootStep {
	w.t.Helper()
	w.Node.PowerOff()
	steps, err := w.Agent().Boot(w.t.Context())
	require.NoError(w.t, err)
	return steps
}

// A failed write does not end the override, even if the next file's record is saved.
func TestBootThatCannotWriteKeepsTheOverride(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := rolledBackOnce(t)
		was := w.record().Overrides
		require.Len(t, was, 1)
		w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.brings("4.0.1-rev1")
		w.Node.PutTemplate("zz.yaml", podYAML("zz", "db="+mariadb+":10.0-rev1"))
		w.Node.PowerOff()
		a := w.Agent()
		a.Files = fullFor{w.Node, "velum.yaml"}
		steps, err := a.Boot(t.Context())
		require.NoError(t, err)
		require.ErrorContains(t, plan.BootErrors(steps), "velum.yaml: no space left on device")
		assert.NotEmpty(t, w.Node.PodManifest("zz.yaml"))
		assert.Equal(t, was, w.record().Overrides)
	})
}

// The system is rolled back and updated again: the file on disk still counts as written by the agent.
func TestBootAfterARollbackOfTheSystem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		first := podYAML("velum", "velum="+velum+":4.0.0-rev1")
		w.Node.PutTemplate("velum.yaml", first)
		w.check()
		older := w.Node.PodManifest("velum.yaml")
		w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.brings("4.0.1-rev1")
		becomes(t, w.reboot(), plan.StepWrite, "its template has changed")
		w.check()
		w.Node.PowerOff()
		w.Node.PutTemplate("velum.yaml", first)
		w.Node.PutPodManifest("velum.yaml", []byte(older))
		becomes(t, w.reboot(), "", "")
		third := w.Registry.Release(velum, "4.0.2", 1, "1.1")
		w.brings("4.0.2-rev1")
		becomes(t, w.reboot(), plan.StepWrite, "its template has changed")
		w.runs("velum.yaml", "velum", third.Digest)
	})
}

// killedAt dies before a write, or after the write and before the record is saved.
type killedAt struct {
	node.PodFiles
	before bool
	die    func()
}

func (k killedAt) Write(ctx context.Context, was node.PodFile, data []byte) error {
	k.die()
	if k.before {
		return errors.New("killed")
	}
	return k.PodFiles.Write(ctx, was, data)
}

// A boot that was killed after the write continues: its pod manifest counts neither as an edit nor as that of an older
// system.
func TestKilledBootContinues(t *testing.T) {
	for name, rolledBack := range map[string]bool{"": false, "with an override": true} {
		run(t, name, func(t *testing.T) {
			w, _ := running(t)
			if rolledBack {
				w.bad(1, "9.9")
				w.apply()
			}
			second := w.Registry.Release(velum, "4.0.1", 1, "1.1")
			w.brings("4.0.1-rev1")
			w.Node.PowerOff()
			a := w.Agent()
			a.Files = killedAt{w.Node, false, func() { w.Disk.Fail(errors.New("killed")) }}
			_, err := a.Boot(t.Context())
			require.NoError(t, err)
			w.Disk.Fail(nil)
			require.Contains(t, w.Node.PodManifest("velum.yaml"), "4.0.1-rev1\n")

			w.restart()
			w.observe() // the unit does not run again, and kubelet has started nothing
			assert.Contains(t, w.Node.PodManifest("velum.yaml"), "4.0.1-rev1\n")
			becomes(t, w.reboot(), "", "")
			w.runs("velum.yaml", "velum", second.Digest)
			w.Registry.Release(velum, "4.0.2", 1, "1.1")
			w.brings("4.0.2-rev1")
			becomes(t, w.reboot(), plan.StepWrite, "its template has changed")
			assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "4.0.1")
		})
	}
}

// After a kill before the write, the next boot continues.
func TestKilledBootBeforeItsWriteContinues(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := rolledBackOnce(t)
		was := w.Node.PodManifest("velum.yaml")
		second := w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.brings("4.0.1-rev1")
		w.Node.PowerOff()
		a := w.Agent()
		a.Files = killedAt{w.Node, true, func() { w.Disk.Fail(errors.New("killed")) }}
		_, err := a.Boot(t.Context())
		require.NoError(t, err)
		w.Disk.Fail(nil)
		w.restart()
		w.observe()
		assert.Equal(t, was, w.Node.PodManifest("velum.yaml"))
		w.Node.SetKubelet(true)
		w.Node.Sync()
		w.runs("velum.yaml", "velum", first.Digest)
		becomes(t, w.reboot(), plan.StepWrite, "its template has changed")
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// An approval that was not applied before the boot ends if the boot writes another digest.
func TestBootEndsAnApprovalOfAnotherDigest(t *testing.T) {
	for name, c := range map[string]struct {
		tag string
	}{"the same": {"4.0.0-rev2"}, "another": {"4.0.1-rev1"}} {
		run(t, name, func(t *testing.T) {
			w, _ := running(t)
			next := w.publish(2, "2.1")
			ctx, die := context.WithCancel(t.Context())
			w.Registry.OnAsk = func(string, string) { die() }
			_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
			w.Registry.OnAsk = nil
			require.NoError(t, err)
			require.Len(t, w.record().Approved, 1)
			other := w.Registry.Release(velum, "4.0.1", 1, "1.1")
			w.brings(c.tag)
			becomes(t, w.reboot(), plan.StepWrite, "its template has changed")
			want := map[string]release.Release{"the same": next, "another": other}[name].Digest
			w.runs("velum.yaml", "velum", want)
			starts := w.Node.Starts("velum.yaml", "velum")
			w.check()
			w.observe()
			assert.Empty(t, w.record().Approved)
			assert.Equal(t, want, w.record().Good["velum.yaml/velum"].Running)
			assert.Equal(t, starts, w.Node.Starts("velum.yaml", "velum"))
			w.observe()
			w.idle()
		})
	}
}
