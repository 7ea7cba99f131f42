// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// plan and doctor change nothing, not even a record that they cannot read: it may be that of a newer daemon.
func TestVerbsThatShowLeaveTheRecord(t *testing.T) {
	t.Parallel()
	for _, verb := range [][]string{{"plan"}, {"plan", "--offline"}, {"doctor"}, {"status"}, {"history"}} {
		t.Run(strings.Join(verb, " "), func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			require.NoError(t, os.MkdirAll(filepath.Join(root, "etc/kubernetes/manifests"), 0o755))
			dir := filepath.Join(root, "var/lib/image-update-agent")
			require.NoError(t, os.MkdirAll(dir, 0o755))
			require.NoError(t, os.WriteFile(filepath.Join(dir, "record.json"), []byte(`{"version": 999}`), 0o600))
			var o, e bytes.Buffer
			execute(t.Context(), append(verb, "--root", root), streams{in: strings.NewReader(""), out: &o, err: &e})
			files, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, files, 1, "%s%s", &o, &e)
			assert.Equal(t, "record.json", files[0].Name())
		})
	}
}
