// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// TestLoginPage puts a login page in the registry's place. Kubelet's pull fails, and points the tag's record at the
// page. The agent's pin keeps the image, the agent restores the tag's record to the running release, and a pod with
// IfNotPresent starts from it. The source's status is failed, with the page as its cause, until the registry answers.
func TestLoginPage(t *testing.T) {
	t.Parallel()
	for _, version := range node.Containerds() {
		for way, path := range map[string]string{"200": "", "302": "/login"} {
			t.Run("containerd "+string(version)+" "+way, func(t *testing.T) {
				t.Parallel()
				n := node.Start(t, node.Options{Containerd: version, Kubelet: true})
				n.WriteFile(story.ConfigFile, "pullPolicy: IfNotPresent\n")
				port := n.FreePort()
				story.Template(n, port, n.Registry.Ref("demo/velum:__TAG__"))
				digest := story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
				story.Cycle(t, n, 0)
				n.WaitAnswer(port, "4.0.0-rev1-build1.1")
				story.IsCurrent(t, story.Cycle(t, n, 0))
				tag := n.Registry.Ref("demo/velum:4.0.0-rev1")

				n.Registry.Intercept(node.Page(path))
				n.Kubelet.Stop()
				_, err := n.CRI().Pull(tag)
				require.ErrorContains(t, err, "unexpected media type text/html")
				named := func() (string, string) {
					record, err := n.Containerd.Client().GetImage(t.Context(), tag)
					require.NoError(t, err)
					return record.Target().MediaType, record.Target().Digest.String()
				}
				kind, page := named()
				assert.Equal(t, "text/html", kind)
				assert.NotEqual(t, digest, page)
				pins, err := n.Containerd.Client().ListImages(t.Context(), `name~="^pin\\."`)
				require.NoError(t, err)
				require.Len(t, pins, 1)
				assert.Equal(t, digest, pins[0].Target().Digest.String(), "the pin survives")

				s := story.Parsed(t, n.Agent("run", "--once", "--output", "json"))
				_, now := named()
				assert.Equal(t, digest, now, "the tag names again what runs")
				require.Equal(t, status.StateStale, s.State, s.Reason)
				require.Len(t, s.Sources, 1)
				assert.Equal(t, release.CauseNoRegistry, s.Sources[0].Cause)
				assert.Contains(t, s.Sources[0].Error, "answers with a web page (text/html): a login page, or not a registry", "the poll of this cycle")
				story.Diagnosed(t, story.Diagnose(t, n, 1)["velum.yaml"], "failed", "a login page, or not a registry", "curl")

				n.Containerd.Restart() // CRI reads the records again
				assert.Contains(t, n.CRI().Tags(), tag)
				n.CRI().Stop("dashboard")
				n.Kubelet.Start()
				n.WaitAnswer(port, "4.0.0-rev1-build1.1")

				n.Registry.Intercept(nil)
				s = story.Cycle(t, n, 0)
				assert.Zero(t, s.Sources[0].Failures)
			})
		}
	}
}
