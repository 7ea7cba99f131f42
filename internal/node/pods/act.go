// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/opencontainers/go-digest"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/agent/release"
	"github.com/kubic-project/image-update-agent/internal/base/wait"
)

// Lists reports whether CRI has an image of that name, and its image id.
func (r *Runtime) Lists(ctx context.Context, name string) (id digest.Digest, listed bool, err error) {
	err = r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		answer, err := c.ImageStatus(ctx, &cri.ImageStatusRequest{Image: &cri.ImageSpec{Image: name}})
		if listed = answer.GetImage() != nil; listed {
			id, err = parseID(answer.GetImage().GetId())
		}
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("image %s: %w", name, readable(err))
		}
		return nil
	})
	return id, listed && err == nil, err
}

// Stop stops a container, with a grace period, and removes it: kubelet starts a new one in the same sandbox. If kubelet
// found an ended container of that name, it would wait for its back-off (doBackOff in kuberuntime_manager.go); without
// one, 60 of 60 started at once on containerd 1.7 and 2. The container's log stays.
func (r *Runtime) Stop(ctx context.Context, containerID string, grace time.Duration) error {
	return r.with(ctx, grace+stopMargin, func(ctx context.Context, c session) error {
		if err := c.awaitNoticed(ctx, containerID); err != nil {
			return fmt.Errorf("stop container %s: %w", containerID, err)
		}
		_, err := c.StopContainer(ctx, &cri.StopContainerRequest{ContainerId: containerID, Timeout: seconds(grace)})
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("stop container %s: %w", containerID, readable(err))
		}
		if err := c.awaitEnded(ctx, containerID); err != nil {
			return fmt.Errorf("stop container %s: cannot see its end: %w", containerID, err)
		}
		return c.remove(ctx, containerID)
	})
}

// statusInterval is the time between two queries of awaitEnded.
const statusInterval = 50 * time.Millisecond

// awaitEnded waits until the runtime reports a stopped container as ended. If it ended on its own at that moment,
// containerd 2.4 has no task any more but still updates its status (container_stop.go): the stop succeeds, and a
// removal would fail.
func (c session) awaitEnded(ctx context.Context, containerID string) error {
	retry := time.NewTicker(statusInterval)
	defer retry.Stop()
	for {
		answer, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: containerID})
		switch {
		case isNotFound(err):
			return nil
		case err != nil: // the container may still run
			return readable(err)
		case answer.GetStatus().GetState() != cri.ContainerState_CONTAINER_RUNNING:
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-retry.C:
		}
	}
}

// minAge is the age at which kubelet certainly knows a container: kubelet lists them once a second. It would replace an
// unknown one only at its next sync of all pods, within a minute.
const minAge = 3 * time.Second

// awaitNoticed waits until kubelet knows a container that was just started.
func (c session) awaitNoticed(ctx context.Context, containerID string) error {
	answer, err := c.ContainerStatus(ctx, &cri.ContainerStatusRequest{ContainerId: containerID})
	if isNotFound(err) {
		return nil
	}
	if err != nil {
		return readable(err)
	}
	age := time.Since(time.Unix(0, answer.GetStatus().GetStartedAt()))
	return wait.For(ctx, min(minAge-age, minAge)) // a start in the future: the clock was set
}

// Exec runs a command in a container, as kubelet does for a probe, and returns its exit code. The runtime kills it
// after timeout: context.DeadlineExceeded.
func (r *Runtime) Exec(
	ctx context.Context, containerID string, command []string, timeout time.Duration,
) (int32, error) {
	var code int32
	err := r.with(ctx, timeout+execMargin, func(ctx context.Context, c session) error {
		asked := &cri.ExecSyncRequest{ContainerId: containerID, Cmd: command, Timeout: seconds(timeout)}
		answer, err := c.ExecSync(ctx, asked)
		if err != nil {
			return fmt.Errorf("exec in container %s: %w", containerID, readable(err))
		}
		code = answer.GetExitCode()
		return nil
	})
	return code, err
}

// Clear removes the exited containers of a sandbox.
func (r *Runtime) Clear(ctx context.Context, sandboxID string) error {
	return r.with(ctx, callTimeout, func(ctx context.Context, c session) error {
		all, err := c.ListContainers(ctx, &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
			PodSandboxId: sandboxID, State: &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_EXITED},
		}})
		if err != nil && !isNotFound(err) {
			return fmt.Errorf("containers of sandbox %s: %w", sandboxID, readable(err))
		}
		for _, container := range all.GetContainers() {
			if err := c.remove(ctx, container.GetId()); err != nil {
				return err
			}
		}
		return nil
	})
}

func (c session) remove(ctx context.Context, containerID string) error {
	_, err := c.RemoveContainer(ctx, &cri.RemoveContainerRequest{ContainerId: containerID})
	if err != nil && !isNotFound(err) {
		return fmt.Errorf("remove container %s: %w", containerID, readable(err))
	}
	return nil
}

// Pull makes the runtime pull a reference with the runtime's hosts and credentials, as for kubelet, and returns the
// image id. It returns release.ErrNotFound if the registry has no such tag.
func (r *Runtime) Pull(ctx context.Context, ref release.Reference) (digest.Digest, error) {
	var id digest.Digest
	err := r.with(ctx, pullTimeout, func(ctx context.Context, c session) error {
		answer, err := c.PullImage(ctx, &cri.PullImageRequest{Image: &cri.ImageSpec{Image: ref.String()}})
		if err == nil {
			id, err = parseID(answer.GetImageRef())
		}
		if err != nil {
			return fmt.Errorf("pull %s: %w", ref, readable(err))
		}
		return nil
	})
	return id, err
}

// parseID reads an image id, which is a digest in containerd.
func parseID(text string) (digest.Digest, error) {
	id, err := digest.Parse(text)
	if err != nil {
		return "", fmt.Errorf("image id %q: %w", text, err)
	}
	return id, nil
}

// seconds rounds up, because a grace period of zero would be a kill.
func seconds(d time.Duration) int64 { return int64((d + time.Second - 1) / time.Second) }

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
