// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"errors"
	"os"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestPowerCutWhileTheRegistryIsAway cuts a node's power while the registry is away. Its pods, with pull policy Always,
// start if containerd asks the local registry, and do not start otherwise.
func TestPowerCutWhileTheRegistryIsAway(t *testing.T) {
	t.Parallel()
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		r := newLocalRegistryRig(t, version)
		r.Registry.Down()
		r.isDownWithout(t)
		r.comesUp(t)
		r.comesUpWithoutATable(t)
		r.containerEnds(t)
		r.isStale(t)
		r.saysWhatUpstreamSaid(t)
	})
}

// isDownWithout is the control: without the local registry the pods stay down. Then it enables the local registry.
func (r *localRegistryRig) isDownWithout(t *testing.T) {
	t.Helper()
	r.cutPower(t)
	for _, p := range r.pods {
		r.waits(t, p.name, "connection refused")
		_, err := node.Answer(p.port)
		require.Error(t, err)
	}
	assert.Empty(t, r.own.Requests())
	enable(t, r.Node, r.Registry.Host)
	r.areUp() // when kubelet retries
}

func (r *localRegistryRig) comesUp(t *testing.T) {
	t.Helper()
	r.own.Forget()
	r.cutPower(t)
	r.areUp()
	r.areAnswered(t, r.pods...)
}

// comesUpWithoutATable boots with a table that was torn by a power cut, then with none. The unit that renders before
// kubelet starts makes it from the record: the daemon, which would do so later, does not run.
func (r *localRegistryRig) comesUpWithoutATable(t *testing.T) {
	t.Helper()
	table := r.Path(story.LocalRegistryTable)
	for _, lose := range []func() error{
		func() error { return os.Truncate(table, 20) }, func() error { return os.Remove(table) },
	} {
		r.daemon.Kill()
		r.PowerOff()
		require.NoError(t, lose())
		r.own.Forget()
		r.Containerd.Start()
		rendered := r.Agent("render")
		require.Equal(t, 0, rendered.Code, rendered.Stderr)
		r.Kubelet.Start()
		r.areUp()
		r.areAnswered(t, r.pods...)
		r.startDaemon(t)
	}
}

func (r *localRegistryRig) containerEnds(t *testing.T) {
	t.Helper()
	r.own.Forget()
	p := r.pods[1]
	r.CRI().Stop(p.name)
	r.WaitAnswer(p.port, p.runs)
	r.areAnswered(t, p)
}

// isStale asserts that the agent does not poll its own local registry.
func (r *localRegistryRig) isStale(t *testing.T) {
	t.Helper()
	s := story.Check(t, r.Node)
	assert.Equal(t, status.StateStale, s.State, s.Reason)
	assert.Contains(t, s.Reason, "connection refused")
	assert.Empty(t, r.own.Requests().Of(story.OwnAgent))
}

// saysWhatUpstreamSaid asserts that kubelet reports the registry's error for an image that neither has.
func (r *localRegistryRig) saysWhatUpstreamSaid(t *testing.T) {
	t.Helper()
	r.WritePod(node.Pod{Name: "other", Image: r.Registry.Ref("demo/other:1.0.0"), Port: r.FreePort()})
	message := r.waits(t, "other", "demo/other")
	assert.Contains(t, message, "connection refused")
	assert.NotContains(t, message, "not found")
	require.NoError(t, os.Remove(r.Path(story.ManifestDir+"other.yaml")))
}

// areAnswered asserts that the local registry served each of the pods, and got no other requests.
func (r *localRegistryRig) areAnswered(t *testing.T, pods ...localRegistryPod) {
	t.Helper()
	answered := map[string]bool{}
	for _, q := range r.own.Requests() {
		assert.Equal(t, "HEAD manifest 4.0.0-rev1", q.Method+" "+string(q.Kind)+" "+q.Reference, "%+v", q)
		answered[q.Repository] = true
	}
	want := map[string]bool{}
	for _, p := range pods {
		want["demo/"+p.name] = true
	}
	assert.Equal(t, want, answered)
}

// restart ends a pod's container, and returns when kubelet has made a new one.
func (r *localRegistryRig) restart(t *testing.T, p localRegistryPod) {
	t.Helper()
	cri := r.CRI()
	old, err := cri.Newest(p.name, p.name)
	require.NoError(t, err)
	cri.StopContainer(old.GetId())
	node.Eventually(t, p.name+" starts again", story.Ready, func() error {
		now, err := cri.Newest(p.name, p.name)
		if err == nil && now.GetId() == old.GetId() {
			err = errors.New("not yet")
		}
		return err
	})
}
