// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// put writes a file and creates its directories.
func put(t *testing.T, path, text string) {
	t.Helper()
	require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o755))
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
}
