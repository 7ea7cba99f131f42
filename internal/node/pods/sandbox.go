// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// SandboxReady reports whether a sandbox is up. For an unknown one it returns false without an error: kubelet removes
// old ones at any time.
func (r *Runtime) SandboxReady(ctx context.Context, sandboxID string) (bool, error) {
	status, err := r.sandbox(ctx, sandboxID)
	if errors.Is(err, release.ErrNotFound) {
		return false, nil
	}
	return err == nil && status.GetState() == cri.PodSandboxState_SANDBOX_READY, err
}

// Address returns the first IP address of a sandbox; "" if it is in the host's network or its network was removed. It
// returns release.ErrNotFound for an unknown sandbox.
func (r *Runtime) Address(ctx context.Context, sandboxID string) (string, error) {
	status, err := r.sandbox(ctx, sandboxID)
	if err != nil || status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_NODE {
		return "", err
	}
	return status.GetNetwork().GetIp(), nil
}

// sandbox returns the status of a sandbox. An answer without a state is an error, because the zero value of the state
// means ready.
func (r *Runtime) sandbox(ctx context.Context, id string) (status *cri.PodSandboxStatus, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
		if status = answer.GetStatus(); err == nil && status == nil {
			err = errors.New("the runtime reports no status")
		}
		if err != nil {
			return fmt.Errorf("sandbox %s: %w", id, readable(err))
		}
		return nil
	})
	return status, err
}
