// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// runFloor returns the CPU time of cmd/floor for the same requests.
func runFloor(tb testing.TB, rounds int, host string, refs []string) time.Duration {
	tb.Helper()
	program := filepath.Join(tb.TempDir(), "floor")
	out, err := exec.CommandContext(tb.Context(), "go", "build", "-o", program, "../cmd/floor").CombinedOutput()
	require.NoError(tb, err, "%s", out)
	args := []string{strconv.Itoa(rounds)}
	for _, ref := range refs {
		repository, tag, _ := strings.Cut(strings.TrimPrefix(ref, host+"/"), ":")
		args = append(args, "http://"+host+"/v2/"+repository+"/manifests/"+tag)
	}
	cmd := exec.CommandContext(tb.Context(), program, args...)
	out, err = cmd.CombinedOutput()
	require.NoError(tb, err, "%s", out)
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

func median(values []float64) float64 {
	slices.Sort(values)
	return values[len(values)/2]
}
