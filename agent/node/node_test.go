// SPDX-License-Identifier: Apache-2.0

package node_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/manifests"
)

func TestDigestOfAContainer(t *testing.T) {
	t.Parallel()
	d := func(s string) digest.Digest { return digest.FromString(s) }
	target := release.Release{Digest: d("target"), Build: release.Build{Config: d("config")}}
	held := node.Inventory{Held: []node.HeldImage{{Digest: d("held"), Config: d("c")}, {Digest: d("other"), Config: d("o")}}}.Index()
	for name, c := range map[string]struct {
		container *node.Container
		want      digest.Digest
		same      bool
	}{
		"nothing":                          {nil, "", false},
		"an image that CRI does not name":  {&node.Container{}, "", false},
		"one of its digests is the target": {&node.Container{Image: d("c"), Digests: []digest.Digest{d("held"), d("target")}}, d("target"), true},
		"the config is the target's":       {&node.Container{Image: d("config")}, d("target"), true},
		"the same, under a held digest":    {&node.Container{Image: d("config"), Digests: []digest.Digest{d("gone"), d("held")}}, d("held"), true},
		"another, that is held":            {&node.Container{Image: d("c"), Digests: []digest.Digest{d("gone"), d("held")}}, d("held"), false},
		"another, that only the store has": {&node.Container{Image: d("o")}, d("other"), false},
		"another one, that is not held":    {&node.Container{Image: d("x"), Digests: []digest.Digest{d("gone")}}, d("gone"), false},
		"another one, that is unknown":     {&node.Container{Image: d("x")}, "", false},
	} {
		got, same := held.RunsTarget(c.container, target)
		assert.Equal(t, c.want, got, name)
		assert.Equal(t, c.same, same, name)
	}
}

// owner returns the name of the static pod that has a container of a CRI pod.
func owner(inv node.Inventory, criPod string, names []string) string {
	inv.Containers = []node.Container{{Pod: criPod}}
	pods := inv.ByPod(names)
	for _, n := range names {
		if len(pods.Containers("", n)) > 0 {
			return n
		}
	}
	return ""
}

func TestOwnerOfACRIPod(t *testing.T) {
	t.Parallel()
	names := []string{"velum", "velum-db", "velum-node1"}
	for pod, want := range map[string]string{
		"velum-node1": "velum", "velum-db-node1": "velum-db", "velum-node1-node1": "velum-node1",
		"velum": "", "velumx-node1": "", "other-node1": "",
	} {
		assert.Equal(t, want, owner(node.Inventory{}, pod, names), pod)
	}
}

func TestFindContainer(t *testing.T) {
	t.Parallel()
	at := func(n int64) time.Time { return time.Unix(n, 0) }
	inv := node.Inventory{Containers: []node.Container{
		{ID: "dead", Sandbox: "old", Pod: "velum-n", Namespace: "default", Name: "velum", StartedAt: at(9)},
		{ID: "dead init", Sandbox: "old", Pod: "velum-n", Namespace: "default", Name: "init", StartedAt: at(9)},
		{ID: "init", Sandbox: "new", Pod: "velum-n", Namespace: "default", Name: "init", StartedAt: at(1)},
		{ID: "runs", Sandbox: "new", Pod: "velum-n", Namespace: "default", Name: "velum", StartedAt: at(2), Running: true},
		{ID: "foreign", Sandbox: "x", Pod: "velum-n", Namespace: "kube-system", Name: "velum", Running: true},
	}}
	all := inv.ByPod([]string{"velum"}).Containers("default", "velum")
	require.Len(t, all, 2, "the clock was set back, the sandbox tells")
	assert.Equal(t, "runs", node.FindContainer(all, "velum").ID)
	assert.Equal(t, "init", node.FindContainer(all, "init").ID)
	assert.Nil(t, node.FindContainer(all, "unknown"))
	assert.Equal(t, "late", node.FindContainer([]node.Container{{ID: "early", StartedAt: at(1)}, {ID: "late", StartedAt: at(2)}}, "").ID)
}

func TestPullPolicyOf(t *testing.T) {
	t.Parallel()
	for ref, want := range map[string]string{"a": "Always", "a:latest": "Always", "a:1": "IfNotPresent", "a@sha256:d": "IfNotPresent", "a:latest@sha256:d": "Always", "a:1@sha256:d": "IfNotPresent"} {
		assert.Equal(t, want, node.PullPolicyOf(manifests.Image{Reference: ref}), ref)
		assert.Equal(t, "Never", node.PullPolicyOf(manifests.Image{Reference: ref, PullPolicy: "Never"}))
	}
	container := manifests.Image{Kind: manifests.KindContainer}
	assert.True(t, node.Pulled(container))
	for _, i := range []manifests.Image{{Kind: manifests.KindContainer, Document: 1}, {Kind: "other"}, {Kind: manifests.KindContainer, Reason: manifests.ReasonDigest}} {
		assert.False(t, node.Pulled(i), "%+v", i)
	}
}

// A copy that cannot be read may define the same pod.
func TestFindDuplicate(t *testing.T) {
	t.Parallel()
	text := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: velum}\nspec: {containers: [{name: a, image: a}]}\n")
	own := node.PodFile{Name: "velum.yaml", Data: text}
	unread := func(name string) node.PodFile { return node.PodFile{Name: name, Err: errors.New("no permission")} }
	for name, want := range map[string]bool{
		"velum.yaml.bak": true, "velum.json": true, "velum~": true, "old-velum.yaml": true, "VELUM.YAML": true, "velumx.yaml": false, "velum-db.yaml": false, "etcd.yaml": false,
	} {
		d := node.FindDuplicate([]node.PodFile{own, unread(name)}, "velum.yaml", "default/velum")
		assert.Equal(t, want, d.Is(), name)
		if want {
			assert.Equal(t, name+" cannot be read and may also define the pod default/velum", d.String())
		}
	}
	files := []node.PodFile{own}
	for n := range 9 {
		files = append(files, node.PodFile{Name: string(rune('a' + n)), Data: text})
	}
	d := node.FindDuplicate(files, "velum.yaml", "default/velum")
	assert.Equal(t, "a, b, c, d, e, f, g, h and 2 more define the same pod default/velum: kubelet runs the one that it read last", d.String())
	d = node.FindDuplicate(files[:2], "velum.yaml", "default/velum")
	assert.Equal(t, "a and velum.yaml define the same pod default/velum: kubelet runs the one that it read last", d.String())
	assert.False(t, node.FindDuplicate(files, "velum.yaml", "kube-system/velum").Is())
}

func TestHasAndOrigin(t *testing.T) {
	t.Parallel()
	d := digest.FromString
	inv := node.Inventory{Held: []node.HeldImage{
		{Name: "pin", Digest: d("a"), Repository: "r", Pin: true, Complete: true, Origin: "o"},
		{Name: "pin b", Digest: d("b"), Repository: "r", Pin: true},
		{Name: "r:1", Digest: d("a")},
		{Name: "alias a", Digest: d("a")},
		{Name: "alias c", Digest: d("c")},
	}}
	held := inv.Index()
	assert.True(t, held.Staged(release.Release{Repository: "r", Digest: d("a")}))
	assert.False(t, held.Staged(release.Release{Repository: "r", Digest: d("b")}), "it is not complete")
	assert.True(t, held.Has(d("b")))
	assert.False(t, held.Has(d("x")))
	assert.Equal(t, "o", held.OriginOf(d("a")))
	assert.Empty(t, held.OriginOf(d("b")))
	digests, pins := inv.Digests()
	assert.Len(t, digests, 3)
	assert.Len(t, pins, 2)
	aliases := map[node.HeldImage]bool{{Name: "alias a", Digest: d("a")}: true, {Name: "alias c", Digest: d("c")}: true}
	assert.Equal(t, inv.Held[4:], inv.OrphanedAliases(nil, aliases), "another name has the other's digest")
	assert.Len(t, inv.OrphanedAliases(inv.Held[2:3], aliases), 2)
	assert.Nil(t, node.Find(nil, "a"))
}

func TestOwnerByTheNodesName(t *testing.T) {
	t.Parallel()
	names := []string{"velum", "velum-db"}
	for pod, want := range map[string]string{"velum-node1": "velum", "velum-db-node1": "velum-db", "other-node1": ""} {
		assert.Equal(t, want, owner(node.Inventory{NodeName: "node1"}, pod, names), pod)
	}
	assert.Equal(t, "velum", owner(node.Inventory{NodeName: "db-node1"}, "velum-db-node1", names))
}

// An observation is complete, or an error: in a partial one a running pod could look absent.
func TestObserve(t *testing.T) {
	t.Parallel()
	text := []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: velum}\nspec: {containers: [{name: a, image: a}]}\n")
	f := &files{all: []node.PodFile{{Name: "velum.yaml", Data: text}, {Name: "broken.yaml", Data: []byte("{")}}}
	grain := ""
	o := node.Observer{Files: f, Pods: f, Images: f, State: &node.State{}, Busy: func(context.Context) (string, error) { return grain, f.busy }}
	inv, err := o.ObserveFiles(t.Context())
	require.NoError(t, err)
	require.NoError(t, o.ObserveRuntime(t.Context(), &inv))
	assert.Empty(t, inv.Busy)
	assert.Len(t, o.State.Parsed, 2, "equal files are parsed once")
	assert.Equal(t, "default/velum", inv.PodManifests[0].Defines())
	parsed, err := inv.PodManifests[0].Parse()
	require.NoError(t, err)
	assert.Equal(t, text, inv.PodManifests[1].Replaced(parsed).Content())
	_, err = inv.PodManifests[1].Parse()
	require.Error(t, err)
	again, err := o.ObserveFiles(t.Context())
	require.NoError(t, err)
	same, err := again.PodManifests[0].Parse()
	require.NoError(t, err)
	assert.Same(t, parsed, same, "it has not changed")
	f.all = f.all[:1]
	grain = "update_in_progress"
	inv, err = o.ObserveFiles(t.Context())
	require.NoError(t, err)
	assert.Equal(t, "the grain update_in_progress is true", inv.Busy)
	assert.Len(t, o.State.Parsed, 1, "what is gone is forgotten")
	f.busy = errors.New("grains: no permission")
	inv, _ = o.ObserveFiles(t.Context())
	assert.Equal(t, "grains: no permission", inv.Busy, "an unknown node counts as busy")
	for call, want := range []string{"templates: x", "pod manifests: x", "rendered pod manifests: x"} {
		f.fails, f.calls = call+1, 0
		_, err = o.ObserveFiles(t.Context())
		require.EqualError(t, err, want)
	}
	for call, want := range []string{"containers: x", "images: x"} {
		f.fails, f.calls = call+1, 0
		require.EqualError(t, o.ObserveRuntime(t.Context(), &inv), want)
	}
}

// files is a node whose call number fails returns an error; 0: none does.
type files struct {
	all          []node.PodFile
	busy         error
	fails, calls int
}

func (f *files) call() error {
	if f.calls++; f.calls == f.fails {
		return errors.New("x")
	}
	return nil
}

func (f *files) list() ([]node.PodFile, error) { return slices.Clone(f.all), f.call() }

func (f *files) Templates(context.Context) ([]node.PodFile, error)    { return f.list() }
func (f *files) PodManifests(context.Context) ([]node.PodFile, error) { return f.list() }
func (f *files) Waiting(context.Context) ([]node.PodFile, error)      { return f.list() }
func (f *files) Held(context.Context) ([]node.HeldImage, error)       { return nil, f.call() }

func (f *files) Containers(context.Context) ([]node.Container, []digest.Digest, error) {
	return nil, nil, f.call()
}
