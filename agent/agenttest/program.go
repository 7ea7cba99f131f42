// SPDX-License-Identifier: Apache-2.0

package agenttest

import (
	"os"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// WriteProgram writes a program that can be executed at once. A process that another test starts meanwhile would keep
// it open for writing until its exec: go.dev/issue/22315.
func WriteProgram(t *testing.T, file, text string) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(file, []byte(text), 0o755)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
}
