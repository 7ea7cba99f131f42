// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/face/api"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/face/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/face/hook"
	"github.com/kubic-project/image-update-agent/internal/face/terminal"
	"github.com/kubic-project/image-update-agent/internal/node/config"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
	"github.com/kubic-project/image-update-agent/systemd"
)

// newNode is a node below a directory, on whose bus nobody is.
func newNode(t *testing.T) Node {
	t.Helper()
	root := t.TempDir()
	dir := func(name string) string {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(path, 0o755))
		return path
	}
	return Node{Platform: platform.Detect(root), Bus: bus.At(filepath.Join(root, "run/dbus/system_bus_socket")), Settings: config.Settings{
		PodManifests: dir("etc/kubernetes/manifests"), StateDir: dir("var/lib/image-update-agent"),
		RuntimeDir: dir("run/image-update-agent"), Grains: config.Grains{Enabled: true, Path: filepath.Join(dir("etc/salt"), "grains")},
	}}
}

func (n Node) put(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(n.Platform.Root, name)
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}

// wellSet is the unit of a healthy node.
func wellSet() systemd.State {
	return systemd.State{Load: "loaded", File: "enabled", Active: "active", Watchdog: 3 * time.Minute}
}

// units are what systemd says of the service, and what is found.
var units = map[string]struct {
	edit    func(*systemd.State)
	runs    bool
	verdict string
	texts   []string
}{
	"well":                {func(*systemd.State) {}, true, OK, []string{"active, enabled"}},
	"drop-ins":            {func(s *systemd.State) { s.DropIns = []string{"/usr/lib/systemd/system/k3s.conf", "/etc/x.conf"} }, true, OK, []string{"drop-ins: /etc/x.conf"}},
	"not installed":       {func(s *systemd.State) { s.Load = "not-found" }, false, Warn, []string{"install the package"}},
	"started another way": {func(s *systemd.State) { s.Load = "not-found" }, true, OK, []string{"started another way"}},
	"masked":              {func(s *systemd.State) { s.Load = "masked" }, false, Warn, []string{"systemctl unmask"}},
	"broken":              {func(s *systemd.State) { s.Load = "bad-setting" }, false, Fail, []string{"bad-setting", "systemd-analyze verify"}},
	"failed":              {func(s *systemd.State) { s.Active, s.Result = "failed", "watchdog" }, false, Fail, []string{"watchdog", "journalctl"}},
	"other files":         {func(s *systemd.State) { s.Changed = true }, true, Warn, []string{"systemctl daemon-reload"}},
	"does not start":      {func(s *systemd.State) { s.Active, s.Restarts = "activating", 7 }, false, Fail, []string{"after 7 restarts"}},
	"stopped":             {func(s *systemd.State) { s.Active = "inactive" }, false, Warn, []string{"systemctl enable --now"}},
	"not enabled":         {func(s *systemd.State) { s.File = "disabled" }, true, Warn, []string{"at the next boot"}},
	"was started again":   {func(s *systemd.State) { s.Restarts = 2 }, true, Advice, []string{"restart it 2 times"}},
	"starts":              {func(s *systemd.State) { s.Active = "activating" }, false, OK, []string{"activating"}},
	"enabled by others":   {func(s *systemd.State) { s.File = "static" }, true, OK, []string{"static"}},
}

func TestCheckService(t *testing.T) {
	t.Parallel()
	for name, c := range units {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unit := wellSet()
			c.edit(&unit)
			var daemon *status.Status
			if c.runs {
				daemon = &status.Status{}
			}
			found(t, serviceFinding(unit, daemon), c.verdict, c.texts...)
		})
	}
	unit := wellSet()
	found(t, watchdogFinding(unit), OK, "3m0s")
	unit.Watchdog = 0
	found(t, watchdogFinding(unit), Warn, "WatchdogSec=")
}

func TestUnitsBesideTheService(t *testing.T) {
	t.Parallel()
	socket, render := besides()[0], besides()[1]
	one := func(all []Finding) Finding {
		t.Helper()
		require.Len(t, all, 1)
		return all[0]
	}
	absent, masked, off, failed := wellSet(), wellSet(), wellSet(), wellSet()
	absent.Load, masked.Load, off.Active, failed.Active = "not-found", "masked", "inactive", "failed"
	assert.Empty(t, socket.check(absent, wellSet()))
	found(t, one(socket.check(wellSet(), wellSet())), OK, "active")
	found(t, one(socket.check(masked, wellSet())), Warn, "systemctl unmask image-update-agent.socket")
	found(t, one(socket.check(off, wellSet())), Warn, "is inactive", "systemctl restart")
	found(t, one(socket.check(off, off)), OK)
	disabled := off
	disabled.File = "disabled"
	found(t, one(render.check(disabled, wellSet())), Warn, "systemctl enable image-update-agent-render.service")
	found(t, one(render.check(off, wellSet())), OK, "inactive")
	found(t, one(render.check(failed, wellSet())), Warn, "journalctl")
}

// A daemon that runs may have bad news.
func TestCheckDaemon(t *testing.T) {
	t.Parallel()
	for state, verdict := range map[status.State]string{
		status.StateApplying: OK, status.StateFailed: Warn, status.StateHeld: OK,
		status.StateStale: Warn, status.StateStaged: OK, status.StateCurrent: OK,
		status.StateUnchecked: Warn,
	} {
		found(t, checkDaemon(status.Status{State: state, Reason: "because"}, nil), verdict, string(state)+": because")
	}
	soon := status.Status{State: status.StateUnchecked, Reason: "because", NextCheck: new(time.Now())}
	found(t, checkDaemon(soon, nil), OK, "unchecked: because; next check ")
	found(t, checkDaemon(status.Status{State: status.StateUnchecked, Reasons: []status.Reason{{Kind: status.KindStarting}}}, nil), OK)
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	assert.Empty(t, checkVersion(nil, "1.0"))
	found(t, checkVersion(&status.Status{Version: "1.0"}, "1.0")[0], OK, "1.0")
	found(t, checkVersion(&status.Status{Version: "0.0.1"}, "1.0")[0], Warn, "the daemon is version 0.0.1", "restart")
}

func TestCheckRecord(t *testing.T) {
	t.Parallel()
	assert.Empty(t, checkRecord(nil))
	assert.Empty(t, checkRecord(&status.Status{Reasons: []status.Reason{{Kind: status.KindDenied}}}))
	lost := status.Reason{Kind: status.KindLost, Text: "the record was lost"}
	found(t, checkRecord(&status.Status{Reasons: []status.Reason{lost}})[0], Warn, lost.Text, "resume --all")
}

// A real bus, with and without what the package brings to it.
func TestCheckBus(t *testing.T) {
	t.Parallel()
	s := newNode(t)
	daemon := &status.Status{}
	one := func() Finding {
		t.Helper()
		all := s.checkBus(t.Context(), daemon)
		require.Len(t, all, 1)
		return all[0]
	}
	found(t, one(), Skipped, "there is no system bus")
	b := bustest.Start(t, filepath.Join(s.Platform.Root, "run/dbus/system_bus_socket"))
	found(t, one(), Advice, "is not installed", "systemctl reload dbus")
	s.put(t, "usr/share/dbus-1/system.d/org.opensuse.ImageUpdateAgent1.conf", "")
	found(t, one(), Warn, "does not own its name", "journalctl")
	daemon = nil
	all := s.checkBus(t.Context(), nil)
	require.Len(t, all, 2, "a daemon that does not run needs no name")
	found(t, all[1], Advice, "polkit actions are not installed")
	daemon = &status.Status{}
	b.Serve(t, api.BusName, "/org/opensuse/ImageUpdateAgent1", "org.opensuse.ImageUpdateAgent1", map[string]any{
		"Check": func() *dbus.Error { return nil },
	})
	s.put(t, "usr/share/polkit-1/actions/org.opensuse.ImageUpdateAgent1.policy", "")
	all = s.checkBus(t.Context(), daemon)
	require.Len(t, all, 2)
	found(t, all[0], OK, api.BusName)
	found(t, all[1], Advice, "polkit is not installed")
	b.Serve(t, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority",
		map[string]any{"CheckAuthorization": func() *dbus.Error { return nil }})
	found(t, s.checkBus(t.Context(), daemon)[1], OK, "it decides")
}

func TestCheckServiceWithoutSystemd(t *testing.T) {
	t.Parallel()
	s := newNode(t)
	all := s.checkService(t.Context(), nil)
	require.Len(t, all, 1)
	found(t, all[0], Skipped, "no service manager")
	bustest.Start(t, filepath.Join(s.Platform.Root, "run/dbus/system_bus_socket"))
	found(t, s.checkService(t.Context(), nil)[0], Skipped, "no service manager")
}

func TestCheckPort(t *testing.T) {
	t.Parallel()
	s, daemon := newNode(t), &status.Status{}
	found(t, checkPort(t.Context(), s.Metrics.Listen, daemon), Skipped, "metrics.listen is empty")
	answer := "image_update_agent_build_info 1\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	defer server.Close()
	s.Metrics.Listen = server.Listener.Addr().String()
	found(t, checkPort(t.Context(), s.Metrics.Listen, daemon), OK, s.Metrics.Listen)
	answer = "node_cpu_seconds_total 1\n"
	found(t, checkPort(t.Context(), s.Metrics.Listen, daemon), Warn, "another program answers at "+s.Metrics.Listen, "ss -ltnp")
	found(t, checkPort(t.Context(), s.Metrics.Listen, nil), Skipped, "daemon is not running")
	// A user of the node who has taken the port sends root nowhere.
	away := httptest.NewServer(http.RedirectHandler(server.URL+"/metrics", http.StatusFound))
	defer away.Close()
	answer = "image_update_agent_build_info 1\n"
	s.Metrics.Listen = away.Listener.Addr().String()
	found(t, checkPort(t.Context(), s.Metrics.Listen, daemon), Warn, "another program answers at "+s.Metrics.Listen, "ss -ltnp")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()); assert.NoError(t, l.Close()) }()
	s.Metrics.Listen = conn.LocalAddr().String() // nobody listens there, and nobody else is given it meanwhile
	found(t, checkPort(t.Context(), s.Metrics.Listen, daemon), Warn, "connection refused", "journalctl")
}

func TestCheckWritable(t *testing.T) {
	t.Parallel()
	s := newNode(t)
	s.put(t, "etc/salt/grains", "a: 1\n")
	s.put(t, "etc/kubernetes/manifests/a.yaml", "")
	all := checkWritable(s.written())
	require.Len(t, all, 1)
	found(t, all[0], OK, s.PodManifests, s.StateDir)

	for _, path := range []string{s.Grains.Path, s.StateDir, filepath.Join(s.PodManifests, "a.yaml")} {
		require.NoError(t, os.Lchown(path, 1234, 0))
		all = checkWritable(s.written())
		require.Len(t, all, 1)
		found(t, all[0], Fail, path+": owned by user 1234", "chown root "+path)
		require.NoError(t, os.Lchown(path, 0, 0))
	}
	for _, path := range []string{s.PodManifests, s.StateDir, s.RuntimeDir, filepath.Dir(s.Grains.Path), s.Grains.Path} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.NoError(t, os.Chmod(path, info.Mode()|0o020))
		all = checkWritable(s.written())
		require.Len(t, all, 1, "the daemon does not use it")
		found(t, all[0], Fail, path+": writable by other users", "chmod go-w "+path)
		require.NoError(t, os.Chmod(path, info.Mode()))
	}
	require.NoError(t, os.Symlink("a.yaml", filepath.Join(s.PodManifests, "b.yaml")))
	require.NoError(t, os.Mkdir(filepath.Join(s.PodManifests, "old"), 0o700))
	require.NoError(t, os.Chmod(filepath.Join(s.PodManifests, "old"), 0o777))
	found(t, checkWritable(s.written())[0], OK)
	s.Grains.Enabled = false
	require.NoError(t, os.Chown(s.Grains.Path, 1234, 0))
	found(t, checkWritable(s.written())[0], OK)

	s = newNode(t)
	s.StateDir = filepath.Join(s.Platform.Root, "none")
	found(t, checkWritable(s.written())[0], OK)
}

// A read-only file system, and files that not even root may write.
func TestCheckWritableOfAReadOnlyNode(t *testing.T) {
	t.Parallel()
	s := newNode(t)
	require.NoError(t, unix.Mount("tmpfs", s.StateDir, "tmpfs", unix.MS_RDONLY, "size=64k,mode=0755"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(s.StateDir, 0)) })
	all := checkWritable(s.written())
	require.Len(t, all, 1)
	found(t, all[0], Fail, s.StateDir+": read-only filesystem", "mount it writable")
}

func TestCheckImmutable(t *testing.T) {
	t.Parallel()
	for attribute, verdict := range map[uint64]string{
		0: "", unix.STATX_ATTR_COMPRESSED: "", unix.STATX_ATTR_IMMUTABLE: Fail, unix.STATX_ATTR_APPEND: Fail,
	} {
		all := checkAttributes("/etc/salt/grains", attribute)
		if verdict == "" {
			assert.Empty(t, all)
			continue
		}
		require.Len(t, all, 1)
		found(t, all[0], verdict, "/etc/salt/grains: immutable", "chattr -ia /etc/salt/grains")
	}
	_, err := attributes(t.TempDir())
	require.NoError(t, err)
	_, err = attributes(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestCheckPodManifests(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	n.put(t, "etc/kubernetes/manifests/a.yaml", "")
	n.put(t, "etc/kubernetes/manifests/.a.yaml.bak", "")
	found(t, checkPodManifests(n.PodManifests)[0], OK)
	n.put(t, "etc/kubernetes/manifests/.b.yaml.image-update-agent-aside", "")
	n.put(t, "etc/kubernetes/manifests/a.yaml~", "")
	all := checkPodManifests(n.PodManifests)
	require.Len(t, all, 2)
	found(t, all[0], Warn, "a.yaml~ as a pod", "leading dot")
	found(t, all[1], Warn, ".b.yaml.image-update-agent-aside", "image-update-agent put-back")
	assert.Empty(t, checkPodManifests(filepath.Join(n.Platform.Root, "none")))
}

func TestCheckDiskThatIsFull(t *testing.T) {
	t.Parallel()
	found(t, diskFinding("/var", 0), Fail, "/var: 0 bytes free: full", "free space")
	found(t, diskFinding("/var", recordLeast-1), Fail, "full")
	found(t, diskFinding("/var", recordLeast), Warn, "free space")
	found(t, diskFinding("/var", recordSpace), OK)
}

func TestCheckKubelet(t *testing.T) {
	t.Parallel()
	s := newNode(t)
	found(t, s.checkKubelet(t.Context())[0], Warn, "kubelet not found (no kubelet.service")
	const file = "/var/lib/kubelet/config.yaml"
	says := func(text string) {
		s.put(t, file, text)
		s.KubeletConfig = config.ReadKubelet(s.Platform, func(string) platform.Command {
			return platform.Command{Words: []string{"/usr/bin/kubelet", "--config=" + file}}
		})
	}
	says("staticPodPath: /etc/kubernetes/manifests/\n")
	found(t, s.checkKubelet(t.Context())[0], OK)
	says("staticPodPath: /etc/kubernetes/manifests/\nfeatureGates: {EventedPLEG: true}\n")
	found(t, s.checkKubelet(t.Context())[0], Advice, "var/lib/kubelet/config.yaml: feature gate EventedPLEG: ", "turn the feature gate off")
	says("staticPodPath: /srv/pods\n")
	found(t, s.checkKubelet(t.Context())[0], Fail, "kubelet reads "+s.Platform.Root+"/srv/pods", "remove podManifests")
	b := bustest.Start(t, filepath.Join(s.Platform.Root, "run/dbus/system_bus_socket"))
	b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/kubelet_2eservice", "org.freedesktop.DBus.Properties",
		map[string]any{"Get": func(string, string) (dbus.Variant, *dbus.Error) { return dbus.MakeVariant(uint64(1)), nil }})
	all := s.checkKubelet(t.Context())
	require.Len(t, all, 2)
	found(t, all[1], Warn, "kubelet.service", "systemctl status kubelet")
	s.KubeletConfig = config.ReadKubelet(s.Platform, nil)
	found(t, s.checkKubelet(t.Context())[0], Warn, "flags of kubelet.service are not known", "as its own configuration has them")
	s.Unread = errors.New("cannot tell which directory kubelet reads")
	found(t, s.checkKubelet(t.Context())[0], Fail, "cannot tell", "until then the agent applies nothing")
}

func TestFindingsForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	require.NoError(t, Write(terminal.NewPage(&out, time.Now()), []Finding{
		ok("disk", "/var: 3 GB free"), warn("daemon", "it does not run", "systemctl enable --now image-update-agent"), ok("clock", "x\x1b[2J"),
	}))
	assert.Equal(t, `ok       disk: /var: 3 GB free
warning  daemon: it does not run
         -> systemctl enable --now image-update-agent
ok       clock: x�[2J

1 warning, 2 ok
`, out.String())
}

func TestColoursOfVerdicts(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	p := terminal.NewPage(&out, time.Now())
	p.Colour = true
	require.NoError(t, Write(p, []Finding{
		ok("disk", "free"), fail("cri", errors.New("away"), "x"), warn("a", "b", "c"), warn("d", "e", "f"), advise("g", "h", "i"),
	}))
	assert.Contains(t, out.String(), "ok       disk: free\n\x1b[1;31mfailed\x1b[0m   cri: away\n")
	assert.Contains(t, out.String(), "\x1b[1;33mwarning\x1b[0m  a: b\n")
	assert.Contains(t, out.String(), "advice   g: h\n")
	assert.Contains(t, out.String(), "\n1 failed, 2 warnings, 1 advice, 1 ok\n")
}

// sandboxed is a process that sees one of the directories read-only, and of all
// users and groups root alone, as the hardened daemon does.
func sandboxed(t *testing.T, readOnly string) (proc string) {
	t.Helper()
	only := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	child := exec.CommandContext(context.WithoutCancel(t.Context()), "/bin/sh", "-euc",
		`mount --bind "$1" "$1"; mount -o remount,bind,ro "$1"; echo ready; cat`, "sh", readOnly)
	child.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS, UidMappings: only, GidMappings: only,
	}
	end, err := child.StdinPipe()
	require.NoError(t, err)
	out, err := child.StdoutPipe()
	require.NoError(t, err)
	child.Stderr = os.Stderr
	require.NoError(t, child.Start())
	t.Cleanup(func() {
		assert.NoError(t, end.Close())
		assert.NoError(t, child.Wait())
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "ready\n", line)
	return filepath.Join("/proc", strconv.Itoa(child.Process.Pid))
}

func TestDoctorSeesWhatTheUnitForbids(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	forbidden, allowed := filepath.Join(dir, "forbidden"), filepath.Join(dir, "allowed")
	ours, others := filepath.Join(allowed, "ours.yaml"), filepath.Join(allowed, "others.yaml")
	require.NoError(t, os.Mkdir(forbidden, 0o700))
	require.NoError(t, os.Mkdir(allowed, 0o700))
	for file, group := range map[string]int{ours: 0, others: 42} {
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.NoError(t, os.Chown(file, 0, group))
	}
	daemon := sandboxed(t, forbidden)
	missing := filepath.Join(dir, "missing")

	assert.Equal(t, []Finding{ok("unit", "the daemon can write all its files")},
		checkSandbox(daemon, []string{allowed, missing}, []string{ours, missing}))
	found := checkSandbox(daemon, []string{forbidden, allowed}, []string{others, ours})
	require.Len(t, found, 2)
	assert.Equal(t, Fail, found[0].Verdict)
	assert.Equal(t, forbidden+": read-only for the daemon", found[0].Detail)
	assert.Contains(t, found[0].Remedy, "ReadWritePaths="+forbidden+" below [Service]")
	assert.Equal(t, Warn, found[1].Verdict)
	assert.Equal(t, others+": the daemon cannot keep the group 42 of the file, so it does not write it", found[1].Detail)
	assert.Contains(t, found[1].Remedy, "chgrp root "+others)

	const unlimited = "/proc/self"
	assert.Equal(t, []Finding{ok("unit", "the daemon can write all its files")},
		checkSandbox(unlimited, []string{forbidden, allowed}, []string{others, ours}))
}

// hooked is a node with both hooks, whose programs are there.
func hooked(t *testing.T) Node {
	t.Helper()
	n := newNode(t)
	n.SaltCall = hook.Program{Root: n.Platform.Root, Path: filepath.Join(n.Platform.Root, "usr/bin/salt-call")}
	n.HookProgram = hook.Program{Root: n.Platform.Root, Path: filepath.Join(n.Platform.Root, "opt/tell")}
	n.Hooks = config.Hooks{SaltRefresh: true, Exec: n.HookProgram.Path}
	for _, program := range []string{n.SaltCall.Path, n.HookProgram.Path} {
		require.NoError(t, os.MkdirAll(filepath.Dir(program), 0o755))
		require.NoError(t, os.WriteFile(program, nil, 0o755))
	}
	return n
}

// serveHookUnits is a service manager with the units of hooks in these states.
func serveHookUnits(t *testing.T, n Node, path, service string) {
	t.Helper()
	b := bustest.Start(t, filepath.Join(n.Platform.Root, "run/dbus/system_bus_socket"))
	var manager *dbus.Conn
	for unit, state := range map[string]string{"path": path, "service": service} {
		object := dbus.ObjectPath("/org/freedesktop/systemd1/unit/image_2dupdate_2dagent_2dhook_2e" + unit)
		methods := map[string]any{"Get": func(_, property string) (dbus.Variant, *dbus.Error) {
			values := map[string]any{"LoadState": "loaded", "ActiveState": state, "ActiveEnterTimestampMonotonic": uint64(1)}
			if state == "not-found" {
				values["LoadState"], values["ActiveState"] = state, "inactive"
			}
			return dbus.MakeVariant(values[property]), nil
		}}
		if manager == nil {
			manager = b.Serve(t, "org.freedesktop.systemd1", string(object), "org.freedesktop.DBus.Properties", methods)
		} else {
			require.NoError(t, manager.ExportMethodTable(methods, object, "org.freedesktop.DBus.Properties"))
		}
	}
}

// hookStates are the units' states, and what is said.
var hookStates = map[string]struct {
	path, service string
	verdict       string
	texts         []string
}{
	"all is well":         {"active", "inactive", OK, []string{"hook.path is active"}},
	"one runs":            {"active", "activating", OK, nil},
	"the last has failed": {"active", "failed", Warn, []string{"hooks failed", "journalctl -u " + systemd.HookService}},
	"not enabled":         {"inactive", "inactive", Warn, []string{"is inactive, so no hook runs", "systemctl enable --now " + systemd.HookPath}},
	"not installed":       {"not-found", "not-found", Warn, []string{"is not-found, so no hook runs"}},
	"given up":            {"failed", "failed", Warn, []string{"has failed", "systemctl reset-failed"}},
	"no systemd":          {"", "", Warn, []string{systemd.HookPath + ": ", "systemctl status"}},
}

func TestCheckHooks(t *testing.T) {
	t.Parallel()
	for name, c := range hookStates {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := hooked(t)
			if c.path != "" {
				serveHookUnits(t, n, c.path, c.service)
			}
			all := n.checkHooks(t.Context())
			require.Len(t, all, 1)
			found(t, all[0], c.verdict, c.texts...)
		})
	}
	t.Run("none configured", func(t *testing.T) {
		t.Parallel()
		all := newNode(t).checkHooks(t.Context())
		require.Len(t, all, 1)
		found(t, all[0], Skipped, "none configured")
	})
	t.Run("neither can be run", func(t *testing.T) {
		t.Parallel()
		n := hooked(t)
		n.RuntimeDir = filepath.Join(n.Platform.Root, "run/elsewhere")
		require.NoError(t, os.Remove(n.SaltCall.Path))
		require.NoError(t, os.Chmod(n.HookProgram.Path, 0o644))
		serveHookUnits(t, n, "active", "inactive")
		all := n.checkHooks(t.Context())
		require.Len(t, all, 3)
		found(t, all[0], Warn, "usr/bin/salt-call: no such file", "hooks.saltRefresh")
		found(t, all[1], Warn, "opt/tell: not executable", "make root the owner")
		found(t, all[2], Warn, n.RuntimeDir, "PathExists=")
	})
	t.Run("no salt-call", func(t *testing.T) {
		t.Parallel()
		n := hooked(t)
		require.NoError(t, os.Remove(n.SaltCall.Path))
		serveHookUnits(t, n, "active", "inactive")
		n.Hooks = config.Hooks{SaltEvent: true}
		require.Equal(t, "install salt-minion on the node, or remove hooks.saltEvent", n.checkHooks(t.Context())[0].Remedy)
		n.Hooks.SaltRefresh = true
		found(t, n.checkHooks(t.Context())[0], Warn, "remove hooks.saltRefresh and hooks.saltEvent")
	})
	t.Run("a webhook's file is everybody's", func(t *testing.T) {
		t.Parallel()
		n := hooked(t)
		file := filepath.Join(t.TempDir(), "url")
		require.NoError(t, os.WriteFile(file, []byte("https://hooks.example.com/s3cr3t\n"), 0o644))
		n.Webhooks = []hook.Webhook{{Name: "chat", URLFile: file, CheckURL: config.CheckWebhookURL}}
		serveHookUnits(t, n, "active", "inactive")
		all := n.checkHooks(t.Context())
		require.Len(t, all, 1)
		found(t, all[0], Warn, "webhook chat: urlFile "+file+": mode 0644: others may read it", "mode 0600")
		require.NoError(t, os.Chmod(file, 0o600))
		found(t, n.checkHooks(t.Context())[0], OK)
	})
	t.Run("and one of them can", func(t *testing.T) {
		t.Parallel()
		n := hooked(t)
		require.NoError(t, os.Chmod(filepath.Dir(n.HookProgram.Path), 0o777))
		serveHookUnits(t, n, "active", "inactive")
		all := n.checkHooks(t.Context())
		require.Len(t, all, 1)
		found(t, all[0], Warn, "unsafe: others may write to "+filepath.Dir(n.HookProgram.Path))
	})
}

// What is there of distributions, and what doctor says of it: which was chosen, and what to do.
func TestDoctorSaysWhichDistributionItFound(t *testing.T) {
	t.Parallel()
	const (
		program = "usr/local/bin/rke2"
		unit    = "usr/local/lib/systemd/system/rke2-server.service"
		data    = "var/lib/rancher/rke2/server/token"
		kubelet = "usr/bin/kubelet"
		set     = "var/lib/kubelet/config.yaml"
	)
	for name, c := range map[string]struct {
		paths  []string
		named  string
		first  string
		texts  []string
		second string // empty: no second finding
		more   []string
	}{
		"kubeadm":        {[]string{kubelet, set}, "", OK, []string{"kubeadm, kubeletUnit kubelet.service, kubeletConfig /var/lib/kubelet/config.yaml, "}, "", nil},
		"caasp":          {[]string{kubelet, set, "usr/share/caasp-container-manifests/manifests/velum.yaml"}, "", OK, []string{"caasp, "}, "", nil},
		"nothing":        {nil, "", OK, []string{"kubeadm"}, "", nil},
		"RKE2":           {[]string{program, unit, data}, "", OK, []string{"rke2 v1.33.5-rke2r1, kubeletUnit rke2-server.service", "registries /etc/rancher/rke2/registries.yaml"}, "", nil},
		"never started":  {[]string{program, unit}, "", Warn, []string{"never started", "systemctl enable --now rke2-server"}, "", nil},
		"removed":        {[]string{data, kubelet, set}, "", OK, []string{"kubeadm"}, Advice, []string{"/var/lib/rancher/rke2 exists, but rke2 is not installed: kubeadm was chosen", "platform: rke2"}},
		"its data alone": {[]string{data}, "", Warn, []string{"its program was not found, only /var/lib/rancher/rke2", "remove the directory"}, "", nil},
		"both":           {[]string{program, unit, data, kubelet, set}, "", OK, []string{"rke2"}, Warn, []string{"kubeadm is also on the node (/usr/bin/kubelet, /var/lib/kubelet/config.yaml): rke2 was chosen", "set platform"}},
		"both, and one is configured": {
			[]string{program, unit, data, kubelet, set}, "kubeadm", OK, []string{"kubeadm, as configured"}, "", nil,
		},
		"to be RKE2":             {[]string{program, kubelet, set}, "", OK, []string{"kubeadm"}, Advice, []string{"/usr/local/bin/rke2 exists", "platform: rke2"}},
		"configured, and absent": {[]string{kubelet, set}, "k3s", Warn, []string{"k3s, as configured", "not installed"}, "", nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t)
			for _, path := range c.paths {
				n.put(t, path, "")
				if path == data {
					require.NoError(t, os.Symlink("/var/lib/rancher/rke2/data/v1.33.5-rke2r1-0123456789ab/bin",
						filepath.Join(n.Platform.Root, "var/lib/rancher/rke2/bin")))
				}
			}
			n.Settings.Platform = c.named
			n.Platform = platform.Named(n.Platform.Root, c.named)
			all := n.checkPlatform()
			found(t, all[0], c.first, c.texts...)
			if c.second == "" {
				require.Len(t, all, 1)
				return
			}
			require.Len(t, all, 2)
			found(t, all[1], c.second, c.more...)
		})
	}
}
