// SPDX-License-Identifier: Apache-2.0

package ownhost

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// The registry is away for good: what a stick brings is staged, and applied with the own host as fallback. kubelet pulls
// under Always, and gets the staged digest from nobody else.
func TestApplyFromAStickWithoutARegistry(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	n.WriteFile(story.ConfigFile, ownHostConfig)
	port := n.FreePort()
	name := n.Registry.Host // a name of its own: nodes beside this one have other tables
	story.Template(n, port, name+"/caasp/v4/velum:__TAG__")
	n.Registry.Publish("caasp/v4/velum", "4.0.0-rev1-build1.1", node.Image{OCI: true})
	story.Cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	rev2 := n.Registry.Publish("caasp/v4/velum", "4.0.0-rev2-build2.1", node.Image{OCI: true})
	stick := filepath.Join(t.TempDir(), "images")
	copying := strings.NewReplacer(story.DocStick, stick, story.DocHost, name).Replace(story.AirGap(t, "## A stick").Block(t, "sh", 0))
	out, err := story.Skopeo(t, n, "", strings.ReplaceAll(copying, "skopeo copy ", "skopeo copy --src-tls-verify=false "))
	require.NoError(t, err, out)
	n.Registry.Down() // for good
	n.Registry.Forget()

	answered := answerAsOwnHost(t, n)
	enable(t, n, name)
	r := n.Agent("run", "--once", "--source", "oci:"+stick, "--output", "json")
	require.Equal(t, 0, r.Code, "%s\n%s", r.Stdout, r.Stderr)
	require.NoError(t, os.RemoveAll(stick))
	story.StartDaemonWith(t, n, "UPDATE_POLLING_INTERVAL=0")
	node.Eventually(t, "first cycle of the daemon", story.Ready, func() error {
		if strings.Contains(n.Agent("status").Stdout, "4.0.0-rev2") {
			return nil
		}
		return errors.New("no offer")
	})
	story.Apply(t, n, 0, "velum.yaml")
	n.WaitAnswer(port, "4.0.0-rev2-build2.1")
	assert.Contains(t, n.ReadFile(story.VelumYAML), "velum:4.0.0-rev2")
	assert.NotContains(t, n.ReadFile(story.VelumYAML), "@sha256", "the tag stays followed")
	assert.Equal(t, rev2, story.ImageOf(t, story.St(t, n), "velum.yaml").Running.Digest.String())
	assert.Positive(t, answered().Served)
	assert.Empty(t, n.Registry.Requests(), "no registry ever answered")

	n.CRI().Stop("dashboard")
	n.WaitAnswer(port, "4.0.0-rev2-build2.1")
	// That it had ended is failed, until the daemon sees what kubelet has started.
	node.Eventually(t, "the daemon sees the new container", story.Ready, func() error {
		if s := story.St(t, n); s.State == status.StateFailed {
			return errors.New(s.Reason)
		}
		return nil
	})
}
