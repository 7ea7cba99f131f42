// SPDX-License-Identifier: Apache-2.0

package localregistry

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestTagMovesWhereTheLocalRegistryIs moves a tag upstream and ends a container. With the local registry as the last
// host, the container restarts with the tag's new image; with it as the first, with the approved one: neither a staged
// digest nor one that was rolled back ever starts.
func TestTagMovesWhereTheLocalRegistryIs(t *testing.T) {
	t.Parallel()
	onEveryContainerd(t, func(t *testing.T, version node.Version) {
		r := newLocalRegistryRig(t, version)
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

// takesWhatTheTagNames asserts that kubelet pulls from upstream and that the local registry gets no request. It returns
// the digest.
func (r *localRegistryRig) takesWhatTheTagNames(t *testing.T, p *localRegistryPod) string {
	t.Helper()
	r.own.Forget()
	digest := r.release(p)
	r.restart(t, *p)
	p.runs = r.long()
	r.WaitAnswer(p.port, p.runs)
	assert.Empty(t, r.own.Requests())
	story.Check(t, r.Node)
	s := story.AwaitState(t, r.Node, status.StateCurrent)
	assert.True(t, story.ImageOf(t, s, p.name+".yaml").PickedUp)
	return digest
}

// takesWhatWasApproved asserts that a rebuild is staged and waits, and that kubelet starts the approved digest however
// often the container ends, and asks only the local registry. It returns the waiting digest.
func (r *localRegistryRig) takesWhatWasApproved(t *testing.T, p *localRegistryPod, approved string) string {
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
	var image status.ImageStatus
	node.Eventually(t, p.name+" is seen to run", story.Ready, func() error { // its container has just started
		image = story.ImageOf(t, story.AwaitState(t, r.Node, status.StateStaged), p.name+".yaml")
		if image.Running == nil {
			return errors.New("nothing runs")
		}
		return nil
	})
	assert.Equal(t, "rebuild", image.Change)
	assert.Equal(t, approved, image.Running.Digest.String())
	r.serves(t, *p, approved, waiting)
	return waiting
}

// serves asserts that the local registry serves a pod's tag with this digest, and no other digest.
func (r *localRegistryRig) serves(t *testing.T, p localRegistryPod, digest string, others ...string) {
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

// head sends a HEAD request to the local registry as containerd 1.7 does.
func (r *localRegistryRig) head(t *testing.T, p localRegistryPod, reference string) (status int, digest string) {
	t.Helper()
	text, err := r.own.Ask(t.Context(), "HEAD /v2/demo/"+p.name+"/manifests/"+reference+"?ns="+r.Registry.Host+
		" HTTP/1.1\r\nHost: 127.0.0.1\r\nUser-Agent: containerd/1.7.24\r\n\r\n")
	require.NoError(t, err)
	answer, err := http.ReadResponse(bufio.NewReader(strings.NewReader(text)), &http.Request{Method: http.MethodHead})
	require.NoError(t, err, "%q", text)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode, answer.Header.Get("Docker-Content-Digest")
}
