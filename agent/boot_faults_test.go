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

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
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

func TestBootRemovesNoHeldPod(t *testing.T) {
	for name, c := range map[string]struct {
		hold   func(w *world)
		reason string
	}{
		"everything": {func(w *world) {
			_, _, err := w.agent.Hold(t.Context(), nil, true, record.PersonHold{Reason: "wait"})
			require.NoError(w.t, err)
		}, "hold: everything: wait"},
		"its image": {func(w *world) {
			_, _, err := w.agent.Hold(t.Context(), []string{"velum"}, false, record.PersonHold{Reason: "wait"})
			require.NoError(w.t, err)
		}, "hold: " + velum + ": wait"},
		"frozen": {func(w *world) { w.Policy.Freeze = w.Clock.Now().Add(time.Hour) }, "freeze: nothing is applied before"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, first := running(t)
				w.Node.PutTemplate("other.yaml", []byte("kind: [Pod")) // or nothing is concluded
				c.hold(w)
				w.Node.PutTemplate("velum.yaml", nil)
				steps := w.boots()
				require.Len(t, steps, 2)
				becomes(t, steps[1:], "", c.reason)
				w.Node.SetKubelet(true)
				w.Node.Sync()
				w.runs("velum.yaml", "velum", first.Digest)
			})
		})
	}
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

// Somebody who edits a pod that was rolled back has another idea.
func TestBootKeepsTheEditOfARolledBackPod(t *testing.T) {
	for name, edit := range map[string]func(string) string{
		"beside the image": func(text string) string { return text + "  hostNetwork: true\n" },
		"the image":        func(text string) string { return string(rendered("velum", "velum="+velum+":4.0.0-rev7")) },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := rolledBackOnce(t)
				edited := edit(w.Node.PodManifest("velum.yaml"))
				w.Node.PutPodManifest("velum.yaml", []byte(edited))
				becomes(t, w.boots(), "", "it is not what the agent wrote last")
				assert.Equal(t, edited, w.Node.PodManifest("velum.yaml"))
				w.restart()
				w.observe() // before kubelet has started anything
				assert.Equal(t, edited, w.Node.PodManifest("velum.yaml"))
			})
		})
	}
}

// Changes of the configuration alone wait for approval, as without a boot: they may be a
// mistake.
func TestBootChangesNoOtherConfiguration(t *testing.T) {
	for name, c := range map[string]struct {
		set    func(w *world)
		reason string
	}{
		"a rewrite": {func(w *world) {
			w.Policy.Rewrites = []manifests.Rewrite{{From: "registry.suse.com", To: "mirror.example.com/suse"}}
		}, "mirror.example.com/suse/caasp/v4/velum:4.0.0-rev1: of another registry than " + velum},
		"the pull policy": {func(w *world) { w.Policy.PullPolicy = "IfNotPresent" }, "only its pull policy is another"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.Registry.Release(velum, "4.0.0", 1, "1.1")
				w.brings("4.0.0-rev1")
				w.check()
				was := w.Node.PodManifest("velum.yaml")
				c.set(w)
				becomes(t, w.boots(), "", c.reason)
				assert.Equal(t, was, w.Node.PodManifest("velum.yaml"))
			})
		})
	}
}

// The new system's images are in another namespace of the registry.
func TestBootIntoAnotherRepository(t *testing.T) {
	const next = "registry.suse.com/caasp/v4.5/velum"
	for tag, c := range map[string]struct {
		do     plan.Verb
		reason string
	}{
		"4.0.1-rev1": {plan.StepWrite, "its template is another"},
		"4.0.0-rev1": {plan.StepWrite, "its template is another"},
		"3.9.9-rev1": {"", next + ":3.9.9-rev1: lower than 4.0.0-rev1"},
	} {
		t.Run(tag, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+next+":"+tag))
				becomes(t, w.boots(), c.do, c.reason)
			})
		})
	}
}

// A container that the template adds keeps the others from starting where its image
// is not there.
func TestBootAddsNoContainerWhoseImageIsMissing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.PullPolicy = "IfNotPresent"
		w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.brings("4.0.0-rev1")
		w.check()
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1", "init:db="+mariadb+":10.0-rev1"))
		becomes(t, w.boots(), "", mariadb+":10.0-rev1: not on the node")
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

// The images on disk are held, whatever the template has in their place.
func TestBootDropsNoHeldImage(t *testing.T) {
	for name, template := range map[string][]byte{
		"from another repository": podYAML("velum", "velum=registry.suse.com/caasp/v4.5/velum:4.0.1-rev1"),
		"another container":       podYAML("velum", "db="+mariadb+":10.0-rev1"),
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				_, _, err := w.agent.Hold(t.Context(), []string{"velum"}, false, record.PersonHold{Reason: "wait"})
				require.NoError(t, err)
				w.Node.PutTemplate("velum.yaml", template)
				becomes(t, w.boots(), "", "hold: "+velum+": wait")
			})
		})
	}
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

// What has a template and is not ours to change stays without a word, and so does what
// is right while another operation owns the node.
func TestBootWithoutChangesReportsNothing(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Node.PutTemplate("etcd.yaml", podYAML("etcd", "etcd="+etcd+":4.0.1"))
		w.Node.PutPodManifest("etcd.yaml", podYAML("etcd", "etcd="+etcd+":4.0.0"))
		w.Node.PutPodManifest("foreign.yaml", podYAML("foreign", "db="+mariadb+":10.0"))
		w.Grain.SetBusy("the grain is true")
		assert.Empty(t, w.boots())
	})
}

// Under IfNotPresent kubelet starts what the node has by the template's tag, under Always what the registry has.
func TestBootDoesNotStartADeniedDigestUnderAnotherName(t *testing.T) {
	for _, policy := range []string{manifests.PullAlways, manifests.PullIfNotPresent} {
		t.Run(policy, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.Policy.PullPolicy = policy
				w.Registry.Release(velum, "4.0.0", 1, "1.1")
				w.brings("4.0.0-rev1")
				w.check()
				bad := w.bad(2, "2.1")
				w.apply()
				mended := w.Registry.Release(velum, "4.0.0", 2, "2.2")
				w.check()
				r := w.record()
				r.Denied = map[string]record.Denial{denied(bad): {At: w.Clock.Now(), PodManifest: "velum.yaml"}}
				require.NoError(t, w.Disk.Save(t.Context(), r))
				w.Node.Hold(velum+":4.0.0-rev2", bad.Digest)
				w.brings("4.0.0-rev2")
				if policy == manifests.PullIfNotPresent {
					becomes(t, w.boots(), "", "refused by failed")
					return
				}
				becomes(t, w.reboot(), plan.StepWrite, "its template is another")
				w.runs("velum.yaml", "velum", mended.Digest)
			})
		})
	}
}

// A template may name a digest itself: nothing of it follows a tag.
func TestBootWithATemplateThatNamesADigest(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+"@"+first.Digest.String()))
		becomes(t, w.boots(), plan.StepWrite, "its template is another")
		assert.Contains(t, w.Node.PodManifest("velum.yaml"), velum+"@"+first.Digest.String())
	})
}

// The same with a pod manifest that still follows a short tag: its intermediate one names what is denied.
func TestBootWithAnOlderEtcAndADenialBehindAShortTag(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		short := rendered("velum", "velum="+velum+":4.0.0")
		w.Node.PutPodManifest("velum.yaml", short)
		w.brings("4.0.0")
		w.check()
		w.bad(1, "9.9")
		w.Node.Restart("velum.yaml", "velum")
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
		w.Node.PutPodManifest("velum.yaml", short)
		becomes(t, w.boots(), plan.StepWrite, "")
		w.isPinned("4.0.0-rev1-build1.1", first.Digest)
	})
}

// Two questions have the same tag in their answers: the last answer counts.
func TestBootUsesTheLastAnswer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.Registry.Release(velum, "4.0.1", 1, "1.1")
		r := w.record()
		then := release.Release{Repository: velum, Tag: "4.0.1-rev1", Digest: first.Digest}
		now := release.Release{Repository: velum, Tag: "4.0.1-rev1", Digest: bad.Digest}
		r.Offers[velum+":4.0.1-rev1 (as written)"] = record.Answer{At: w.Clock.Now().Add(-time.Hour), Follow: then}
		r.Offers[velum+":4.0.1-rev1"] = record.Answer{At: w.Clock.Now(), Follow: now}
		r.Denied = map[string]record.Denial{denied(bad): {At: w.Clock.Now(), PodManifest: "velum.yaml"}}
		require.NoError(t, w.Disk.Save(t.Context(), r))
		w.brings("4.0.1-rev1")
		becomes(t, w.boots(), "", "refused by failed")
	})
}

// A correct pod manifest counts as the agent's only if the agent would write the same bytes and has written it before.
func TestBootAdoptsNoForeignFile(t *testing.T) {
	for name, c := range map[string]struct{ wrote, comment string }{
		"never written by the agent": {"", ""},
		"with a person's comment":    {"something older", "# a comment\n"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w, _ := running(t)
				r := w.record()
				delete(r.Wrote, "velum.yaml")
				if c.wrote != "" {
					r.Wrote["velum.yaml"] = digest.FromString(c.wrote)
				}
				require.NoError(t, w.Disk.Save(t.Context(), r))
				w.Node.PutPodManifest("velum.yaml", []byte(w.Node.PodManifest("velum.yaml")+c.comment))
				assert.Empty(t, w.boots())
				assert.Equal(t, r.Wrote["velum.yaml"], w.record().Wrote["velum.yaml"])
			})
		})
	}
}
