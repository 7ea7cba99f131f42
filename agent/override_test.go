// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// The image of a volume, or of a second document, is not pinned to a digest.
func TestOnlyContainersOfTheFirstDocumentAreNamedByDigest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		text := append(podYAML("velum", "velum="+velum+":__TAG__"), "---\n"...)
		text = append(text, podYAML("other", "velum="+velum+":4.0.0-rev1")...)
		w.Node.PutTemplate("velum.yaml", text)
		w.check()
		w.bad(1, "9.9")
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "rolled back")
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), "image: "+velum+":4.0.0-rev1\n")
	})
}

// Killed after its write, a rollback does not restart the pod again.
func TestWrittenRollbackIsNotRestartedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Settle = 5 * time.Second
		w.restart()
		w.bad(1, "9.9")
		ctx, kill := w.killable()
		w.Node.OnAside = func(string) error { time.AfterFunc(3*time.Second, kill); return nil }
		w.applyWith(ctx)
		require.True(t, w.record().Overrides["velum.yaml"].Pending)
		w.runs("velum.yaml", "velum", first.Digest)
		starts := w.Node.Starts("velum.yaml", "velum")
		w.restart()
		w.observe()
		assert.False(t, w.record().Overrides["velum.yaml"].Pending)
		assert.Equal(t, starts, w.Node.Starts("velum.yaml", "velum"))
	})
}

// A pod whose template cannot be read for a while keeps its record.
func TestDenialOutlivesATemplateThatCannotBeRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		bad := w.bad(1, "9.9")
		w.apply()
		w.Node.PutTemplate("velum.yaml", []byte("kind: [Pod"))
		w.check()
		assert.Contains(t, w.record().Denied, denied(bad))
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__"))
		s := w.check()
		assert.Nil(t, image(s, "velum.yaml", "velum").Offered)
	})
}

// An image named by digest causes no request to a registry, not even a HEAD.
func TestRescueDoesNotAskForImagesOnTheNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, db := twoContainers(t)
		w.badDB("1.2")
		w.apply()
		next := w.publish(2, "1.2")
		w.Registry.Retract(mariadb, "10.0-rev1")
		w.Node.OnAside = func(string) error {
			w.Node.SetKubelet(false)
			time.AfterFunc(3*time.Second+1, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			return nil
		}
		w.applies()
		w.runs("velum.yaml", "velum", next.Digest)
		w.runs("velum.yaml", "db", db.Digest)
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), "image: "+velum+":4.0.0-rev2\n")
	})
}

func TestGrainIsWrittenOnceWhileARollbackWaits(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := rollbackPending(t)
		w.observe()
		n := w.Grain.Writes()
		for range 5 {
			w.Clock.Add(10 * time.Minute)
			w.observe()
		}
		assert.Equal(t, n, w.Grain.Writes())
		assert.Equal(t, "failed", w.Grain.Last().State)
		assert.Equal(t, 1, strings.Count(w.Grain.Last().Reason, "velum.yaml:"))
	})
}

func TestClockJumpsByTenYearsDuringAnApply(t *testing.T) {
	for name, jump := range map[string]time.Duration{"on": 87600 * time.Hour, "back": -87600 * time.Hour} {
		run(t, name, func(t *testing.T) {
			w, first := running(t)
			w.bad(1, "9.9")
			w.Node.OnStop = func(string) error { w.Node.OnStop = nil; w.Clock.Add(jump); return nil }
			w.apply()
			w.runs("velum.yaml", "velum", first.Digest)
			w.Clock.Add(-jump)
			w.observe()
			w.idle()
			next := w.Registry.Release(velum, "4.0.0", 1, "9.10")
			w.Clock.Add(jump)
			w.check()
			w.apply()
			w.runs("velum.yaml", "velum", next.Digest)
			w.idle()
		})
	}
}

func TestTwoContainersOfOneRepositoryAreRolledBackTogether(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0", "b="+velum+":4.0.0"))
		w.check()
		w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "b")
		w.observe()
		w.runs("velum.yaml", "a", first.Digest)
		w.runs("velum.yaml", "b", first.Digest)
		w.observe()
		w.idle()
		next := w.publish(1, "9.10")
		w.apply()
		w.runs("velum.yaml", "a", next.Digest)
		w.runs("velum.yaml", "b", next.Digest)
		assert.Empty(t, w.record().Overrides)
		w.idle()
	})
}

func TestFailedRetryIsDeniedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.bad(1, "9.9")
		w.apply()
		out, s := w.retry()
		assert.Equal(t, status.ResultFailed, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Contains(t, w.record().Denied, denied(bad))
		assert.Equal(t, status.StateFailed, s.State)
		w.idle()
	})
}

// An older /etc without pins: the release that kubelet then starts gets an ordinary health check.
func TestOlderPodManifestWhileItIsPinned(t *testing.T) {
	for name, broken := range map[string]bool{"and its image is good by now": false, "and does not come up": true} {
		run(t, name, func(t *testing.T) {
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
				r := w.record()
				assert.Empty(t, r.Overrides)
				assert.Empty(t, r.Denied, "it came up, so it is not denied any more")
				assert.True(t, image(w.observe(), "velum.yaml", "velum").PickedUp)
			}
			w.observe()
			w.idle()
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
		next := w.publish(1, "9.10")
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
		text := w.Node.PodManifest("velum.yaml")
		assert.Contains(t, text, "hostNetwork: true")
		assert.Contains(t, text, "image: "+velum+":4.0.0-rev1\n")
		assert.Contains(t, text, "image: "+mariadb+":10.0-rev1-build1.1@sha256:")
		w.idle()
	})
}

// Without a template the pinned file itself names the followed tag.
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
			out, _ := w.rollback()
			require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		}
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Equal(t, "4.0.0-rev1", w.record().Overrides["velum.yaml"].Images["container velum"].Follow)
		s := w.check()
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
		assert.Equal(t, "4.0.0-rev1", image(s, "velum.yaml", "velum").Follow)
		next := w.publish(1, "1.4")
		w.apply()
		w.runs("velum.yaml", "velum", next.Digest)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256")
	})
}

// A person has edited the pinned file, and a newer release is offered: until it is applied the pins still follow their
// tag, and no lower release is offered.
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

// The rolled back pod manifest had a container that the template no longer has, and an apply removed it: a crash does
// not bring it back.
func TestAppliedTemplateEndsARollbacksManifest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _, _ := twoContainers(t)
		w.bad(1, "9.9")
		w.apply()
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.check()
		w.applies()
		without := w.Node.PodManifest("velum.yaml")
		assert.NotContains(t, without, "mariadb")
		w.Node.PowerOff()
		w.observe()
		assert.Equal(t, without, w.Node.PodManifest("velum.yaml"))
	})
}

// In a rolled back pod only one image is pinned to its digest: the other one follows its own tag.
func TestOtherImageOfARolledBackPodIsUpdated(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first, _ := twoContainers(t)
		w.bad(1, "9.9")
		w.apply()
		r := w.record()
		o := r.Overrides["velum.yaml"]
		require.NotEmpty(t, o.Data)
		// As after a rollback that knew the rollback target of only one container.
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
		w.applies()
		w.runs("velum.yaml", "db", next.Digest)
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), mariadb+":10.0-rev2\n")
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), "@"+first.Digest.String())
	})
}

// A pod waits for its rollback, and its template cannot be read for a while: the agent neither acts nor forgets.
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

// A mirror has no long tags, so the rollback target has the same name as the denied release. The pod manifest still
// follows nothing: an edit of it is not undone, even while the pod is down.
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
