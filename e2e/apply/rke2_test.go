// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

const rke2Data = "var/lib/rancher/rke2/"

// rke2 stands in for RKE2: at each start it writes its pods again, first to a directory next to kubelet's and then to
// their place, as writeFile in pkg/executor/staticpod of rke2 does; it removes kube-proxy's before.
type rke2 struct {
	t    *testing.T
	node *node.Node
	pods map[string]string // texts by file name
}

func (r rke2) start() {
	r.t.Helper()
	dir := r.node.Path(rke2Data + "agent/pod-manifests")
	if err := os.Remove(filepath.Join(dir, "kube-proxy.yaml")); err != nil {
		require.ErrorIs(r.t, err, os.ErrNotExist)
	}
	for name, text := range r.pods {
		dest := filepath.Join(dir, name)
		if was, err := os.ReadFile(dest); err == nil && string(was) == text {
			continue
		}
		tmp, err := os.MkdirTemp(filepath.Dir(dir), name)
		require.NoError(r.t, err)
		require.NoError(r.t, os.WriteFile(filepath.Join(tmp, name), []byte(text), 0o600))
		require.NoError(r.t, os.Rename(filepath.Join(tmp, name), dest))
		require.NoError(r.t, os.Remove(tmp))
	}
}

// are asserts that its pods are as it has written them.
func (r rke2) are() {
	r.t.Helper()
	for name, text := range r.pods {
		assert.Equal(r.t, text, r.node.ReadFile(rke2Data+"agent/pod-manifests/"+name))
	}
}

// The agent on an RKE2 node, without settings for its paths: RKE2's pods are shown and never written, another pod is
// updated, and after an upgrade of RKE2 the agent follows its new pods.
func TestPodsOfRKE2AreNotWritten(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true, Manifests: rke2Data + "agent/pod-manifests"})
	n.WriteFile("usr/local/bin/rke2", "")
	n.WriteFile("usr/local/lib/systemd/system/rke2-server.service", "[Service]\nExecStart=/usr/local/bin/rke2 server\n")
	n.WriteFile(rke2Data+"server/token", "")
	require.NoError(t, os.MkdirAll(n.Path("run/k3s"), 0o755))
	require.NoError(t, os.Symlink("../containerd", n.Path("run/k3s/containerd")))
	require.NoError(t, os.MkdirAll(n.Path(rke2Data+"agent/etc"), 0o755))
	require.NoError(t, os.Symlink(n.Path("etc/containerd"), n.Path(rke2Data+"agent/etc/containerd")))
	n.WriteFile(story.ConfigFile, "manage: [lb.yaml, kube-scheduler.yaml]\n")

	lb, scheduler, proxy := n.FreePort(), n.FreePort(), n.FreePort()
	story.Rel(n, "demo/lb", "4.0.0-rev1-build1.1")
	story.Rel(n, "kube/kubernetes", "1.33.5-rev1-build1.1")
	image := n.Registry.Ref("kube/kubernetes:1.33.5-rev1")
	r := rke2{t, n, map[string]string{
		"kube-scheduler.yaml": legacy("kube-scheduler", image, scheduler), "kube-proxy.yaml": legacy("kube-proxy", image, proxy),
	}}
	r.start()
	own := rke2Data + "agent/pod-manifests/lb.yaml"
	n.WriteFile(own, legacy("lb", n.Registry.Ref("demo/lb:4.0.0-rev1"), lb))
	for port, answer := range map[int]string{lb: "4.0.0-rev1-build1.1", scheduler: "1.33.5-rev1-build1.1", proxy: "1.33.5-rev1-build1.1"} {
		n.WaitAnswer(port, answer)
	}
	daemon := story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")

	story.Rel(n, "demo/lb", "4.0.0-rev1-build1.2")
	story.Rel(n, "kube/kubernetes", "1.33.5-rev1-build1.2")
	s := story.Check(t, n)
	for name := range r.pods {
		assert.Equal(t, status.HoldDistribution, story.PodOf(t, s, name).Holds[0].Name)
		assert.Equal(t, "rebuild", story.ImageOf(t, s, name).Change, "it is shown")
		assert.False(t, story.ImageOf(t, s, name).Staged)
	}
	assert.Equal(t, 4, n.Agent("apply", "kube-scheduler.yaml").Code)
	r.are()

	story.Apply(t, n, 0, "--all")
	n.WaitAnswer(lb, "4.0.0-rev1-build1.2")
	r.are()
	story.Answers(t, scheduler, "1.33.5-rev1-build1.1")
	story.IsCurrent(t, story.St(t, n))

	story.Rel(n, "kube/kubernetes", "1.33.6-rev1-build1.1")
	image = n.Registry.Ref("kube/kubernetes:1.33.6-rev1")
	r.pods["kube-scheduler.yaml"], r.pods["kube-proxy.yaml"] = legacy("kube-scheduler", image, scheduler), legacy("kube-proxy", image, proxy)
	r.start()
	n.WaitAnswer(scheduler, "1.33.6-rev1-build1.1")
	n.WaitAnswer(proxy, "1.33.6-rev1-build1.1")
	s = story.Check(t, n)
	assert.Empty(t, story.ImageOf(t, s, "kube-scheduler.yaml").Change)
	story.IsCurrent(t, s)
	r.are()
	story.Answers(t, lb, "4.0.0-rev1-build1.2")
	shown := n.Agent("config", "show")
	assert.Contains(t, shown.Stdout, "# platform: rke2\n")
	assert.Contains(t, shown.Stdout, "socket: /run/k3s/containerd/containerd.sock # default of rke2\n")
	assert.Equal(t, 0, daemon.Stop().Code)
}
