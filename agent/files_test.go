// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/source"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/tags"
)

// other adds a template, so that the template directory is not empty.
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
	w.Registry.Down(agenttest.ErrRefused) // a removal pulls nothing

	s := w.applies("velum.yaml")
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
		parallel(t, name, func(t *testing.T) {
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

// A template adds a container that does not come up.
func TestFailedConversionIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.Crash(bad.Digest, true)
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "more="+mariadb+":10.0", "velum="+velum+":__TAG__"))
		w.check()
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.NotContains(t, w.Node.PodManifest("velum.yaml"), "more")
	})
}

func TestBadRevisionWithANewContainerIsRolledBack(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":__TAG__", "more="+mariadb+":10.0"))
		w.bad(2, "9.9")
		w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.Len(t, w.record().Denied, 1, "nothing is known of the new container")
	})
}

// The pod in the template has another name.
func TestPodIsRenamed(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		bad := w.Registry.Release(velum, "4.0.0", 2, "9.9")
		w.Node.Crash(bad.Digest, true)
		w.Node.PutTemplate("velum.yaml", podYAML("manager", "velum="+velum+":__TAG__"))
		w.check()
		out, _ := w.apply()
		w.runs("velum.yaml", "velum", first.Digest)
		assert.NotContains(t, out[0].Reason, "does not become healthy either")
		w.observe()
		w.idle()
	})
}

// A person deletes the file during the health check.
func TestFileDeletedDuringHealthCheck(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.Policy.Settle = 10 * time.Second
		w.Policy.Manage = map[string]bool{"mine.yaml": true}
		w.restart()
		w.Registry.Release(mariadb, "10.0", 1, "1.1")
		w.Node.PutPodManifest("mine.yaml", rendered("mine", "db="+mariadb+":10.0-rev1"))
		w.check()
		w.Registry.Release(mariadb, "10.0", 1, "1.2")
		w.check()
		time.AfterFunc(5*time.Second, func() { w.Node.PutPodManifest("mine.yaml", nil) })
		_, _, err := w.agent.Apply(t.Context(), agent.ApplyRequest{Which: plan.Named("mine.yaml")})
		require.NoError(t, err)
		assert.Empty(t, w.Node.PodManifest("mine.yaml"))
		assert.Empty(t, w.record().Denied)
	})
}

// A newer release is staged for an unmanaged pod manifest: status, plan and apply report the same.
func TestUnmanagedPodIsReportedOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch} }
	w.Registry.Release(etcd, "3.4.13", 1, "1.1")
	w.Node.PutPodManifest("etcd.yaml", podYAML("etcd", "etcd="+etcd+":3.4.13"))
	assert.Equal(t, status.StateCurrent, w.check().State, "that it is unmanaged alone is no news")
	w.Registry.Release(etcd, "3.4.14", 1, "1.1")

	s := w.check()

	const reason = "unmanaged: etcd.yaml has no template and is not listed under manage"
	assert.Equal(t, status.StateHeld, s.State)
	assert.Equal(t, "etcd.yaml: "+reason, s.Reason)
	plan, err := w.agent.Plan(t.Context(), source.PollNone)
	require.NoError(t, err)
	assert.Equal(t, status.ResultHeld, plan.Pods[0].Standing().Result)
	assert.Equal(t, reason, plan.Pods[0].Standing().Reason)
	out, _ := w.apply()
	assert.Equal(t, status.ResultHeld, out[0].Result)
	assert.Equal(t, reason, out[0].Reason)

	// An unmanaged pod does not hide an offer that can be applied.
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev1"))
	w.check()
	w.Node.Sync()
	w.Registry.Release(velum, "4.0.0", 1, "1.2")
	s = w.check()
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "waiting for approval: velum.yaml (rebuild)", s.Reason)
}

var errLink = errors.New("unsafe: symlink")

func velumWith(old, with string) []byte {
	return []byte(strings.Replace(string(podYAML("velum", "velum="+velum+":4.0.0-rev1")), old, with, 1))
}

// duplicates are files next to velum.yaml that define the same pod to kubelet, or may do so.
var duplicates = map[string]struct {
	name string
	put  func(w *world, name string)
}{
	"copy":              {"velum.yaml.backup", putText(velumWith("", ""))},
	"older release":     {"velum.yaml.rpmsave", putText(velumWith("rev1", "rev0"))},
	"upper case suffix": {"a.YAML", putText(velumWith("", ""))},
	"several documents": {"z.yaml", putText(append(velumWith("", ""), "---\n[\n"...))},
	"no containers":     {"z.yaml", putText([]byte("apiVersion: v1\nkind: Pod\nmetadata: {name: velum}\n"))},
	"byte order mark":   {"z.yaml", putText(append([]byte("\uFEFF"), velumWith("", "")...))},
	"JSON": {"velum.json", putText([]byte(
		`{"apiVersion":"v1","kind":"Pod","metadata":{"name":"vel\u0075m"},"spec":{"containers":[{"name":"a","image":"r.example\/a:1"}]}}`))},
	"symlink to it": {"link.yaml", func(w *world, name string) {
		w.Node.PutFollowed(name, errLink, []byte(w.Node.PodManifest("velum.yaml")))
	}},
	"unreadable": {"velum.yaml.bak", func(w *world, name string) { w.Node.PutBroken(name, errors.New("input/output error")) }},
}

func putText(text []byte) func(w *world, name string) {
	return func(w *world, name string) { w.Node.PutPodManifest(name, text) }
}

// kubelet runs one pod per namespace and name, from the file that it read last. Until a person has removed one of the
// files, the agent does not apply, render or roll back that pod.
func TestPodOfTwoFilesIsHeld(t *testing.T) {
	t.Parallel()
	for name, c := range duplicates {
		run(t, name, func(t *testing.T) {
			w, first := running(t)
			w.other()
			w.check()
			next := w.Registry.Release(velum, "4.0.0", 2, "2.1")
			before := w.Node.PodManifest("velum.yaml")
			c.put(w, c.name)

			s := w.check()

			held := podOf(s, "velum.yaml").Holds
			require.Len(t, held, 1)
			assert.Equal(t, status.HoldDuplicate, held[0].Name)
			assert.Contains(t, held[0].Reason, "default/velum")
			assert.Contains(t, held[0].Reason, c.name)
			if s.State != status.StateFailed { // the agent cannot parse the second file
				assert.Equal(t, status.StateHeld, s.State, s.Reason)
				assert.Contains(t, s.Reason, c.name)
			}
			for _, do := range []func(...string) ([]status.Outcome, status.Status){w.apply, w.rollback} {
				out, _ := do("velum.yaml")
				require.Len(t, out, 1)
				assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
				assert.Equal(t, status.HoldDuplicate, out[0].Hold)
			}
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0-rev2"))
			w.observe()
			steps, err := w.agent.Boot(t.Context())
			require.NoError(t, err)
			assertKept(t, steps, "velum.yaml")
			assert.Equal(t, before, w.Node.PodManifest("velum.yaml"))
			assert.Empty(t, w.record().Overrides)
			assert.Empty(t, w.record().Denied)
			assert.True(t, w.Node.Pinned(velum, first.Digest))

			w.Node.PutPodManifest(c.name, nil)
			w.check()
			out, _ := w.apply("velum.yaml")
			assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
			w.runs("velum.yaml", "velum", next.Digest)
		})
	}
}

func assertKept(t *testing.T, steps []plan.BootStep, file string) {
	t.Helper()
	for _, s := range steps {
		if s.File == file {
			assert.Empty(t, s.Do)
			assert.Contains(t, s.Reason, status.HoldDuplicate)
		}
	}
}

// kubelet may run the pod of the second file: its failure says nothing about the release and causes no rollback.
func TestSecondFileAddedDuringAHealthCheckCausesNoDenial(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, _ := running(t)
		w.bad(1, "9.9") // a rebuild: the container is stopped
		before := w.Node.PodManifest("velum.yaml")
		w.Node.OnStop = func(string) error {
			w.Node.OnStop = nil
			w.Node.PutFollowed("link.yaml", errLink, []byte(before))
			return nil
		}
		out, s := w.apply("velum.yaml")
		assert.Equal(t, status.ResultHeld, out[0].Result, out[0].Reason)
		assert.Equal(t, status.HoldDuplicate, podOf(s, "velum.yaml").Holds[0].Name)
		assert.Equal(t, before, w.Node.PodManifest("velum.yaml"))
		assert.Empty(t, w.record().Denied)
		assert.Empty(t, w.record().Overrides)
	})
}

// A rollback that has begun waits until there is only one file again.
func TestRollbackWaitsForOneFile(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w, first := running(t)
		w.bad(1, "9.9")
		before := w.Node.PodManifest("velum.yaml")
		w.Node.OnAside = func(string) error { // the rollback sets it aside
			w.Node.OnAside = nil
			w.Node.PutPodManifest("velum.json", []byte(before))
			return nil
		}
		_, s := w.apply("velum.yaml")
		assert.Equal(t, before, w.Node.PodManifest("velum.yaml"))
		assert.Equal(t, before, w.Node.PodManifest("velum.json"))
		assert.Contains(t, s.Reason, "velum.json")
		w.observe()
		assert.Equal(t, before, w.Node.PodManifest("velum.yaml"))
		require.True(t, w.record().Overrides["velum.yaml"].Pending)

		w.Node.PutPodManifest("velum.json", nil)
		w.observe()
		w.runs("velum.yaml", "velum", first.Digest)
		w.isPinned("4.0.0-rev1-build1.1", first.Digest)
	})
}

// The agent follows and ignores the same files as kubelet: links that it must not write, and files without a pod.
func TestFilesThatKubeletFollowsOrIgnores(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Policy.Manage = map[string]bool{"link.yaml": true}
	w.restart()
	w.Registry.Release(mariadb, "10.2.15", 1, "1.1")
	w.Node.PutFollowed("link.yaml", errLink, podYAML("db", "db="+mariadb+":10.2.15-rev1"))
	for _, name := range []string{"old", "gone.yaml"} {
		w.Node.PutFollowed(name, errors.New("unsafe: directory"), nil)
	}
	for name, text := range map[string]string{
		"README": "Keep out.\n", "empty.yaml": "", "list.yaml": "apiVersion: v1\nkind: List\nitems: []\n",
		"config.yaml": "kind: ClusterConfiguration\n", "archive.gz": "\x1f\x8b\x00", "comment.yaml": "# none\n",
	} {
		w.Node.PutPodManifest(name, []byte(text))
	}
	s := w.check()
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Len(t, s.PodManifests, 2)
	require.Len(t, podOf(s, "link.yaml").Holds, 1)
	assert.Equal(t, status.HoldUnmanaged, podOf(s, "link.yaml").Holds[0].Name)
	assert.Contains(t, podOf(s, "link.yaml").Holds[0].Reason, "unsafe: symlink")
	assert.NotNil(t, image(s, "link.yaml", "db"))

	w.Registry.Release(mariadb, "10.2.15", 2, "2.1")
	s = w.check()
	assert.NotNil(t, image(s, "link.yaml", "db").Offered)
	out, _ := w.apply("link.yaml")
	assert.Equal(t, status.ResultHeld, out[0].Result)
	p, err := w.agent.Plan(t.Context(), source.PollNone)
	require.NoError(t, err)
	var passed []string
	for _, f := range p.PassedOver {
		passed = append(passed, f.File)
	}
	assert.Equal(t, []string{"README", "archive.gz", "comment.yaml", "config.yaml", "empty.yaml", "gone.yaml", "list.yaml", "old"}, passed)
}

// kubelet's pull from a login page leaves a tag with a broken image record. The agent points the tag at the running or
// last known good release again; the source counts as failed until it answers.
func TestTagThatNamesNoImageIsRestored(t *testing.T) {
	t.Parallel()
	ref := release.Reference{Repository: velum, Tag: "4.0.0-rev1"}
	for name, c := range map[string]struct {
		before   func(w *world, good release.Release)
		restored bool
	}{
		"of a container that runs": {func(*world, release.Release) {}, true},
		"of one that does not":     {func(w *world, _ release.Release) { w.Node.SetKubelet(false); w.Node.Restart("velum.yaml", "velum") }, true},
		"what was denied since is not": {func(w *world, good release.Release) {
			r := w.record()
			r.Denied = map[string]record.Denial{denied(good): {At: w.Clock.Now(), PodManifest: "velum.yaml"}}
			require.NoError(w.t, w.Disk.Save(w.t.Context(), r))
			w.restart()
		}, false},
		"what is lost cannot be": {func(w *world, good release.Release) {
			w.Node.Lose(good.Digest)
			w.Node.OnStage = func(context.Context, release.Release) error { return agenttest.ErrRefused }
		}, false},
	} {
		parallel(t, name, func(t *testing.T) {
			w, good := running(t)
			require.Contains(t, w.Node.Names(good.Digest), ref.String())
			c.before(w, good)

			w.Node.PullPage(ref)
			s := w.cycle(source.PollNone)
			assert.Equal(t, c.restored, slices.Contains(w.Node.Names(good.Digest), ref.String()))
			assert.True(t, w.Node.Pinned(velum, good.Digest), "the pin keeps the image")
			require.Len(t, s.Sources, 1)
			from := s.Sources[0]
			assert.Equal(t, release.CauseNoRegistry, from.Cause)
			assert.Contains(t, from.Error, "kubelet pulled "+ref.String()+" and got text/html, from a login page or another server; the tag names ")
			assert.NotNil(t, from.RetryAt, "it is asked again soon")
			assert.NotEqual(t, status.StateCurrent, s.State)
			if c.restored {
				assert.Contains(t, from.Error, "names "+good.Digest.String()+" again")
			} else {
				assert.Contains(t, from.Error, "names no image until the next pull: ")
			}
			w.Node.OnStage = nil
			w.cycle(source.PollNone) // what was lost is fetched
			assert.Zero(t, w.cycle(source.PollAll).Sources[0].Failures, "the registry is back")
		})
	}
}

// After a power cut before or after the restoring, or a full disk during it, the next cycle restores the tag.
func TestPowerCutWhileATagIsRestored(t *testing.T) {
	t.Parallel()
	ref := release.Reference{Repository: velum, Tag: "4.0.0-rev1"}
	for when, how := range map[string]powerCut{"before": {}, "after": {after: true}, "full": {full: true}} {
		for at := 1; ; at++ {
			w, good := running(t)
			w.Node.PullPage(ref)
			cut := &powerCut{at: at, after: how.after, full: how.full}
			if !w.dies(cut, func(a *agent.Agent) { _, _ = a.Cycle(t.Context(), source.PollNone) }) {
				assert.Greater(t, at, 2, when)
				break
			}
			w.restart()
			w.observe()
			assert.Contains(t, w.Node.Names(good.Digest), ref.String(), "%s call %d: %s", when, at, cut.where)
			assert.Equal(t, status.StateCurrent, w.check().State)
		}
	}
}

// rke2Etcd returns etcd's pod manifest as RKE2 writes it (its pkg/podtemplate).
func rke2Etcd(image string) []byte {
	return []byte(`apiVersion: v1
kind: Pod
metadata:
  annotations:
    etcd.k3s.io/initial: '{}'
  labels:
    component: etcd
    tier: control-plane
  name: etcd
  namespace: kube-system
  uid: 0a1b2c3d4e5f
spec:
  containers:
  - command:
    - etcd
    image: ` + image + `
    imagePullPolicy: IfNotPresent
    name: etcd
  hostNetwork: true
status: {}
`)
}

// onRKE2 returns a node whose etcd was written by RKE2 and has a patch release.
func onRKE2(t *testing.T) *world {
	t.Helper()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Major} }
	w.Policy.Owned = map[string]string{"etcd.yaml": "rke2"}
	w.Registry.Release(etcd, "3.4.13", 1, "1.1")
	w.Node.PutPodManifest("etcd.yaml", rke2Etcd(etcd+":3.4.13"))
	w.check()
	w.Node.Sync()
	require.Equal(t, status.StateCurrent, w.check().State)
	return w
}

// RKE2 rewrites its pods at each start, so an edit would not last: newer releases are only shown, even if the file is
// listed, and for every size of change.
func TestDistributionPodsAreShownAndNeverWritten(t *testing.T) {
	t.Parallel()
	listed := map[string]bool{"etcd.yaml": true}
	for name, edit := range map[string]func(*world){
		"as it is":          func(*world) {},
		"listed":            func(w *world) { w.Policy.Manage = listed },
		"in mode auto":      func(w *world) { w.Policy.Auto, w.Policy.Manage = true, listed },
		"a template, too":   func(w *world) { w.Node.PutTemplate("etcd.yaml", rke2Etcd(etcd+":3.5.0")) },
		"listed, as Always": func(w *world) { w.Policy.Manage, w.Policy.ManagedPullPolicy = listed, "Always" },
	} {
		parallel(t, name, func(t *testing.T) {
			w := onRKE2(t)
			edit(w)
			was := w.Node.PodManifest("etcd.yaml")
			newer := w.Registry.Release(etcd, "4.0.0", 1, "1.1")
			w.Registry.Release(etcd, "3.5.0", 1, "1.1")
			w.restart()

			s := w.check()

			const reason = "distribution: rke2 writes etcd.yaml itself at each start"
			assert.Equal(t, status.StateCurrent, s.State, "an admin of the agent can do nothing about it: %s", s.Reason)
			require.Len(t, podOf(s, "etcd.yaml").Holds, 1)
			assert.Equal(t, status.HoldDistribution, podOf(s, "etcd.yaml").Holds[0].Name)
			assert.Empty(t, w.Grain.Last().Updates)
			assert.False(t, w.Node.Pinned(etcd, newer.Digest), "what is never applied is not pulled")
			out, _ := w.apply()
			assert.Empty(t, out, "an apply of everything does not end as held")
			out, _ = w.apply("etcd")
			assert.Equal(t, status.ResultHeld, out[0].Result)
			assert.Equal(t, reason, out[0].Reason)
			assert.Empty(t, w.boots(), "and the boot leaves it alone")
			assert.Equal(t, was, w.Node.PodManifest("etcd.yaml"))
			w.Node.Sync()
			plan, err := w.agent.Plan(t.Context(), source.PollNone)
			require.NoError(t, err)
			assert.Empty(t, plan.Steps)
		})
	}
}

func TestNewerReleaseForADistributionPodIsShown(t *testing.T) {
	t.Parallel()
	w := onRKE2(t)
	newer := w.Registry.Release(etcd, "4.0.0", 1, "1.1")

	s := w.check()

	i := image(s, "etcd.yaml", "etcd")
	require.NotNil(t, i.Offered, "not refused as a control plane of kubeadm, which would be told to use kubeadm upgrade")
	assert.Equal(t, newer.Digest, i.Offered.Digest)
	assert.False(t, i.Staged)
	assert.Equal(t, "major", podOf(s, "etcd.yaml").Change)
}

// RKE2 is upgraded and writes etcd's pod with another image: the agent follows it and updates other pods as on any
// node.
func TestOtherPodsAreUpdatedOnRKE2(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := onRKE2(t)
		first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
		w.Node.PutPodManifest("lb.yaml", podYAML("lb", "lb="+velum+":4.0.0-rev1"))
		w.Policy.Manage = map[string]bool{"lb.yaml": true}
		w.restart()
		w.check()
		w.Node.Sync()
		w.check()
		w.runs("lb.yaml", "lb", first.Digest)
		second := w.Registry.Release(velum, "4.0.0", 2, "1.1")
		w.Registry.Release(etcd, "3.4.14", 1, "1.1")
		assert.Equal(t, status.StateStaged, w.check().State)
		w.Node.PutPodManifest("etcd.yaml", rke2Etcd(etcd+":3.4.14"))
		w.Node.Sync()

		out, s := w.apply("velum")

		assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		w.runs("lb.yaml", "lb", second.Digest)
		assert.Equal(t, string(rke2Etcd(etcd+":3.4.14")), w.Node.PodManifest("etcd.yaml"))
		assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	})
}

// The record is from a time when the agent wrote the file and was about to roll it back: the agent does not write over
// RKE2's file.
func TestOldRecordDoesNotOverwriteDistributionPods(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newWorld(t)
		w.Policy.Manage = map[string]bool{"etcd.yaml": true}
		first := w.Registry.Release(etcd, "3.4.13", 1, "1.1")
		w.Node.PutPodManifest("etcd.yaml", rke2Etcd(etcd+":3.4.13"))
		w.check()
		w.Node.Sync()
		w.check()
		w.Registry.Release(etcd, "3.4.13", 1, "1.2")
		w.check()
		out, _ := w.apply()
		require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
		out, _ = w.rollback("etcd")
		require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
		w.runs("etcd.yaml", "etcd", first.Digest)

		w.Policy.Owned = map[string]string{"etcd.yaml": "rke2"}
		w.Node.PutPodManifest("etcd.yaml", rke2Etcd(etcd+":3.4.13")) // RKE2 has started
		w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
		w.restart()
		w.check()
		w.boots()
		w.check()
		out, _ = w.rollback("etcd")
		assert.NotEqual(t, status.ResultRolledBack, out[0].Result)
		assert.Equal(t, string(rke2Etcd(etcd+":3.4.13")), w.Node.PodManifest("etcd.yaml"))
	})
}

const scheduler = "registry.example.com/kube-scheduler"

// schedulerYAML returns a pod manifest with kubeadm's labels; kubeadm's new one differs in a flag as well as in the
// image.
func schedulerYAML(tag, flag string) []byte {
	return []byte(`apiVersion: v1
kind: Pod
metadata:
  labels:
    component: kube-scheduler
    tier: control-plane
  name: kube-scheduler
  namespace: kube-system
spec:
  containers:
  - command:
    - kube-scheduler
    - --` + flag + `
    image: ` + scheduler + ":" + tag + `
    imagePullPolicy: IfNotPresent
    name: kube-scheduler
`)
}

// kubeadm changes a file as `kubeadm upgrade` does (cmd/kubeadm/app/phases/upgrade/staticpods.go, upgradeComponent): it
// moves the old one to a backup, then the new one to its place. Calls of the agent come in between.
type kubeadm struct {
	node       *agenttest.Node
	at, gap    int    // the call before which the old file is moved, and the number of calls until the new one is moved
	sync       bool   // kubelet syncs in between
	back       bool   // the upgrade fails, and the old file is moved back
	calls      int    // of the agent
	backup     string // the content of the moved file
	moved, new bool
}

const upgraded = "kube-scheduler.yaml"

// Around makes a call, after kubeadm's changes before it.
func (k *kubeadm) Around(_ string, do func() error) error {
	if k.calls++; k.calls == k.at {
		k.moveOld()
	}
	if k.calls == k.at+k.gap {
		k.moveNew()
	}
	return do()
}

// Asked ignores the agent's questions.
func (k *kubeadm) Asked(string) {}

// moveOld fails if the agent has set the file aside, and so does the upgrade: an admin starts it again.
func (k *kubeadm) moveOld() {
	if k.backup = k.node.PodManifest(upgraded); k.backup == "" {
		return
	}
	k.moved = true
	k.node.PutPodManifest(upgraded, nil)
	if k.sync {
		k.node.Sync()
	}
}

func (k *kubeadm) moveNew() {
	if !k.moved || k.new {
		return
	}
	k.new = true
	to := schedulerYAML("1.35.0-rev1", "v=3")
	if k.back {
		to = []byte(k.backup)
	}
	k.node.PutPodManifest(upgraded, to)
	if k.sync {
		k.node.Sync()
	}
}

// Whenever kubeadm changes the file during an apply, the agent neither loses nor overwrites it, and follows the file
// that it finds.
func TestKubeadmUpgradesDuringAnApply(t *testing.T) {
	for _, rebuild := range []bool{true, false} {
		for _, sync := range []bool{true, false} {
			for _, back := range []bool{false, true} {
				for gap := range 4 {
					run(t, fmt.Sprintf("rebuild %t, sync %t, back %t, gap %d", rebuild, sync, back, gap), func(t *testing.T) {
						at := 1
						for ; upgradeOnce(t, &kubeadm{at: at, gap: gap, sync: sync, back: back}, rebuild); at++ {
						}
						assert.Greater(t, at, 5, "calls of an apply")
					})
				}
			}
		}
	}
}

// upgradeOnce reports whether the apply made that many calls.
func upgradeOnce(t *testing.T, k *kubeadm, rebuild bool) bool {
	t.Helper()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Patch} }
	w.Policy.Manage = map[string]bool{upgraded: true}
	w.Registry.Release(scheduler, "1.34.1", 1, "1.1")
	w.Node.PutPodManifest(upgraded, schedulerYAML("1.34.1-rev1", "v=2"))
	w.check()
	w.Node.Sync()
	w.check()
	next := w.Registry.Release(scheduler, "1.35.0", 1, "1.1")
	if rebuild {
		w.Registry.Release(scheduler, "1.34.1", 1, "1.2")
	} else {
		w.Registry.Release(scheduler, "1.34.2", 1, "1.1")
	}
	require.Equal(t, status.StateStaged, w.check().State)
	k.node = w.Node
	a := w.Agent()
	agenttest.Intercept(a, k)
	_, _, _ = a.Apply(t.Context(), agent.ApplyRequest{Which: plan.All()})
	reached := k.calls >= k.at

	for !k.new { // the apply ended in between, or the upgrade failed and is started again
		if !k.moved {
			k.moveOld()
			require.True(t, k.moved, "call %d: the file is there for kubeadm", k.at)
		}
		k.moveNew()
	}
	w.restart()
	s := w.check()
	for range 3 {
		w.Clock.Add(10 * time.Minute)
		w.Node.Sync()
		s = w.check()
	}
	here := fmt.Sprintf("call %d of %d: %s: %s", k.at, k.calls, s.State, s.Reason)
	require.Empty(t, w.Node.Aside(), here)
	if k.back {
		require.NotEmpty(t, w.Node.PodManifest(upgraded), here)
		require.Contains(t, w.Node.PodManifest(upgraded), "--v=2", here)
	} else {
		require.Equal(t, string(schedulerYAML("1.35.0-rev1", "v=3")), w.Node.PodManifest(upgraded), here)
		w.runs(upgraded, "kube-scheduler", next.Digest)
		require.Equal(t, status.StateCurrent, s.State, here)
		require.NotContains(t, w.Disk.JSON(), `"pending"`, here)
	}
	c, is := w.Node.Container(upgraded, "kube-scheduler")
	require.True(t, is && c.Running, here)
	p, err := w.agent.Plan(t.Context(), source.PollNone)
	require.NoError(t, err, here)
	require.Empty(t, p.Steps, here)
	return reached
}
