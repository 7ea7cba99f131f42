// SPDX-License-Identifier: Apache-2.0

package systemd

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/coreos/go-systemd/v22/unit"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// settingsOf returns a unit's settings by "Section.Key".
func settingsOf(t *testing.T, name string) map[string]string {
	t.Helper()
	file, err := os.Open(name)
	require.NoError(t, err)
	defer file.Close()
	found, err := unit.DeserializeOptions(file)
	require.NoError(t, err)
	by := map[string]string{}
	for _, o := range found {
		require.NotEmpty(t, o.Value, o.Name)
		require.NotContains(t, by, o.Section+"."+o.Name)
		by[o.Section+"."+o.Name] = o.Value
	}
	return by
}

// A hook of an admin is no dependency: neither the daemon nor a boot waits for it.
func TestNothingWaitsForTheHook(t *testing.T) {
	t.Parallel()
	for _, name := range []string{HookPath, HookService} {
		for key := range settingsOf(t, name) {
			assert.NotRegexp(t, `^Unit\.(Before|Requires|RequiredBy|BindsTo|Upholds|OnFailure)$`, key, name)
		}
	}
	assert.NotContains(t, settingsOf(t, HookService), "Service.Restart", "older systemd refuses a oneshot with it")
}

func TestHookUnitsAreValid(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "image-update-agent"), nil, 0o700))
	args := []string{"verify", "--man=no"}
	for _, name := range []string{HookPath, HookService} {
		text, err := os.ReadFile(name)
		require.NoError(t, err)
		file := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(file, []byte(strings.ReplaceAll(string(text), "/usr/bin/", dir+"/")), 0o600))
		args = append(args, file)
	}
	said, err := exec.CommandContext(t.Context(), "systemd-analyze", args...).CombinedOutput()
	require.NoError(t, err, string(said))
	assert.Empty(t, string(said), "systemd only warns of an unknown key")
}
