// SPDX-License-Identifier: Apache-2.0

package story

import (
	"fmt"
	"strings"
	"testing"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Sizes in bytes of a layer whose download breaks: containerd's client writes layers in chunks of a megabyte.
const (
	BigLayer = 4 << 20
	BrokenAt = 3 << 20
)

// PinHost is the prefix of a pin's name.
const PinHost = "pin.image-update-agent.local/"

// Stored returns containerd's image records and leases as they are on its disk.
func Stored(t *testing.T, n *node.Node) (images map[string]string, leases []string) {
	t.Helper()
	client, err := containerd.New(n.Containerd.Socket, containerd.WithDefaultNamespace("k8s.io"))
	require.NoError(t, err)
	defer func() { _ = client.Close() }()
	list, err := client.ImageService().List(t.Context())
	require.NoError(t, err)
	images = map[string]string{}
	for _, image := range list {
		if strings.HasPrefix(image.Name, PinHost) {
			continue
		}
		images[image.Name] = fmt.Sprint(image.Target.Digest, image.Labels)
	}
	held, err := client.LeasesService().List(t.Context())
	require.NoError(t, err)
	for _, lease := range held {
		leases = append(leases, lease.ID)
	}
	return images, leases
}

// ImageOf returns the status of the only image of a pod manifest.
func ImageOf(t *testing.T, s status.Status, file string) status.ImageStatus {
	t.Helper()
	var found []status.ImageStatus
	for _, i := range s.Images {
		if i.PodManifest == file {
			found = append(found, i)
		}
	}
	require.Len(t, found, 1, "%s: %+v", file, s.Images)
	return found[0]
}
