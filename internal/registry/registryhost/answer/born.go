// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"bytes"
	"os"
	"strconv"
	"syscall"
	"time"
	"unsafe"
)

// born returns the start time of this process, which may be long before its first line: systemd counts its age from
// there. If it is unknown, born returns now.
func born() time.Time {
	now := time.Now()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return now
	}
	at, ok := startOf(stat)
	age := sinceBoot() - at
	if !ok || age < 0 {
		return now
	}
	return now.Add(-age)
}

// sinceBoot returns the time since the boot; zero if it is unknown. Package syscall has no call for the clock, and the
// sandbox hides /proc/uptime.
func sinceBoot() time.Duration {
	const clockBoottime = 7
	var t syscall.Timespec
	//nolint:gosec // G103: the system call writes its result there
	_, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockBoottime, uintptr(unsafe.Pointer(&t)), 0)
	if failed != 0 {
		return 0
	}
	return time.Duration(t.Nano())
}

// startOf returns the start time of a process, since the boot, from its stat file (proc_pid_stat(5)).
func startOf(stat []byte) (at time.Duration, ok bool) {
	const (
		field = 22 - 3 // after the name, which may contain blanks and parentheses
		tick  = time.Second / 100
	)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= field {
		return 0, false
	}
	ticks, err := strconv.ParseInt(string(fields[field]), 10, 64)
	return time.Duration(ticks) * tick, err == nil
}
