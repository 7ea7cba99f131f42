// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

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
