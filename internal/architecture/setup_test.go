// SPDX-License-Identifier: Apache-2.0

package architecture

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Downloads of tools/setup are checked against Debian's keys. debootstrap checks nothing if it finds no keyring.
func TestSetupChecksSignatures(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(filepath.Join(root, "tools/setup"))
	require.NoError(t, err)
	script := regexp.MustCompile(`(?m)\\\n\s*`).ReplaceAllString(string(data), " ")
	calls := regexp.MustCompile(`(?m)^\s*(?:if )?debootstrap .*$`).FindAllString(script, -1)
	assert.NotEmpty(t, calls)
	for _, call := range calls {
		assert.Contains(t, call, "--force-check-gpg")
		assert.Contains(t, call, `--keyring="$archive_keyring"`)
	}
	assert.Regexp(t, `(?m)^packages='[^']*\bdebian-archive-keyring\b`, string(data))
	assert.Regexp(t, `(?m)^\s*\[ -r "\$archive_keyring" \] \|\| die`, string(data), "without its keyring nothing is made")
	assert.NotRegexp(t, `no-check-gpg|trusted=yes|(?i)allow-?unauthenticated|AllowInsecure|no-gpg`, script)
}
