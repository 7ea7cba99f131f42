// SPDX-License-Identifier: Apache-2.0

package localregistry

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

// TestApplyFromRemovableMediaWithoutARegistry stages images from removable media while the registry is permanently
// away, and applies them with the local registry as fallback: kubelet pulls under Always, and gets the staged digest
// from the local registry alone.
func TestApplyFromRemovableMediaWithoutARegistry(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2, Kubelet: true})
	n.WriteFile(story.ConfigFile, localRegistryConfig)
	port := n.FreePort()
	name := n.Registry.Host // the test's own name: other nodes of this machine have other tables
	story.Template(n, port, name+"/caasp/v4/velum:__TAG__")
	n.Registry.Publish("caasp/v4/velum", "4.0.0-rev1-build1.1", node.Image{OCI: true})
	story.Cycle(t, n, 0)
	n.WaitAnswer(port, "4.0.0-rev1-build1.1")
	rev2 := n.Registry.Publish("caasp/v4/velum", "4.0.0-rev2-build2.1", node.Image{OCI: true})
	stick := filepath.Join(t.TempDir(), "images")
	copying := strings.NewReplacer(story.DocMedia, stick, story.DocHost, name).Replace(story.AirGap(t, "## Removable media").Block(t, "sh", 0))
	out, err := story.Skopeo(t, n, "", strings.ReplaceAll(copying, "skopeo copy ", "skopeo copy --src-tls-verify=false "))
	require.NoError(t, err, out)
	n.Registry.Down() // permanently
	n.Registry.Forget()

	answered := answerAsLocalRegistry(t, n)
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
	// The agent reports the ended container as failed until it sees the new one.
	node.Eventually(t, "the daemon sees the new container", story.Ready, func() error {
		if s := story.St(t, n); s.State == status.StateFailed {
			return errors.New(s.Reason)
		}
		return nil
	})
}
