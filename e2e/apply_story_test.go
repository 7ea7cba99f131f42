// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"maps"
	"slices"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

const recordFile = "var/lib/image-update-agent/record.json"

// running is a node whose velum runs rev1-build1.1, with a daemon that polls
// when it is asked.
func running(t *testing.T, config string) (n *node.Node, daemon *node.Process, port int) {
	t.Helper()
	n = node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	port = n.FreePort()
	n.WriteFile(configFile, config)
	template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
	rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	daemon = startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	check(t, n)
	return n, daemon, port
}

// container is the id of velum's container.
func container(t *testing.T, n *node.Node) string {
	t.Helper()
	c, err := n.CRI().Running("dashboard")
	require.NoError(t, err)
	return c.GetId()
}

// pins are the digests that our pins hold.
func pins(t *testing.T, n *node.Node) []string {
	t.Helper()
	client, err := containerd.New(n.Containerd.Socket, containerd.WithDefaultNamespace("k8s.io"))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	list, err := client.ImageService().List(t.Context(), `name~="^pin\\."`)
	require.NoError(t, err)
	found := map[string]bool{}
	for _, image := range list {
		found[image.Target.Digest.String()] = true
	}
	return slices.Sorted(maps.Keys(found))
}

// An apply that cannot be carried out now stops nothing and says why; one that
// was interrupted by a crash goes on.
func TestApply(t *testing.T) {
	t.Parallel()
	n, daemon, port := running(t, "")
	first := pins(t, n)
	r := n.Agent("apply")
	assert.Equal(t, 3, r.Code)
	assert.Equal(t, "nothing is staged\n", r.Stdout)
	r = n.Agent("apply", "vellum")
	assert.Equal(t, 2, r.Code)
	assert.Contains(t, r.Stderr, "vellum: no pod manifest uses it")
	assert.Contains(t, r.Stderr, "hint: `image-update-agent status`")

	rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	s := check(t, n)
	require.Equal(t, status.StateStaged, s.State, s.Reason)
	id := container(t, n)
	n.Registry.Down()
	held(t, n, "registry away")
	n.Registry.Up()

	moved := rel(n, "demo/velum", "4.0.0-rev1-build1.3")
	held(t, n, "has moved on to "+moved)
	assert.Contains(t, n.CRI().Tags(), n.Registry.Ref("demo/velum:4.0.0-rev1-build1.3"), "it is staged, and waits for an approval of its own")
	before := look(t, n, grainFile)
	assert.Equal(t, id, container(t, n), "nothing was stopped")

	n.Registry.Intercept(node.Fail(node.Manifest, 404))
	held(t, n, "404")
	n.Registry.Intercept(nil)
	before.unchanged(t, n, grainFile)
	assert.Equal(t, id, container(t, n), "nothing was stopped")

	s = check(t, n)
	assert.Equal(t, "4.0.0-rev1-build1.3", imageOf(t, s, "velum.yaml").Offered.Tag)
	asked := hang(n, node.Manifest)
	applying := n.StartAgent("apply", "velum")
	<-asked
	assert.Contains(t, n.ReadFile(recordFile), `"approved": {`)
	assert.Equal(t, status.StateApplying, st(t, n).State)
	daemon.Kill()
	assert.Equal(t, 1, applying.Wait(ready).Code)
	answers(t, port, "4.0.0-rev1-build1.1")
	n.Registry.Intercept(nil)
	daemon = startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	n.WaitAnswer(port, "4.0.0-rev1-build1.3") // the approval stood
	n.Agent("check")
	assert.NotContains(t, n.ReadFile(recordFile), `"approved": {`)

	// The rollback target is kept: pinned, and listed by its name.
	now := pins(t, n)
	assert.Contains(t, now, moved)
	assert.Subset(t, now, first, "the digest that ran before")
	assert.Len(t, now, 2, "and what was passed over is not")
	assert.Contains(t, n.CRI().Tags(), n.Registry.Ref("demo/velum:4.0.0-rev1-build1.1"))
	apply(t, n, 3)
	assert.Equal(t, 0, daemon.Stop().Code)
}

// held: an apply says that it waits, and why.
func held(t *testing.T, n *node.Node, why string) {
	t.Helper()
	r := n.Agent("apply", "velum")
	assert.Equal(t, 4, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	assert.Contains(t, r.Stdout, "velum.yaml  rebuild  held")
	assert.Contains(t, r.Stdout, why)
}

// With IfNotPresent kubelet starts what the node has under the floating tag,
// so an apply brings that first; a start without approval stays at the old one.
func TestApplyIfNotPresent(t *testing.T) {
	t.Parallel()
	n, daemon, port := running(t, "pullPolicy: IfNotPresent\n")
	assert.Contains(t, n.ReadFile(velumYAML), "imagePullPolicy: IfNotPresent\n")
	rel(n, "demo/velum", "4.0.0-rev1-build1.2")
	s := check(t, n)
	assert.Equal(t, "rebuild", imageOf(t, s, "velum.yaml").Change)
	old := container(t, n)
	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	assert.NotEqual(t, old, container(t, n), "started anew, and the same")

	apply(t, n, 0, "velum")
	n.WaitAnswer(port, "4.0.0-rev1-build1.2")
	s = st(t, n)
	isCurrent(t, s)
	assert.Equal(t, 0, daemon.Stop().Code)
}

// A new init container means a new pod: it would not run otherwise.
func TestApplyInitContainer(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	port := n.FreePort()
	rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	rel(n, "demo/init", "1.0.0-rev1-build1.1")
	n.WriteFile(templateDir+"velum.yaml", velumTemplate(port, n.Registry.Ref("demo/velum:4.0.0-rev1"))+
		"  initContainers:\n  - name: init\n    image: "+n.Registry.Ref("demo/init:1.0.0-rev1")+"\n    args: [end]\n")
	cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	daemon := startDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	check(t, n)
	before := n.ReadFile(velumYAML)
	id := container(t, n)

	rel(n, "demo/init", "1.0.0-rev1-build1.2")
	s := check(t, n)
	assert.Equal(t, "rebuild", podOf(t, s, "velum.yaml").Change)
	r := n.Agent("apply", "init", "--output", "json")
	require.Equal(t, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	assert.Contains(t, r.Stdout, `"result": "applied"`)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	assert.Equal(t, before, n.ReadFile(velumYAML))
	assert.NotEqual(t, id, container(t, n))
	s = st(t, n)
	isCurrent(t, s)
	for _, i := range s.Images {
		if strings.HasSuffix(i.Image, "demo/init") {
			assert.Equal(t, "1.0.0-rev1-build1.2", i.Running.Tag)
		}
	}
	assert.Equal(t, 0, daemon.Stop().Code)
}
