// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

const journalTail = "120" // lines of the journal that a failed test shows

// Root is a root file system that tools/setup builds and a host boots.
type Root string

// The numbers are versions of systemd, which decide what a unit file may use.
const (
	Systemd252 Root = "host"
	Systemd257 Root = "host-new"
)

// Roots returns the system on which each story runs, the oldest that the package supports; in `make soak` also one that
// knows all keys of its units.
func Roots() []Root {
	if node.Soak {
		return []Root{Systemd252, Systemd257}
	}
	return []Root{Systemd252}
}

// Host is an operating system on a node. Its methods may be called from any goroutine that may call Fatalf.
type Host struct {
	tb      node.TB
	node    *node.Node
	tree    string // the merged tree, as the node's mount namespace shows it
	process *node.Process
	leader  int    // process id of the host's process 1 outside of it; 0: the host is off
	staged  int    // number of files written from outside so far
	network string // an option of systemd-nspawn
}

// New makes a host, and does not boot it.
func New(tb node.TB, n *node.Node, root Root) *Host {
	tb.Helper()
	h := &Host{tb: tb, node: n, tree: filepath.Join(n.Dir, "host/tree")}
	for _, dir := range []string{"tree", "upper", "work", "staged", "seen"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, "host", dir), 0o755); err != nil {
			tb.Fatalf("host: %v", err)
		}
	}
	// systemd-nspawn leaves names of its machines in /run/systemd.
	n.Shell(fmt.Sprintf(`cd %s/host
		mount -t overlay host -o lowerdir=%s,upperdir=upper,workdir=work tree
		mkdir -p /run/systemd; mount -t tmpfs host /run/systemd`, n.Dir, n.Part(string(root))))
	tb.Cleanup(h.show)
	h.WriteFile("/usr/lib/systemd/system-preset/50-product.preset", preset)
	return h
}

// show logs the host's journal if the test failed. The host ends with the node.
func (h *Host) show() {
	h.tb.Helper()
	if h.tb.Failed() && h.leader != 0 {
		// The test's own context has been cancelled.
		r, err := h.run(context.Background(), Command{
			Argv: []string{"journalctl", "--no-pager", "-o", "short-monotonic", "-n", journalTail},
		})
		h.tb.Logf("host: journal: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
}

// OwnNetwork starts the host, which must be off, in a separate network with 127.0.0.1 only: its listeners do not
// conflict with those of the machine, and it reaches no registry.
func (h *Host) OwnNetwork() { h.network = "--private-network" }

// SharedNetwork is OwnNetwork with a network that other programs of the node may enter by its file, which it returns.
func (h *Host) SharedNetwork() (file string) {
	h.tb.Helper()
	file = filepath.Join(h.node.Dir, "host/net")
	h.node.Shell(fmt.Sprintf("touch %[1]s; unshare --net=%[1]s ip link set lo up", file))
	h.network = "--network-namespace-path=" + file
	return file
}

// boot starts the host in its own cgroups, since systemd treats the cgroup that it starts in as the root of the
// hierarchy. %[1]s is the node's directory, %[2]s its name, %[3]s an option about its network.
//   - SYSTEMD_NSPAWN_UNIFIED_HIERARCHY: cgroups v2, also on a machine with v1
//   - register, keep-unit: there is no systemd-machined outside
const boot = `
	for root in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
		[ -e $root/cgroup.procs ] || continue
		mkdir -p $root/%[2]s/host
		echo $$ >$root/%[2]s/host/cgroup.procs
	done
	export SYSTEMD_NSPAWN_UNIFIED_HIERARCHY=1
	exec systemd-nspawn -b -D %[1]s/host/tree --register=no --keep-unit --machine=%[2]s --console=read-only %[3]s \
		--bind=%[1]s/root/run/containerd:/run/containerd \
		--bind=%[1]s/root/etc/kubernetes/manifests:/etc/kubernetes/manifests \
		--bind=%[1]s/root/etc/containerd/certs.d:/etc/containerd/certs.d`

// Boot boots the host, waits until all units of the boot are active or failed, and returns the system's state:
// "running" or "degraded" (systemctl(1), is-system-running).
func (h *Host) Boot() string {
	h.tb.Helper()
	line := fmt.Sprintf(boot, h.node.Dir, filepath.Base(h.node.Dir), h.network)
	h.process = h.node.Program("host", "/bin/sh", "-euc", line)
	state := ""
	node.Eventually(h.tb, "host: boot", node.Patience, func() error {
		select {
		case <-h.process.Done():
			h.tb.Fatalf("host: ended")
		default:
		}
		leader, err := h.find()
		if err != nil {
			return err
		}
		h.leader = leader
		r, err := h.run(h.tb.Context(), Command{Argv: []string{"systemctl", "is-system-running", "--wait"}})
		state = strings.TrimSpace(r.Stdout)
		if err == nil && state != "running" && state != "degraded" {
			err = fmt.Errorf("%s%s", r.Stdout, r.Stderr)
		}
		return err
	})
	return state
}

// find finds the host's process 1: the child of systemd-nspawn whose innermost process id is 1.
func (h *Host) find() (int, error) {
	programs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range programs {
		line, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(line), "systemd-nspawn\x00-b\x00-D\x00"+h.tree+"\x00") {
			continue // or it has just ended
		}
		dir := filepath.Dir(file)
		children, err := os.ReadFile(filepath.Join(dir, "task", filepath.Base(dir), "children"))
		if err != nil {
			return 0, err
		}
		for child := range strings.FieldsSeq(string(children)) {
			if innermost(child) == "1" {
				return strconv.Atoi(child)
			}
		}
	}
	return 0, errors.New("no process 1 yet")
}

// innermost returns a process's id in its own namespace. It is empty if the process is in this process's namespace or
// has ended.
func innermost(pid string) string {
	status, _ := os.ReadFile(filepath.Join("/proc", pid, "status"))
	_, ids, _ := strings.Cut(string(status), "\nNSpid:")
	ids, _, _ = strings.Cut(ids, "\n")
	fields := strings.Fields(ids)
	if len(fields) < 2 {
		return ""
	}
	return fields[len(fields)-1]
}

// PowerOff shuts the host down as an admin does, and returns when it is off. It may be booted again.
func (h *Host) PowerOff() {
	h.tb.Helper()
	h.Must("systemctl", "poweroff")
	h.Ended()
}

// Ended waits until a host that shuts down is off.
func (h *Host) Ended() {
	h.tb.Helper()
	h.process.Wait(node.Patience)
	h.leader = 0
}

// Booted reports whether the host is up.
func (h *Host) Booted() bool { return h.leader != 0 }

// BusAddress returns the address of the host's system bus for a client outside of it. The bus sees root, but no process
// of the host: a client whom polkit must ask about has to run inside (see Command).
func (h *Host) BusAddress() string {
	return fmt.Sprintf("unix:path=/proc/%d/root/run/dbus/system_bus_socket", h.leader)
}
