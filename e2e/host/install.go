// SPDX-License-Identifier: Apache-2.0

package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// preset is a product's choice of what runs: nothing but what it names (systemd.preset(5)).
const preset = "enable " + packageName + "*\n"

// database is where rpm keeps its record on every system but Debian, whose rpm has it in a home directory.
const database = "/var/lib/rpm"

// Install installs the package, or makes it another release. In a host that is off scriptlets find no manager, as in a
// snapshot of transactional-update; in a booted one they find it.
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

// Rpm asks the package manager about the host.
func (h *Host) Rpm(args ...string) string { h.tb.Helper(); return h.rpm(args...) }

// rpm works on the host from outside, for a small host has none: it changes into the host's tree, but is one of its
// processes. What the package needs is of another distribution.
func (h *Host) rpm(args ...string) string {
	h.tb.Helper()
	if !h.Booted() {
		return h.node.Shell("rpm --nodeps --root " + h.tree + " --dbpath " + database + " " + strings.Join(args, " "))
	}
	leader := strconv.Itoa(h.leader)
	argv := append([]string{
		"--target", leader, "--pid", "--ipc", "--uts", "--cgroup", "--",
		"rpm", "--nodeps", "--root", "/proc/" + leader + "/root", "--dbpath", database,
	}, args...)
	out, err := exec.CommandContext(h.tb.Context(), "nsenter", argv...).CombinedOutput()
	if err != nil {
		h.tb.Fatalf("host: rpm: %q: %v: %s", args, err, out)
	}
	return string(out)
}
