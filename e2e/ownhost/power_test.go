// SPDX-License-Identifier: Apache-2.0

package ownhost

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

// A node loses its power while the registry is away. Its pods have pull policy Always: they come up where containerd
// asks the own host, and do not where it does not.
func TestPowerCutWhileTheRegistryIsAway(t *testing.T) {
	t.Parallel()
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		r := newOwnHostRig(t, version)
		r.Registry.Down()
		r.isDownWithout(t)
		r.comesUp(t)
		r.containerEnds(t)
		r.isStale(t)
		r.saysWhatUpstreamSaid(t)
	})
}

// isDownWithout is the control: there is no own host yet. Then there is.
func (r *ownHostRig) isDownWithout(t *testing.T) {
	t.Helper()
	r.cutPower(t)
	for _, p := range r.pods {
		r.waits(t, p.name, "connection refused")
		_, err := node.Answer(p.port)
		require.Error(t, err)
	}
	assert.Empty(t, r.own.Requests())
	enable(t, r.Node, r.Registry.Host)
	r.areUp() // at kubelet's next try
}

func (r *ownHostRig) comesUp(t *testing.T) {
	t.Helper()
	r.own.Forget()
	r.cutPower(t)
	r.areUp()
	r.areAnswered(t, r.pods...)
}

func (r *ownHostRig) containerEnds(t *testing.T) {
	t.Helper()
	r.own.Forget()
	p := r.pods[1]
	r.CRI().Stop(p.name)
	r.WaitAnswer(p.port, p.runs)
	r.areAnswered(t, p)
}

// isStale: the own host is no source of the agent's polls.
func (r *ownHostRig) isStale(t *testing.T) {
	t.Helper()
	s := story.Check(t, r.Node)
	assert.Equal(t, status.StateStale, s.State, s.Reason)
	assert.Contains(t, s.Reason, "connection refused")
	assert.Empty(t, r.own.Requests().Of(story.OwnAgent))
}

// saysWhatUpstreamSaid: of an image that nobody has, kubelet says what is wrong with the registry.
func (r *ownHostRig) saysWhatUpstreamSaid(t *testing.T) {
	t.Helper()
	r.WritePod(node.Pod{Name: "other", Image: r.Registry.Ref("demo/other:1.0.0"), Port: r.FreePort()})
	message := r.waits(t, "other", "demo/other")
	assert.Contains(t, message, "connection refused")
	assert.NotContains(t, message, "not found")
	require.NoError(t, os.Remove(r.Path(story.ManifestDir+"other.yaml")))
}

// areAnswered asserts that the own host answered for each of the pods, and was asked for nothing else.
func (r *ownHostRig) areAnswered(t *testing.T, pods ...ownHostPod) {
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

// restart ends a pod's container, and returns when kubelet has made another.
func (r *ownHostRig) restart(t *testing.T, p ownHostPod) {
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
