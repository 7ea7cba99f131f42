// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"bufio"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A tag moves upstream, and a container ends. With the own host last it comes back with what the tag names now, and with
// the own host first with what was approved: neither a staged digest nor one that was rolled back ever starts.
func TestTagMovesWhereTheOwnHostIs(t *testing.T) {
	t.Parallel()
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		r := newOwnHostRig(t, version)
		enable(t, r.Node, r.Registry.Host)
		p := &r.pods[0]

		first := r.takesWhatTheTagNames(t, p)
		enableFirst(t, r.Node, r.Registry.Host)
		old := p.runs
		second := r.takesWhatWasApproved(t, p, first)

		story.Apply(t, r.Node, 0, p.name+".yaml")
		p.runs = r.long()
		r.WaitAnswer(p.port, p.runs)
		r.serves(t, *p, second)

		rolled := r.Agent("rollback", p.name+".yaml")
		require.Equal(t, 0, rolled.Code, rolled.Stderr)
		p.runs = old
		r.WaitAnswer(p.port, p.runs)
		r.serves(t, *p, first, second)
		r.restart(t, *p)
		r.WaitAnswer(p.port, p.runs)

		r.Registry.Down()
		for _, other := range r.pods {
			r.restart(t, other)
		}
		r.areUp()
		assert.Empty(t, r.own.Requests().Of(story.OwnAgent), "the agent asks upstream")
	})
}

// takesWhatTheTagNames: kubelet asks upstream, and the own host is not asked. It returns the digest.
func (r *ownHostRig) takesWhatTheTagNames(t *testing.T, p *ownHostPod) string {
	t.Helper()
	r.own.Forget()
	digest := r.release(p)
	r.restart(t, *p)
	p.runs = r.long()
	r.WaitAnswer(p.port, p.runs)
	assert.Empty(t, r.own.Requests())
	story.Check(t, r.Node)
	s := story.AwaitState(t, r.Node, status.StateCurrent)
	assert.True(t, story.ImageOf(t, s, p.name+".yaml").Adopted)
	return digest
}

// takesWhatWasApproved: a rebuild is staged and waits, and however often the container ends, kubelet starts the approved
// digest, and asks nobody but the own host. It returns the digest that waits.
func (r *ownHostRig) takesWhatWasApproved(t *testing.T, p *ownHostPod, approved string) string {
	t.Helper()
	waiting := r.release(p)
	s := story.Check(t, r.Node)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	r.own.Forget()
	r.Registry.Forget()
	for range 2 {
		r.restart(t, *p)
		r.WaitAnswer(p.port, p.runs)
	}
	r.areAnswered(t, *p)
	assert.GreaterOrEqual(t, len(r.own.Requests()), 2)
	assert.Empty(t, r.Registry.Requests().Of(story.CriAgent))
	s = story.AwaitState(t, r.Node, status.StateStaged)
	image := story.ImageOf(t, s, p.name+".yaml")
	assert.Equal(t, "rebuild", image.Change)
	assert.Equal(t, approved, image.Running.Digest.String())
	r.serves(t, *p, approved, waiting)
	return waiting
}

// serves asserts that the own host answers for a pod's tag and for that digest, and for no other.
func (r *ownHostRig) serves(t *testing.T, p ownHostPod, digest string, others ...string) {
	t.Helper()
	for _, reference := range []string{"4.0.0-rev1", digest} {
		status, served := r.head(t, p, reference)
		assert.Equal(t, http.StatusOK, status, reference)
		assert.Equal(t, digest, served, reference)
	}
	for _, other := range others {
		status, _ := r.head(t, p, other)
		assert.Equal(t, http.StatusNotFound, status, other)
	}
}

// head asks the own host as containerd 1.7 does.
func (r *ownHostRig) head(t *testing.T, p ownHostPod, reference string) (status int, digest string) {
	t.Helper()
	text, err := r.own.Ask(t.Context(), "HEAD /v2/demo/"+p.name+"/manifests/"+reference+"?ns="+r.Registry.Host+
		" HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: containerd/1.7.24\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), &http.Request{Method: http.MethodHead})
	require.NoError(t, err, "%q", text)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode, answer.Header.Get("Docker-Content-Digest")
}
