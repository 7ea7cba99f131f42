// SPDX-License-Identifier: Apache-2.0

// Package bustest gives tests a real bus of their own: a dbus-daemon, and
// services on it that a test makes from their published interfaces.
package bustest

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
)

// heading begins the file of a bus, and names its type, socket and services.
const heading = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>%s</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <servicedir>%s</servicedir>
`

// open lets everybody do everything.
const open = `  <policy context="default">
    <allow user="*"/>
    <allow send_destination="*" eavesdrop="true"/>
    <allow own="*"/>
    <allow eavesdrop="true"/>
    %s
  </policy>
</busconfig>
`

// closed are the rules of dbus's system.conf: holes in them are for files of
// services.
const closed = `  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Introspectable"/>
    <allow send_destination="org.freedesktop.DBus" send_interface="org.freedesktop.DBus.Properties"/>
  </policy>
`

// Bus is a running bus.
type Bus struct {
	Address string
	// Services is where the files of services lie that the bus can start.
	Services string

	// Stop ends the bus at once, before the test does.
	Stop func()

	file, socket string
	process      *os.Process
}

// Start runs a bus that allows everything, and starts services as its own children, until the test ends. It listens at
// the path socket; empty: in a new directory.
func Start(tb testing.TB, socket string) Bus {
	tb.Helper()
	return start(tb, socket, func(b Bus) string { return b.opened("") })
}

// opened is the configuration of a bus of Start, with one more rule.
func (b Bus) opened(rule string) string {
	return fmt.Sprintf(heading+open, "session", b.socket, b.Services, rule)
}

// System runs a bus like that of Start, with the rules of the system bus, and those of the files that services bring.
func System(tb testing.TB, files ...string) Bus {
	tb.Helper()
	return start(tb, "", func(b Bus) string {
		var text strings.Builder
		fmt.Fprintf(&text, heading+closed, "system", b.socket, b.Services)
		for _, file := range files {
			path, err := filepath.Abs(file)
			if err != nil {
				tb.Fatal(err)
			}
			fmt.Fprintf(&text, "  <include>%s</include>\n", path)
		}
		text.WriteString("</busconfig>\n")
		return text.String()
	})
}

func start(tb testing.TB, socket string, config func(Bus) string) Bus {
	tb.Helper()
	dir := tb.TempDir()
	if socket == "" {
		socket = filepath.Join(dir, "bus")
	}
	b := Bus{Services: filepath.Join(dir, "services"), file: filepath.Join(dir, "bus.conf"), socket: socket}
	for _, err := range []error{
		os.Mkdir(b.Services, 0o755), os.MkdirAll(filepath.Dir(socket), 0o755),
		os.Chmod(filepath.Dir(dir), 0o755), //nolint:gosec // the test's: other users come through it to the socket
		os.WriteFile(b.file, []byte(config(b)), 0o644),
	} {
		if err != nil {
			tb.Fatal(err)
		}
	}
	b.Address, _, _ = strings.Cut(b.run(tb), ",guid=")
	return b
}

// run starts a dbus-daemon, and returns its address.
func (b *Bus) run(tb testing.TB) string {
	tb.Helper()
	daemon := exec.CommandContext(tb.Context(), "dbus-daemon", "--config-file="+b.file, "--nofork", "--print-address=1")
	daemon.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	daemon.Stderr = tb.Output()
	out, err := daemon.StdoutPipe()
	if err == nil {
		err = daemon.Start()
	}
	if err != nil {
		tb.Fatal(err)
	}
	b.process = daemon.Process
	b.Stop = sync.OnceFunc(func() {
		_ = daemon.Process.Kill() // it may be gone
		_ = daemon.Wait()         // of what was killed
	})
	tb.Cleanup(b.Stop)
	address, err := bufio.NewReader(out).ReadString('\n') // it listens now
	if err != nil {
		tb.Fatalf("dbus-daemon: %v", err)
	}
	return strings.TrimSpace(address)
}

// Again starts a bus that was stopped, or died: another one in its place.
func (b *Bus) Again(tb testing.TB) {
	tb.Helper()
	b.run(tb)
}

// Freeze stops the bus until Thaw.
func (b Bus) Freeze(tb testing.TB) { b.signal(tb, syscall.SIGSTOP) }

// Thaw continues it.
func (b Bus) Thaw(tb testing.TB) { b.signal(tb, syscall.SIGCONT) }

func (b Bus) signal(tb testing.TB, s os.Signal) {
	tb.Helper()
	if err := b.process.Signal(s); err != nil {
		tb.Fatal(err)
	}
}

// Startable adds a name to the bus. When a client calls the name, the bus starts the command.
func (b Bus) Startable(tb testing.TB, name, command string) {
	tb.Helper()
	text := fmt.Sprintf("[D-BUS Service]\nName=%s\nExec=%s\n", name, command)
	if err := os.WriteFile(filepath.Join(b.Services, name+".service"), []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	b.reload(tb)
}

// Deny keeps everybody from calling a service on a bus of Start, as a policy of the
// system bus may.
func (b Bus) Deny(tb testing.TB, service string) {
	tb.Helper()
	text := b.opened(fmt.Sprintf(`<deny send_destination=%q/>`, service))
	if err := os.WriteFile(b.file, []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	b.reload(tb)
}

func (b Bus) reload(tb testing.TB) {
	tb.Helper()
	conn := b.Connect(tb)
	if err := conn.BusObject().CallWithContext(tb.Context(), "org.freedesktop.DBus.ReloadConfig", 0).Err; err != nil {
		tb.Fatal(err)
	}
}

// Serve makes an object of a service answer with methods, by name, until the test ends or the connection is closed. A
// method is a function with a *dbus.Error as its last result.
func (b Bus) Serve(tb testing.TB, service, path, face string, methods map[string]any) *dbus.Conn {
	tb.Helper()
	conn := b.Connect(tb)
	if err := conn.ExportMethodTable(methods, dbus.ObjectPath(path), face); err != nil {
		tb.Fatal(err)
	}
	own(tb, conn, service)
	return conn
}

// own gives a connection a name. Its objects are there before: who waits for the
// name calls at once.
func own(tb testing.TB, conn *dbus.Conn, service string) {
	tb.Helper()
	reply, err := conn.RequestName(service, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		tb.Fatalf("%s: not ours: %d, %v", service, reply, err)
	}
}

// Connect makes a connection to the bus, which ends with the test.
func (b Bus) Connect(tb testing.TB) *dbus.Conn {
	tb.Helper()
	conn, err := dbus.Connect(b.Address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() }) // the bus may be gone
	return conn
}

// ConnectAs makes a connection as another user. Root can: the kernel tells the bus
// who the thread is that connects (unix(7), SO_PEERCRED).
func (b Bus) ConnectAs(tb testing.TB, uid int) *dbus.Conn {
	tb.Helper()
	// The thread itself becomes the user, and root again; the library's function is for
	// all threads. It must not end: a bus that it has started would end with it.
	become := func(uid int) {
		if _, _, errno := syscall.RawSyscall(syscall.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); errno != 0 {
			tb.Fatalf("uid %d: %v", uid, errno)
		}
	}
	runtime.LockOSThread()
	become(uid)
	conn, err := dbus.Dial(b.Address)
	become(0)
	runtime.UnlockOSThread()
	if err == nil {
		err = conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(uid))})
	}
	if err == nil {
		err = conn.Hello()
	}
	if err != nil {
		tb.Fatalf("as %d: %v", uid, err)
	}
	tb.Cleanup(func() { _ = conn.Close() }) // the bus may be gone
	return conn
}

// Booting is what systemd says of the boot and of kubelet.service, which starts kubelet with its usual directory
// (org.freedesktop.systemd1(5)).
type Booting struct {
	System string // SystemState
	Load   string // LoadState of kubelet's unit
	Left   uint64 // InactiveExitTimestampMonotonic of it: 0 before its first start
	// Unit is another unit that starts kubelet, with its object's name on the bus, and Command is what it starts.
	Unit    string
	Command []string
}

// execStart is a command of a unit: a(sasasttttuii).
type execStart struct {
	Path                     string
	Argv, Flags              []string
	Begin, Began, End, Ended uint64
	PID                      uint32
	Code, Status             int32
}

// Serve puts systemd on the bus.
func (is Booting) Serve(tb testing.TB, b Bus) {
	tb.Helper()
	if is.Unit == "" {
		is.Unit = "kubelet_2eservice"
		is.Command = []string{"/usr/bin/kubelet", "--pod-manifest-path=/etc/kubernetes/manifests"}
	}
	properties := map[string]any{
		"org.freedesktop.systemd1.Manager.SystemState":                 is.System,
		"org.freedesktop.systemd1.Unit.LoadState":                      is.Load,
		"org.freedesktop.systemd1.Unit.InactiveExitTimestampMonotonic": is.Left,
		"org.freedesktop.systemd1.Unit.ActiveState":                    "active",
		"org.freedesktop.systemd1.Unit.ActiveEnterTimestampMonotonic":  uint64(0),
		"org.freedesktop.systemd1.Service.MainPID":                     uint32(0),
		"org.freedesktop.systemd1.Service.ExecStartEx": []execStart{
			{Path: is.Command[0], Argv: is.Command},
		},
		"org.freedesktop.systemd1.Service.Environment": []string{},
		"org.freedesktop.systemd1.Service.EnvironmentFiles": []struct {
			Path    string
			MayMiss bool
		}{},
		"org.freedesktop.systemd1.Service.UnsetEnvironment": []string{},
	}
	get := map[string]any{"Get": func(face, property string) (dbus.Variant, *dbus.Error) {
		value, ok := properties[face+"."+property]
		if !ok {
			return dbus.Variant{}, dbus.NewError("org.freedesktop.DBus.Error.UnknownProperty", []any{"Unknown property."})
		}
		return dbus.MakeVariant(value), nil
	}}
	conn := b.Connect(tb)
	const manager = "/org/freedesktop/systemd1"
	for _, path := range []dbus.ObjectPath{manager, dbus.ObjectPath(manager + "/unit/" + is.Unit)} {
		if err := conn.ExportMethodTable(get, path, "org.freedesktop.DBus.Properties"); err != nil {
			tb.Fatal(err)
		}
	}
	own(tb, conn, "org.freedesktop.systemd1")
}
