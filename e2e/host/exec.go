// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/e2e/node"
)

// Command is a program to run in a booted host.
type Command struct {
	Argv  []string
	Stdin string
	User  string // empty: root. The user has their own groups only, and no session
}

// Result is the exit code and the output of a program.
type Result struct {
	Stdout, Stderr string
	Code           int
}

// Exec runs a program as root and waits for its end.
func (h *Host) Exec(argv ...string) Result {
	h.tb.Helper()
	return h.Run(Command{Argv: argv})
}

// Run runs a program and waits for its end.
func (h *Host) Run(c Command) Result {
	h.tb.Helper()
	r, err := h.run(h.tb.Context(), c)
	if err != nil {
		h.tb.Fatalf("host: %q: %v", c.Argv, err)
	}
	return r
}

// Try is Run for any goroutine: it returns the error.
func (h *Host) Try(c Command) (Result, error) { return h.run(h.tb.Context(), c) }

// Begin starts a program as root and returns at once. end waits for the program; only the test's goroutine may call it,
// any number of times.
func (h *Host) Begin(argv ...string) (end func() Result) {
	h.tb.Helper()
	var r Result
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r, err = h.run(h.tb.Context(), Command{Argv: argv})
	}()
	return func() Result {
		h.tb.Helper()
		if <-ended; err != nil {
			h.tb.Fatalf("host: %q: %v", argv, err)
		}
		return r
	}
}

// Must runs a program as root that must succeed, and returns its output without the last newline.
func (h *Host) Must(argv ...string) string {
	h.tb.Helper()
	r := h.Exec(argv...)
	if r.Code != 0 {
		h.tb.Fatalf("host: %q: exit %d: %s%s", argv, r.Code, r.Stdout, r.Stderr)
	}
	return strings.TrimSuffix(r.Stdout, "\n")
}

// run enters all namespaces of the host. It returns an error if the program could not run or took too long; a failure
// of the program itself is in the Result.
func (h *Host) run(ctx context.Context, c Command) (Result, error) {
	if h.leader == 0 {
		return Result{}, errors.New("the host is off")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, node.Patience, fmt.Errorf("still running after %s", node.Patience))
	defer cancel()
	argv := []string{
		"--target", strconv.Itoa(h.leader), "--all", "--wdns=/", "--",
		"/usr/bin/env", "-i", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LC_ALL=C.UTF-8",
	}
	if c.User != "" {
		argv = append(argv, "setpriv", "--reuid="+c.User, "--regid="+c.User, "--init-groups", "--")
	}
	program := exec.CommandContext(ctx, "nsenter", append(argv, c.Argv...)...)
	var out, said strings.Builder
	program.Stdin, program.Stdout, program.Stderr = strings.NewReader(c.Stdin), &out, &said
	err := program.Run()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.Exited() {
		err = nil
	} else if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %s%s", context.Cause(ctx), out.String(), said.String())
	}
	return Result{Stdout: out.String(), Stderr: said.String(), Code: program.ProcessState.ExitCode()}, err
}

// AddUser adds a user without privileges.
func (h *Host) AddUser(name string) {
	h.tb.Helper()
	h.Must("useradd", "--create-home", "--user-group", name)
}

// WriteFile writes a file of the host atomically, as root and with mode 0644. name is the path in the host.
func (h *Host) WriteFile(name, text string) {
	h.tb.Helper()
	if h.Booted() {
		r := h.Run(Command{Stdin: text, Argv: []string{"sh", "-euc", `mkdir -p "$(dirname "$1")"
			cat >"$1.next"; chmod 644 "$1.next"; mv "$1.next" "$1"`, "sh", name}})
		if r.Code != 0 {
			h.tb.Fatalf("host: write %s: %s", name, r.Stderr)
		}
		return
	}
	h.staged++
	staged := filepath.Join(h.node.Dir, "host/staged", strconv.Itoa(h.staged))
	if err := os.WriteFile(staged, []byte(text), 0o600); err != nil {
		h.tb.Fatalf("host: %v", err)
	}
	h.node.Shell(fmt.Sprintf("install -Dm644 %s %s", staged, filepath.Join(h.tree, name)))
}

// ReadFile reads a file of the host. name is the path in the host.
func (h *Host) ReadFile(name string) string {
	h.tb.Helper()
	if !h.Booted() {
		return h.node.Shell("cat " + filepath.Join(h.tree, name))
	}
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(h.leader), "root", name))
	if err != nil {
		h.tb.Fatalf("host: %v", err)
	}
	return string(text)
}

// Dial connects to an address as a program of the host does.
func (h *Host) Dial(ctx context.Context, network, address string) (conn net.Conn, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread and its network namespace end with the goroutine
		var file *os.File
		if file, err = os.Open(fmt.Sprintf("/proc/%d/ns/net", h.leader)); err != nil {
			return
		}
		defer file.Close()
		if err = unix.Setns(int(file.Fd()), unix.CLONE_NEWNET); err == nil {
			conn, err = new(net.Dialer).DialContext(ctx, network, address)
		}
	}()
	<-done
	return conn, err
}
