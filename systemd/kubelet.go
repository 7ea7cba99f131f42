// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/nodefile"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
	"github.com/kubic-project/image-update-agent/internal/node/platform"
)

const (
	// kubeletSettles is how long kubelet must be up: before, it may still be starting its pods, or end again.
	kubeletSettles = time.Minute
	// busTimeout limits an answer of the service manager.
	busTimeout = 2 * time.Second
	// bootTimeout limits it during the boot, and bootTime is how long a boot may take.
	bootTimeout = 10 * time.Second
	bootTime    = 5 * time.Minute
)

// Kubelet is kubelet's unit. A node without the unit, or without a bus, runs kubelet by
// other means and has no holds.
type Kubelet struct {
	Bus  string // D-Bus address of the system bus; empty if there is none
	Unit string // its name, for example kubelet.service
}

// Holds returns why kubelet is not ready to start a pod.
func (k Kubelet) Holds(ctx context.Context) []status.Hold {
	if k.Bus == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	unit, err := readUnit(ctx, k.Bus, k.Unit)
	switch {
	case errors.Is(err, bus.ErrNone), errors.Is(err, bus.ErrAbsent):
		return nil
	case err != nil:
		return []status.Hold{{Name: status.HoldKubelet, Reason: fmt.Sprintf("%s: %v", k.Unit, err)}}
	case unit.load == "not-found":
		return nil
	case unit.active != "active" && unit.active != "reloading":
		return []status.Hold{{Name: status.HoldKubelet, Reason: fmt.Sprintf("%s is not active: %s", k.Unit, unit.active)}}
	case unit.up < kubeletSettles:
		return []status.Hold{{Name: status.HoldKubelet, Reason: fmt.Sprintf("%s started %s ago, and has to be up for %s",
			k.Unit, unit.up.Truncate(time.Second), kubeletSettles)}}
	}
	return nil
}

// Exists reports whether the service manager has kubelet's unit.
func (k Kubelet) Exists(ctx context.Context) bool {
	if k.Bus == "" {
		return false
	}
	ctx, cancel := context.WithTimeout(ctx, busTimeout)
	defer cancel()
	unit, err := readUnit(ctx, k.Bus, k.Unit)
	return err == nil && unit.load != "not-found"
}

// IsBooted reports whether systemd is process 1 of the system below root, as sd_booted(3) does.
func IsBooted(root string) bool {
	info, err := os.Lstat(filepath.Join("/", root, "run/systemd/system"))
	return err == nil && info.IsDir()
}

// Unstarted returns an error unless kubelet has certainly not been started since the
// node booted: the boot is not over, and the existing unit was always inactive.
func (k Kubelet) Unstarted(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	conn, err := bus.Open(ctx, k.Bus)
	if err != nil {
		return fmt.Errorf("systemd cannot be asked: %w", err)
	}
	defer conn.Close()
	return joined(ctx, func() error { return k.unstarted(ctx, conn) })
}

// joined repeats a question while the manager is not on the bus: early in a boot, the bus runs before it.
func joined(ctx context.Context, ask func() error) error {
	retry := time.NewTicker(busTimeout / 20)
	defer retry.Stop()
	timeout := time.After(busTimeout)
	for {
		err := ask()
		if !errors.Is(err, bus.ErrAbsent) {
			return err
		}
		select {
		case <-timeout:
			return err
		case <-ctx.Done():
			return err
		case <-retry.C:
		}
	}
}

func (k Kubelet) unstarted(ctx context.Context, conn *bus.Conn) error {
	var system, load string
	var left uint64
	unit := unitPath(k.Unit)
	if err := read(ctx, conn, property{"/org/freedesktop/systemd1", "Manager.SystemState", &system},
		property{unit, "Unit.LoadState", &load}, property{unit, "Unit.InactiveExitTimestampMonotonic", &left}); err != nil {
		return fmt.Errorf("%s: %w", k.Unit, err)
	}
	switch {
	case load != "loaded":
		return fmt.Errorf("%s: %s", k.Unit, outside.Text(load))
	case left != 0:
		return fmt.Errorf("%s: has been started since the boot", k.Unit)
	case system != "initializing" && system != "starting":
		return fmt.Errorf("the boot is over: the system is %s", outside.Text(system))
	}
	return nil
}

type unitState struct {
	load   string        // LoadState: loaded, not-found, masked ...
	active string        // ActiveState: active, reloading, inactive, failed, activating, deactivating ...
	up     time.Duration // since it became active the last time
}

// readUnit reads the state of a unit; the manager loads it if needed (org.freedesktop.systemd1(5)).
func readUnit(ctx context.Context, address, unit string) (unitState, error) {
	conn, err := bus.Open(ctx, address)
	if err != nil {
		return unitState{}, err
	}
	defer conn.Close()
	var s unitState
	var since uint64
	path := unitPath(unit)
	if err := read(ctx, conn, property{path, "Unit.LoadState", &s.load}, property{path, "Unit.ActiveState", &s.active},
		property{path, "Unit.ActiveEnterTimestampMonotonic", &since}); err != nil {
		return s, err
	}
	s.load, s.active = outside.Text(s.load), outside.Text(s.active)
	s.up, err = uptime(since)
	return s, err
}

// property is a property of one of the manager's objects (Interface.Name), and the
// destination of its value.
type property struct {
	path, name string
	into       any
}

func read(ctx context.Context, conn *bus.Conn, properties ...property) error {
	for _, p := range properties {
		face, name, _ := strings.Cut(p.name, ".")
		if err := conn.Ask(ctx, bus.Question{
			Service: "org.freedesktop.systemd1", Path: p.path, Method: "org.freedesktop.DBus.Properties.Get",
			Args: []any{"org.freedesktop.systemd1." + face, name},
		}, p.into); err != nil {
			return err
		}
	}
	return nil
}

// uptime returns the time since a time of the monotonic clock, in microseconds.
func uptime(since uint64) (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts); err != nil {
		return 0, fmt.Errorf("monotonic clock: %w", err)
	}
	now := uint64(ts.Nano() / 1000)
	return time.Duration(now-min(now, since)) * time.Microsecond, nil
}

// unitPath returns the object path of a unit, escaped as by sd_bus_path_encode(3).
func unitPath(unit string) string {
	path := []byte("/org/freedesktop/systemd1/unit/")
	for i, c := range []byte(unit) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || i > 0 && c >= '0' && c <= '9' {
			path = append(path, c)
			continue
		}
		path = fmt.Appendf(path, "_%02x", c)
	}
	return string(path)
}

// maxCommand limits the arguments of a process, and an environment file, in bytes.
const maxCommand = 256 << 10

// ReadCommand asks the manager at a D-Bus address what a unit starts. root is the prefix of the files of its node.
func ReadCommand(ctx context.Context, address, root, unit string) platform.Command {
	patience := busTimeout
	if up, err := uptime(0); err == nil && up < bootTime {
		patience = bootTimeout
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	s, err := askCommand(ctx, address, root, unit)
	if err != nil {
		return platform.Command{Err: err}
	}
	var c platform.Command
	if s.pid > 0 {
		c.Running = arguments(filepath.Join("/", root, "proc", strconv.FormatUint(uint64(s.pid), 10), "cmdline"))
	}
	if c.Environment, c.Err = s.environment(root); c.Err == nil {
		c.Words, c.Err = s.words(c.Environment)
	}
	if c.Err != nil {
		c.Environment = nil
	}
	return c
}

// arguments reads the arguments of a process; none if it has ended.
func arguments(file string) []string {
	data, err := load(file)
	if err != nil || data == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(data, "\x00"), "\x00")
}

func load(file string) (string, error) {
	f, err := nodefile.Open(file)
	if err != nil {
		return "", err
	}
	defer f.Close()
	data, err := outside.ReadAll(f, maxCommand)
	return string(data), err
}

// starts is what the manager says about a service (org.freedesktop.systemd1(5)).
type starts struct {
	load  string
	pid   uint32
	exec  []execCommand
	env   []string // NAME=value
	files []envFile
	unset []string
}

// execCommand is a command of a unit, and envFile a file of variables, as the bus has them.
type (
	execCommand struct {
		Path                           string
		Argv, Flags                    []string
		Begin, BeginMono, End, EndMono uint64
		PID                            uint32
		Code, Status                   int32
	}
	envFile struct {
		Path    string
		MayMiss bool
	}
)

func askCommand(ctx context.Context, address, root, unit string) (s starts, err error) {
	conn, err := bus.Open(ctx, address)
	if err != nil {
		return s, err
	}
	defer conn.Close()
	path := unitPath(unit)
	isLoaded := func() error { return read(ctx, conn, property{path, "Unit.LoadState", &s.load}) }
	if err = isLoaded(); IsBooted(root) && errors.Is(err, bus.ErrAbsent) {
		err = joined(ctx, isLoaded)
	}
	if err == nil && s.load != "loaded" {
		err = errors.New(outside.Text(s.load))
	}
	if err != nil {
		return s, err
	}
	return s, read(ctx, conn, property{path, "Service.MainPID", &s.pid}, property{path, "Service.ExecStartEx", &s.exec},
		property{path, "Service.Environment", &s.env}, property{path, "Service.EnvironmentFiles", &s.files},
		property{path, "Service.UnsetEnvironment", &s.unset})
}

// words returns the program and its arguments with variables replaced: $NAME alone becomes the words of its value,
// ${NAME} a part of one word, $$ a dollar sign (src/basic/env-util.c of systemd, replace_env_argv).
func (s starts) words(env map[string]string) ([]string, error) {
	if len(s.exec) != 1 || len(s.exec[0].Argv) == 0 {
		return nil, fmt.Errorf("%d commands, want one", len(s.exec))
	}
	command := s.exec[0]
	out := []string{command.Path}
	for _, word := range command.Argv[1:] {
		name, isWhole := strings.CutPrefix(word, "$")
		switch {
		case strings.Contains(strings.Join(command.Flags, " "), "no-env-expand"):
			out = append(out, word)
		case isWhole && name != "" && !strings.ContainsAny(name[:1], "${"):
			if strings.ContainsAny(env[name], `'"\`) {
				return nil, fmt.Errorf("cannot split $%s", outside.Line(name, 128))
			}
			out = append(out, strings.Fields(env[name])...)
		default:
			out = append(out, variable().ReplaceAllStringFunc(word, func(v string) string {
				if v == "$$" {
					return "$"
				}
				return env[v[2:len(v)-1]]
			}))
		}
	}
	return out, nil
}

// variable matches a variable in a word, or an escaped dollar sign.
var variable = lazyregexp.New(`\$\$|\$\{[^}]*\}`)

// environment returns the variables of a service: those of its files override those of the unit (systemd.exec(5)).
func (s starts) environment(root string) (map[string]string, error) {
	env := map[string]string{}
	for _, assignment := range s.env {
		name, value, _ := strings.Cut(assignment, "=")
		env[name] = value
	}
	for _, file := range s.files {
		if err := readVariables(filepath.Join("/", root, file.Path), file.MayMiss, env); err != nil {
			return nil, err
		}
	}
	for _, name := range s.unset {
		delete(env, name)
	}
	return env, nil
}

// readVariables reads an EnvironmentFile. Its lines are those that packages and admins write: a name, and a value that
// is plain or wholly in quotes. What systemd reads from any other (src/basic/env-file.c) is not known here.
func readVariables(file string, mayMiss bool, env map[string]string) error {
	if strings.ContainsAny(file, "*?[") {
		return fmt.Errorf("%s: patterns are not supported", file)
	}
	text, err := load(file)
	if err != nil && (!mayMiss || !errors.Is(err, fs.ErrNotExist)) {
		return fmt.Errorf("%s: %w", file, err)
	}
	for line := range strings.Lines(text) {
		line = strings.Trim(line, " \t\r\n")
		m := assignment().FindStringSubmatch(line)
		switch {
		case strings.HasSuffix(line, `\`):
			return fmt.Errorf("%s: continued lines are not supported", file)
		case line == "" || strings.ContainsAny(line[:1], "#;"):
		case m == nil:
			return fmt.Errorf("%s: cannot parse the line with %s", file, outside.Line(strings.SplitN(line, "=", 2)[0], 64))
		default:
			env[m[1]] = m[2] + m[3] + m[4]
		}
	}
	return nil
}

// assignment matches a name with a value in double quotes, in single quotes, or plain.
var assignment = lazyregexp.New(`^([A-Za-z_][A-Za-z0-9_]*)[ \t]*=[ \t]*(?:"([^"\\]*)"|'([^'\\]*)'|([^'"\\]*))$`)
