// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
	"github.com/kubic-project/image-update-agent/internal/registry/registrytest"
)

// A pod as kubeadm writes it, with a startup and a liveness probe only, gets a release that answers 503 for ever. It
// listens, kubelet calls it running, and it has no readiness probe. `make soak` has kubelet's port off, too, where the
// agent probes itself, as in TestSidecarAndEveryHandlerWithoutKubeletsPort.
func TestReleaseThatNeverStartsIsRolledBack(t *testing.T) {
	t.Parallel()
	ways := map[string]string{"kubelet says it": ""}
	if node.Soak {
		ways["the agent probes"] = "off"
	}
	for name, pods := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
			if pods == "" {
				pods = fmt.Sprintf("http://127.0.0.1:%d/pods", n.Kubelet.Port)
			}
			const config = "interval: 0\nsettle: 3s\nkubelet: {pods: %q}\napplyTimeout: %s\n"
			n.WriteFile(story.ConfigFile, fmt.Sprintf(config, pods, "20s")) // the startup probe allows 36 s
			port := n.FreePort()
			probe := fmt.Sprintf("{httpGet: {host: 127.0.0.1, path: /ready, port: %d}, periodSeconds: 1, failureThreshold: ", port)
			n.WriteFile(story.TemplateDir+"velum.yaml", story.VelumTemplate(port, n.Registry.Ref("demo/velum:__TAG__"))+
				"    startupProbe: "+probe+"24, timeoutSeconds: 12}\n    livenessProbe: "+probe+"8}\n")
			good := story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			story.Cycle(t, n, 0)
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")
			daemon := story.StartDaemonWith(t, n)
			n.Registry.PublishFaulty("demo/velum", "4.0.0-rev1-build1.2", node.Image{}, node.Unready)
			require.Equal(t, status.StateStaged, story.Check(t, n).State)
			r := n.Agent("apply", "velum")
			require.Equal(t, 1, r.Code, "%s\n%s", r.Stdout, r.Stderr)
			assert.Contains(t, r.Stdout+r.Stderr, "dashboard has not started")
			story.Answers(t, port, "4.0.0-rev1-build1.1")
			s := story.St(t, n)
			assert.Equal(t, good, string(s.Images[0].LastKnownGood.Digest))
			assert.NotNil(t, story.PodOf(t, s, "velum.yaml").RolledBack)

			n.WriteFile(story.ConfigFile, fmt.Sprintf(config, pods, "5m"))
			story.Hangup(t, n, daemon)
			story.Rel(n, "demo/velum", "4.0.0-rev1-build1.3")
			story.Check(t, n)
			story.Apply(t, n, 0, "velum")
			assert.Equal(t, "4.0.0-rev1-build1.3", story.St(t, n).Images[0].LastKnownGood.Tag)
			assert.Equal(t, 0, daemon.Stop().Code)
		})
	}
}

// A sidecar and two containers have probes of each type, with each handler but two alike. kubelet's read-only port is
// off: it tells the API server, which only `make soak` has, or nobody.
func TestSidecarAndEveryHandlerWithoutKubeletsPort(t *testing.T) {
	t.Parallel()
	ways := map[string]bool{"the agent probes": false}
	if node.Soak {
		ways["the mirror pod says it"] = true
	}
	for name, hasAPI := range ways {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const kubelet = "system:node:node1"
			o := node.Options{Containerd: node.Containerd2, Kubelet: true}
			var api *story.APIServer
			if hasAPI {
				api = story.StartAPIServer(t, story.StartEtcd(t), kubelet)
				o.Kubeconfig = api.Kubeconfig(kubelet)
			}
			n := node.Start(t, o)
			said := "dashboard has not started: exec: exit code 1"
			if hasAPI {
				n.WriteFile("etc/kubernetes/kubelet.conf", registrytest.Text(t, o.Kubeconfig))
				said = "dashboard has not started according to kubelet"
			}
			const config = "interval: 0\nsettle: 3s\nkubelet: {pods: \"off\"}\napplyTimeout: "
			n.WriteFile(story.ConfigFile, config+"20s\n") // as above
			port, grpc, side := n.FreePort(), n.FreePort(), n.FreePort()
			const probe = ", periodSeconds: 1, failureThreshold: "
			n.WriteFile(story.TemplateDir+"velum.yaml", story.VelumTemplate(port, n.Registry.Ref("demo/velum:__TAG__"))+fmt.Sprintf(`
    startupProbe: {exec: {command: [/answer, ready]}%[1]s24, timeoutSeconds: 12}
    livenessProbe: {httpGet: {host: 127.0.0.1, path: /ready, port: %[2]d}%[1]s8}
  - name: second
    image: %[3]s
    args: [":%[4]d"] # kubelet asks the node's address
    readinessProbe: {grpc: {port: %[4]d}%[1]s3}
  initContainers:
  - name: side
    image: %[5]s
    args: ["127.0.0.1:%[6]d"]
    restartPolicy: Always
    startupProbe: {tcpSocket: {host: 127.0.0.1, port: %[6]d}%[1]s24}
    readinessProbe: {exec: {command: [/answer, ready]}%[1]s3}
`, probe, port, n.Registry.Ref("demo/second:__TAG__"), grpc, n.Registry.Ref("demo/side:__TAG__"), side))
			story.Rel(n, "demo/second", "1.0.0-rev1-build1.1")
			story.Rel(n, "demo/side", "1.0.0-rev1-build1.1")
			good := story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
			story.Cycle(t, n, 0)
			n.WaitAnswer(port, "4.0.0-rev1-build1.1")
			daemon := story.StartDaemonWith(t, n)

			n.Registry.PublishFaulty("demo/velum", "4.0.0-rev1-build1.2", node.Image{}, node.Unready)
			story.Check(t, n)
			r := n.Agent("apply", "velum")
			require.Equal(t, 1, r.Code, "%s\n%s", r.Stdout, r.Stderr)
			assert.Contains(t, r.Stdout+r.Stderr, said)
			story.Answers(t, port, "4.0.0-rev1-build1.1")
			assert.Equal(t, good, lastGood(t, n, "dashboard"))

			n.WriteFile(story.ConfigFile, config+"5m\n")
			story.Hangup(t, n, daemon)
			for _, next := range []struct{ repository, tag, container string }{
				{"demo/velum", "4.0.0-rev1-build1.3", "dashboard"},
				{"demo/second", "1.0.0-rev1-build1.2", "second"},
				{"demo/side", "1.0.0-rev1-build1.2", "side"},
			} {
				digest := story.Rel(n, next.repository, next.tag)
				story.Check(t, n)
				story.Apply(t, n, 0, "velum")
				assert.Equal(t, digest, lastGood(t, n, next.container))
			}
			assert.Equal(t, 0, daemon.Stop().Code)
			if hasAPI {
				isAgent := func(name string) bool { return strings.HasPrefix(name, "image-update-agent/") }
				assert.True(t, slices.Contains(api.Requests(isAgent), "get /api/v1/namespaces/kube-system/pods/velum-node1"))
			}
		})
	}
}

// lastGood returns the last known good digest of a container.
func lastGood(t *testing.T, n *node.Node, container string) string {
	t.Helper()
	s := story.St(t, n)
	at := slices.IndexFunc(s.Images, func(i status.ImageStatus) bool { return i.Container == container })
	require.GreaterOrEqual(t, at, 0, "%s: %+v", container, s.Images)
	return string(s.Images[at].LastKnownGood.Digest)
}
