// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Of several documents kubelet runs the first; the others are kept as they are.
func TestLaterDocuments(t *testing.T) {
	t.Parallel()
	n := node.Start(t, node.Options{Containerd: node.Containerd2})
	rel(n, "demo/velum", "4.0.0-rev1-build1.1")
	image := n.Registry.Ref("demo/velum")
	n.WriteFile(templateDir+"two.yaml", podYAML("two", image+":__TAG__")+"---\n"+podYAML("second", image+":__TAG__"))
	s := cycle(t, n, 0)
	assert.Equal(t, podYAML("two", image+":4.0.0-rev1\n    imagePullPolicy: Always")+"---\n"+podYAML("second", image+":__TAG__"),
		n.ReadFile(manifestDir+"two.yaml"))
	assert.Equal(t, "later-document", podOf(t, s, "two.yaml").Untouched[0].Reason)
}

// What a pod manifest on disk asks for stays pinned until something else runs:
// kubelet starts it at any time.
func TestPinOfWhatIsWritten(t *testing.T) {
	t.Parallel()
	n := started(t)
	first := pins(t, n)
	cycle(t, n, 0)
	assert.Subset(t, pins(t, n), first)
}
