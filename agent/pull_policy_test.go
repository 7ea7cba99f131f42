// SPDX-License-Identifier: Apache-2.0

package agent_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/plan"
	"github.com/kubic-project/image-update-agent/agent/status"
)

const apiserver = "registry.suse.com/caasp/v4/kube-apiserver"

// kubeadm's pod manifest has no template: what kubelet starts without a registry stays so. A rollback, which writes
// IfNotPresent, gives a pod manifest its Always back.
func TestPodManifestWithoutATemplateKeepsItsPullPolicy(t *testing.T) {
	for _, own := range []string{"IfNotPresent", "Always"} {
		t.Run(own, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				w := newWorld(t)
				w.Policy.Manage = map[string]bool{"kube-apiserver.yaml": true}
				text := func(tag string) string {
					return strings.Replace(string(rendered("kube-apiserver", "kube-apiserver="+apiserver+":"+tag)), "Always", own, 1)
				}
				first := w.Registry.Release(apiserver, "1.28.0", 1, "1.1")
				w.Node.PutPodManifest("kube-apiserver.yaml", []byte(text("1.28.0-rev1")))
				w.Node.Sync()
				w.check()
				second := w.Registry.Release(apiserver, "1.28.0", 2, "1.1")
				s := w.check()
				assert.Equal(t, []status.Edit{{
					Container: "kube-apiserver", Field: "image", From: "1.28.0-rev1-build1.1", To: "1.28.0-rev2-build1.1",
				}}, podOf(s, "kube-apiserver.yaml").Edits, own)

				out, _ := w.apply()

				require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				w.runs("kube-apiserver.yaml", "kube-apiserver", second.Digest)
				assert.Equal(t, text("1.28.0-rev2"), w.Node.PodManifest("kube-apiserver.yaml"))
				out, _, err := w.agent.Rollback(t.Context(), plan.Named("kube-apiserver"))
				require.NoError(t, err)
				require.Equal(t, status.ResultRolledBack, out[0].Result, out[0].Reason)
				w.runs("kube-apiserver.yaml", "kube-apiserver", first.Digest)
				out, _ = w.retry()
				require.Equal(t, status.ResultApplied, out[0].Result, out[0].Reason)
				assert.Equal(t, text("1.28.0-rev2"), w.Node.PodManifest("kube-apiserver.yaml"))
			})
		})
	}
}
