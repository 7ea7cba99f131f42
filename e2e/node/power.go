// SPDX-License-Identifier: Apache-2.0

package node

import (
	"fmt"
	"path/filepath"
)

// off ends all that a power cut ends: shims and containers, which outlive containerd, and files in memory, on a real
// node /run. It runs in the node, whose /proc shows only the node's processes. %[1]s is the node's directory, %[2]s its
// tree, %[3]s the name of its cgroups.
const off = `
shims() {
	for p in /proc/[0-9]*; do
		case "$(readlink "$p/exe" || :)" in */containerd-shim-runc-v2) echo "${p#/proc/}";; esac
	done
}
containers() { find /sys/fs/cgroup -path '*/%[3]s/*' -name cgroup.procs -exec cat {} + | sort -u; }
left=$(shims; containers)
while [ -n "$left" ]; do
	kill -9 $left 2>/dev/null || :
	left=$(shims; containers)
done
awk '$2 ~ "^%[1]s/containerd/state/" || $2 ~ "^/run/containerd/" { print $2 }' /proc/mounts |
	sort -r | xargs -r umount -l
rm -rf /run/containerd/* %[1]s/containerd/state %[2]s/run
mkdir -p %[2]s/run/containerd
`

// PowerOff cuts the power of a node with kubelet: no process is asked to end, except kubelet, where that makes no
// difference. The registry, as on another machine, keeps running. Containerd.Start and Kubelet.Start boot the node.
func (n *Node) PowerOff() {
	n.tb.Helper()
	n.Kubelet.Stop()
	n.Containerd.Kill()
	n.Shell(fmt.Sprintf(off, n.Dir, n.Root, filepath.Base(n.Dir)))
}
