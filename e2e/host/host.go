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

const journalTail = "120" // lines, when a test fails

// Root is the part of tools/setup that a host boots.
type Root string

// The numbers are systemd's own, on which depends what a unit file may say.
const (
	Systemd252 Root = "host"
	Systemd257 Root = "host-new"
)

// Host is an operating system on a node. Its methods may be called from any goroutine that may call Fatalf.
type Host struct {
	tb      node.TB
	node    *node.Node
	tree    string // the whole tree, where the node's own mounts are seen
	process *node.Process
	leader  int    // the host's process 1 as this process sees it; 0: the host is off
	staged  int    // files that were written from outside
	network string // an option of systemd-nspawn
}

// New makes a host that is not booted yet.
func New(tb node.TB, n *node.Node, root Root) *Host {
	tb.Helper()
	h := &Host{tb: tb, node: n, tree: filepath.Join(n.Dir, "host/tree")}
	for _, dir := range []string{"tree", "upper", "work", "staged", "seen"} {
		if err := os.MkdirAll(filepath.Join(n.Dir, "host", dir), 0o755); err != nil {
			tb.Fatalf("host: %v", err)
		}
	}
	// systemd-nspawn leaves names of its machines below /run/systemd.
	n.Shell(fmt.Sprintf(`cd %s/host
		mount -t overlay host -o lowerdir=%s,upperdir=upper,workdir=work tree
		mkdir -p /run/systemd; mount -t tmpfs host /run/systemd`, n.Dir, n.Part(string(root))))
	tb.Cleanup(h.show)
	h.WriteFile("/usr/lib/systemd/system-preset/50-product.preset", preset)
	return h
}

// show shows what the host said when the test failed. The host ends with the node.
func (h *Host) show() {
	h.tb.Helper()
	if h.tb.Failed() && h.leader != 0 {
		// The test's own context has ended.
		r, err := h.run(context.Background(), Command{
			Argv: []string{"journalctl", "--no-pager", "-o", "short-monotonic", "-n", journalTail},
		})
		h.tb.Logf("host: journal: %v\n%s%s", err, r.Stdout, r.Stderr)
	}
}

// OwnNetwork gives a host that is off a network of its own, which has nothing but 127.0.0.1: what listens there does
// not meet what listens on the machine, and nobody reaches a registry.
func (h *Host) OwnNetwork() { h.network = "--private-network" }

// SharedNetwork gives a host that is off such a network, which other programs of the node may enter by a file.
func (h *Host) SharedNetwork() (file string) {
	h.tb.Helper()
	file = filepath.Join(h.node.Dir, "host/net")
	h.node.Shell(fmt.Sprintf("touch %[1]s; unshare --net=%[1]s ip link set lo up", file))
	h.network = "--network-namespace-path=" + file
	return file
}

// boot gives the host cgroups of its own, for systemd takes those it finds itself in as all that there are, and
// starts it. %[1]s is the node's directory, %[2]s its name, %[3]s an option about its network.
//   - SYSTEMD_NSPAWN_UNIFIED_HIERARCHY: cgroups v2, on a machine with v1, too
//   - register, keep-unit: nobody outside manages machines
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

// Boot boots the host, and returns when all units that belong to the boot are up or have failed: "running", or
// "degraded" (systemctl(1), is-system-running).
func (h *Host) Boot() string {
	h.tb.Helper()
	line := fmt.Sprintf(boot, h.node.Dir, filepath.Base(h.node.Dir), h.network)
	h.process = h.node.Program("host", "/bin/sh", "-euc", line)
	state := ""
	node.Eventually(h.tb, "host: boot", node.Patience, func() error {
		select {
		case <-h.process.Done():
			h.tb.Fatalf("host: ended: see its log")
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

// find finds process 1 of the host: the child of systemd-nspawn whose innermost process id is 1.
func (h *Host) find() (int, error) {
	programs, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, err
	}
	for _, file := range programs {
		line, err := os.ReadFile(file)
		if err != nil || !strings.HasPrefix(string(line), "systemd-nspawn\x00-b\x00-D\x00"+h.tree+"\x00") {
			continue // also one that has just ended
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

// innermost is a process's id in its own namespace; empty: it is in that of this process, or has ended.
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

// PowerOff has an admin shut the host down, and returns when it is off. It may be booted again.
func (h *Host) PowerOff() {
	h.tb.Helper()
	h.Must("systemctl", "poweroff")
	h.Ended()
}

// Ended waits for the end of a host that shuts down.
func (h *Host) Ended() {
	h.tb.Helper()
	h.process.Wait(node.Patience)
	h.leader = 0
}

// Booted tells whether the host is up.
func (h *Host) Booted() bool { return h.leader != 0 }

// BusAddress is the D-Bus address of the host's system bus for a client outside. What it asks comes from root, and
// from no process that the host knows: who is to be asked by polkit runs inside (see Command).
func (h *Host) BusAddress() string {
	return fmt.Sprintf("unix:path=/proc/%d/root/run/dbus/system_bus_socket", h.leader)
}
