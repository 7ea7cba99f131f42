// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

const suse = "registry.suse.com"

// ownHostWorld is a node whose velum runs the first release, with its own host at a position.
func ownHostWorld(t *testing.T, at ownhost.Position) (*world, release.Release) {
	t.Helper()
	w := newWorld(t)
	w.UseOwnHost(suse, at)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.check()
	w.check()
	w.names(first.Digest)
	return w, first
}

// names asserts what the own host says that velum's tag names; empty: it does not know it.
func (w *world) names(want digest.Digest) {
	w.t.Helper()
	e, _ := w.OwnHost.Table().Tag(suse, "caasp/v4/velum", "4.0.0-rev1")
	assert.Equal(w.t, want, e.Digest, "the table names another digest")
}

func TestTableNamesWhatWasApproved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := ownHostWorld(t, ownhost.Off)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		require.True(t, w.Node.Pinned(velum, second.Digest), "it is staged")
		w.names(first.Digest)
		var atStop digest.Digest
		w.Node.OnStop = func(string) error {
			e, _ := w.OwnHost.Table().Tag(suse, "caasp/v4/velum", "4.0.0-rev1")
			atStop = e.Digest
			return nil
		}
		w.apply()
		assert.Equal(t, second.Digest, atStop, "kubelet's pull follows the stop")
		w.names(second.Digest)

		_, _, err := w.agent.Rollback(t.Context(), plan.Named("velum"))
		require.NoError(t, err)
		w.names(first.Digest)
		assert.Positive(t, w.OwnHost.Writes())
	})
}

// A release that does not come up is denied, and the table never names it again.
func TestTableReturnsBeforeARollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := ownHostWorld(t, ownhost.Gate)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Node.Crash(second.Digest, true)
		w.check()
		var atAside digest.Digest
		w.Node.OnAside = func(string) error {
			e, _ := w.OwnHost.Table().Tag(suse, "caasp/v4/velum", "4.0.0-rev1")
			atAside = e.Digest
			return nil
		}
		out, _ := w.apply()
		require.Contains(t, out[0].Reason, "rolled back to")
		assert.Equal(t, first.Digest, atAside)
		w.names(first.Digest)
	})
}

// A fallback answers kubelet's pull, so an apply needs no registry and no rescue.
func TestApplyGoesOnWithoutARegistry(t *testing.T) {
	for _, at := range []ownhost.Position{ownhost.Fallback, ownhost.Gate} {
		t.Run(string(at), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := ownHostWorld(t, at)
				second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
				w.check()
				w.Registry.Down(agenttest.ErrRefused)
				out, _ := w.apply()
				require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				w.runs("velum.yaml", "velum", second.Digest)
				assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256", "the tag stays followed")
			})
		})
	}
}

func TestApplyWaitsForTheRegistryWithoutAnOwnHost(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := ownHostWorld(t, ownhost.Off)
		w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Registry.Down(agenttest.ErrRefused)
		out, _ := w.apply()
		assert.Equal(t, status.ResultHeld, out[0].Result)
		assert.Contains(t, out[0].Reason, "registry away")
		w.runs("velum.yaml", "velum", first.Digest)
		w.names(first.Digest)
	})
}

// While the own host itself does not answer, kubelet's pull needs the registry, wherever hosts.toml names it.
func TestApplyWaitsWhileNeitherAnswers(t *testing.T) {
	for _, at := range []ownhost.Position{ownhost.Fallback, ownhost.Gate} {
		t.Run(string(at), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, first := ownHostWorld(t, at)
				second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
				w.check()
				w.OwnHost.Down = agenttest.ErrRefused
				w.Registry.Down(agenttest.ErrRefused)
				out, s := w.apply()
				require.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
				assert.Contains(t, out[0].Reason, "registry away")
				assert.Equal(t, agenttest.ErrRefused.Error(), s.OwnHost.Down)
				w.runs("velum.yaml", "velum", first.Digest)

				w.OwnHost.Down = nil
				out, s = w.apply()
				require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				assert.Empty(t, s.OwnHost.Down)
				w.runs("velum.yaml", "velum", second.Digest)
			})
		})
	}
}

// With a fallback kubelet asks the registry first, so what it answers counts.
func TestFallbackFollowsWhatTheRegistryAnswers(t *testing.T) {
	for name, answer := range map[string]func(*world){
		"another digest": func(w *world) { w.Registry.Release(velum, "4.0.0", 1, "1.3") },
		"no such tag":    func(w *world) { w.Registry.Retract(velum, "4.0.0-rev1") },
		"nothing, after it took the request": func(w *world) {
			w.Registry.Down(&release.SourceError{Repository: velum, Host: suse, Silent: true, Err: context.DeadlineExceeded})
		},
		"a login page, which ends kubelet's pull": func(w *world) {
			w.Registry.Down(&release.SourceError{
				Repository: velum, Host: suse, Cause: release.CauseNoRegistry, Answered: true, Err: errors.New("answers with a page"),
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, first := ownHostWorld(t, ownhost.Fallback)
				w.Registry.Release(velum, "4.0.0", 1, "1.2")
				w.check()
				answer(w)
				out, _ := w.apply()
				assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
				w.runs("velum.yaml", "velum", first.Digest)
				w.observe()
				w.names(first.Digest)
			})
		})
	}
}

// With the gate a container start takes what was approved, wherever the tag has moved.
func TestGateKeepsWhatWasApproved(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := ownHostWorld(t, ownhost.Gate)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.check()
		w.Node.Restart("velum.yaml", "velum")
		w.runs("velum.yaml", "velum", first.Digest)

		third := w.Registry.Release(velum, "4.0.0", 1, "1.3") // the agent does not know it yet
		out, _ := w.apply()
		require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("velum.yaml", "velum", second.Digest)
		w.Node.Restart("velum.yaml", "velum")
		w.runs("velum.yaml", "velum", second.Digest)
		s := w.check()
		assert.Equal(t, status.StateStaged, s.State, "a rebuild waits: %s", s.Reason)
		assert.Equal(t, third.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
		assert.False(t, image(s, "velum.yaml", "velum").Adopted)
	})
}

// Behind a gate, a table that cannot be saved would start another image than the approved one.
func TestGatedApplyNeedsTheTable(t *testing.T) {
	for at, want := range map[ownhost.Position]status.Result{
		ownhost.Gate: status.ResultHeld, ownhost.Fallback: status.ResultApplied, ownhost.Off: status.ResultApplied,
	} {
		t.Run("position "+string(at), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := ownHostWorld(t, at)
				w.Registry.Release(velum, "4.0.0", 1, "1.2")
				w.check()
				stops := 0
				w.Node.OnStop = func(string) error { stops++; return nil }
				w.OwnHost.OnSave = func(ownhost.Table) error { return errFull }
				out, _ := w.apply()
				require.Equal(t, want, out[0].Result, out[0].Reason)
				assert.Equal(t, want == status.ResultApplied, stops == 1)
				if want == status.ResultHeld {
					assert.Contains(t, out[0].Reason, errFull.Error())
				}
				w.OwnHost.OnSave = nil
				w.observe()
				out, _ = w.apply()
				assert.NotEqual(t, status.ResultFailed, out[0].Result)
			})
		})
	}
}

// A restart of the whole pod pulls every tag of it; the gate has what each of them may name.
func TestGateEndsThePullHazard(t *testing.T) {
	for at, refused := range map[ownhost.Position]bool{ownhost.Fallback: true, ownhost.Gate: false} {
		t.Run(string(at), func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.UseOwnHost(suse, at)
				five := w.Registry.PublishBuild(velum, built("one", april, ""), "4.0.0-rev1", "4.0.0-rev1-build1.5")
				w.Registry.Release(mariadb, "10.0", 1, "1.1")
				w.Node.PutTemplate("velum.yaml", podYAML("velum", "a="+velum+":4.0.0-rev1", "b="+mariadb+":10.0-rev1"))
				w.check()
				w.Registry.PublishBuild(velum, built("y", april.Add(-time.Hour), ""), "4.0.0-rev1", "4.0.0-rev1-build1.3")
				next := w.Registry.Release(mariadb, "10.0", 2, "1.1")
				require.Equal(t, refused, held(w.check(), "velum.yaml", status.HoldRefused))
				out, _ := w.apply()
				if refused {
					assert.Equal(t, status.ResultHeld, out[0].Result)
					return
				}
				require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				w.runs("velum.yaml", "a", five.Digest)
				w.runs("velum.yaml", "b", next.Digest)
			})
		})
	}
}

// What only a login opens is not for pods without one.
func TestTableLeavesPrivateImagesOut(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := ownHostWorld(t, ownhost.Fallback)
		w.Hosts.SetPrivate(velum, true)
		w.check()
		w.names("")
		w.restart()
		w.observe()
		w.names("") // the record knows it

		w.Policy.ServePrivate = true
		w.restart()
		w.observe()
		w.names(first.Digest)
	})
}

// kubelet starts next: the table names what the boot rendered.
func TestTableAtBoot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := ownHostWorld(t, ownhost.Fallback)
		second := w.Registry.Release(velum, "4.0.1", 1, "1.1")
		w.Policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.1-rev1"}}
		w.restart()
		w.check()
		require.True(t, w.Node.Pinned(velum, second.Digest))
		w.Policy.Images = nil
		w.brings("4.0.1-rev1")
		w.Registry.Down(agenttest.ErrRefused)
		w.reboot()
		w.runs("velum.yaml", "velum", second.Digest)

		// The daemon knows no more of it than that it waits for its proof.
		w.agent.OwnHost.Hosts.Position(suse)
		w.cycle(source.PollNone)
		e, _ := w.OwnHost.Table().Tag(suse, "caasp/v4/velum", "4.0.1-rev1")
		assert.Equal(t, second.Digest, e.Digest)
		w.Clock.Add(time.Minute)
		w.Node.Restart("velum.yaml", "velum")
		w.runs("velum.yaml", "velum", second.Digest)
	})
}
