// SPDX-License-Identifier: Apache-2.0

package story

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	agentnode "github.com/kubic-project/image-update-agent/agent/node"
	"github.com/kubic-project/image-update-agent/agent/record"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Running returns a node whose velum runs rev1-build1.1, with a daemon that polls only on request.
func Running(t *testing.T, config string) (n *node.Node, daemon *node.Process, port int) {
	t.Helper()
	n = node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	port = n.FreePort()
	n.WriteFile(ConfigFile, config)
	Template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
	Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	Cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	daemon = StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	Check(t, n)
	return n, daemon, port
}

// Container returns the id of velum's container.
func Container(t *testing.T, n *node.Node) string {
	t.Helper()
	c, err := n.CRI().Running("dashboard")
	require.NoError(t, err)
	return c.GetId()
}

// Pins returns the digests of our pins.
func Pins(t *testing.T, n *node.Node) []string {
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

// Followed returns a pod manifest with the tags that it follows: an apply names the digests if kubelet is slow to start
// the pod.
func Followed(tb node.TB, n *node.Node, file string) string {
	tb.Helper()
	pod := agentnode.PodFile{Name: file, Data: []byte(n.ReadFile(ManifestDir + file))}
	var now record.Record
	err := json.Unmarshal([]byte(n.ReadFile(RecordFile)), &now)
	if o := now.Overrides[file]; err == nil && !o.Pending && strings.HasPrefix(o.Reason, "during an apply: ") {
		pod, err = o.Unpinned(pod)
	}
	if err != nil {
		tb.Fatalf("%s: %v", file, err)
	}
	return string(pod.Data)
}

// Held asserts that an apply waits, with this reason.
func Held(t *testing.T, n *node.Node, why string) {
	t.Helper()
	r := n.Agent("apply", "velum")
	assert.Equal(t, 4, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	assert.Contains(t, r.Stdout, "velum.yaml  rebuild  held")
	assert.Contains(t, r.Stdout, why)
}

// Prefixes of the clients' User-Agents: containerd pulls for kubelet.
const (
	CriAgent = "containerd/"
	OwnAgent = "image-update-agent/"
)

// Cycle runs a single cycle that must exit with the code.
func Cycle(t *testing.T, n *node.Node, code int) status.Status {
	t.Helper()
	r := n.Agent("run", "--once", "--output", "json")
	require.Equal(t, code, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	return Parsed(t, r)
}

// Check has the daemon check, once it listens.
func Check(t *testing.T, n *node.Node) status.Status {
	t.Helper()
	var r node.Result
	node.Eventually(t, "daemon answers", Ready, func() error {
		if err := Listens(n); err != nil {
			return err
		}
		r = n.Agent("check", "--output", "json")
		return nil
	})
	return Parsed(t, r)
}

// St returns the daemon's status.
func St(t *testing.T, n *node.Node) status.Status {
	t.Helper()
	return Parsed(t, n.Agent("status", "--output", "json"))
}

// Parsed parses the status that a command printed as JSON.
func Parsed(t *testing.T, r node.Result) status.Status {
	t.Helper()
	var s status.Status
	require.NoError(t, json.Unmarshal([]byte(r.Stdout), &s), "exit %d\n%s\n%s", r.Code, r.Stdout, r.Stderr)
	return s
}

// Apply applies images, or all if none is named, and must exit with the code.
func Apply(t *testing.T, n *node.Node, code int, images ...string) {
	t.Helper()
	r := n.Agent(append([]string{"apply"}, images...)...)
	require.Equal(t, code, r.Code, "%s\n%s", r.Stdout, r.Stderr)
}

// Answers asserts a pod's answer. It waits, since on a busy machine a container may run before its program listens.
func Answers(t *testing.T, port int, want string) {
	t.Helper()
	var got string
	node.Eventually(t, "answer", Ready, func() (err error) {
		got, err = node.Answer(port)
		return err
	})
	assert.Equal(t, want, got)
}
