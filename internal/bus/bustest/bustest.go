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
	"strings"
	"syscall"
	"testing"

	"github.com/godbus/dbus/v5"
)

// config lets everybody do everything, and starts services as its own children.
const config = `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>session</type>
  <listen>unix:path=%s</listen>
  <auth>EXTERNAL</auth>
  <servicedir>%s</servicedir>
  <policy context="default">
    <allow send_destination="*" eavesdrop="true"/>
    <allow own="*"/>
    <allow eavesdrop="true"/>
    %s
  </policy>
</busconfig>
`

// Bus is a running bus.
type Bus struct {
	Address string
	// Services is where the files of services lie that the bus can start.
	Services string

	file, socket string
}

// Start runs a dbus-daemon until the test ends. It listens on a socket of that
// path; empty: in a directory of its own.
func Start(tb testing.TB, socket string) Bus {
	tb.Helper()
	dir := tb.TempDir()
	if socket == "" {
		socket = filepath.Join(dir, "bus")
	}
	b := Bus{Services: filepath.Join(dir, "services"), file: filepath.Join(dir, "bus.conf"), socket: socket}
	for _, err := range []error{
		os.Mkdir(b.Services, 0o755), os.MkdirAll(filepath.Dir(socket), 0o755),
		b.configure(""),
	} {
		if err != nil {
			tb.Fatal(err)
		}
	}
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
	tb.Cleanup(func() {
		_ = daemon.Process.Kill() // it may be gone
		_ = daemon.Wait()         // of what was killed
	})
	address, err := bufio.NewReader(out).ReadString('\n') // it listens now
	if err != nil {
		tb.Fatalf("dbus-daemon: %v", err)
	}
	b.Address, _, _ = strings.Cut(strings.TrimSpace(address), ",guid=")
	return b
}

// Startable makes a name that the bus starts a command for.
func (b Bus) Startable(tb testing.TB, name, command string) {
	tb.Helper()
	text := fmt.Sprintf("[D-BUS Service]\nName=%s\nExec=%s\n", name, command)
	if err := os.WriteFile(filepath.Join(b.Services, name+".service"), []byte(text), 0o644); err != nil {
		tb.Fatal(err)
	}
	b.reload(tb)
}

// Deny keeps everybody from calling a service, as a policy of the system bus may.
func (b Bus) Deny(tb testing.TB, service string) {
	tb.Helper()
	if err := b.configure(fmt.Sprintf(`<deny send_destination=%q/>`, service)); err != nil {
		tb.Fatal(err)
	}
	b.reload(tb)
}

// configure writes the configuration, with one more rule.
func (b Bus) configure(rule string) error {
	return os.WriteFile(b.file, fmt.Appendf(nil, config, b.socket, b.Services, rule), 0o644)
}

func (b Bus) reload(tb testing.TB) {
	tb.Helper()
	conn := b.connect(tb)
	if err := conn.BusObject().CallWithContext(tb.Context(), "org.freedesktop.DBus.ReloadConfig", 0).Err; err != nil {
		tb.Fatal(err)
	}
}

// Serve has an object of a service answer with methods, by name, until the test
// ends or the connection is closed. A method is a function with a *dbus.Error as
// its last result.
func (b Bus) Serve(tb testing.TB, service, path, face string, methods map[string]any) *dbus.Conn {
	tb.Helper()
	conn := b.connect(tb)
	if err := conn.ExportMethodTable(methods, dbus.ObjectPath(path), face); err != nil {
		tb.Fatal(err)
	}
	reply, err := conn.RequestName(service, dbus.NameFlagDoNotQueue)
	if err != nil || reply != dbus.RequestNameReplyPrimaryOwner {
		tb.Fatalf("%s: not ours: %d, %v", service, reply, err)
	}
	return conn
}

func (b Bus) connect(tb testing.TB) *dbus.Conn {
	tb.Helper()
	conn, err := dbus.Connect(b.Address)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = conn.Close() }) // the bus may be gone
	return conn
}
