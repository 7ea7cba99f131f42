// SPDX-License-Identifier: Apache-2.0

package host

import (
	"bufio"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
)

// OwnDisk mounts a separate file system on a directory of the host, which must be off.
func (h *Host) OwnDisk(dir string) {
	h.tb.Helper()
	image, mount := filepath.Join(h.node.Dir, "host/disk.ext4"), filepath.Join(h.tree, dir)
	h.node.Shell(fmt.Sprintf("truncate -s 16M %[1]s; mkfs.ext4 -q %[1]s; mkdir -p %[2]s; mount -o loop %[1]s %[2]s",
		image, mount))
}

// Freeze blocks all writes to the disk of a directory of a booted host, as a storage array does that has lost its
// paths: a writing process hangs in the kernel, where no signal reaches it. thaw unblocks the disk. If this process
// ends in any way, the disk is unblocked, too: otherwise the hung process would outlive the node.
func (h *Host) Freeze(dir string) (thaw func()) {
	h.tb.Helper()
	guard := exec.CommandContext(context.Background(), "sh", "-euc", `exec 3<"$1"
		fsfreeze --freeze /proc/self/fd/3; echo frozen; cat >/dev/null; fsfreeze --unfreeze /proc/self/fd/3`,
		"sh", filepath.Join("/proc", strconv.Itoa(h.leader), "root", dir))
	guard.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt from the terminal must not reach it
	in, err := guard.StdinPipe()
	if err != nil {
		h.tb.Fatalf("host: freeze %s: %v", dir, err)
	}
	out, err := guard.StdoutPipe()
	if err == nil {
		err = guard.Start()
	}
	if err != nil {
		h.tb.Fatalf("host: freeze %s: %v", dir, err)
	}
	thawed := false
	thaw = func() {
		if !thawed {
			thawed = true
			_ = in.Close()
			if err := guard.Wait(); err != nil {
				h.tb.Errorf("host: thaw %s: %v", dir, err)
			}
		}
	}
	h.tb.Cleanup(thaw)
	if line, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		h.tb.Fatalf("host: freeze %s: %q: %v", dir, line, err)
	}
	return thaw
}
