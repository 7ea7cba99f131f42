// SPDX-License-Identifier: Apache-2.0

package localhost

import (
	"bytes"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// born is when this process was started, of which its first line may be far: systemd counts its age from then on. Where
// it cannot be known it is now.
func born() time.Time {
	now := time.Now()
	stat, err := os.ReadFile("/proc/self/stat")
	if err != nil {
		return now
	}
	var sinceBoot unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &sinceBoot); err != nil {
		return now
	}
	at, ok := startOf(stat)
	age := time.Duration(sinceBoot.Nano()) - at
	if !ok || age < 0 {
		return now
	}
	return now.Add(-age)
}

// startOf is when a process was started, since the boot, by its file stat (proc_pid_stat(5)).
func startOf(stat []byte) (at time.Duration, ok bool) {
	const (
		field = 22 - 3 // after the name, which may have blanks and parentheses
		tick  = time.Second / 100
	)
	fields := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
	if len(fields) <= field {
		return 0, false
	}
	ticks, err := strconv.ParseInt(string(fields[field]), 10, 64)
	return time.Duration(ticks) * tick, err == nil
}
