// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// A webhook that is removed from the configuration leaves no data, and is new if it is configured again.
func TestRemovedConsumerIsForgotten(t *testing.T) {
	t.Parallel()
	all := []string{Programs, "chat", "chat.old", "json"}
	for _, c := range []struct{ kept, gone []string }{
		{kept: all},
		{kept: []string{Programs, "chat"}, gone: []string{"chat.old", "json"}},
		{kept: []string{"chat"}, gone: []string{Programs, "chat.old", "json"}},
		{gone: all},
	} {
		d := New(t.TempDir(), t.TempDir(), all...)
		require.NoError(t, d.Announce(t.Context(), running("staged", "1", "2", true)))
		for _, consumer := range all {
			_, delivered, err := d.Change(consumer)
			require.NoError(t, err)
			require.NoError(t, delivered())
		}
		require.NoError(t, d.Ended(map[string]error{Programs: errRefused}, time.Now()))
		others := []string{"status.json", "hookjson", "hook..json", "hook.a.json.bak", "ahook.a.json"}
		for _, name := range others {
			require.NoError(t, os.WriteFile(filepath.Join(d.stateDir, name), nil, 0o600))
		}
		next := New(d.stateDir, d.runtimeDir, c.kept...)
		require.NoError(t, next.Note(t.Context(), running("staged", "1", "2", true)))
		for _, consumer := range c.kept {
			assert.FileExists(t, filepath.Join(d.stateDir, deliveredFile(consumer)))
		}
		for _, consumer := range c.gone {
			assert.NoFileExists(t, filepath.Join(d.stateDir, deliveredFile(consumer)))
		}
		for _, name := range others {
			assert.FileExists(t, filepath.Join(d.stateDir, name))
		}
		assert.Equal(t, len(c.kept) == 0, len(next.retries().Of) == 0, "without hooks nothing is tried again")
	}
}
