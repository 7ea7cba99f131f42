// SPDX-License-Identifier: Apache-2.0

package host

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// preset is the choice of a product which units of the package run: the service and those that it starts. The first
// matching line decides (systemd.preset(5)).
const preset = "enable " + Service + "\ndisable " + packageName + "*\n"

// database is the directory of rpm's database on all systems but Debian, whose rpm keeps it in a home directory.
const database = "/var/lib/rpm"

// Install installs the package or replaces it by another release. In a host that is off, scriptlets find no service
// manager, as in a snapshot of transactional-update; in a booted host they do.
func (h *Host) Install(p Package) {
	h.tb.Helper()
	h.staged++
	file := filepath.Join(h.node.Dir, "host/staged", strconv.Itoa(h.staged)+".rpm")
	if err := os.WriteFile(file, p, 0o600); err != nil {
		h.tb.Fatalf("host: %v", err)
	}
	h.rpm("--upgrade", "--oldpackage", file)
}

// Erase erases the package.
func (h *Host) Erase() { h.tb.Helper(); h.rpm("--erase", packageName) }

// Rpm runs an rpm query on the host.
func (h *Host) Rpm(args ...string) string { h.tb.Helper(); return h.rpm(args...) }

// rpm works on the host from outside, since the small host has no rpm: it changes its root to the host's tree and runs
// in the host's namespaces. It does not check dependencies: the packages that ours requires are of another
// distribution.
func (h *Host) rpm(args ...string) string {
	h.tb.Helper()
	if !h.Booted() {
		return h.node.Shell("rpm --nodeps --root " + h.tree + " --dbpath " + database + " " + strings.Join(args, " "))
	}
	seen := filepath.Join(h.node.Dir, "host/seen")
	argv := append([]string{
		"--target", strconv.Itoa(h.leader), "--pid", "--ipc", "--uts", "--cgroup", "--",
		"rpm", "--nodeps", "--root", seen, "--dbpath", database,
	}, args...)
	out, err := h.beside(seen, exec.CommandContext(h.tb.Context(), "nsenter", argv...))
	if err != nil {
		h.tb.Fatalf("host: rpm: %q: %v: %s", args, err, out)
	}
	return string(out)
}

// beside runs a program of this machine that sees the tree of a booted host, with all of its mounts, in dir.
// /proc/PID/root is the same tree, but does not work for all programs: SQLite, which rpm uses, resolves symlinks
// itself, and the target of this one is "/".
func (h *Host) beside(dir string, program *exec.Cmd) (out []byte, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err = h.attach(dir); err == nil {
			out, err = program.CombinedOutput() // it runs in the namespaces of the thread that starts it
		}
	}()
	<-done
	return out, err
}

// attach moves the calling thread to a new mount namespace, in which the host's tree is at dir: see open_tree(2).
func (h *Host) attach(dir string) error {
	err := errors.Join(unix.Unshare(unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	if err != nil {
		return err
	}
	own, err := os.Open("/proc/thread-self/ns/mnt")
	if err != nil {
		return err
	}
	defer own.Close()
	hosts, err := os.Open(fmt.Sprintf("/proc/%d/ns/mnt", h.leader))
	if err != nil {
		return err
	}
	defer hosts.Close()
	if err := unix.Setns(int(hosts.Fd()), unix.CLONE_NEWNS); err != nil {
		return err
	}
	tree, err := unix.OpenTree(unix.AT_FDCWD, "/", unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_RECURSIVE)
	if err := errors.Join(err, unix.Setns(int(own.Fd()), unix.CLONE_NEWNS)); err != nil {
		return err
	}
	defer func() { _ = unix.Close(tree) }()
	return unix.MoveMount(tree, "", unix.AT_FDCWD, dir, unix.MOVE_MOUNT_F_EMPTY_PATH)
}
