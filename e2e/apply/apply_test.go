// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// An apply that is not possible now stops nothing and gives the reason; one interrupted by a crash continues.
func TestApply(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "")
	first := story.Pins(t, n)
	r := n.Agent("apply")
	assert.Equal(t, 3, r.Code)
	assert.Equal(t, "nothing to apply\n", r.Stdout)
	r = n.Agent("apply", "vellum")
	assert.Equal(t, 2, r.Code)
	assert.Contains(t, r.Stderr, "vellum: no such image or pod manifest")
	assert.Contains(t, r.Stderr, "hint: `image-update-agent status`")

	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	s := story.Check(t, n)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	id := story.Container(t, n)
	n.Registry.Down()
	story.Held(t, n, "registry does not answer")
	n.Registry.Up()

	moved := story.Rel(n, "demo/velum", "4.0.0-rev1-build1.3")
	story.Held(t, n, "has moved to "+moved)
	n.CRI().AwaitTag(n.Registry.Ref("demo/velum:4.0.0-rev1-build1.3"), true) // it is staged, and waits for an approval of its own
	before := story.Look(t, n, story.GrainFile)
	assert.Equal(t, id, story.Container(t, n), "nothing was stopped")

	n.Registry.Intercept(node.Fail(node.Manifest, 404))
	story.Held(t, n, "404")
	n.Registry.Intercept(nil)
	before.Unchanged(t, n, story.GrainFile)
	assert.Equal(t, id, story.Container(t, n), "nothing was stopped")

	s = story.Check(t, n)
	assert.Equal(t, "4.0.0-rev1-build1.3", story.ImageOf(t, s, "velum.yaml").Offered.Tag)
	asked := story.Hang(n, node.Manifest)
	applying := n.StartAgent("apply", "velum")
	<-asked
	assert.Contains(t, n.ReadFile(story.RecordFile), `"approved": {`)
	assert.Equal(t, status.StateApplying, story.St(t, n).State)
	daemon.Kill()
	assert.Equal(t, 1, applying.Wait(story.Ready).Code)
	story.Answers(t, port, "4.0.0-rev1-build1.1")
	n.Registry.Intercept(nil)
	daemon = story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	n.WaitAnswer(port, "4.0.0-rev1-build1.3") // the approval was still valid
	n.Agent("check")
	assert.NotContains(t, n.ReadFile(story.RecordFile), `"approved": {`)

	// The rollback target is kept: pinned, and listed by its name.
	now := story.Pins(t, n)
	assert.Contains(t, now, moved)
	assert.Subset(t, now, first, "the digest that ran before")
	assert.Len(t, now, 2, "and what was passed over is not")
	n.CRI().AwaitTag(n.Registry.Ref("demo/velum:4.0.0-rev1-build1.1"), true)
	story.Apply(t, n, 3)
	assert.Equal(t, 0, daemon.Stop().Code)
}

// With IfNotPresent kubelet starts the node's image of the floating tag, so an apply pulls it first; a start without
// approval keeps the old one.
func TestApplyIfNotPresent(t *testing.T) {
	t.Parallel()
	n, daemon, port := story.Running(t, "pullPolicy: IfNotPresent\n")
	assert.Contains(t, n.ReadFile(story.VelumYAML), "imagePullPolicy: IfNotPresent\n")
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	s := story.Check(t, n)
	assert.Equal(t, "rebuild", story.ImageOf(t, s, "velum.yaml").Change)
	old := story.Container(t, n)
	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	assert.NotEqual(t, old, story.Container(t, n), "started anew, and the same")

	story.Apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	s = story.St(t, n)
	story.IsCurrent(t, s)
	assert.Equal(t, 0, daemon.Stop().Code)
}

// A new init container needs a new pod: otherwise it would not run.
func TestApplyInitContainer(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	port := n.FreePort()
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	story.Rel(n, "demo/init", "1.0.0-rev1-build1.1")
	n.WriteFile(story.TemplateDir+"velum.yaml", story.VelumTemplate(port, n.Registry.Ref("demo/velum:4.0.0-rev1"))+
		"  initContainers:\n  - name: init\n    image: "+n.Registry.Ref("demo/init:1.0.0-rev1")+"\n    args: [end]\n")
	story.Cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	story.Check(t, n)
	before := n.ReadFile(story.VelumYAML)
	id := story.Container(t, n)

	story.Rel(n, "demo/init", "1.0.0-rev1-build1.2")
	s := story.Check(t, n)
	assert.Equal(t, "rebuild", story.PodOf(t, s, "velum.yaml").Change)
	r := n.Agent("apply", "init", "--output", "json")
	require.Equal(t, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	assert.Contains(t, r.Stdout, `"result": "applied"`)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	assert.Equal(t, before, story.Followed(t, n, "velum.yaml"))
	assert.NotEqual(t, id, story.Container(t, n))
	s = story.St(t, n)
	story.IsCurrent(t, s)
	for _, i := range s.Images {
		if strings.HasSuffix(i.Image, "demo/init") {
			assert.Equal(t, "1.0.0-rev1-build1.2", i.Running.Tag)
		}
	}
	assert.Equal(t, 0, daemon.Stop().Code)
}
