// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
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

func TestCheckPlatformNamesWhatNoSettingHas(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	found(t, n.checkPlatform()[0], OK, "kubeadm, kubeletUnit kubelet.service, kubeletConfig /var/lib/kubelet/config.yaml, ")
	n.put(t, "usr/share/caasp-container-manifests/manifests/velum.yaml", "")
	n.Platform = platform.Detect(n.Platform.Root)
	found(t, n.checkPlatform()[0], OK, "caasp, ", "")
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
