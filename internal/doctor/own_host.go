// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/agent/ownhost"
	"github.com/kubic-project/image-update-agent/internal/images"
	"github.com/kubic-project/image-update-agent/internal/localhost"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
)

const ownHostSocket = "image-update-agent-localhost.socket"

// checkOwnHost looks at the node's own host: the hosts.toml files that name it, its table, and who listens for it.
func (n Node) checkOwnHost(ctx context.Context) []Finding {
	const check = "own host"
	all, err := localhost.Registries{Dirs: n.Containerd.CertsD}.Enabled(ctx)
	if err != nil {
		return []Finding{warn(check, err.Error(), "see the directories of hosts.toml (containerd.certsD)")}
	}
	all = slices.DeleteFunc(all, func(r localhost.Registration) bool { return r.Author == "" })
	out, all := n.remembered(all)
	if len(all) == 0 && len(out) > 0 {
		return out
	}
	if len(all) == 0 {
		return []Finding{ok(check, "no hosts.toml names it: under Always no pod starts while its registry is away")}
	}
	// That containerd does not answer is another check.
	server, _ := images.AskServer(ctx, n.Containerd.Socket, n.Containerd.Namespace)
	for _, r := range all {
		out = append(out, ownHostFinding(r, server.Version, hasHostTable(hosts.Dirs(ctx, n.Containerd.CertsD), r.File)))
	}
	table := filepath.Join(n.StateDir, localhost.TableFile)
	t, err := localhost.ReadTable(table)
	if err != nil {
		out = append(out, fail("own host's table", err,
			"systemctl restart image-update-agent, which writes it; journalctl -u image-update-agent says why not"))
	} else {
		out = append(out, ok("own host's table", fmt.Sprintf("%s: %d tags", table, len(t.Entries))))
	}
	return append(out, checkOwnPort("/proc", all))
}

// remembered compares with what was enabled. It returns what has been lost, and the other registries.
func (n Node) remembered(all []localhost.Registration) (lost []Finding, others []localhost.Registration) {
	const check = "own host"
	memory := localhost.Memory{Dir: n.StateDir, Registries: localhost.Registries{Dirs: n.Containerd.CertsD}}
	wanted, err := memory.Wanted()
	if err != nil {
		return []Finding{fail(check, fmt.Errorf("for which registries it was enabled is not known: %w", err),
			"remove the file, then image-update-agent localhost enable for each registry that wants it")}, all
	}
	for _, w := range wanted {
		at := slices.IndexFunc(all, func(r localhost.Registration) bool { return r.Registry == w.Registry })
		if at >= 0 && (all[at].Position == w.Position || all[at].Error != "") {
			continue // it is there, or its file has a finding of its own
		}
		now := ownhost.Off
		if at >= 0 {
			now = all[at].Position
			all = slices.Delete(all, at, at+1)
		}
		err := fmt.Errorf("%s: it was enabled as %s: %s", w.Registry, w.Position, memory.Why(w, now))
		lost = append(lost, fail(check, err, localhost.Remedy(w)))
	}
	for _, r := range all {
		isWanted := func(w ownhost.Wanted) bool { return w.Registry == r.Registry }
		if r.Author == localhost.Agent && r.Error == "" && !slices.ContainsFunc(wanted, isWanted) {
			lost = append(lost, advise(check,
				r.Registry+": it is not remembered that it was enabled, so its loss would not be seen",
				"image-update-agent localhost enable "+r.Registry+flagOf(r.Position)+" --write"))
		}
	}
	return lost, all
}

func flagOf(p ownhost.Position) string {
	if p == ownhost.Gate {
		return " --gate"
	}
	return ""
}

// ownHostFinding is about one registry. version is containerd's; empty: not known.
func ownHostFinding(r localhost.Registration, version string, hostTable bool) Finding {
	const check = "own host"
	again := "edit hosts.toml.before-own-host instead, then image-update-agent localhost enable " + r.Registry + " --write"
	if r.Position == ownhost.Gate {
		again = strings.Replace(again, " --write", " --gate --write", 1)
	}
	old := isOlder(version, "1.6.", "1.7.")
	switch {
	case r.Error != "":
		return fail(check, fmt.Errorf("%s: %s", r.File, r.Error),
			"correct the file; containerd reads it again at the next pull")
	case r.Position == ownhost.Off:
		return warn(check, r.File+": was edited, and containerd does not ask the own host any more", again)
	case !hostTable && old:
		return fail(check, fmt.Errorf("%s: no [host] table: containerd %s ignores the whole file", r.File, version),
			"add a line with [host] at its end")
	case r.Author == localhost.Edited:
		return warn(check, fmt.Sprintf("%s: was edited since it became the %s", r.File, r.Position), again)
	case r.Outdated:
		return warn(check, r.File+": was made from a file that has changed since", again)
	case r.Position == ownhost.Fallback && (old || isOlder(version, "2.0.", "2.1.", "2.2.")):
		return advise(check, fmt.Sprintf("%s: %s; containerd %s waits for a registry that takes requests and never answers, "+
			"and does not come to the fallback", r.Registry, r.Position, version), "containerd 2.3 or later, or the gate: "+
			"image-update-agent localhost enable "+r.Registry+" --gate --write")
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

// checkOwnPort checks that systemd listens for the own host. Another program there would get kubelet's logins, and
// could answer with any image. proc is /proc.
func checkOwnPort(proc string, all []localhost.Registration) Finding {
	const check = "own host's port"
	const enable = "systemctl enable --now " + ownHostSocket
	inode, err := listenerAt(filepath.Join(proc, "net/tcp"), ownhost.Address)
	if err != nil {
		return warn(check, err.Error(), "run doctor where /proc can be read")
	}
	isGate := slices.ContainsFunc(all, func(r localhost.Registration) bool { return r.Position == ownhost.Gate })
	switch {
	case inode == "" && isGate:
		why := "no program listens at " + ownhost.Address + ": containers start what their tags name"
		return fail(check, errors.New(why), enable)
	case inode == "":
		return warn(check, "no program listens at "+ownhost.Address+": pods need the registry to start", enable)
	}
	held, err := holds(filepath.Join(proc, "1/fd"), inode)
	switch {
	case err != nil:
		return warn(check, fmt.Sprintf("%s: not known who listens: %v", ownhost.Address, err), "run doctor as root")
	case !held:
		return fail(check, errors.New("another program than systemd listens at "+ownhost.Address+
			": it may answer with any image"), "`ss -ltnp` names it; end it, then "+enable)
	default:
		return ok(check, ownhost.Address+", held by systemd")
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
