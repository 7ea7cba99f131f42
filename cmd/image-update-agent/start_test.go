// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestPackagesDoLittleAtTheStart limits what each package of the module allocates before main: every command, and each
// start of a program by systemd, waits for it. What needs more is made on first use, as internal/base/lazyregexp does.
func TestPackagesDoLittleAtTheStart(t *testing.T) {
	t.Parallel()
	const most = 450 // tags, which may import only the standard library, has 394, and 401 without inlining
	program, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), program, "-test.run=^$")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err)
	line := regexp.MustCompile(`(?m)^init (\S+) @.*, (\d+) allocs$`)
	found := 0
	for _, m := range line.FindAllStringSubmatch(string(out), -1) {
		if !strings.HasPrefix(m[1], "github.com/kubic-project/") || strings.Contains(m[1], "/tools/") {
			continue
		}
		found++
		allocations, err := strconv.Atoi(m[2])
		require.NoError(t, err)
		assert.LessOrEqual(t, allocations, most, m[1])
	}
	require.Greater(t, found, 10, "%s", out)
}
