// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// A pod as kubeadm writes it, with a startup and a liveness probe only, gets a release that answers 503 for ever. It
// listens, kubelet calls it running, and it has no readiness probe.
func TestReleaseThatNeverStartsIsRolledBack(t *testing.T) {
	t.Parallel()
	for name, pods := range map[string]string{"kubelet says it": "", "the agent probes": "off"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
			if pods == "" {
				pods = fmt.Sprintf("http://127.0.0.1:%d/pods", n.Kubelet.Port)
			}
			n.WriteFile(story.ConfigFile, "interval: 0\nsettle: 3s\napplyTimeout: 40s\nkubelet: {pods: \""+pods+"\"}\n")
			port := n.FreePort()
			probe := fmt.Sprintf("{httpGet: {host: 127.0.0.1, path: /ready, port: %d}, periodSeconds: 1, failureThreshold: ", port)
			n.WriteFile(story.TemplateDir+"velum.yaml", story.VelumTemplate(port, n.Registry.Ref("demo/velum:__TAG__"))+
				"    startupProbe: "+probe+"24}\n    livenessProbe: "+probe+"8}\n")
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

			story.Rel(n, "demo/velum", "4.0.0-rev1-build1.3")
			story.Check(t, n)
			story.Apply(t, n, 0, "velum")
			assert.Equal(t, "4.0.0-rev1-build1.3", story.St(t, n).Images[0].LastKnownGood.Tag)
			assert.Equal(t, 0, daemon.Stop().Code)
		})
	}
}
