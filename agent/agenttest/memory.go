// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// PeakMemory runs a benchmark's work, collecting garbage as the daemon does, and reports the peak growth of the process
// in MB as the kernel counts it. Nothing else may run in the process.
func PeakMemory(b *testing.B, run func()) {
	b.Helper()
	defer debug.SetGCPercent(debug.SetGCPercent(25))
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	most := 0.0
	for b.Loop() {
		debug.FreeOSMemory()
		before := resident(b, "VmRSS:")
		// 5 resets the peak: proc_pid_clear_refs(5).
		require.NoError(b, os.WriteFile("/proc/self/clear_refs", []byte("5"), 0o200))
		run()
		most = max(most, resident(b, "VmHWM:")-before)
	}
	b.ReportMetric(most, "MB-above-idle")
}

// resident returns a line of proc_pid_status(5), in MB.
func resident(b *testing.B, key string) float64 {
	b.Helper()
	text, err := os.ReadFile("/proc/self/status")
	require.NoError(b, err)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == key {
			kilobytes, err := strconv.Atoi(fields[1])
			require.NoError(b, err)
			return float64(kilobytes) * 1024 / 1e6
		}
	}
	require.FailNow(b, "no line "+key)
	return 0
}
