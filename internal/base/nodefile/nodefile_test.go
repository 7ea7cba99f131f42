// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"bytes"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"
)

func openDir(t *testing.T, path string) *Dir {
	t.Helper()
	d, err := OpenDir(path)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, d.Close()) })
	return d
}

// put writes a file. A process that another test starts meanwhile would keep it open for writing until its exec.
func put(t *testing.T, path, content string) {
	t.Helper()
	syscall.ForkLock.RLock()
	err := os.WriteFile(path, []byte(content), 0o644)
	syscall.ForkLock.RUnlock()
	require.NoError(t, err)
}

// tree returns name, kind, mode, owner and content of everything in a directory, including temporary files.
func tree(t *testing.T, dir string) map[string]string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	found := map[string]string{}
	for _, entry := range entries {
		info, err := entry.Info()
		require.NoError(t, err)
		stat := info.Sys().(*syscall.Stat_t)
		var content []byte
		if info.Mode().IsRegular() {
			content, err = os.ReadFile(filepath.Join(dir, entry.Name()))
			require.NoError(t, err)
		}
		found[entry.Name()] = fmt.Sprintf("%v %d:%d inode %d %v %s", info.Mode(), stat.Uid, stat.Gid, stat.Ino, info.ModTime(), content)
	}
	return found
}

// unsafeFiles are things in place of a file that must not be touched: how to create them, and the error's text.
var unsafeFiles = map[string]struct {
	make func(t *testing.T, path string)
	why  string
}{
	"symlink": {func(t *testing.T, path string) {
		put(t, path+".target", "old")
		require.NoError(t, os.Symlink(filepath.Base(path)+".target", path))
	}, "symlink"},
	"symlink out of the directory": {func(t *testing.T, path string) {
		target := filepath.Join(t.TempDir(), "target")
		put(t, target, "old")
		require.NoError(t, os.Symlink(target, path))
	}, "symlink"},
	"dangling symlink": {func(t *testing.T, path string) {
		require.NoError(t, os.Symlink("nowhere", path))
	}, "symlink"},
	"directory": {func(t *testing.T, path string) { require.NoError(t, os.Mkdir(path, 0o755)) }, "directory"},
	"fifo":      {func(t *testing.T, path string) { require.NoError(t, syscall.Mkfifo(path, 0o644)) }, "fifo"},
	"socket": {func(t *testing.T, path string) {
		listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, listener.Close()) })
	}, "socket"},
	"device": {func(t *testing.T, path string) {
		require.NoError(t, unix.Mknod(path, unix.S_IFCHR|0o644, int(unix.Mkdev(1, 3))))
	}, "device"},
	"world-writable": {func(t *testing.T, path string) {
		put(t, path, "old")
		require.NoError(t, os.Chmod(path, 0o646))
	}, "others may write to it"},
	"group-writable": {func(t *testing.T, path string) {
		put(t, path, "old")
		require.NoError(t, os.Chmod(path, 0o664))
	}, "others may write to it"},
	"foreign-owned": {func(t *testing.T, path string) {
		put(t, path, "old")
		require.NoError(t, os.Chown(path, 4711, 0))
	}, "owned by user 4711"},
}

func TestUnsafeFilesAreNotTouched(t *testing.T) {
	t.Parallel()
	for name, unsafe := range unsafeFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := openDir(t, dir)
			put(t, filepath.Join(dir, "file"), "old")
			was, err := d.Read("file", 10)
			require.NoError(t, err)
			require.NoError(t, os.Remove(filepath.Join(dir, "file")))
			unsafe.make(t, filepath.Join(dir, "file"))
			before := tree(t, dir)

			_, readErr := d.Read("file", 10)
			_, writeErr := d.Write("file", []byte("new"), Options{})
			_, swapErr := d.Write("file", []byte("new"), Options{Expect: &was})
			_, newErr := d.Write("file", []byte("new"), Options{Expect: &File{}})
			// Equal bytes are not a reason to accept the file.
			_, equalErr := d.Write("file", []byte("old"), Options{})
			for what, err := range map[string]error{
				"read": readErr, "write": writeErr, "swap": swapErr, "new": newErr, "equal": equalErr,
				"remove": d.Remove("file", nil), "remove expected": d.Remove("file", &was), "set aside": d.SetAside("file", was),
			} {
				require.ErrorIs(t, err, ErrUnsafe, what)
				require.ErrorContains(t, err, unsafe.why, what)
			}
			require.Equal(t, before, tree(t, dir))
		})
	}
}

func TestUnsafeDirectoriesAreNotOpened(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, change := range map[string]func(string) error{
		"foreign":        func(path string) error { return os.Chown(path, 4711, 0) },
		"group-writable": func(path string) error { return os.Chmod(path, 0o775) },
		"sticky":         func(path string) error { return os.Chmod(path, 0o777|fs.ModeSticky) },
	} {
		path := filepath.Join(dir, name)
		require.NoError(t, os.Mkdir(path, 0o755))
		require.NoError(t, change(path))
		_, err := OpenDir(path)
		require.ErrorIs(t, err, ErrUnsafe, name)
	}
	put(t, filepath.Join(dir, "file"), "")
	_, err := OpenDir(filepath.Join(dir, "file"))
	require.ErrorContains(t, err, "not a directory")
	_, err = OpenDir(filepath.Join(dir, "none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestReadReturnsContentAndAttributes(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	put(t, filepath.Join(dir, "file"), "content")
	require.NoError(t, os.Chmod(filepath.Join(dir, "file"), 0o640))
	require.NoError(t, os.Chown(filepath.Join(dir, "file"), 0, 42))

	file, err := d.Read("file", 7)
	require.NoError(t, err)
	assert.Equal(t, "content", string(file.Data))
	assert.Equal(t, fs.FileMode(0o640), file.Mode)
	assert.Equal(t, []int{0, 42}, []int{file.UID, file.GID})
	assert.True(t, file.Exists())

	_, err = d.Read("file", 6)
	require.ErrorIs(t, err, ErrTooLarge)
	none, err := d.Read("none", 7)
	require.ErrorIs(t, err, fs.ErrNotExist)
	assert.False(t, none.Exists())
}

func TestWriteCreatesWithTheModeAsked(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	for name, mode := range map[string]fs.FileMode{"default": 0, "open": 0o666 &^ 0o022, "closed": 0o400} {
		written, err := d.Write(name, []byte("content"), Options{Mode: mode, Expect: &File{}})
		require.NoError(t, err)
		require.True(t, written)
		info, err := os.Stat(filepath.Join(dir, name))
		require.NoError(t, err)
		want := mode
		if want == 0 {
			want = 0o600
		}
		assert.Equal(t, want, info.Mode())
	}
	assert.Len(t, tree(t, dir), 3, "no temporary file is left")
}

func TestWriteKeepsModeOwnerAndLabelButNotTheTime(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	put(t, path, "old")
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, os.Chown(path, 0, 42))
	require.NoError(t, label(path))
	long := syscall.NsecToTimeval(0)
	require.NoError(t, syscall.Utimes(path, []syscall.Timeval{long, long}))

	written, err := openDir(t, dir).Write("file", []byte("new"), Options{Mode: 0o600})
	require.NoError(t, err)
	require.True(t, written)

	info, err := os.Stat(path)
	require.NoError(t, err)
	stat := info.Sys().(*syscall.Stat_t)
	assert.Equal(t, fs.FileMode(0o640), info.Mode())
	assert.Equal(t, []uint32{0, 42}, []uint32{stat.Uid, stat.Gid})
	assert.NotZero(t, info.ModTime().Unix())
	value := make([]byte, 100)
	size, err := unix.Getxattr(path, "security.selinux", value)
	require.NoError(t, err)
	assert.Equal(t, "system_u:object_r:etc_t:s0\x00", string(value[:size]))
}

func TestEqualBytesAreNotWritten(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	put(t, filepath.Join(dir, "file"), "same")
	put(t, filepath.Join(dir, "empty"), "")
	was, err := d.Read("file", 10)
	require.NoError(t, err)
	before := tree(t, dir)
	for name, content := range map[string]string{"file": "same", "empty": ""} {
		written, err := d.Write(name, []byte(content), Options{})
		require.NoError(t, err)
		require.False(t, written)
	}
	written, err := d.Write("file", []byte("same"), Options{Expect: &was})
	require.NoError(t, err)
	require.False(t, written)
	require.Equal(t, before, tree(t, dir))
}

func TestAHardLinkedFileKeepsItsOtherName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), "old")
	require.NoError(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, "backup")))
	_, err := openDir(t, dir).Write("file", []byte("new"), Options{})
	require.NoError(t, err)
	backup, err := os.ReadFile(filepath.Join(dir, "backup"))
	require.NoError(t, err)
	assert.Equal(t, "old", string(backup), "the write must not go through the link")
}

func TestRemove(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	put(t, filepath.Join(dir, "file"), "old")
	was, err := d.Read("file", 10)
	require.NoError(t, err)
	require.NoError(t, d.Remove("file", &was))
	require.Empty(t, tree(t, dir))
	require.NoError(t, d.Remove("file", nil), "gone is what was asked for")
	require.ErrorIs(t, d.Remove("file", &was), ErrConflict)

	put(t, filepath.Join(dir, "file"), "foreign")
	require.ErrorIs(t, d.Remove("file", &was), ErrConflict)
	require.Len(t, tree(t, dir), 1)
}

func TestListReturnsVisibleNamesSorted(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	for _, name := range []string{"b.yaml", "a.yaml", ".hidden", "ä"} {
		put(t, filepath.Join(dir, name), "")
	}
	for range 2 {
		names, err := d.List()
		require.NoError(t, err)
		require.Equal(t, []string{"a.yaml", "b.yaml", "ä"}, names)
	}
}

func TestListIsBounded(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	for i := range maxNames {
		put(t, filepath.Join(dir, fmt.Sprint(i)), "")
	}
	names, err := d.List()
	require.NoError(t, err)
	require.Len(t, names, maxNames)
	put(t, filepath.Join(dir, "one more"), "")
	_, err = d.List()
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestSweepRemovesOnlyTemporaryFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	foreign := []string{
		"file", ".hidden", ".file.image-update-agent-", ".file.image-update-agent-0123456789abcde",
		"file.image-update-agent-0123456789abcdef", ".image-update-agent-0123456789abcdeg",
	}
	for _, name := range foreign {
		put(t, filepath.Join(dir, name), "foreign")
	}
	require.NoError(t, os.Mkdir(filepath.Join(dir, ".dir.image-update-agent-0123456789abcdef"), 0o755))
	before := tree(t, dir)
	left := []string{temporaryName("file"), temporaryName(strings.Repeat("x", maxName)), temporaryName("a\u00e4.yaml")}
	for _, name := range left {
		put(t, filepath.Join(dir, name), "left over")
	}
	require.NoError(t, d.Sweep())
	require.Equal(t, before, tree(t, dir))
	require.NoError(t, d.Sweep(), "nothing left to do")
}

var badNames = []string{
	"", ".", "..", ".hidden", "a/b", "/etc/passwd", "../x", "a\nb", "a\x00b", "a\x7fb", "\xff", strings.Repeat("x", 256),
}

func TestBadNamesAreRefused(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	for _, name := range badNames {
		_, err := d.Read(name, 1)
		require.ErrorIs(t, err, ErrName, "%q", name)
		_, err = d.Write(name, nil, Options{})
		require.ErrorIs(t, err, ErrName, "%q", name)
		require.ErrorIs(t, d.Remove(name, nil), ErrName, "%q", name)
	}
	require.Empty(t, tree(t, dir))
}

func TestPropertyNamesAreRejectedOrStayInTheDirectory(t *testing.T) {
	t.Parallel()
	parent := t.TempDir()
	dir := filepath.Join(parent, "dir")
	require.NoError(t, os.Mkdir(dir, 0o755))
	d := openDir(t, dir)
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.OneOf(
			rapid.String(),
			rapid.StringMatching(`[./a-c \x00-\x1f]{0,6}`),
			rapid.StringMatching(`[a-zä]{120,260}`),
			rapid.SampledFrom(badNames),
		).Draw(t, "name")
		data := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "data")
		before := names(t, dir)
		written, err := d.Write(name, data, Options{Expect: &File{}})
		if err != nil {
			require.ErrorIs(t, err, ErrName)
			require.ErrorIs(t, CheckName(name), ErrName)
			require.Equal(t, before, names(t, dir))
			return
		}
		require.True(t, written)
		require.Equal(t, []string{name}, names(t, dir))
		require.Equal(t, []string{"dir"}, names(t, parent))
		file, err := d.Read(name, 100)
		require.NoError(t, err)
		require.True(t, bytes.Equal(data, file.Data))
		require.NoError(t, d.Remove(name, &file))
	})
}

func names(t require.TestingT, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	found := []string{}
	for _, entry := range entries {
		found = append(found, entry.Name())
	}
	return found
}
