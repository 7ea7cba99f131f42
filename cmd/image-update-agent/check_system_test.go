// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/godbus/dbus/v5"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/api"
	"github.com/kubic-project/image-update-agent/internal/bus/bustest"
	"github.com/kubic-project/image-update-agent/internal/config"
	"github.com/kubic-project/image-update-agent/internal/statuspage"
	"github.com/kubic-project/image-update-agent/internal/terminal"
	"github.com/kubic-project/image-update-agent/systemd"
)

// rooted are settings of a node below a directory.
func rooted(t *testing.T) settings {
	t.Helper()
	root := t.TempDir()
	dir := func(name string) string {
		path := filepath.Join(root, name)
		require.NoError(t, os.MkdirAll(path, 0o755))
		return path
	}
	return settings{root: root, Settings: config.Settings{
		PodManifests: dir("etc/kubernetes/manifests"), StateDir: dir("var/lib/image-update-agent"),
		RuntimeDir: dir("run/image-update-agent"), Grains: config.Grains{Enabled: true, Path: filepath.Join(dir("etc/salt"), "grains")},
	}}
}

func (s settings) put(t *testing.T, name, text string) {
	t.Helper()
	path := filepath.Join(s.root, name)
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
	"well":              {func(*systemd.State) {}, true, verdictOK, []string{"active, enabled"}},
	"drop-ins":          {func(s *systemd.State) { s.DropIns = []string{"/etc/x.conf"} }, true, verdictOK, []string{"drop-ins: /etc/x.conf"}},
	"not installed":     {func(s *systemd.State) { s.Load = "not-found" }, false, verdictWarn, []string{"install the package"}},
	"by other means":    {func(s *systemd.State) { s.Load = "not-found" }, true, verdictOK, []string{"by other means"}},
	"masked":            {func(s *systemd.State) { s.Load = "masked" }, false, verdictWarn, []string{"systemctl unmask"}},
	"broken":            {func(s *systemd.State) { s.Load = "bad-setting" }, false, verdictFail, []string{"bad-setting", "systemd-analyze verify"}},
	"failed":            {func(s *systemd.State) { s.Active, s.Result = "failed", "watchdog" }, false, verdictFail, []string{"watchdog", "journalctl"}},
	"other files":       {func(s *systemd.State) { s.Changed = true }, true, verdictWarn, []string{"systemctl daemon-reload"}},
	"does not start":    {func(s *systemd.State) { s.Active, s.Restarts = "activating", 7 }, false, verdictFail, []string{"tried again 7 times"}},
	"stopped":           {func(s *systemd.State) { s.Active = "inactive" }, false, verdictWarn, []string{"systemctl enable --now"}},
	"not enabled":       {func(s *systemd.State) { s.File = "disabled" }, true, verdictWarn, []string{"after the next boot"}},
	"was started again": {func(s *systemd.State) { s.Restarts = 2 }, true, verdictAdvice, []string{"again 2 times"}},
	"starts":            {func(s *systemd.State) { s.Active = "activating" }, false, verdictOK, []string{"activating"}},
	"enabled by others": {func(s *systemd.State) { s.File = "static" }, true, verdictOK, []string{"static"}},
}

func TestCheckService(t *testing.T) {
	t.Parallel()
	for name, c := range units {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			unit := wellSet()
			c.edit(&unit)
			var daemon *agent.Status
			if c.runs {
				daemon = &agent.Status{}
			}
			found(t, serviceFinding(unit, daemon), c.verdict, c.texts...)
		})
	}
	unit := wellSet()
	found(t, watchdogFinding(unit), verdictOK, "3m0s")
	unit.Watchdog = 0
	found(t, watchdogFinding(unit), verdictWarn, "WatchdogSec=")
}

func TestUnitsBesideTheService(t *testing.T) {
	t.Parallel()
	socket, render := besides()[0], besides()[1]
	one := func(all []finding) finding {
		t.Helper()
		require.Len(t, all, 1)
		return all[0]
	}
	absent, masked, off, failed := wellSet(), wellSet(), wellSet(), wellSet()
	absent.Load, masked.Load, off.Active, failed.Active = "not-found", "masked", "inactive", "failed"
	assert.Empty(t, socket.judge(absent, wellSet()))
	found(t, one(socket.judge(wellSet(), wellSet())), verdictOK, "active")
	found(t, one(socket.judge(masked, wellSet())), verdictWarn, "systemctl unmask image-update-agent.socket")
	found(t, one(socket.judge(off, wellSet())), verdictWarn, "is inactive", "systemctl restart")
	found(t, one(socket.judge(off, off)), verdictOK)
	disabled := off
	disabled.File = "disabled"
	found(t, one(render.judge(disabled, wellSet())), verdictWarn, "systemctl enable image-update-agent-render.service")
	found(t, one(render.judge(off, wellSet())), verdictOK, "inactive")
	found(t, one(render.judge(failed, wellSet())), verdictWarn, "journalctl")
}

// A daemon that runs may have bad news.
func TestCheckDaemon(t *testing.T) {
	t.Parallel()
	for state, verdict := range map[agent.State]string{
		agent.StateApplying: verdictOK, agent.StateFailed: verdictWarn, agent.StateHeld: verdictOK,
		agent.StateStale: verdictWarn, agent.StateStaged: verdictOK, agent.StateCurrent: verdictOK,
		agent.StateUnchecked: verdictWarn,
	} {
		found(t, daemonFinding(agent.Status{State: state, Reason: "because"}), verdict, string(state)+": because")
	}
	soon := agent.Status{State: agent.StateUnchecked, Reason: "because", NextCheck: new(time.Now())}
	found(t, daemonFinding(soon), verdictOK, "unchecked: because; next check ")
	found(t, daemonFinding(agent.Status{State: agent.StateUnchecked, Reason: statuspage.Starting}), verdictOK)
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	assert.Empty(t, checkVersion(nil))
	found(t, checkVersion(&agent.Status{Version: version})[0], verdictOK, version)
	found(t, checkVersion(&agent.Status{Version: "0.0.1"})[0], verdictWarn, "the daemon is 0.0.1", "restart")
}

// A real bus, with and without what the package brings to it.
func TestCheckBus(t *testing.T) {
	t.Parallel()
	s := rooted(t)
	daemon := &agent.Status{}
	one := func() finding {
		t.Helper()
		all := s.checkBus(t.Context(), daemon)
		require.Len(t, all, 1)
		return all[0]
	}
	found(t, one(), verdictOK, "there is no system bus")
	b := bustest.Start(t, filepath.Join(s.root, "run/dbus/system_bus_socket"))
	found(t, one(), verdictAdvice, "is not installed", "systemctl reload dbus")
	s.put(t, "usr/share/dbus-1/system.d/org.opensuse.ImageUpdateAgent1.conf", "")
	found(t, one(), verdictWarn, "has not got its name", "journalctl")
	daemon = nil
	all := s.checkBus(t.Context(), nil)
	require.Len(t, all, 2, "a daemon that does not run needs no name")
	found(t, all[1], verdictAdvice, "its actions are not installed")
	daemon = &agent.Status{}
	b.Serve(t, api.BusName, "/org/opensuse/ImageUpdateAgent1", "org.opensuse.ImageUpdateAgent1", map[string]any{
		"Check": func() *dbus.Error { return nil },
	})
	s.put(t, "usr/share/polkit-1/actions/org.opensuse.ImageUpdateAgent1.policy", "")
	all = s.checkBus(t.Context(), daemon)
	require.Len(t, all, 2)
	found(t, all[0], verdictOK, api.BusName)
	found(t, all[1], verdictAdvice, "polkitd is not there")
	b.Serve(t, "org.freedesktop.PolicyKit1", "/org/freedesktop/PolicyKit1/Authority", "org.freedesktop.PolicyKit1.Authority",
		map[string]any{"CheckAuthorization": func() *dbus.Error { return nil }})
	found(t, s.checkBus(t.Context(), daemon)[1], verdictOK, "it decides")
}

func TestCheckServiceWithoutSystemd(t *testing.T) {
	t.Parallel()
	s := rooted(t)
	all := s.checkService(t.Context(), nil)
	require.Len(t, all, 1)
	found(t, all[0], verdictOK, "not known")
	bustest.Start(t, filepath.Join(s.root, "run/dbus/system_bus_socket"))
	found(t, s.checkService(t.Context(), nil)[0], verdictOK, "no service manager")
}

func TestCheckPort(t *testing.T) {
	t.Parallel()
	s, daemon := rooted(t), &agent.Status{}
	found(t, s.checkPort(t.Context(), daemon), verdictOK, "none")
	answer := "image_update_agent_build_info 1\n"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, answer) }))
	defer server.Close()
	s.Metrics.Listen = server.Listener.Addr().String()
	found(t, s.checkPort(t.Context(), daemon), verdictOK, s.Metrics.Listen)
	answer = "node_cpu_seconds_total 1\n"
	found(t, s.checkPort(t.Context(), daemon), verdictWarn, "somebody else answers at "+s.Metrics.Listen, "ss -ltnp")
	found(t, s.checkPort(t.Context(), nil), verdictOK, "no daemon runs")
	// A user of the node who has taken the port sends root nowhere.
	away := httptest.NewServer(http.RedirectHandler(server.URL+"/metrics", http.StatusFound))
	defer away.Close()
	answer = "image_update_agent_build_info 1\n"
	s.Metrics.Listen = away.Listener.Addr().String()
	found(t, s.checkPort(t.Context(), daemon), verdictWarn, "somebody else answers at "+s.Metrics.Listen, "ss -ltnp")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", l.Addr().String())
	require.NoError(t, err)
	defer func() { assert.NoError(t, conn.Close()); assert.NoError(t, l.Close()) }()
	s.Metrics.Listen = conn.LocalAddr().String() // nobody listens there, and nobody else is given it meanwhile
	found(t, s.checkPort(t.Context(), daemon), verdictWarn, "connection refused", "journalctl")
}

func TestCheckWritable(t *testing.T) {
	t.Parallel()
	s := rooted(t)
	s.put(t, "etc/salt/grains", "a: 1\n")
	s.put(t, "etc/kubernetes/manifests/a.yaml", "")
	all := s.checkWritable()
	require.Len(t, all, 1)
	found(t, all[0], verdictOK, s.PodManifests, s.StateDir)

	for _, path := range []string{s.Grains.Path, s.StateDir, filepath.Join(s.PodManifests, "a.yaml")} {
		require.NoError(t, os.Lchown(path, 1234, 0))
		all = s.checkWritable()
		require.Len(t, all, 1)
		found(t, all[0], verdictFail, path+": owned by user 1234", "chown root "+path)
		require.NoError(t, os.Lchown(path, 0, 0))
	}
	s.Grains.Enabled = false
	require.NoError(t, os.Chown(s.Grains.Path, 1234, 0))
	found(t, s.checkWritable()[0], verdictOK)

	s = rooted(t)
	s.StateDir = filepath.Join(s.root, "none")
	found(t, s.checkWritable()[0], verdictOK)
}

// A read-only file system, and files that not even root may write.
func TestCheckWritableOfAReadOnlyNode(t *testing.T) {
	t.Parallel()
	s := rooted(t)
	require.NoError(t, unix.Mount("tmpfs", s.StateDir, "tmpfs", unix.MS_RDONLY, "size=64k"))
	t.Cleanup(func() { assert.NoError(t, unix.Unmount(s.StateDir, 0)) })
	all := s.checkWritable()
	require.Len(t, all, 1)
	found(t, all[0], verdictFail, s.StateDir+": its file system is read-only", "mount it writable")
}

func TestCheckImmutable(t *testing.T) {
	t.Parallel()
	for attribute, verdict := range map[uint64]string{
		0: "", unix.STATX_ATTR_COMPRESSED: "", unix.STATX_ATTR_IMMUTABLE: verdictFail, unix.STATX_ATTR_APPEND: verdictFail,
	} {
		all := attributeFinding("/etc/salt/grains", attribute)
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

func TestCheckAside(t *testing.T) {
	t.Parallel()
	s := rooted(t)
	s.put(t, "etc/kubernetes/manifests/a.yaml", "")
	s.put(t, "etc/kubernetes/manifests/.a.yaml.bak", "")
	found(t, s.checkAside()[0], verdictOK)
	s.put(t, "etc/kubernetes/manifests/.b.yaml.image-update-agent-aside", "")
	all := s.checkAside()
	require.Len(t, all, 1)
	found(t, all[0], verdictWarn, ".b.yaml.image-update-agent-aside", "image-update-agent put-back")
	s.PodManifests = filepath.Join(s.root, "none")
	assert.Empty(t, s.checkAside())
}

func TestCheckDiskThatIsFull(t *testing.T) {
	t.Parallel()
	found(t, diskFinding("/var", 0), verdictFail, "/var: 0 bytes free: full", "make room")
	found(t, diskFinding("/var", recordLeast-1), verdictFail, "full")
	found(t, diskFinding("/var", recordLeast), verdictWarn, "make room")
	found(t, diskFinding("/var", recordRoom), verdictOK)
}

func TestCheckKubelet(t *testing.T) {
	t.Parallel()
	s := rooted(t)
	found(t, s.checkKubelet(t.Context())[0], verdictWarn, "neither kubelet.service nor")
	s.put(t, "var/lib/kubelet/config.yaml", "staticPodPath: /etc/kubernetes/manifests/\n")
	found(t, s.checkKubelet(t.Context())[0], verdictOK)
	s.put(t, "var/lib/kubelet/config.yaml", "staticPodPath: /srv/pods\n")
	found(t, s.checkKubelet(t.Context())[0], verdictFail, "it reads "+s.root+"/srv/pods", "take podManifests out")
	b := bustest.Start(t, filepath.Join(s.root, "run/dbus/system_bus_socket"))
	b.Serve(t, "org.freedesktop.systemd1", "/org/freedesktop/systemd1/unit/kubelet_2eservice", "org.freedesktop.DBus.Properties",
		map[string]any{"Get": func(string, string) (dbus.Variant, *dbus.Error) { return dbus.MakeVariant(uint64(1)), nil }})
	all := s.checkKubelet(t.Context())
	require.Len(t, all, 2)
	found(t, all[1], verdictWarn, "kubelet.service", "systemctl status kubelet")
}

func TestCheckAppArmor(t *testing.T) {
	t.Parallel()
	s := rooted(t)
	found(t, s.checkAppArmor(t.Context()), verdictOK, "not in use")
	s.put(t, "sys/module/apparmor/parameters/enabled", "Y\n")
	found(t, s.checkAppArmor(t.Context()), verdictOK, "no daemon to look at")
	found(t, profileFinding("unconfined"), verdictOK)
	found(t, profileFinding("/usr/bin/image-update-agent (enforce)"), verdictAdvice, "(enforce)", "DENIED")
}

// Who reads a line of doctor finds its check in the table, with a remedy.
func TestOperationsHaveEveryCheck(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(operations)
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(text), "\n## What doctor checks\n")
	require.True(t, found)
	rest, _, _ = strings.Cut(rest, "\n## ")
	documented := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| .{10,} \\| .{10,} \\|$").FindAllStringSubmatch(rest, -1) {
		documented[row[1]] = true
	}
	sources, err := filepath.Glob("check_*.go")
	require.NoError(t, err)
	named := regexp.MustCompile(`(?:\b(?:ok|warn|fail|advise|verdictOf|checkDirectory)\(|check = |check: |setupScript = )"([^"]+)"`)
	there := map[string]bool{}
	for _, file := range append(sources, "checks.go", "doctor.go") {
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, name := range named.FindAllSubmatch(source, -1) {
			if !strings.HasSuffix(file, "_test.go") {
				there[string(name[1])] = true
			}
		}
	}
	assert.Greater(t, len(there), 25)
	assert.Equal(t, there, documented)
}

func TestFindingsForPeople(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	a := newApp(streams{out: &out})
	require.NoError(t, a.printFindings([]finding{
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
	require.NoError(t, writeFindings(p, []finding{
		ok("disk", "free"), fail("cri", errors.New("away"), "x"), warn("a", "b", "c"), warn("d", "e", "f"), advise("g", "h", "i"),
	}))
	assert.Contains(t, out.String(), "ok       disk: free\n\x1b[1;31mfailed\x1b[0m   cri: away\n")
	assert.Contains(t, out.String(), "\x1b[1;33mwarning\x1b[0m  a: b\n")
	assert.Contains(t, out.String(), "advice   g: h\n")
	assert.Contains(t, out.String(), "\n1 failed, 2 warnings, 1 advice, 1 ok\n")
}

// What holds a pod back has the remedy that the status has.
func TestWhatHoldsAPod(t *testing.T) {
	t.Parallel()
	pod := agent.PodPlan{File: "velum.yaml", Holds: []agent.Hold{
		{Name: agent.HoldUnmanaged, Reason: "not listed"}, {Name: agent.HoldAsked, Reason: caasp + "velum: because"},
	}, Waits: []agent.Hold{{Name: agent.HoldWindow, Reason: "opens at noon"}}}
	findings := podFindings(pod)
	require.Len(t, findings, 2)
	found(t, findings[0], verdictWarn, "hold: "+caasp+"velum: because", "image-update-agent unhold velum")
	found(t, findings[1], verdictWarn, "window: opens at noon", "wait for the window")
	findings = podFindings(agent.PodPlan{File: "velum.yaml", Change: "rebuild", Holds: pod.Holds[:1]})
	require.Len(t, findings, 1)
	found(t, findings[0], verdictOK, "rebuild")
}
