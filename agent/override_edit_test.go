// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// An older /etc without pins: what kubelet then takes is proved like anything else.
func TestOlderPodManifestWhileItIsPinned(t *testing.T) {
	for name, broken := range map[string]bool{"and its image is good by now": false, "and does not come up": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, first := running(t)
				old := w.Node.PodManifest("velum.yaml")
				bad := w.bad(1, "9.9")
				w.apply()
				w.Node.Crash(bad.Digest, broken)
				w.Node.PutPodManifest("velum.yaml", []byte(old))
				w.restart()
				w.observe()
				if broken {
					w.isPinned("4.0.0-rev1-build1.1", first.Digest)
					w.runs("velum.yaml", "velum", first.Digest)
				} else {
					w.runs("velum.yaml", "velum", bad.Digest)
					assert.Empty(t, w.record().Overrides)
				}
				w.observe()
				w.idle()
			})
		})
	}
}

func TestTemplateRemovedWhileThePodIsPinned(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("other.yaml", podYAML("other", "db="+mariadb+":10.0"))
		w.check()
		w.bad(1, "9.9")
		w.apply()
		w.Node.PutTemplate("velum.yaml", nil)
		s := w.check()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Equal(t, policy.ChangeRemove, podOf(s, "velum.yaml").Change)
		w.apply("velum.yaml")
		s = w.observe()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Empty(t, w.record().Overrides)
		assert.Len(t, w.record().Denied, 1, "should the pod come back")
		w.idle()
	})
}

func TestPersonRemovesThePinsOfAManagedFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Manage = map[string]bool{"velum.yaml": true}
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		old := rendered("velum", "velum="+velum+":4.0.0-rev1")
		w.Node.PutPodManifest("velum.yaml", old)
		w.check()
		bad := w.bad(1, "9.9")
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Node.Crash(bad.Digest, false)
		w.Node.PutPodManifest("velum.yaml", old)
		s := w.observe()
		w.runs("velum.yaml", "velum", bad.Digest)
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, string(old), w.Node.PodManifest("velum.yaml"))
		assert.Empty(t, w.record().Overrides)
		w.idle()
	})
}

func TestEditBesideThePinsIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Manage = map[string]bool{"velum.yaml": true}
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1", "db="+mariadb+":10.0-rev1"))
		w.check()
		w.bad(1, "9.9")
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Node.PutPodManifest("velum.yaml", []byte(w.Node.PodManifest("velum.yaml")+"  hostNetwork: true\n"))
		s := w.check()
		assert.Empty(t, podOf(s, "velum.yaml").Change)
		next := w.Registry.Release(velum, "4.0.0", 1, "9.10")
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
		text := w.Node.PodManifest("velum.yaml")
		assert.Contains(t, text, "hostNetwork: true")
		assert.Contains(t, text, "image: "+velum+":4.0.0-rev1\n")
		assert.Contains(t, text, "image: "+mariadb+":10.0-rev1-build1.1@sha256:")
		w.idle()
	})
}

// Without a template the pinned file itself says what was followed.
func TestManagedPodIsRolledBackTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Manage, w.Policy.Prune.Keep = map[string]bool{"velum.yaml": true}, 3
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
		w.check()
		for _, b := range []string{"1.2", "1.3"} {
			w.Registry.Release(velum, "4.0.0", 1, b)
			w.check()
			w.apply()
		}
		for range 2 {
			out, _, err := w.agent.Rollback(t.Context(), plan.All())
			require.NoError(t, err)
			require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		}
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Equal(t, "4.0.0-rev1", w.record().Overrides["velum.yaml"].Images["container velum"].Follow)
		s := w.check()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, "4.0.0-rev1", image(s, "velum.yaml", "velum").Follow)
		next := w.Registry.Release(velum, "4.0.0", 1, "1.4")
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// A person has edited the pinned file, and a newer release is offered: until it is
// applied the pins still follow their tag, and no lower one is offered instead.
func TestEditOfAPinnedFileOffersNothingLower(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch} }
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
		w.check()
		w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.check()
		w.apply()
		bad := w.Registry.Release(velum, "4.0.1", 1, "9.9")
		w.Node.Crash(bad.Digest, true)
		w.check()
		w.apply()
		require.NotEmpty(t, w.record().Overrides)
		w.Node.PutPodManifest("velum.yaml", []byte(w.Node.PodManifest("velum.yaml")+"  hostNetwork: true\n"))
		w.Registry.Release(velum, "4.0.1", 1, "9.10")
		for range 3 {
			s := w.check()
			require.NotNil(t, image(s, "velum.yaml", "velum").Offered)
			assert.Equal(t, "4.0.1-rev1-build9.10", image(s, "velum.yaml", "velum").Offered.Tag)
		}
	})
}

// What was rolled back had a container that the template has no more, and an apply took it away: a crash does not bring
// it back.
func TestAppliedTemplateEndsARollbacksManifest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		w.bad(1, "9.9")
		w.apply()
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.check()
		out, _ := w.apply()
		require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		without := w.Node.PodManifest("velum.yaml")
		assert.NotContains(t, without, "mariadb")
		w.Node.PowerOff()
		w.observe()
		assert.Equal(t, without, w.Node.PodManifest("velum.yaml"))
	})
}

// Of a pod that was rolled back one image only is named by its digest: another one moves on, by its own tag.
func TestOtherImageOfARolledBackPodIsUpdated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		w.bad(1, "9.9")
		w.apply()
		r := w.record()
		o := r.Overrides["velum.yaml"]
		require.NotEmpty(t, o.Data)
		// As after a rollback that knew one container's rollback target only.
		delete(o.Images, "container db")
		at := strings.Index(o.Data, mariadb)
		end := at + strings.Index(o.Data[at:], "\n")
		o.Data = o.Data[:at] + mariadb + ":10.0-rev1" + o.Data[end:]
		r.Overrides["velum.yaml"] = o
		require.NoError(t, w.Disk.Save(t.Context(), r))
		w.Node.PutPodManifest("velum.yaml", []byte(o.Data))
		w.restart()
		next := w.Registry.Release(mariadb, "10.0", 2, "2.1")
		w.check()
		out, _ := w.apply()
		require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "db", next.Digest)
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), mariadb+":10.0-rev2\n")
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), "@"+first.Digest.String())
	})
}

// A pod waits to be brought back, and its template cannot be read for a while: nothing is done about it, nor forgotten.
func TestPendingRollbackWaitsForATemplateThatCanBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := rollbackPending(t)
		w.Node.OnStage = nil
		was := w.Node.PodManifest("velum.yaml")
		w.Node.PutTemplate("velum.yaml", []byte("kind: [Pod"))
		w.observe()
		assert.Equal(t, was, w.Node.PodManifest("velum.yaml"))
		w.brings("4.0.0-rev1")
		w.observe()
		w.isPinned("4.0.0-rev1-build1.1", first.Digest)
		w.runs("velum.yaml", "velum", first.Digest)
	})
}

// A mirror has no long tags, so the rollback target has the name of the denied release. The pod manifest still follows
// nothing: an edit of it is not undone, not even while the pod does not run.
func TestEditOfAPinnedFileWithoutALongTagIsKept(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Publish(velum, "4.0.0-rev1")
		w.brings("4.0.0-rev1")
		w.check()
		w.Node.Crash(w.Registry.Publish(velum, "4.0.0-rev1").Digest, true)
		w.check()
		w.apply()
		w.isPinned("4.0.0-rev1", first.Digest)
		w.Node.PowerOff()
		edited := w.Node.PodManifest("velum.yaml") + "  hostNetwork: true\n"
		w.Node.PutPodManifest("velum.yaml", []byte(edited))
		w.restart()
		w.observe()
		assert.Equal(t, edited, w.Node.PodManifest("velum.yaml"))
	})
}
