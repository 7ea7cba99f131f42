// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
)

// SandboxReady reports whether a sandbox is up. One that the runtime does not
// know is not, and that is no error: kubelet removes an old one when it likes.
func (r *Runtime) SandboxReady(ctx context.Context, sandboxID string) (bool, error) {
	status, err := r.sandbox(ctx, sandboxID)
	if errors.Is(err, release.ErrNotFound) {
		return false, nil
	}
	return err == nil && status.GetState() == cri.PodSandboxState_SANDBOX_READY, err
}

// Address is the first IP address of a sandbox. It is empty where the sandbox
// has none of its own: it is in the host's network, for which containerd gives
// no address and other runtimes the host's, or its network is gone.
// release.ErrNotFound where there is no such sandbox.
func (r *Runtime) Address(ctx context.Context, sandboxID string) (string, error) {
	status, err := r.sandbox(ctx, sandboxID)
	if err != nil || status.GetLinux().GetNamespaces().GetOptions().GetNetwork() == cri.NamespaceMode_NODE {
		return "", err
	}
	return status.GetNetwork().GetIp(), nil
}

// sandbox is the status of one sandbox. An answer without one would pass for
// ready, which is the zero value of its state.
func (r *Runtime) sandbox(ctx context.Context, id string) (status *cri.PodSandboxStatus, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.PodSandboxStatus(ctx, &cri.PodSandboxStatusRequest{PodSandboxId: id})
		if status = answer.GetStatus(); err == nil && status == nil {
			err = errors.New("the runtime gives no status")
		}
		if err != nil {
			return fmt.Errorf("sandbox %s: %w", id, said(err))
		}
		return nil
	})
	return status, err
}
