// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/localregistry"
	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
	"github.com/kubic-project/image-update-agent/internal/node/images"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/internal/registry/registryhost"
)

const localRegistrySocket = "image-update-agent-local-registry.socket"

// checkLocalRegistry looks at the node's local registry: the hosts.toml files that name it, its table, and who listens
// for it.
func (n Node) checkLocalRegistry(ctx context.Context) []Finding {
	const check = "local registry"
	all, err := registryhost.Registries{Dirs: n.Containerd.CertsD}.Enabled(ctx)
	switch {
	case errors.Is(err, fs.ErrPermission):
		return []Finding{warn(check, "not checked: "+err.Error(), asRoot)}
	case err != nil:
		return []Finding{warn(check, err.Error(), "check the directories of hosts.toml (containerd.certsD)")}
	}
	out, all := n.remembered(all)
	if len(all) == 0 && len(out) > 0 {
		return out
	}
	if len(all) == 0 {
		return []Finding{ok(check, "not enabled: with the pull policy Always no pod starts while its "+
			"registry does not answer")}
	}
	// That containerd does not answer is another check.
	server, _ := images.AskServer(ctx, n.Containerd.Socket, n.Containerd.Namespace)
	for _, r := range all {
		out = append(out, localRegistryFinding(r, server.Version, hasHostTable(hosts.Dirs(ctx, n.Containerd.CertsD), r.File)))
	}
	path := filepath.Join(n.StateDir, table.File)
	t, err := registryhost.ReadTable(path)
	if err != nil {
		out = append(out, fail("local registry table", err,
			"run systemctl restart image-update-agent, then see journalctl -u image-update-agent"))
	} else {
		out = append(out, ok("local registry table", fmt.Sprintf("%s: %d tags", path, len(t.Entries))))
	}
	return append(out, checkOwnPort("/proc", all))
}

// remembered compares with what was enabled. It returns what has been lost, and the other registries.
func (n Node) remembered(all []registryhost.Registration) (lost []Finding, others []registryhost.Registration) {
	const check = "local registry"
	memory := registryhost.Memory{Dir: n.StateDir, Registries: registryhost.Registries{Dirs: n.Containerd.CertsD}}
	wanted, err := memory.Wanted()
	isWanted := func(r registryhost.Registration) bool {
		return slices.ContainsFunc(wanted, func(w localregistry.Wanted) bool { return w.Registry == r.Registry })
	}
	all = slices.DeleteFunc(all, func(r registryhost.Registration) bool { // broken, and not about the local registry
		return r.Author == "" && r.Position == localregistry.Off && !isWanted(r)
	})
	if err != nil {
		return []Finding{fail(check, fmt.Errorf("cannot tell which registries it was enabled for: %w", err),
			"remove the file, then run image-update-agent local-registry enable for each registry")}, all
	}
	for _, w := range wanted {
		at := slices.IndexFunc(all, func(r registryhost.Registration) bool { return r.Registry == w.Registry })
		if at >= 0 && all[at].Position == w.Position {
			continue
		}
		now, remedy := localregistry.Off, registryhost.Remedy(w)
		if at >= 0 {
			if now = all[at].Position; all[at].Error != "" { // enable and disable would refuse
				remedy = "correct that by hand, then run " + registryhost.EnableCommand(w)
			}
			all = slices.Delete(all, at, at+1)
		}
		err := fmt.Errorf("%s: enabled as %s, but %s", w.Registry, w.Position, memory.Why(w, now))
		lost = append(lost, fail(check, err, remedy))
	}
	for _, r := range all {
		if r.Author == registryhost.Agent && r.Error == "" && !isWanted(r) {
			lost = append(lost, advise(check,
				r.Registry+": the agent has no record that it was enabled, so it would not notice a loss",
				registryhost.EnableCommand(localregistry.Wanted{Registry: r.Registry, Position: r.Position})))
		}
	}
	return lost, all
}

// localRegistryFinding is about one registry. version is containerd's; empty: not known.
func localRegistryFinding(r registryhost.Registration, version string, hostTable bool) Finding {
	const check = "local registry"
	again := "run " + registryhost.EnableCommand(localregistry.Wanted{Registry: r.Registry, Position: r.Position})
	byHand := "remove the lines of image-update-agent from the file, then " + again
	old := isOlder(version, "1.6.", "1.7.")
	switch {
	case r.Position != localregistry.Off && !hostTable && old:
		return fail(check, fmt.Errorf("%s: no [host] table: containerd %s ignores the whole file", r.File, version),
			"add a line [host] at the end of the file")
	case r.Error != "" && r.Position != localregistry.Off:
		return warn(check, fmt.Sprintf("%s: %s; containerd asks the local registry, as %s", r.File, r.Error, r.Position),
			"correct that by hand: local-registry enable and disable do not change the file")
	case r.Error != "":
		return fail(check, fmt.Errorf("%s: %s", cmp.Or(r.File, r.Registry), r.Error),
			"correct that by hand; containerd reads the file at the next pull")
	case r.Position == localregistry.Off:
		return warn(check, r.File+": the file was edited, and containerd no longer asks the local registry", byHand)
	case r.Author == registryhost.Edited:
		return warn(check, fmt.Sprintf("%s: the lines of the local registry, enabled as %s, were edited", r.File,
			r.Position), byHand)
	case r.Outdated:
		return warn(check, r.File+": the file that it was made from has changed", again)
	case r.Position == localregistry.Fallback && version != "" && !hosts.EndsSilence(version):
		gate := "name the local registry first in the file"
		if r.Author == registryhost.Agent {
			gated := localregistry.Wanted{Registry: r.Registry, Position: localregistry.Gate}
			gate = "the gate: " + registryhost.EnableCommand(gated)
		}
		return advise(check, fmt.Sprintf("%s: %s; containerd %s waits forever for a registry that accepts "+
			"requests but never answers, "+
			"and then does not reach the fallback", r.Registry, r.Position, version),
			"use containerd 2.3 or later, or "+gate)
	default:
		return ok(check, fmt.Sprintf("%s: %s", r.Registry, r.Position))
	}
}

func isOlder(version string, beginnings ...string) bool {
	version = strings.TrimPrefix(version, "v")
	return slices.ContainsFunc(beginnings, func(b string) bool { return strings.HasPrefix(version, b) })
}

// hasHostTable reports whether a hosts.toml has a table of hosts.
func hasHostTable(dirs []hosts.Dir, file string) bool {
	return slices.ContainsFunc(dirs, func(d hosts.Dir) bool { return d.HostTable && d.Path == filepath.Dir(file) })
}

// checkOwnPort checks that systemd listens for the local registry. Another program there would get kubelet's logins,
// and could answer with any image. proc is /proc.
func checkOwnPort(proc string, all []registryhost.Registration) Finding {
	const check = "local registry port"
	const enable = "systemctl enable --now " + localRegistrySocket
	inode, err := listenerAt(filepath.Join(proc, "net/tcp"), localregistry.Address)
	if err != nil {
		return warn(check, err.Error(), "run doctor where /proc can be read")
	}
	isGate := slices.ContainsFunc(all, func(r registryhost.Registration) bool { return r.Position == localregistry.Gate })
	switch {
	case inode == "" && isGate:
		why := "no program listens at " + localregistry.Address + ": containers start the image that their tag names"
		return fail(check, errors.New(why), enable)
	case inode == "":
		return warn(check, "no program listens at "+localregistry.Address+": pods need the upstream registry to start",
			enable)
	}
	held, err := holds(filepath.Join(proc, "1/fd"), inode)
	switch {
	case err != nil:
		return warn(check, fmt.Sprintf("%s: cannot tell which program listens: %v", localregistry.Address, err),
			asRoot)
	case !held:
		return fail(check, errors.New("a program other than systemd listens at "+localregistry.Address+
			": it could serve any image"), "find it with `ss -ltnp` and stop it, then run "+enable)
	default:
		return ok(check, localregistry.Address+", held by systemd")
	}
}

// listenerAt returns the inode of the socket that listens at an address of IPv4, by a file like /proc/net/tcp; empty:
// none does.
func listenerAt(file, address string) (inode string, err error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil {
		return "", err
	}
	f, err := os.Open(file)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	b := at.Addr().As4()
	local := map[string]bool{
		fmt.Sprintf("%02X%02X%02X%02X:%04X", b[3], b[2], b[1], b[0], at.Port()): true,
		fmt.Sprintf("00000000:%04X", at.Port()):                                 true, // all addresses
	}
	const stateListen = "0A"
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if field := strings.Fields(lines.Text()); len(field) > 9 && local[field[1]] && field[3] == stateListen {
			return field[9], nil
		}
	}
	return "", lines.Err()
}

// holds reports whether a process has a socket open, by its directory of descriptors.
func holds(dir, inode string) (bool, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if to, err := os.Readlink(filepath.Join(dir, e.Name())); err == nil && to == "socket:["+inode+"]" {
			return true, nil
		}
	}
	return false, nil
}
