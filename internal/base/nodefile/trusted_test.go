// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

const limit = 10

// Anything but a small regular file is rejected by each way of reading, before it blocks or is opened.
func TestOnlySmallRegularFilesAreRead(t *testing.T) {
	t.Parallel()
	for title, c := range map[string]struct {
		make func(path string) error
		want string // empty: it is read
	}{
		"empty":            {func(path string) error { return os.WriteFile(path, nil, 0o600) }, ""},
		"at the limit":     {func(path string) error { return os.WriteFile(path, bytes.Repeat([]byte("x"), limit), 0o600) }, ""},
		"over the limit":   {func(path string) error { return os.WriteFile(path, make([]byte, limit+1), 0o600) }, "too large: 11 bytes, at most 10"},
		"no size, endless": {func(path string) error { return os.Symlink("/proc/self/maps", path) }, "too large: over 10 bytes"},
		"directory":        {func(path string) error { return os.Mkdir(path, 0o700) }, "not a regular file"},
		"FIFO":             {func(path string) error { return syscall.Mkfifo(path, 0o600) }, "not a regular file"},
		"device":           {func(path string) error { return os.Symlink("/dev/zero", path) }, "not a regular file"},
		"link to itself":   {func(path string) error { return os.Symlink(path, path) }, "too many levels of symbolic links"},
	} {
		t.Run(title, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "file")
			require.NoError(t, c.make(path))
			_, err := Read(path, limit)
			_, changed, fileErr := text(path).Get()
			assert.True(t, changed)
			checkErr := Check(path, limit)
			if c.want == "" {
				require.NoError(t, err)
				require.NoError(t, fileErr)
				require.NoError(t, checkErr)
				return
			}
			require.EqualError(t, err, c.want)
			assert.ErrorContains(t, fileErr, c.want)
			assert.ErrorContains(t, fileErr, path)
			if title != "no size, endless" { // detected only by reading
				require.EqualError(t, checkErr, path+": "+c.want)
			}
		})
	}
}

func TestErrorsHaveAKind(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	_, err := Read(path, limit)
	require.ErrorIs(t, err, fs.ErrNotExist)
	require.NoError(t, Check(path, limit), "a file that does not exist is fine")
	put(t, path, "more than ten bytes")
	_, err = Read(path, limit)
	require.ErrorIs(t, err, outside.ErrTooLarge)
}

// owned is a file of a user.
type owned struct {
	fs.FileInfo
	uid uint32
}

func (o owned) Sys() any { return &syscall.Stat_t{Uid: o.uid} }

// The users who could have written a file decide whether the agent trusts it.
func TestOwners(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "x")
	info, err := os.Stat(path)
	require.NoError(t, err)
	me := uint32(os.Geteuid())
	require.NoError(t, checkOwner(owned{info, 0}))
	require.NoError(t, checkOwner(owned{info, me}))
	require.ErrorContains(t, checkOwner(owned{info, me + 1000}), fmt.Sprintf("owned by user %d, want root", me+1000))
	for mode, fine := range map[fs.FileMode]bool{0o600: true, 0o644: true, 0o440: true, 0o620: false, 0o602: false, 0o666: false} {
		require.NoError(t, os.Chmod(path, mode))
		_, err := Read(path, limit)
		_, _, fileErr := text(path).Get()
		if fine {
			require.NoError(t, err)
			require.NoError(t, fileErr)
			continue
		}
		require.ErrorContains(t, err, fmt.Sprintf("mode %#o: others may write", mode))
		require.ErrorContains(t, fileErr, "others may write")
		unchecked := text(path)
		unchecked.AnyOwner = true
		value, _, err := unchecked.Get()
		require.NoError(t, err)
		assert.Equal(t, "x", value)
	}
}

// Opening anything else may block, or have side effects.
func TestOnlyARegularFileIsOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600))
	require.NoError(t, os.Symlink("file", filepath.Join(dir, "link")))
	require.NoError(t, os.Symlink("/dev/zero", filepath.Join(dir, "device")))
	require.NoError(t, syscall.Mkfifo(filepath.Join(dir, "fifo"), 0o600))
	for name, want := range map[string]string{
		"file": "", "link": "", "device": "not a regular file", "fifo": "not a regular file", ".": "not a regular file",
		"gone": "no such file",
	} {
		file, err := Open(filepath.Join(dir, name))
		if want != "" {
			require.ErrorContains(t, err, want, name)
			continue
		}
		require.NoError(t, err, name)
		require.NoError(t, file.Close())
	}
}
