// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// usual is where the script is.
const usual = "usr/share/caasp-container-manifests/admin-node-setup.sh"

// setupCommand is what docs/caasp.md has an admin type to take the image loop out, on this root.
func setupCommand(t *testing.T, root string) string {
	t.Helper()
	page, err := os.ReadFile("../../docs/caasp.md")
	require.NoError(t, err)
	_, rest, found := strings.Cut(string(page), "\n    script=")
	require.True(t, found)
	rest, _, _ = strings.Cut("script="+rest, "\n    chmod ")
	return strings.NewReplacer("/usr/", root+"/usr/", "/etc/", root+"/etc/").Replace(rest)
}

// takeLoopOut types it where the script is as given; empty: there is no new one.
func takeLoopOut(t *testing.T, script string) string {
	t.Helper()
	root := t.TempDir()
	for _, dir := range []string{"etc", filepath.Dir(usual)} {
		require.NoError(t, os.MkdirAll(filepath.Join(root, dir), 0o755))
	}
	require.NoError(t, os.WriteFile(filepath.Join(root, usual), []byte(script), 0o600))
	said, err := exec.CommandContext(t.Context(), "sh", "-c", setupCommand(t, root)).CombinedOutput()
	if err != nil { // of diff
		t.Logf("%v: %s", err, said)
	}
	text, err := os.ReadFile(filepath.Join(root, "etc/admin-node-setup.sh"))
	if err != nil {
		require.ErrorIs(t, err, os.ErrNotExist)
	}
	return string(text)
}

// In a file of the archive "- " begins a line of the loop, and "  " one that has to stay.
func TestTheLoopIsTakenOutOfEveryPublicScript(t *testing.T) {
	t.Parallel()
	archive, err := txtar.ParseFile("testdata/admin-node-setup.txtar")
	require.NoError(t, err)
	require.GreaterOrEqual(t, len(archive.Files), 6)
	for _, file := range archive.Files {
		t.Run(file.Name, func(t *testing.T) {
			t.Parallel()
			var script, want strings.Builder
			for line := range strings.Lines(string(file.Data)) {
				line, stays := strings.CutPrefix(line, "  ")
				line, goes := strings.CutPrefix(line, "- ")
				require.True(t, stays || goes || line == "\n", line)
				script.WriteString(line)
				if !goes {
					want.WriteString(line)
				}
			}
			require.NotEqual(t, script.String(), want.String())
			got := takeLoopOut(t, script.String())
			assert.Equal(t, want.String(), got)
		})
	}
}

// Where the end of the loop is not found, everything behind its beginning would go.
func TestAnUnknownScriptIsNotCutShort(t *testing.T) {
	t.Parallel()
	got := takeLoopOut(t, "#!/bin/sh\ntmp_dir=$(mktemp -d)\ncp a $tmp_dir\nrm -r \"$tmp_dir\"\ngen-certs.sh\n")
	assert.Empty(t, got)
}
