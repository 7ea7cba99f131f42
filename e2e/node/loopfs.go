// SPDX-License-Identifier: Apache-2.0

package node

import (
	"os"
	"path/filepath"
)

// mountImageSpace mounts a small ext4 where containerd keeps its images, like a separate partition. No blocks are
// reserved for root, which may lack the right to use them. Only the node sees the mount; mount and loop device end with
// the node, however that ends.
func (n *Node) mountImageSpace(size int64) {
	n.tb.Helper()
	image := filepath.Join(n.Dir, "images.ext4")
	err := os.WriteFile(image, nil, 0o600)
	if err == nil {
		err = os.Truncate(image, size)
	}
	if err != nil {
		n.tb.Fatalf("node: %v", err)
	}
	n.output(n.installed("mkfs.ext4"), "-q", "-m", "0", image)
	mount := n.run("mount", []string{searchPath()}, n.installed("mount"), "-o", "loop", image,
		filepath.Join(n.Dir, "containerd/root"))
	if exit := mount.Wait(Patience); exit.Code != 0 {
		n.tb.Fatalf("node: mount %s: %s", image, n.text(mount.Stdout))
	}
}
