// SPDX-License-Identifier: Apache-2.0

package apply

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/node"
	"github.com/kubic-project/image-update-agent/e2e/story"
)

// Of several documents kubelet runs the first; the others are not changed.
func TestLaterDocuments(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	story.Rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	image := n.Registry.Ref("demo/velum")
	n.WriteFile(story.TemplateDir+"two.yaml", story.PodYAML("two", image+":__TAG__")+"---\n"+story.PodYAML("second", image+":__TAG__"))
	s := story.Cycle(t, n, 0)
	assert.Equal(t, story.PodYAML("two", image+":4.0.0-rev1\n    imagePullPolicy: Always")+"---\n"+story.PodYAML("second", image+":__TAG__"),
		n.ReadFile(story.ManifestDir+"two.yaml"))
	assert.Equal(t, "later-document", story.PodOf(t, s, "two.yaml").Untouched[0].Reason)
}

// The image in a pod manifest on disk stays pinned until another one runs, because kubelet may start it at any time.
func TestPinOfTheWrittenImage(t *testing.T) {
	t.Parallel()
	n := story.Started(t)
	first := story.Pins(t, n)
	story.Cycle(t, n, 0)
	assert.Subset(t, story.Pins(t, n), first)
}
