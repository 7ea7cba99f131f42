// SPDX-License-Identifier: Apache-2.0

package node

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// containerNameLabel is kubelet's label for a container's name (k8s.io/kubelet/pkg/types).
const containerNameLabel = "io.kubernetes.container.name"

// CRI is a client of the container runtime interface.
type CRI struct {
	Runtime cri.RuntimeServiceClient
	Images  cri.ImageServiceClient

	node *Node
}

// CRI returns a client of the node's containerd.
func (n *Node) CRI() *CRI {
	n.tb.Helper()
	socket := "unix://" + n.Path(socketPath)
	connection, err := grpc.NewClient(socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		n.tb.Fatalf("node: cri: %v", err)
		return nil
	}
	n.tb.Cleanup(func() { _ = connection.Close() })
	return &CRI{
		Runtime: cri.NewRuntimeServiceClient(connection), Images: cri.NewImageServiceClient(connection), node: n,
	}
}

// ready returns an error until the runtime and the image service answer and the runtime reports that it is ready. The
// network need not be ready: there is no CNI network.
func (c *CRI) ready(ctx context.Context) error {
	answer, err := c.Runtime.Status(ctx, &cri.StatusRequest{})
	if err != nil {
		return err
	}
	for _, condition := range answer.GetStatus().GetConditions() {
		if condition.GetType() == "RuntimeReady" && !condition.GetStatus() {
			return fmt.Errorf("runtime not ready: %s", condition.GetMessage())
		}
	}
	_, err = c.Images.ImageFsInfo(ctx, &cri.ImageFsInfoRequest{})
	return err
}

// Running returns the one running container with this name. No or several such containers are an error.
func (c *CRI) Running(container string) (*cri.Container, error) {
	answer, err := c.Runtime.ListContainers(c.node.tb.Context(), &cri.ListContainersRequest{
		Filter: &cri.ContainerFilter{
			State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_RUNNING},
			LabelSelector: map[string]string{containerNameLabel: container},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("cri: %w", err)
	}
	if found := answer.GetContainers(); len(found) != 1 {
		return nil, fmt.Errorf("cri: %s: %d running containers", container, len(found))
	}
	return answer.GetContainers()[0], nil
}

// Stop stops the running container with this name without grace; kubelet restarts it.
func (c *CRI) Stop(container string) {
	c.node.tb.Helper()
	found, err := c.Running(container)
	if err == nil {
		_, err = c.Runtime.StopContainer(c.node.tb.Context(), &cri.StopContainerRequest{ContainerId: found.GetId()})
	}
	if err != nil {
		c.node.tb.Fatalf("node: stop: %v", err)
	}
}

// Tags returns the image names that CRI lists, sorted.
func (c *CRI) Tags() []string {
	c.node.tb.Helper()
	answer, err := c.Images.ListImages(c.node.tb.Context(), &cri.ListImagesRequest{})
	if err != nil {
		c.node.tb.Fatalf("node: cri: %v", err)
		return nil
	}
	var tags []string
	for _, image := range answer.GetImages() {
		tags = append(tags, image.GetRepoTags()...)
	}
	slices.Sort(tags)
	return tags
}

// AwaitTag waits until CRI lists an image name, or no longer lists it: it learns of what others pull and remove by
// containerd's events.
func (c *CRI) AwaitTag(name string, listed bool) {
	c.node.tb.Helper()
	Eventually(c.node.tb, "cri's list", Patience, func() error {
		if tags := c.Tags(); slices.Contains(tags, name) != listed {
			return fmt.Errorf("want %s listed %t: %v", name, listed, tags)
		}
		return nil
	})
}

// Pull pulls an image as kubelet does and returns CRI's image reference.
func (c *CRI) Pull(image string) (string, error) {
	answer, err := c.Images.PullImage(c.node.tb.Context(), &cri.PullImageRequest{Image: &cri.ImageSpec{Image: image}})
	if err != nil {
		return "", errors.Join(fmt.Errorf("cri: pull %s", image), err)
	}
	return answer.GetImageRef(), nil
}
