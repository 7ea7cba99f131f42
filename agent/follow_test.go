// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/agenttest"
	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/manifests"
	"github.com/kubic-project/image-update-agent/tags"
)

func TestImagesOfTheConfigurationAreStagedAndPinned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.0"}}
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

func TestTemplateAndConfigurationMayNameTheSameShortTag(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Policy.Images = []release.Reference{{Repository: velum, Tag: "4.0.0"}}
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

func TestFirstTagOfANewPod(t *testing.T) {
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
			w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Rebuild} }
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

func TestOldRefusalDoesNotApplyToANewPod(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Retract(velum, "4.0.0-rev1")
	w.Node.PutPodManifest("old.yaml", podYAML("old", "old="+velum+":4.0.0-rev1"))
	w.Policy.Manage = map[string]bool{"old.yaml": true}
	require.Equal(t, status.StateFailed, w.check().State)
	w.Node.PutPodManifest("old.yaml", nil)
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	w.Registry.Release(velum, "4.0.0", 1, "1.2")

	s := w.check()

	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
}

func TestMirrorWithoutTagListsOffersByDigest(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.DownLists(&release.SourceError{Repository: velum, Host: agenttest.Host, Status: 403, Err: errors.New("403 Forbidden")})
	first := w.Registry.Publish(velum, "4.0.0")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "velum="+velum+":4.0.0"))
	s := w.poll()
	require.Equal(t, status.StateCurrent, s.State, s.Reason)
	assert.Contains(t, w.Node.Names(first.Digest), velum+"@"+first.Digest.String(), "staged by its digest")
	w.Registry.Counts()
	w.poll()
	assert.Equal(t, agenttest.Counts{Heads: 1}, w.Registry.Counts(), "its refusal to list is remembered")
	second := w.Registry.Publish(velum, "4.0.0")

	s = w.poll()

	i := image(s, "velum.yaml", "velum")
	assert.Equal(t, &status.Named{Tag: "4.0.0", Digest: second.Digest}, i.Offered)
	out, _ := w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
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

func TestContainerInsertedFirstIsNotMistaken(t *testing.T) {
	t.Parallel()
	w, _ := running(t)
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", podYAML("velum", "db="+mariadb+":10.0", "velum="+velum+":__TAG__"))

	s := w.check()

	assert.Equal(t, "convert", podOf(s, "velum.yaml").Change)
	assert.Empty(t, image(s, "velum.yaml", "velum").Change)
	out, _ := w.apply()
	assert.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
}

func TestVolumeWithAContainersNameIsNotMistaken(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Registry.Release(velum, "4.0.0", 1, "1.1")
	w.Registry.Release(mariadb, "10.0", 1, "1.1")
	w.Node.PutTemplate("velum.yaml", append(podYAML("velum", "velum="+velum+":4.0.0"),
		"  volumes:\n  - name: velum\n    image:\n      reference: "+mariadb+":10.0\n"...))
	s := w.check()
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	s = w.observe()
	assert.Equal(t, status.StateCurrent, s.State, s.Reason)
	for _, i := range s.Images {
		if i.Image == mariadb {
			assert.Nil(t, i.Running)
		} else {
			assert.NotNil(t, i.Running)
		}
	}
	w.idle()
}

// A placeholder without a value asks for no tag, and its question is not shown as if it asked for an empty one.
func TestFloatingTagKeepsItsPrecision(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Policy.Rule = func(string) policy.Rule { return policy.Rule{Updates: tags.Minor} }
	w.Registry.Publish(velum, "1.28", "1.28.1")
	w.Node.PutPodManifest("velum.yaml", podYAML("velum", "velum="+velum+":1.28"))
	w.Node.Sync()
	w.check()
	want := w.Registry.Publish(velum, "1.29", "1.29.0")
	w.Registry.Publish(velum, "1.28.9")
	s := w.check()
	i := image(s, "velum.yaml", "velum")
	assert.Equal(t, "minor", i.Change)
	require.NotNil(t, i.Offered)
	assert.Equal(t, status.Named{Tag: "1.29", Digest: want.Digest}, *i.Offered)
}
