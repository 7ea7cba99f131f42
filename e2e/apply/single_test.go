// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A pod with a tag of another scheme than SUSE's: a patch of the same variant is staged and applied, another variant is
// not, and a rebuild of the tag is also an update.
func TestApplyOfASingleTag(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	port, lb := n.FreePort(), story.ManifestDir+"lb.yaml"
	publish := func(answer, tag string) { n.Registry.Push("demo/haproxy", node.Image{Answer: answer}, tag) }
	publish("first", "3.0.1-alpine")
	was := legacy("lb", n.Registry.Ref("demo/haproxy:3.0.1-alpine"), port)
	n.WriteFile(lb, was)
	n.WaitAnswer(port, "first")
	n.WriteFile(story.ConfigFile, "manage: [lb.yaml]\nrepositories: [{match: '"+n.Registry.Ref("demo/haproxy")+"', updates: patch}]\n")
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	story.IsCurrent(t, story.Check(t, n))
	assert.Equal(t, was, n.ReadFile(lb), "there is nothing to convert")

	for answer, tag := range map[string]string{
		"patch": "3.0.2-alpine", "minor": "3.1.0-alpine", "other": "3.0.9", "slim": "3.0.9-slim", "candidate": "3.0.3-rc1-alpine",
	} {
		publish(answer, tag)
	}
	s := story.Check(t, n)
	image := story.ImageOf(t, s, "lb.yaml")
	assert.Equal(t, status.StateStaged, s.State, s.Reason)
	assert.Equal(t, "patch", image.Change)
	assert.Equal(t, "3.0.2-alpine", image.Offered.Tag)
	assert.Equal(t, was, n.ReadFile(lb), "it waits for approval")
	story.Apply(t, n, 0, "lb.yaml")
	n.WaitAnswer(port, "patch")
	assert.Equal(t, legacy("lb", n.Registry.Ref("demo/haproxy:3.0.2-alpine"), port), n.ReadFile(lb), "nothing but the tag")
	story.IsCurrent(t, story.St(t, n))

	publish("rebuilt", "3.0.2-alpine")
	s = story.Check(t, n)
	assert.Equal(t, "rebuild", story.ImageOf(t, s, "lb.yaml").Change)
	story.Apply(t, n, 0, "lb.yaml")
	n.WaitAnswer(port, "rebuilt")

	back := n.Agent("rollback", "lb.yaml")
	assert.Equal(t, 0, back.Code, back)
	n.WaitAnswer(port, "patch")
	assert.Equal(t, 0, daemon.Stop().Code)
}
