// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
)

const suse = "registry.suse.com"

// localRegistryWorld returns a node whose velum runs the first release, with its local registry at a position.
func localRegistryWorld(t *testing.T, at localregistry.Position) (*world, release.Release) {
	t.Helper()
	w := newWorld(t)
	w.UseLocalRegistry(suse, at)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.check()
	w.check()
	w.names(first.Digest)
	return w, first
}

// names asserts the digest that the local registry has for velum's tag; empty if it does not know the tag.
func (w *world) names(want digest.Digest) {
	w.t.Helper()
	e, _ := w.LocalRegistry.Table().Tag(suse, "caasp/v4/velum", "4.0.0-rev1")
	assert.Equal(w.t, want.String(), e.Digest, "the table names another digest")
}

func TestTableNamesApprovedReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := localRegistryWorld(t, localregistry.Off)
		second := w.publish(1, "1.2")
		require.True(t, w.Node.Pinned(velum, second.Digest), "it is staged")
		w.names(first.Digest)
		var atStop digest.Digest
		w.Node.OnStop = func(string) error {
			e, _ := w.LocalRegistry.Table().Tag(suse, "caasp/v4/velum", "4.0.0-rev1")
			atStop = digest.Digest(e.Digest)
			return nil
		}
		w.apply()
		assert.Equal(t, second.Digest, atStop, "kubelet's pull follows the stop")
		w.names(second.Digest)

		w.rollback("velum")
		w.names(first.Digest)
		assert.Positive(t, w.LocalRegistry.Writes())
	})
}

// A release that does not come up is denied and removed from the table for good.
func TestTableReturnsBeforeARollback(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := localRegistryWorld(t, localregistry.Gate)
		second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
		w.Node.Crash(second.Digest, true)
		w.check()
		var atAside digest.Digest
		w.Node.OnAside = func(string) error {
			e, _ := w.LocalRegistry.Table().Tag(suse, "caasp/v4/velum", "4.0.0-rev1")
			atAside = digest.Digest(e.Digest)
			return nil
		}
		out, _ := w.apply()
		require.Contains(t, out[0].Reason, "rolled back to")
		assert.Equal(t, first.Digest, atAside)
		w.names(first.Digest)
	})
}

// A fallback answers kubelet's pull, so an apply needs no registry and no rescue.
func TestApplyContinuesWithoutARegistry(t *testing.T) {
	for _, at := range []localregistry.Position{localregistry.Fallback, localregistry.Gate} {
		run(t, string(at), func(t *testing.T) {
			w, _ := localRegistryWorld(t, at)
			second := w.publish(1, "1.2")
			w.Registry.Down(agenttest.ErrRefused)
			w.applies()
			w.runs("velum.yaml", "velum", second.Digest)
			assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "@sha256", "the tag stays followed")
		})
	}
}

// If the local registry itself does not answer, kubelet's pull needs the registry, at any position in hosts.toml.
func TestApplyWaitsWhileNeitherAnswers(t *testing.T) {
	for _, at := range []localregistry.Position{localregistry.Fallback, localregistry.Gate} {
		run(t, string(at), func(t *testing.T) {
			w, first := localRegistryWorld(t, at)
			second := w.publish(1, "1.2")
			w.LocalRegistry.Down = agenttest.ErrRefused
			w.Registry.Down(agenttest.ErrRefused)
			out, s := w.apply()
			require.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
			assert.Contains(t, out[0].Reason, "registry does not answer")
			assert.Equal(t, agenttest.ErrRefused.Error(), s.LocalRegistry.Down)
			w.runs("velum.yaml", "velum", first.Digest)

			w.LocalRegistry.Down = nil
			out, s = w.apply()
			require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
			assert.Empty(t, s.LocalRegistry.Down)
			w.runs("velum.yaml", "velum", second.Digest)
		})
	}
}

// With a fallback kubelet asks the registry first, so the registry's answer counts.
func TestFallbackFollowsTheRegistry(t *testing.T) {
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
		run(t, name, func(t *testing.T) {
			w, first := localRegistryWorld(t, localregistry.Fallback)
			w.publish(1, "1.2")
			answer(w)
			out, _ := w.apply()
			assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
			w.runs("velum.yaml", "velum", first.Digest)
			w.observe()
			w.names(first.Digest)
		})
	}
}

// With the gate a container starts the approved release, wherever the tag has moved.
func TestGateKeepsTheApprovedRelease(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := localRegistryWorld(t, localregistry.Gate)
		second := w.publish(1, "1.2")
		w.Node.Restart("velum.yaml", "velum")
		w.runs("velum.yaml", "velum", first.Digest)

		third := w.Registry.Release(velum, "4.0.0", 1, "1.3") // the agent does not know it yet
		w.applies()
		w.runs("velum.yaml", "velum", second.Digest)
		w.Node.Restart("velum.yaml", "velum")
		w.runs("velum.yaml", "velum", second.Digest)
		s := w.check()
		assert.Equal(t, status.StateStaged, s.State, "a rebuild waits: %s", s.Reason)
		assert.Equal(t, third.Digest, image(s, "velum.yaml", "velum").Offered.Digest)
		assert.False(t, image(s, "velum.yaml", "velum").PickedUp)
	})
}

// Behind a gate, a table that cannot be saved would start another image than the approved one.
func TestGatedApplyNeedsTheTable(t *testing.T) {
	for at, want := range map[localregistry.Position]status.Result{
		localregistry.Gate: status.ResultHeld, localregistry.Fallback: status.ResultApplied, localregistry.Off: status.ResultApplied,
	} {
		run(t, "position "+string(at), func(t *testing.T) {
			w, _ := localRegistryWorld(t, at)
			w.publish(1, "1.2")
			stops := 0
			w.Node.OnStop = func(string) error { stops++; return nil }
			w.LocalRegistry.OnSave = func(localregistry.Table) error { return errFull }
			out, _ := w.apply()
			require.Equal(t, want, out[0].Result, out[0].Reason)
			assert.Equal(t, want == status.ResultApplied, stops == 1)
			if want == status.ResultHeld {
				assert.Contains(t, out[0].Reason, errFull.Error())
			}
			w.LocalRegistry.OnSave = nil
			w.observe()
			out, _ = w.apply()
			assert.NotEqual(t, status.ResultFailed, out[0].Result)
		})
	}
}

// A pod restart pulls all its tags; the gate answers each with an approved release.
func TestGateServesApprovedReleasesOnAPodRestart(t *testing.T) {
	for at, refused := range map[localregistry.Position]bool{localregistry.Fallback: true, localregistry.Gate: false} {
		run(t, string(at), func(t *testing.T) {
			w := newWorld(t)
			w.UseLocalRegistry(suse, at)
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
	}
}

// Images of private repositories are not served to pods without a login.
func TestTableOmitsPrivateImages(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := localRegistryWorld(t, localregistry.Fallback)
		w.Hosts.SetPrivate(velum, true)
		w.check()
		w.names("")
		w.restart()
		w.observe()
		w.names("") // the record marks it as private

		w.Policy.ServePrivate = true
		w.restart()
		w.observe()
		w.names(first.Digest)
	})
}

// kubelet starts next: the table names the releases that the boot rendered.
func TestTableAtBoot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := localRegistryWorld(t, localregistry.Fallback)
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

		// The daemon knows only that the pod waits for its health check.
		w.agent.LocalRegistry.Hosts.Position(suse)
		w.cycle(source.PollNone)
		e, _ := w.LocalRegistry.Table().Tag(suse, "caasp/v4/velum", "4.0.1-rev1")
		assert.Equal(t, second.Digest.String(), e.Digest)
		w.Clock.Add(time.Minute)
		w.Node.Restart("velum.yaml", "velum")
		w.runs("velum.yaml", "velum", second.Digest)
	})
}

// enabled records the enabled registries, or fails to.
type enabled struct {
	all []localregistry.Wanted
	err error
}

func (e *enabled) Wanted() ([]localregistry.Wanted, error) { return e.all, e.err }
func (*enabled) Why(w localregistry.Wanted, _ localregistry.Position) string {
	return w.File + " is gone"
}

// A gate that another program removed from hosts.toml is open: the state is failed until the gate is back or disabled.
func TestRemovedGateFailsTheNode(t *testing.T) {
	t.Parallel()
	w, _ := localRegistryWorld(t, localregistry.Gate)
	memory := &enabled{all: []localregistry.Wanted{{Registry: suse, Position: localregistry.Gate, File: "/c/hosts.toml"}}}
	w.agent.LocalRegistry.Memory = memory
	require.Equal(t, status.StateCurrent, w.observe().State)
	for _, at := range []localregistry.Position{localregistry.Off, localregistry.Fallback} {
		w.Hosts.SetPosition(suse, at)
		s := w.observe()
		require.Equal(t, status.StateFailed, s.State)
		require.Equal(t, status.KindLocalRegistry, s.Reasons[0].Kind)
		assert.Equal(t, suse, s.Reasons[0].Host)
		assert.Contains(t, s.Reason, "local registry: enabled for registry.suse.com as gate, but /c/hosts.toml is gone")
		assert.Equal(t, []localregistry.LostRegistry{{Registry: suse, Wanted: "gate", Position: at, Reason: "/c/hosts.toml is gone"}}, s.LocalRegistry.Lost)
	}
	memory.all = nil
	assert.Equal(t, status.StateCurrent, w.observe().State, "it was disabled")
	memory.err = errors.New("local-registry-wanted.json: not a list")
	s := w.observe()
	assert.Equal(t, status.StateFailed, s.State)
	assert.Contains(t, s.Reason, "cannot tell which registries it was enabled for: local-registry-wanted.json: not a list")
}

// hostsFiles are the hosts.toml files that a person changes.
type hostsFiles struct {
	*agenttest.Hosts

	err error
}

func (f *hostsFiles) Enable(_ context.Context, registry string, at localregistry.Position) (bool, error) {
	changed := f.err == nil && f.Position(registry) != at
	if changed {
		f.SetPosition(registry, at)
	}
	return changed, f.err
}

func (f *hostsFiles) Disable(ctx context.Context, registry string) (bool, error) {
	return f.Enable(ctx, registry, localregistry.Off)
}

// A person enables and disables the local registry on the bus; the status that is returned shows it.
func TestPersonChangesTheLocalRegistry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _ := localRegistryWorld(t, localregistry.Off)
		files := &hostsFiles{Hosts: w.Hosts}
		a := w.Agent()
		a.LocalRegistry.Files = files
		l := startAgent(t, w, a, 0, 0)
		s, err := l.EnableLocalRegistry(t.Context(), suse, true)
		require.NoError(t, err)
		require.Len(t, s.LocalRegistry.Registries, 1)
		assert.Equal(t, localregistry.Gate, s.LocalRegistry.Registries[0].Position)
		_, err = l.EnableLocalRegistry(t.Context(), suse, true)
		require.ErrorIs(t, err, agent.ErrNothingToDo)
		s, err = l.EnableLocalRegistry(t.Context(), suse, false)
		require.NoError(t, err)
		assert.Equal(t, localregistry.Fallback, s.LocalRegistry.Registries[0].Position)

		files.err = release.ErrHeld
		_, err = l.DisableLocalRegistry(t.Context(), suse)
		require.ErrorIs(t, err, release.ErrHeld)
		files.err = nil
		s, err = l.DisableLocalRegistry(t.Context(), suse)
		require.NoError(t, err)
		assert.Nil(t, s.LocalRegistry)
	})
}

// A table that is lost with the power is made from the record before kubelet asks.
func TestTornTableIsMadeAtBoot(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := localRegistryWorld(t, localregistry.Fallback)
		w.LocalRegistry.Tear()
		w.names("")
		w.Registry.Down(agenttest.ErrRefused)
		w.Node.PowerOff()
		steps, err := w.Agent().Boot(t.Context())
		require.NoError(t, err)
		assert.Empty(t, steps)
		w.names(first.Digest)
		w.Node.SetKubelet(true)
		w.Node.Sync()
		w.runs("velum.yaml", "velum", first.Digest)
	})
}
