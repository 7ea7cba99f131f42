// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Nobody has locked another directory, and what was held or denied is not in it.
func TestReloadMovesNoDirectory(t *testing.T) {
	t.Parallel()
	for key, moved := range map[string]string{"stateDir": "/var/lib/elsewhere", "runtimeDir": "/run/elsewhere"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			root := t.TempDir()
			file := filepath.Join(root, "etc/image-update-agent/config.yaml")
			require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
			a := &app{streams: streams{nil, io.Discard, io.Discard}, root: root}
			began, err := a.settings()
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(file, []byte(key+": "+moved+"\n"), 0o600))
			r := &reloader{app: a, began: began}
			_, err = r.reload(t.Context(), nil, slog.New(slog.DiscardHandler))
			require.ErrorContains(t, err, " to "+filepath.Join(root, moved)+": restart the daemon")
			require.ErrorContains(t, err, key+": changed from ")
			assert.NoDirExists(t, filepath.Join(root, moved))
		})
	}
}
