// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

// other keeps the template directory from being empty.
func (w *world) other() {
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("other.yaml", podYAML("other", "db="+mariadb+":10.0"))
}

func TestOrphanOfOurs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		before        func(w *world)
		change, holds string
		stays         bool
	}{
		"runs: its removal is an offer":             {func(w *world) { w.other() }, "remove", "", true},
		"whose pod is not there is removed":         {func(w *world) { w.other(); w.Node.Kubelet = false; w.Node.EndPod("velum.yaml") }, "", "", false},
		"crashes: that is no reason to take it":     {func(w *world) { w.other(); w.crash() }, "remove", "", true},
		"was edited: it is not ours any more":       {func(w *world) { w.other(); w.edit() }, "", "edited", true},
		"without any template: the package is away": {func(*world) {}, "", "unmanaged", true},
		"that is listed under manage stays": {func(w *world) {
			w.other()
			w.Policy.Manage = map[string]bool{"velum.yaml": true}
			w.restart()
		}, "", "", true},
		"on a busy node stays": {func(w *world) {
			w.other()
			w.Grain.SetBusy("busy")
			w.Node.Kubelet = false
			w.Node.EndPod("velum.yaml")
		}, "remove", "busy", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, _ := running(t)
			w.Node.PutTemplate("velum.yaml", nil)
			c.before(w)

			s := w.check()

			assert.Equal(t, c.stays, w.Node.PodManifest("velum.yaml") != "")
			assert.Equal(t, c.change, podOf(s, "velum.yaml").Change, s.Reason)
			if c.holds != "" {
				require.NotEmpty(t, podOf(s, "velum.yaml").Holds)
				assert.Equal(t, c.holds, podOf(s, "velum.yaml").Holds[0].Name)
			}
			for _, u := range w.Grain.Last().Updates {
				assert.NotEqual(t, velum, u.Image, "a removal is no image update")
			}
		})
	}
}

func (w *world) crash() {
	c, _ := w.Node.Container("velum.yaml", "velum")
	w.Node.Crash(c.Digests[0], true)
	w.Node.Restart("velum.yaml", "velum")
}

func (w *world) edit() {
	w.Node.PutPodManifest("velum.yaml", append([]byte(w.Node.PodManifest("velum.yaml")), "# mine\n"...))
}

func TestRenderedFileGoesWithItsTemplate(t *testing.T) {
	t.Parallel()
	for _, edited := range []bool{false, true} {
		w, _ := running(t)
		w.other()
		w.Registry.Release(velum, "4.0.0", 2, "1.1")
		w.check()
		require.NotEmpty(t, w.Node.WaitingFile("velum.yaml"))
		w.Node.PutTemplate("velum.yaml", nil)
		if edited {
			w.edit()
		}
		w.look()
		assert.Empty(t, w.Node.WaitingFile("velum.yaml"))
	}
}

func TestRemovalIsAppliedWhenApproved(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	w.Node.PutTemplate("velum.yaml", nil)
	w.other()
	w.check()
	w.Registry.Down(agenttest.ErrRefused) // nothing is pulled for it

	out, s := w.apply("velum.yaml")

	assert.Equal(t, agent.ResultApplied, out[0].Result, out[0].Reason)
	assert.Empty(t, w.Node.PodManifest("velum.yaml"))
	assert.Empty(t, podOf(s, "velum.yaml"))
	assert.NotContains(t, w.Disk.JSON(), "velum.yaml")
	w.Registry.Down(nil)
	w.check()
	assert.False(t, w.Node.Pinned(velum, first.Digest), "nothing needs it any more")
	w.idle()
}

func TestSomebodyElsesFileWithoutTemplateIsNeverTouched(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.other()
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	s := w.check()
	w.apply()
	assert.Equal(t, "unmanaged", podOf(s, "velum.yaml").Holds[0].Name)
	assert.Equal(t, string(podYAML("velum", "velum="+velum+":4.0.0")), w.Node.PodManifest("velum.yaml"))
}

func TestEqualDecodedIsWrittenAtOnce(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	before, _ := w.Node.Container("velum.yaml", "velum")
	w.Node.PutTemplate("velum.yaml", append([]byte("# new comment\n"), podYAML("velum", "velum="+velum+":__TAG__")...))

	w.look()

	assert.Contains(t, w.Node.PodManifest("velum.yaml"), "# new comment")
	after, _ := w.Node.Container("velum.yaml", "velum")
	assert.Equal(t, before.ID, after.ID, "nothing restarts")
	w.idle()
}

func TestForeignEditIsRespected(t *testing.T) {
	t.Parallel()
	w, first := running(t)
	edited := rendered("velum", "velum="+velum+":4.0.0-rev1", "mine="+velum+":4.0.0-rev1")
	w.Node.PutPodManifest("velum.yaml", edited)

	s := w.look()

	assert.Equal(t, string(edited), w.Node.PodManifest("velum.yaml"))
	assert.Equal(t, "convert", podOf(s, "velum.yaml").Change, "bringing it back would restart the pod")
	assert.NotEmpty(t, w.Node.WaitingFile("velum.yaml"))
	w.runs("velum.yaml", "velum", first.Digest)
	w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":4.0.0-rev1"))
	s = w.look()
	assert.Empty(t, w.Node.WaitingFile("velum.yaml"), "what is not wanted any more is dropped")
	assert.Equal(t, agent.StateCurrent, s.State, s.Reason)
}

func TestWriteThatConflictsIsPlannedAnew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	foreign := podYAML("velum", "velum="+velum+":4.0.0-rev1")
	w.Node.OnStage = func(_ context.Context, _ agent.Release) error {
		w.Node.PutPodManifest("velum.yaml", foreign)
		return nil
	}

	s := w.check()

	assert.Equal(t, string(foreign), w.Node.PodManifest("velum.yaml"))
	assert.Equal(t, agent.StateHeld, s.State)
	assert.Contains(t, s.Reason, "changed by somebody else")
	assert.Equal(t, agent.StateStaged, w.look().State)
}

func TestBrokenFilesStopNoOtherAndDropNoPin(t *testing.T) {
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
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w, first := running(t)
			w.other()
			c.breaks(w)

			s := w.check()

			assert.Equal(t, agent.StateFailed, s.State)
			assert.Contains(t, s.Reason, c.reason)
			assert.Contains(t, podOf(s, "velum.yaml").Error, c.reason)
			assert.NotEmpty(t, w.Node.PodManifest("other.yaml"), "the others go on")
			assert.True(t, w.Node.Pinned(velum, first.Digest))
			out, _ := w.apply("velum.yaml")
			assert.Equal(t, agent.ResultFailed, out[0].Result)
		})
	}
}

func TestImagesOfTheConfigurationAreStagedAndPinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Policy.Images = []agent.Reference{{Repository: velum, Tag: "4.0.0"}}
	s := w.check()
	assert.True(t, w.Node.Pinned(velum, first.Digest))
	require.Len(t, s.Images, 1)
	assert.Equal(t, "4.0.0", s.Images[0].Follow)
	assert.True(t, s.Images[0].Staged)
	w.idle()

	second := w.Registry.Release(velum, "4.0.0", 1, "1.2")
	w.poll()
	assert.True(t, w.Node.Pinned(velum, second.Digest))
	w.poll()
	assert.False(t, w.Node.Pinned(velum, first.Digest), "the former is not needed")

	w.Registry.Retract(velum, "4.0.0")
	w.poll()
	assert.True(t, w.Node.Pinned(velum, second.Digest), "while anything is unclear no pin goes")
}

func TestShortTagOfTemplateAndConfigurationDoNotDisturbEachOther(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Policy.Images = []agent.Reference{{Repository: velum, Tag: "4.0.0"}}
	old := podYAML("velum", "velum="+velum+":4.0.0")
	w.Node.PutPodManifest("velum.yaml", old)
	w.Node.PutTemplate("velum.yaml", old)
	w.check()
	want := w.Node.WaitingFile("velum.yaml")
	require.Contains(t, want, "4.0.0-rev1")
	for range 3 {
		w.poll()
		assert.Equal(t, want, w.Node.WaitingFile("velum.yaml"))
	}
}

func TestTagToStartFrom(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ template, disk, value, want string }{
		"placeholder: the newest intermediate":          {"__TAG__", "", "", "4.0.0-rev3"},
		"placeholder with a value":                      {"__TAG__", "", "4.0.0-rev2", "4.0.0-rev2"},
		"placeholder with a short value: its twin":      {"__TAG__", "", "4.0.0", "4.0.0-rev3"},
		"placeholder, copied by the old setup script":   {"__TAG__", "__TAG__", "", "4.0.0-rev3"},
		"placeholder with a value and the agent beyond": {"__TAG__", "4.0.0-rev2", "4.0.0-rev1", "4.0.0-rev2"},
		"short: the intermediate with its digest":       {"4.0.0", "", "", "4.0.0-rev3"},
		"short of an older application version":         {"3.9.0", "", "", "3.9.0-rev7"},
		"long: its intermediate":                        {"4.0.0-rev2-build1.1", "", "", "4.0.0-rev2"},
		"intermediate stays":                            {"4.0.0-rev1", "", "", "4.0.0-rev1"},
		"the template is behind the pod manifest":       {"4.0.0-rev1", "4.0.0-rev2", "", "4.0.0-rev2"},
		"the template is ahead of it":                   {"4.0.0-rev2", "4.0.0-rev1", "", "4.0.0-rev2"},
		"foreign: followed by digest":                   {"stable", "", "", "stable"},
		"foreign on disk: the template's word stands":   {"4.0.0-rev1", "stable", "", "4.0.0-rev1"},
		"short without any twin stays":                  {"5.0.0", "", "", "5.0.0"},
		"long without an intermediate stays":            {"5.0.0-rev1-build1.1", "", "", "5.0.0-rev1-build1.1"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.Policy.Rule = func(string) agent.Rule { return agent.Rule{Updates: tags.Rebuild} }
			w.Policy.Values = map[string]string{velum: c.value}
			w.Registry.Release(velum, "3.9.0", 7, "1.1")
			for rev := 1; rev <= 3; rev++ {
				w.Registry.Release(velum, "4.0.0", rev, "1.1")
			}
			w.Registry.Publish(velum, "5.0.0", "stable", "5.0.0-rev1-build1.1")
			w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":"+c.template))
			if c.disk != "" {
				w.Node.PutPodManifest("velum.yaml", rendered("velum", "velum="+velum+":"+c.disk))
			}

			s := w.check()

			got := w.Node.WaitingFile("velum.yaml")
			if got == "" {
				got = w.Node.PodManifest("velum.yaml")
			}
			assert.Equal(t, string(rendered("velum", "velum="+velum+":"+c.want)), got, s.Reason)
		})
	}
}

func TestOldRefusalDoesNotAnswerForAPodThatIsNew(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Retract(velum, "4.0.0-rev1")
	w.Node.PutPodManifest("old.yaml", podYAML("old", "old="+velum+":4.0.0-rev1"))
	w.Policy.Manage = map[string]bool{"old.yaml": true}
	require.Equal(t, agent.StateFailed, w.check().State)
	w.Node.PutPodManifest("old.yaml", nil)
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.Registry.Release(velum, "4.0.0", 1, "1.2")

	s := w.check()

	assert.Equal(t, agent.StateCurrent, s.State, s.Reason)
}

func TestMirrorWithoutListsAndLongTagsStillOffersByDigest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.DownLists(&agent.SourceError{Repository: velum, Host: agenttest.Host, Status: 403, Err: errors.New("403 Forbidden")})
	first := w.Registry.Publish(velum, "4.0.0")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	s := w.poll()
	require.Equal(t, agent.StateCurrent, s.State, s.Reason)
	assert.Contains(t, w.Node.Names(first.Digest), velum+"@"+first.Digest.String(), "staged by its digest")
	w.Registry.Counts()
	w.poll()
	assert.Equal(t, agenttest.Counts{Heads: 1}, w.Registry.Counts(), "its refusal to list is remembered")
	second := w.Registry.Publish(velum, "4.0.0")

	s = w.poll()

	i := image(s, "velum.yaml", "velum")
	assert.Equal(t, &agent.Named{Tag: "4.0.0", Digest: second.Digest}, i.Offered)
	out, _ := w.apply()
	assert.Equal(t, agent.ResultApplied, out[0].Result, out[0].Reason)
}

func TestRewrittenRepositoryIsAskedAndWritten(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Rewrites = []manifests.Rewrite{{From: "sles12", To: "registry.suse.com/caasp/v4"}}
	w.Policy.Values = map[string]string{"sles12/velum": "4.0.0-rev1"}
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum=sles12/velum:__TAG__"))
	w.check()
	assert.Equal(t, string(rendered("velum", "velum="+velum+":4.0.0-rev1")), w.Node.PodManifest("velum.yaml"))
}

func TestContainerPutInFrontOfAnotherIsNotTakenForIt(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "db="+mariadb+":10.0", "velum="+velum+":__TAG__"))

	s := w.check()

	assert.Equal(t, "convert", podOf(s, "velum.yaml").Change)
	assert.Empty(t, image(s, "velum.yaml", "velum").Change)
	out, _ := w.apply()
	assert.Equal(t, agent.ResultApplied, out[0].Result, out[0].Reason)
}

func TestVolumeWithAContainersNameIsNotTakenForIt(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":4.0.0"),
		"  volumes:\n  - name: velum\n    image:\n      reference: "+mariadb+":10.0\n"...))
	s := w.check()
	assert.Equal(t, agent.StateCurrent, s.State, s.Reason)
	s = w.look()
	assert.Equal(t, agent.StateCurrent, s.State, s.Reason)
	for _, i := range s.Images {
		if i.Image == mariadb {
			assert.Nil(t, i.Running)
		} else {
			assert.NotNil(t, i.Running)
		}
	}
	w.idle()
}
