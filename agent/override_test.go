// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

// A volume's image, or one of a second document, is not named by digest.
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

// Killed after its write, a roll back restarts nothing a second time.
func TestWrittenRollbackIsNotRestartedAgain(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Policy.Settle = 5 * time.Second
		w.restart()
		w.bad(1, "9.9")
		ctx, kill := context.WithCancel(t.Context())
		defer kill()
		w.Node.OnAside = func(string) error { time.AfterFunc(3*time.Second, kill); return nil }
		_, _, err := w.agent.Apply(ctx, agent.ApplyRequest{Which: plan.All()})
		require.NoError(t, err)
		require.True(t, w.record().Overrides["velum.yaml"].Pending)
		w.runs("velum.yaml", "velum", first.Digest)
		starts := w.Node.Starts("velum.yaml", "velum")
		w.restart()
		w.observe()
		assert.False(t, w.record().Overrides["velum.yaml"].Pending)
		assert.Equal(t, starts, w.Node.Starts("velum.yaml", "velum"))
	})
}

// A pod that cannot be read for a while keeps what is known of it.
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

// What is named by its digest asks no registry, not even whether it is there.
func TestRescueDoesNotAskForImagesOnTheNode(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		bad := w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.Node.Crash(bad.Digest, true)
		w.check()
		w.apply()
		next := w.Registry.Release(velum, "4.0.0", 2, "1.2")
		w.check()
		w.Registry.Retract(mariadb, "10.0-rev1")
		w.Node.OnAside = func(string) error {
			w.Node.SetKubelet(false)
			time.AfterFunc(3*time.Second+1, func() { w.Node.SetKubelet(true); w.Node.Sync() })
			return nil
		}
		out, _ := w.apply()
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
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
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
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
		next := w.Registry.Release(velum, "4.0.0", 1, "9.10")
		w.check()
		w.apply()
		w.runs("velum.yaml", "a", next.Digest)
		w.runs("velum.yaml", "b", next.Digest)
		assert.Empty(t, w.record().Overrides)
		w.idle()
	})
}

func TestInitContainerThatCrashesIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		db := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "init:setup="+velum+":4.0.0", "db="+mariadb+":10.0"))
		w.check()
		w.bad(1, "9.9")
		out, _ := w.apply()
		assert.Contains(t, out[0].Reason, "rolled back")
		w.runs("velum.yaml", "setup", first.Digest)
		w.runs("velum.yaml", "db", db.Digest)
		w.observe()
		w.idle()
		w.Node.RemoveContainer("velum.yaml", "setup")
		w.observe()
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

func TestRetryOfOneImageLeavesTheDenialsOfOthers(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("db.yaml", podYAML("db", "db="+mariadb+":10.0"))
		w.check()
		badDB := w.Registry.Release(mariadb, "10.0", 1, "9.9")
		w.Node.Crash(badDB.Digest, true)
		bad := w.bad(1, "9.9")
		w.apply()
		w.Node.Crash(bad.Digest, false)
		out, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("velum"), Retry: true})
		require.NoError(t, err)
		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		r := w.record()
		assert.Contains(t, r.Denied, denied(badDB))
		assert.NotContains(t, r.Denied, denied(bad))
	})
}
