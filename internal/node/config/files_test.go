// SPDX-License-Identifier: Apache-2.0

package config

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// things in place of a configuration file, and the reported cause.
var things = map[string]struct {
	make func(t *testing.T, path string)
	want string
}{
	"directory": {func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o755)) }, "not a regular file"},
	"fifo":      {func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o600)) }, "not a regular file"},
	"dangling symlink as a directory": {func(t *testing.T, path string) {
		require.NoError(t, os.Symlink(path, path))
	}, "too many levels of symbolic links"},
	"world-writable": {func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chmod(path, 0o646))
	}, "mode 0646: others may write to it (chmod go-w)"},
	"group-writable": {func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, nil, 0o600))
		require.NoError(t, os.Chmod(path, 0o660))
	}, "mode 0660"},
	"too large": {func(t *testing.T, path string) {
		require.NoError(t, os.WriteFile(path, []byte(strings.Repeat("#", maxFile+1)), 0o600))
	}, "too large: 1048577 bytes, at most 1048576"},
}

func TestThingsInPlaceOfAFile(t *testing.T) {
	t.Parallel()
	for name, thing := range things {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, place := range []string{vendorFile, adminFile, dropIns + "/a.yaml"} {
				root := t.TempDir()
				require.NoError(t, os.MkdirAll(filepath.Dir(root+place), 0o755))
				thing.make(t, root+place)
				_, err := Load(Sources{Root: root})
				require.ErrorContains(t, err, root+place+": "+thing.want)
			}
		})
	}
}

func TestFilesOfOtherOwnersAreRejected(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/image-update-agent/config.yaml": ""})
	if os.Geteuid() != 0 {
		// Only root can give a file away; then all users own the same kind of file.
		load(t, Sources{Root: root})
		return
	}
	require.NoError(t, os.Chown(root+adminFile, 4711, 0))
	_, err := Load(Sources{Root: root})
	require.ErrorContains(t, err, root+adminFile+": owned by user 4711, want root")
}

func TestTheLargestFileIsRead(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/image-update-agent/config.yaml": "nodeName: n\n" + strings.Repeat("#", maxFile-12)})
	assert.Equal(t, "n", load(t, Sources{Root: root}).Settings.NodeName)
}

func TestASymlinkOfTheAdminIsFollowed(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/image-update-agent/real": "nodeName: n\n"})
	require.NoError(t, os.Symlink("real", root+adminFile))
	assert.Equal(t, "n", load(t, Sources{Root: root}).Settings.NodeName)
}

// A drop-in that cannot be read is not treated as missing.
func TestUnreadableDropInIsReported(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(root+dropIns, 0o755))
	require.NoError(t, os.Symlink("nowhere", root+dropIns+"/a.yaml"))
	_, err := Load(Sources{Root: root})
	require.ErrorContains(t, err, dropIns+"/a.yaml: no such file or directory")
}

func TestNamedFileMustExist(t *testing.T) {
	t.Parallel()
	_, err := Load(Sources{Root: t.TempDir(), File: "/none/config.yaml"})
	require.ErrorContains(t, err, "/none/config.yaml: no such file or directory")
	require.ErrorIs(t, err, os.ErrNotExist)
}

func TestAFileInPlaceOfTheDropIns(t *testing.T) {
	t.Parallel()
	root := tree(t, map[string]string{"etc/image-update-agent/config.d": ""})
	_, err := Load(Sources{Root: root})
	require.ErrorContains(t, err, dropIns+": not a directory")
}

func TestTooManyDropIns(t *testing.T) {
	t.Parallel()
	root := t.TempDir()
	require.NoError(t, os.MkdirAll(root+dropIns, 0o755))
	for i := range maxDropIns {
		require.NoError(t, os.WriteFile(filepath.Join(root+dropIns, "."+strings.Repeat("x", i%200+1)+string(rune('a'+i/200))), nil, 0o600))
	}
	load(t, Sources{Root: root})
	require.NoError(t, os.WriteFile(root+dropIns+"/one.yaml", nil, 0o600))
	_, err := Load(Sources{Root: root})
	require.ErrorContains(t, err, "more than 256 files")
}

func TestTooManyEntries(t *testing.T) {
	t.Parallel()
	_, err := read("x", "", "manage:\n"+strings.Repeat("  - a.yaml\n", 2*maxItems+1))
	require.ErrorContains(t, err, "manage: more than 1024 entries")
}
