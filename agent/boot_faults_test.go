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
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
)

func (w *world) boots() []plan.BootStep {
	w.t.Helper()
	w.Node.PowerOff()
	steps, err := w.Agent().Boot(w.t.Context())
	require.NoError(w.t, err)
	return steps
}

// What could not be written has ended no override, also not by the next file's
// record.
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

// A template that names what did not come up here does not start it again.
func TestBootDoesNotStartADeniedRelease(t *testing.T) {
	for _, policy := range []string{manifests.PullAlways, manifests.PullIfNotPresent} {
		t.Run(policy, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.Policy.PullPolicy = policy
				w.Registry.Release(velum, "4.0.0", 1, "1.1")
				w.brings("4.0.0-rev1")
				w.check()
				w.bad(2, "2.1")
				out, _ := w.apply()
				require.Equal(t, status.ResultFailed, out[0].Result)
				pinned := w.Node.PodManifest("velum.yaml")
				w.brings("4.0.0-rev2")
				becomes(t, w.boots(), "", "refused by failed")
				assert.Equal(t, pinned, w.Node.PodManifest("velum.yaml"))
			})
		})
	}
}

// What staging has found to be signed is known to be, also where another question
// has led to it.
func TestBootWithASignedTemplate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, v := signing(t, policy.SignaturesRequire)
		second := w.Registry.Release(velum, "4.0.0", 2, "2.1")
		v.Sign(second.Digest, "sha256:ours")
		w.check()
		require.True(t, w.Node.Pinned(velum, second.Digest))
		w.brings("4.0.0-rev2")
		becomes(t, w.reboot(), plan.StepWrite, "its template is another")
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// The system is rolled back, and updated again: what is on disk was written by the agent
// all the same.
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
		becomes(t, w.reboot(), plan.StepWrite, "its template is another")
		w.check()
		w.Node.PowerOff()
		w.Node.PutTemplate("velum.yaml", first)
		w.Node.PutPodManifest("velum.yaml", []byte(older))
		becomes(t, w.reboot(), "", "")
		third := w.Registry.Release(velum, "4.0.2", 1, "1.1")
		w.brings("4.0.2-rev1")
		becomes(t, w.reboot(), plan.StepWrite, "its template is another")
		w.runs("velum.yaml", "velum", third.Digest)
	})
}

// killedAt dies before a write, or after it and before the record is kept.
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

// A boot killed after the write continues: its pod manifest is not taken for an edit, nor for
// that of an older system.
func TestKilledBootContinues(t *testing.T) {
	for name, rolledBack := range map[string]bool{"": false, "with an override": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
				w.observe() // the unit is not started again, and kubelet has not started anything
				assert.Contains(t, w.Node.PodManifest("velum.yaml"), "4.0.1-rev1\n")
				becomes(t, w.reboot(), "", "")
				w.runs("velum.yaml", "velum", second.Digest)
				w.Registry.Release(velum, "4.0.2", 1, "1.1")
				w.brings("4.0.2-rev1")
				becomes(t, w.reboot(), plan.StepWrite, "its template is another")
				assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "4.0.1")
			})
		})
	}
}

// Killed before the write, it is gone on with by the next boot.
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
		becomes(t, w.reboot(), plan.StepWrite, "its template is another")
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// A template that moves on in one place leaves the digest of the other.
func TestBootEndsAPartOfAnOverride(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1", "db="+mariadb+":10.0-rev1"))
		w.check()
		w.Node.Crash(w.Registry.Release(mariadb, "10.0", 1, "1.2").Digest, true)
		w.check()
		w.apply()
		require.Len(t, w.record().Overrides["velum.yaml"].Images, 2)
		second := w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.1-rev1", "db="+mariadb+":10.0-rev1"))
		becomes(t, w.boots(), plan.StepWrite, "its template is another")
		wrote := w.Node.PodManifest("velum.yaml")
		assert.Contains(t, wrote, velum+":4.0.1-rev1\n")
		assert.Contains(t, wrote, db.Digest)
		assert.Len(t, w.record().Overrides["velum.yaml"].Images, 1)
		w.restart()
		w.check() // before kubelet has started anything
		assert.Equal(t, wrote, w.Node.PodManifest("velum.yaml"))
		w.Node.SetKubelet(true)
		w.Node.Sync()
		w.runs("velum.yaml", "velum", second.Digest)
		w.runs("velum.yaml", "db", db.Digest)
		w.check()
		w.observe()
		w.observe()
		assert.Equal(t, wrote, w.Node.PodManifest("velum.yaml"))
		w.idle()
	})
}

// An approval that could not be applied before the boot is of what the pod is no more.
func TestBootEndsAnApprovalOfAnotherDigest(t *testing.T) {
	for name, c := range map[string]struct {
		tag string
	}{"the same": {"4.0.0-rev2"}, "another": {"4.0.1-rev1"}} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				next := w.Registry.Release(velum, "4.0.0", 2, "2.1")
				w.check()
				ctx, die := context.WithCancel(t.Context())
				w.Registry.OnAsk = func(string, string) { die() }
				_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
				w.Registry.OnAsk = nil
				require.NoError(t, err)
				require.Len(t, w.record().Approved, 1)
				other := w.Registry.Release(velum, "4.0.1", 1, "1.1")
				w.brings(c.tag)
				becomes(t, w.reboot(), plan.StepWrite, "its template is another")
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
		})
	}
}
