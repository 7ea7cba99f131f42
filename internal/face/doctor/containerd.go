// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"cmp"
	"context"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/policy"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/images"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/internal/node/pods"
	"github.com/kubic-project/image-update-agent/internal/registry/hosts"
	"github.com/kubic-project/image-update-agent/systemd"
)

// checkContainerd looks at containerd, CRI, what they are set up for, and then at what a cycle would plan.
func (n Node) checkContainerd(ctx context.Context) []Finding {
	clocks := new(dates)
	findings, usable := n.checkRuntime(ctx)
	if usable {
		findings = append(findings, checkPlan(n.Plan(ctx, clocks.wrap))...)
	}
	return append(findings, clocks.check(time.Now(), builtAt()))
}

// checkRuntime is false where a cycle would get no further.
func (n Node) checkRuntime(ctx context.Context) ([]Finding, bool) {
	server, serverErr := AskContainerd(ctx, n.Settings)
	runtime, err := pods.New(pods.Options{Socket: n.CRI.Socket})
	if err != nil {
		return []Finding{fail("cri", err, "correct cri.socket in the configuration")}, false
	}
	space, criErr := runtime.Filesystem(ctx)
	containerd := ok("containerd", n.Containerd.Socket+", "+server.Version)
	cri := ok("cri", n.CRI.Socket)
	if serverErr != nil {
		containerd = fail("containerd", serverErr,
			n.socketRemedy("containerd.socket", "start containerd (systemctl start "+n.containerdUnit()+")"))
	}
	if criErr != nil {
		cri = fail("cri", criErr, n.socketRemedy("cri.socket", "enable containerd's CRI plugin"))
	}
	ignored := n.CertsD.Ignored(server.Version, server.ConfigPath)
	hostFindings := []Finding{
		skipped("registry hosts", "containerd does not answer, so the hosts that it uses are unknown"),
	}
	if serverErr == nil {
		hostFindings = n.checkHosts(hosts.Dirs(ctx, n.Containerd.CertsD), server.Version, ignored)
	}
	findings := append([]Finding{containerd, cri}, hostFindings...)
	findings = append(findings, n.checkProxy(ctx)...)
	if serverErr != nil || criErr != nil {
		return findings, false
	}
	name, err := runtime.Snapshotter(ctx)
	used := snapshotters{n.Containerd.Snapshotter, name, err, server, n.snapshotterLog()}
	_, loaded := server.Snapshotters[used.inUse()]
	parallel := n.checkParallel(server, cmp.Or(used.cri, used.inUse()), config.Unpacks(n.Platform))
	findings = append(findings, checkImageSpace(space, n.Disk), used.check(), parallel)
	broken, err := images.AskBroken(ctx, n.Containerd.Socket, n.Containerd.Namespace)
	return append(findings, checkContent(n.Containerd.Namespace, broken, err)...), loaded
}

// socketRemedy names a socket that is there where the configured one does not answer, and the setting for it.
func (n Node) socketRemedy(key, start string) string {
	for _, name := range platform.Sockets() {
		path := n.at(name)
		info, err := os.Stat(path)
		if err == nil && info.Mode().Type() == fs.ModeSocket && path != n.Containerd.Socket && path != n.CRI.Socket {
			return "set " + key + " to " + path + ", which exists; or " + start
		}
	}
	return start + ", or set " + key
}

// checkHosts names the hosts.toml files that containerd does not follow. version
// is containerd's; empty where it is not known. why is why it follows none of them; empty: it does.
func (n Node) checkHosts(dirs []hosts.Dir, version, why string) []Finding {
	const check = "registry hosts"
	const ignored = "containerd %s ignores the whole file and asks the upstream registry"
	if len(dirs) > 0 && why != "" {
		return []Finding{fail(check, fmt.Errorf("%s: containerd %s ignores every hosts.toml and asks the upstream registry",
			why, version),
			"in "+n.Platform.EditedContainerdConfig(version)+" set config_path to one directory ("+filepath.Dir(dirs[0].Path)+
				"), then run systemctl restart "+n.containerdUnit()+"; containers keep running")}
	}
	var out []Finding
	for _, d := range dirs {
		file := filepath.Join(d.Path, "hosts.toml")
		switch {
		case d.Unparsed != nil:
			out = append(out, fail(check, fmt.Errorf("%s: %w: "+ignored, file, d.Unparsed, version),
				"correct the file; containerd reads it at the next pull"))
		case d.Err != nil:
			out = append(out, fail(check, fmt.Errorf("%s: %w: containerd cannot pull from these hosts", file, d.Err),
				"correct the path in the file, or put the certificate at that path"))
		case !d.HostTable && (d.Server != "" || d.Authorities) && isOlder(version, "1.6."):
			out = append(out, fail(check, fmt.Errorf("%s: no [host] table: "+ignored, file, version),
				"add a line [host] at the end of the file"))
		case d.HostTable && d.Otherwise(version) != "":
			err := fmt.Errorf("%s: containerd %s %s: the agent asks other hosts", file, version, d.Otherwise(version))
			out = append(out, fail(check, err,
				"write the file so that every containerd reads it the same way: only a table with capabilities for each host"))
		case d.Rewritten != "":
			out = append(out, warn(check, file+": "+d.Rewritten+" renames images (rewrite), which the agent does not support",
				"also serve the images under their own names on the mirror, and remove rewrite from registries.yaml; "+
					"until then the agent asks the next hosts"))
		case d.Unasked != "":
			err := fmt.Errorf("%s: containerd %s does not ask %s, because it has no [host] table", file, version, d.Unasked)
			out = append(out, fail(check, err, fmt.Sprintf("add a table [host.%q]", d.Unasked)))
		}
	}
	switch {
	case len(out) > 0:
		return out
	case len(dirs) == 0:
		return []Finding{ok(check, "no hosts.toml: every image comes from its own registry")}
	default:
		return []Finding{ok(check, fmt.Sprintf("%d hosts.toml", len(dirs)))}
	}
}

// containerdUnit is the unit that starts containerd, as people write it.
func (n Node) containerdUnit() string {
	return strings.TrimSuffix(n.Platform.ContainerdUnit(), ".service")
}

// snapshotterLog is the command that shows what containerd said of snapshotters.
func (n Node) snapshotterLog() string {
	if file := n.Platform.ContainerdLog; file != "" {
		return "grep snapshotter " + file
	}
	return "journalctl -u containerd | grep snapshotter"
}

// checkImageSpace says how large the next pull may be.
func checkImageSpace(fs policy.Filesystem, d config.Disk) Finding {
	const check = "image filesystem"
	if fs.Size <= 0 {
		return warn(check, fmt.Sprintf("%s: unknown size", fs.Path), "check the filesystem")
	}
	reserve := max(d.Reserve, fs.Size/100*int64(d.ReservePercent))
	collects := fs.Size / 100 * int64(100-d.HighMark) // what is free then
	usable := fs.Free - max(reserve, collects)
	detail := fmt.Sprintf("%s: %s of %s free; %s are reserved, and kubelet removes images at %d %% (%s free)",
		fs.Path, policy.Bytes(fs.Free), policy.Bytes(fs.Size), policy.Bytes(reserve), d.HighMark, policy.Bytes(collects))
	const remedy = "free space: remove unused images with `crictl rmi IMAGE` (do not use --prune before " +
		"crictl 1.30: it also " +
		"removes staged images and rollback targets); or enlarge the filesystem"
	switch {
	case usable > 0:
		return ok(check, detail+": space for "+policy.Bytes(usable))
	case fs.Free < collects:
		return warn(check, detail+": kubelet is removing images now", remedy)
	default:
		return warn(check, fmt.Sprintf("%s: the agent stages nothing until %s more are free", detail, policy.Bytes(1-usable)),
			remedy+", or lower disk.reserve or disk.reservePercent")
	}
}

// checkContent names the blobs that containerd lists but cannot read, as after a power cut.
func checkContent(namespace string, broken []images.BrokenBlob, err error) []Finding {
	const check = "image content"
	if err != nil {
		return []Finding{warn(check, "not known: "+err.Error(), "see journalctl -u containerd")}
	}
	var out []Finding
	for _, b := range broken {
		out = append(out, fail(check, fmt.Errorf("%s: containerd lists %s, but cannot read it", b.Image, b.Digest),
			"run ctr -n "+namespace+" content rm "+b.Digest.String()+
				", then image-update-agent check: it pulls the image again"))
	}
	return out
}

// snapshotters are what is said of the snapshotter, by whom.
type snapshotters struct {
	configured string // containerd.snapshotter
	cri        string
	criErr     error
	server     images.Server
	log        string // how to search that of containerd
}

// inUse is the one that staging unpacks for; empty: not known.
func (s snapshotters) inUse() string { return cmp.Or(s.configured, s.cri) }

func (s snapshotters) check() Finding {
	const check = "snapshotter"
	used := s.inUse()
	_, loaded := s.server.Snapshotters[used]
	switch {
	case used == "":
		return fail(check, s.criErr, "set containerd.snapshotter to the snapshotter of containerd's CRI plugin")
	case !loaded:
		return fail(check, fmt.Errorf("%s: containerd has not loaded this snapshotter, only %s",
			used, strings.Join(slices.Sorted(maps.Keys(s.server.Snapshotters)), ", ")),
			"find the reason in the log ("+s.log+"), or correct containerd.snapshotter")
	case s.configured == "":
		return ok(check, s.cri+", according to CRI")
	case s.criErr != nil:
		return warn(check, fmt.Sprintf("%s, as configured; %v", s.configured, s.criErr),
			"make sure that containerd.snapshotter is the one that CRI uses: otherwise images are unpacked twice")
	case s.configured != s.cri:
		return fail(check, fmt.Errorf("%s is configured, but CRI uses %s: containerd unpacks staged images a second time",
			s.configured, s.cri), "remove containerd.snapshotter from the configuration: the agent then uses that of CRI")
	default:
		return ok(check, s.cri+", as configured and according to CRI")
	}
}

// rebase is the capability of snapshotters that take layers in any order
// (containerd's core/snapshots.RebaseCap, 2.2).
const rebase = "rebase"

// checkParallel says whether the server can unpack the layers of an image side
// by side. Staging asks for it with each pull; the server's own pulls, which are
// CRI's, go by its configuration: unpacks is what that says, 0: nothing.
func (n Node) checkParallel(server images.Server, snapshotter string, unpacks int) Finding {
	const check = "parallel unpacking"
	switch {
	case !slices.Contains(server.Snapshotters[snapshotter], rebase):
		return ok(check, fmt.Sprintf("containerd %s with %s unpacks the layers of an image one by one "+
			"(2.2 and later with overlayfs can do it in parallel)", server.Version, snapshotter))
	case unpacks > 1:
		return ok(check, fmt.Sprintf("on for staging, and %d layers at once for kubelet's own pulls", unpacks))
	default:
		return advise(check, "on for staging, but off for kubelet's own pulls: containerd "+server.Version+
			" is not configured for it; this slows down images that were not staged, for example on a new node",
			"in "+n.Platform.EditedContainerdConfig(server.Version)+" (version = 3) set max_concurrent_unpacks = 4 below "+
				`[plugins."io.containerd.transfer.v1.local"], then run systemctl restart `+n.containerdUnit()+
				"; containers keep running")
	}
}

// AskContainerd asks the running containerd what it is, and for its config_path: config.NoPath if it has none, empty if
// it does not say (2.0 to 2.3, or CRI does not answer, which is another check).
func AskContainerd(ctx context.Context, s config.Settings) (images.Server, error) {
	server, err := images.AskServer(ctx, s.Containerd.Socket, s.Containerd.Namespace)
	if err != nil || server.ConfigPath != "" {
		return server, err
	}
	runtime, err := pods.New(pods.Options{Socket: s.CRI.Socket})
	if err != nil {
		return server, err
	}
	if path, known, err := runtime.ConfigPath(ctx); err == nil && known {
		server.ConfigPath = path
		if path == "" {
			server.ConfigPath = config.NoPath
		}
	}
	return server, nil
}

// maxEnviron limits the environment of a process: the kernel's limit for one variable is 128 KiB.
const maxEnviron = 1 << 20

// checkProxy compares the proxy of containerd's unit with the agent's: kubelet's pulls would succeed, and the agent's
// questions would not.
func (n Node) checkProxy(ctx context.Context) []Finding {
	unit := n.Platform.ContainerdUnit()
	theirs, running, err := environOf(ctx, n.Bus, unit)
	if err != nil {
		return []Finding{warn("proxy", "not checked: "+unit+": "+err.Error(), asRoot)}
	}
	if !running {
		return nil // started another way: its environment is not known
	}
	own, running, err := environOf(ctx, n.Bus, systemd.ServiceUnit)
	if err != nil {
		return []Finding{warn("proxy", "not checked: "+systemd.ServiceUnit+": "+err.Error(), asRoot)}
	}
	if !running {
		own = os.Getenv // it is started as this program is
	}
	return n.proxyFindings(unit, theirs, own)
}

// proxyFindings compares the environment of a unit that starts containerd with the agent's.
func (n Node) proxyFindings(unit string, theirs, own func(string) string) []Finding {
	const check = "proxy"
	name, proxy := n.proxyIn(theirs)
	isSet, err := hosts.NewProxies(n.Platform.Root, own).IsSet()
	switch {
	case err != nil:
		return []Finding{warn(check, err.Error(), "correct /etc/sysconfig/proxy")}
	case isSet || proxy == "":
		return nil
	}
	shown := "not a URL"
	if u, err := url.Parse(proxy); err == nil && u.Host != "" {
		shown = u.Host // without its login
	}
	return []Finding{warn(check, "containerd has a proxy ("+outside.Text(shown)+", "+name+" of "+unit+
		"), and the agent has none: it asks registries directly",
		"set the same proxy in /etc/sysconfig/proxy, or with Environment= and systemctl edit "+systemd.ServiceUnit+
			", then run systemctl restart image-update-agent; ignore this if registries can be reached without it")}
}

// proxyIn returns the variable that names a proxy of containerd, and the proxy.
func (n Node) proxyIn(getenv func(string) string) (name, proxy string) {
	for _, begins := range slices.Compact([]string{n.Platform.ContainerdVariables, ""}) {
		for _, name := range []string{"HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"} {
			if proxy := getenv(begins + name); proxy != "" {
				return begins + name, proxy
			}
		}
	}
	return "", ""
}

// environOf returns the environment of the main process of a unit; false if it has none.
func environOf(ctx context.Context, bus, unit string) (getenv func(string) string, running bool, err error) {
	state, err := systemd.ReadState(ctx, bus, unit)
	if err != nil || state.PID == 0 {
		return nil, false, nil // the check of the service names a bus that does not answer
	}
	file, err := nodefile.Open(filepath.Join("/proc", strconv.FormatUint(uint64(state.PID), 10), "environ"))
	if err != nil {
		return nil, false, err
	}
	defer file.Close()
	data, err := outside.ReadAll(file, maxEnviron)
	if err != nil {
		return nil, false, err
	}
	values := map[string]string{}
	for pair := range strings.SplitSeq(string(data), "\x00") {
		name, value, _ := strings.Cut(pair, "=")
		values[name] = value
	}
	return func(name string) string { return values[name] }, true, nil
}
