// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// peer is the process that listens on a unix socket.
type peer struct {
	pid     int
	started time.Time
}

// peerOf asks the kernel who listens (unix(7), SO_PEERCRED).
func peerOf(ctx context.Context, socket string) (peer, error) {
	address := &net.UnixAddr{Name: socket, Net: "unix"}
	conn, err := new(net.Dialer).DialUnix(ctx, "unix", nil, address)
	if err != nil {
		return peer{}, err
	}
	defer func() { _ = conn.Close() }()
	raw, err := conn.SyscallConn()
	if err != nil {
		return peer{}, err
	}
	var credentials *unix.Ucred
	var asked error
	if err := raw.Control(func(fd uintptr) {
		credentials, asked = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return peer{}, err
	}
	if asked != nil {
		return peer{}, fmt.Errorf("%s: peer: %w", socket, asked)
	}
	if credentials.Pid == 0 { // of another pid namespace
		return peer{}, fmt.Errorf("%s: its process cannot be seen from here", socket)
	}
	p := peer{pid: int(credentials.Pid)}
	p.started, err = startOf(p.pid)
	return p, err
}

// ticks are what /proc counts a second in, on every architecture that the agent
// is built for (USER_HZ).
const ticks = 100

// startOf reads when a process was started (proc_pid_stat(5), field 22), in
// time since boot.
func startOf(pid int) (time.Time, error) {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return time.Time{}, err
	}
	// The second field is the name in parentheses, with whatever in it.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return time.Time{}, errors.New("/proc: stat: too short")
	}
	sinceBoot, err := strconv.ParseInt(fields[19], 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("/proc: stat: %w", err)
	}
	var now unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &now); err != nil {
		return time.Time{}, fmt.Errorf("clock: %w", err)
	}
	age := time.Duration(now.Nano()) - time.Duration(sinceBoot)*(time.Second/ticks)
	return time.Now().Add(-age), nil
}

// environment gives the variables of a process.
func (p peer) environment() (map[string]string, error) {
	data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(p.pid), "environ"))
	if err != nil {
		return nil, err
	}
	variables := map[string]string{}
	for entry := range strings.SplitSeq(string(data), "\x00") {
		if name, value, ok := strings.Cut(entry, "="); ok {
			variables[name] = value
		}
	}
	return variables, nil
}

// lookPath finds a program as the process does, in its own file system.
func (p peer) lookPath(path, program string) string {
	root := filepath.Join("/proc", strconv.Itoa(p.pid), "root")
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue // exec.LookPath takes no program from there
		}
		found := filepath.Join(dir, program)
		info, err := os.Stat(filepath.Join(root, found))
		if err == nil && info.Mode().IsRegular() && info.Mode().Perm()&0o111 != 0 {
			return found
		}
	}
	return ""
}
