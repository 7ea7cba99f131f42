// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"fmt"

	"github.com/containerd/containerd/v2/core/images"
	"github.com/stretchr/testify/require"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// byHand changes the image in a pod manifest without an agent: to a large image that the node does not have, and back
// to a small one that it has.
func (d *downtimes) byHand(rounds int) {
	d.b.Helper()
	rounds = (rounds + 1) / 2
	if d.rounds(wayLarge, 1)+d.rounds(waySlow, 1)+d.rounds(wayEdit, 1) == 0 {
		return
	}
	pod := node.Pod{Name: "edited", Port: d.FreePort()}
	edit := func(way, image, answer string) {
		d.measure(way, answer, func(*downtime) { pod.Image = image; d.WritePod(pod) })
	}
	pod.Image = d.onNode(0)
	d.WritePod(pod)
	d.WaitAnswer(pod.Port, pod.Image)
	d.probe = d.Probe(pod.Port)
	defer d.probe.Stop()
	large, digest := d.large()
	for round := range rounds {
		for i, way := range []string{wayLarge, waySlow} {
			if way == waySlow {
				d.Registry.Slow(slowLine)
			}
			edit(way, large, "large")
			d.Registry.Slow(0)
			small := d.onNode(2*round + i + 1)
			edit(wayEdit, small, small)
			d.discard(pod.Name, digest)
		}
	}
}

// onNode returns a small image on the node. It answers with its own name.
func (d *downtimes) onNode(number int) string {
	d.b.Helper()
	tag := fmt.Sprintf("1.0.0-rev%d", number+1)
	ref := d.Registry.Ref("demo/edited:" + tag)
	d.Registry.Push("demo/edited", node.Image{Answer: ref}, tag)
	_, err := d.CRI().Pull(ref)
	require.NoError(d.b, err)
	return ref
}

// large returns the image to pull, and its digest.
func (d *downtimes) large() (ref, digest string) {
	d.b.Helper()
	image := node.Image{Answer: "large"}
	for part := range uint64(largeParts) {
		image.Layers = append(image.Layers, node.Layer{Seed: part, Size: int64(largeSize) / largeParts})
	}
	digest = d.Registry.Push("demo/large", image, "1.0.0-rev1")
	return d.Registry.Ref("demo/large:1.0.0-rev1"), digest
}

// discard removes an image from the node: the ended containers with its snapshots, its names, and then all unreferenced
// content.
func (d *downtimes) discard(pod, digest string) {
	d.b.Helper()
	runtime := d.CRI().Runtime
	ended, err := runtime.ListContainers(d.b.Context(), &cri.ListContainersRequest{Filter: &cri.ContainerFilter{
		State:         &cri.ContainerStateValue{State: cri.ContainerState_CONTAINER_EXITED},
		LabelSelector: map[string]string{"io.kubernetes.container.name": pod},
	}})
	require.NoError(d.b, err)
	for _, c := range ended.GetContainers() {
		_, err = runtime.RemoveContainer(d.b.Context(), &cri.RemoveContainerRequest{ContainerId: c.GetId()})
		require.NoError(d.b, err)
	}
	service := d.Containerd.Client().ImageService()
	names, err := service.List(d.b.Context(), "target.digest=="+digest)
	require.NoError(d.b, err)
	require.NotEmpty(d.b, names)
	for _, name := range names {
		require.NoError(d.b, service.Delete(d.b.Context(), name.Name, images.SynchronousDelete()))
	}
}
