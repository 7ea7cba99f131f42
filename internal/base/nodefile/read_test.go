// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
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

var errBad = errors.New("bad content")

// text returns a file whose value is its content.
func text(path string) *Cached[string] {
	return &Cached[string]{Path: path, Limit: limit, Parse: func(data []byte) (string, error) {
		if string(data) == "bad" {
			return "half", errBad
		}
		return string(data), nil
	}}
}

// Each change is reported once, and an unusable file has no value.
func TestCachedReadsAChangedFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	f := text(path)
	get := func(want string, wantErr error) {
		t.Helper()
		for _, first := range []bool{true, false} {
			value, changed, err := f.Get()
			assert.Equal(t, want, value)
			assert.Equal(t, first, changed)
			require.ErrorIs(t, err, wantErr)
		}
	}
	value, changed, err := f.Get()
	require.NoError(t, err)
	assert.Empty(t, value)
	assert.False(t, changed, "there never was a file")

	put(t, path, "one")
	get("one", nil)
	info, err := os.Stat(path)
	require.NoError(t, err)
	// The clock of a file system stands still for some milliseconds, in which no program tells one change from the next.
	change := func(name, content string, times ...time.Time) {
		t.Helper()
		was, err := os.Stat(name)
		require.NoError(t, err)
		require.Eventually(t, func() bool {
			put(t, name, content)
			for _, at := range times {
				assert.NoError(t, os.Chtimes(name, at, at))
			}
			is, err := os.Stat(name)
			return assert.NoError(t, err) && Stamp(is) != Stamp(was)
		}, time.Minute, time.Millisecond)
	}
	change(path, "two", info.ModTime())
	get("two", nil) // the same size and modification time
	change(path, "bad")
	get("", errBad)
	require.NoError(t, os.Rename(path, filepath.Join(dir, "away")))
	get("", nil)
	put(t, filepath.Join(dir, "target"), "three")
	require.NoError(t, os.Symlink("target", path))
	get("three", nil)
	put(t, filepath.Join(dir, "target"), "four")
	get("four", nil)
}

// A path below a file does not exist either.
func TestPathBelowAFileDoesNotExist(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "x")
	_, changed, err := text(filepath.Join(path, "below")).Get()
	require.NoError(t, err)
	assert.False(t, changed)
}
