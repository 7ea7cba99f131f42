// SPDX-License-Identifier: Apache-2.0

package images

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

func (r *podsRig) ready(sandbox string) bool {
	r.t.Helper()
	ready, err := r.runtime.SandboxReady(r.t.Context(), sandbox)
	require.NoError(r.t, err)
	return ready
}

func (r *podsRig) stop(sandbox string) {
	r.t.Helper()
	_, err := r.cri.Runtime.StopPodSandbox(r.t.Context(), &cri.StopPodSandboxRequest{PodSandboxId: sandbox})
	require.NoError(r.t, err)
}

// testSandbox checks a pod in the host's network.
func testSandbox(t *testing.T, r *podsRig) {
	sandbox, _ := r.sandbox("sandbox-node1", "file")
	assert.True(t, r.ready(sandbox))
	address, err := r.runtime.Address(t.Context(), sandbox)
	require.NoError(t, err)
	assert.Empty(t, address, "it has the host's")

	r.stop(sandbox)
	assert.False(t, r.ready(sandbox))
	assert.False(t, r.ready("no such sandbox"))
	_, err = r.runtime.Address(t.Context(), "no such sandbox")
	require.ErrorIs(t, err, release.ErrNotFound)
}

func testSandboxAddress(t *testing.T, r *podsRig) {
	const its = "198.51.100.7" // RFC 5737: assigned to no host
	r.network(its)
	sandbox, _ := r.sandboxIn(cri.NamespaceMode_POD, "address-node1", "file")
	address, err := r.runtime.Address(t.Context(), sandbox)
	require.NoError(t, err)
	assert.Equal(t, its, address)
	r.stop(sandbox)
	assert.False(t, r.ready(sandbox))
	address, err = r.runtime.Address(t.Context(), sandbox)
	require.NoError(t, err)
	assert.Empty(t, address, "its network is gone")
}

// network adds a network with one address to the node, which leads nowhere: a bridge without a gateway affects nothing
// else on the machine.
func (r *podsRig) network(address string) {
	r.t.Helper()
	bridge := fmt.Sprintf("iua%d", r.FreePort()) // the port is reserved for this test, so the name is unique
	file := filepath.Join(r.Dir, "containerd/cni/10-one.conflist")
	require.NoError(r.t, os.WriteFile(file, fmt.Appendf(nil, `{"cniVersion": "0.4.0", "name": "one", "plugins": [
	{"type": "bridge", "bridge": %q, "ipam": {"type": "static", "addresses": [{"address": "%s/24"}]}}
]}`, bridge, address), 0o644))
	r.t.Cleanup(func() {
		assert.NoError(r.t, os.Remove(file))
		out, err := exec.CommandContext(context.WithoutCancel(r.t.Context()), "ip", "link", "delete", bridge).CombinedOutput()
		assert.NoError(r.t, err, "%s", out)
	})
	node.Eventually(r.t, "network", story.Ready, func() error {
		answer, err := r.cri.Runtime.Status(r.t.Context(), &cri.StatusRequest{})
		for _, condition := range answer.GetStatus().GetConditions() {
			if condition.GetType() == "NetworkReady" && !condition.GetStatus() {
				return fmt.Errorf("%s", condition.GetMessage())
			}
		}
		return err
	})
}
