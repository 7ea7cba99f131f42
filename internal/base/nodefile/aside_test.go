// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const hiddenFile = ".file.image-update-agent-aside"

func setAside(d *Dir, name string) error {
	was, err := d.Read(name, 1<<20)
	if err != nil {
		return err
	}
	return d.SetAside(name, was)
}

// contents returns the files of a directory, including dot-names.
func contents(t require.TestingT, dir string) map[string]string {
	found := map[string]string{}
	for _, name := range names(t, dir) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		found[name] = string(data)
	}
	return found
}

func TestPutBackRestoresTheFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	path := filepath.Join(dir, "file")
	put(t, path, "content")
	require.NoError(t, os.Chmod(path, 0o640))
	require.NoError(t, os.Chown(path, 0, 42))
	before := tree(t, dir)
	require.NoError(t, setAside(d, "file"))
	require.Equal(t, []string{hiddenFile}, names(t, dir))
	require.Equal(t, before["file"], tree(t, dir)[hiddenFile])
	require.NoError(t, d.Sweep())
	require.Equal(t, []string{hiddenFile}, names(t, dir), "it is no temporary file")
	back, err := d.PutBack()
	require.NoError(t, err)
	require.Equal(t, []string{"file"}, back)
	require.Equal(t, before, tree(t, dir))
}

// interrupted are states left by processes killed in SetAside, in PutBack or between them, and changed by others; each
// ends with one file.
var interrupted = map[string]struct {
	found map[string]string
	links bool // both names are the same file
	want  string
	back  []string
}{
	"before the rename":                {found: map[string]string{"file": "old"}, want: "old"},
	"after the rename":                 {found: map[string]string{hiddenFile: "old"}, want: "old", back: []string{"file"}},
	"written anew":                     {found: map[string]string{hiddenFile: "old", "file": "new"}, want: "new"},
	"written anew, equal":              {found: map[string]string{hiddenFile: "old", "file": "old"}, want: "old"},
	"emptied by a person":              {found: map[string]string{hiddenFile: "old", "file": ""}, want: ""},
	"between link and unlink":          {found: map[string]string{"file": "old"}, links: true, want: "old"},
	"the next write was under way":     {found: map[string]string{hiddenFile: "old", temporaryName("file"): "ne"}, want: "old", back: []string{"file"}},
	"the copy was about to be removed": {found: map[string]string{"file": "new", temporaryName("file"): "old"}, want: "new"},
}

func TestInterruptedSetAsideEndsInOneFile(t *testing.T) {
	t.Parallel()
	for name, state := range interrupted {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for _, again := range []bool{false, true} {
				dir := t.TempDir()
				d := openDir(t, dir)
				for name, data := range state.found {
					put(t, filepath.Join(dir, name), data)
				}
				if state.links {
					require.NoError(t, os.Link(filepath.Join(dir, "file"), filepath.Join(dir, hiddenFile)))
				}
				back := state.back
				if _, there := state.found["file"]; there && again {
					require.NoError(t, setAside(d, "file"), "it may be set aside anew")
					require.NoFileExists(t, filepath.Join(dir, "file"))
					back = []string{"file"}
				}
				got, err := d.PutBack()
				require.NoError(t, err)
				require.Equal(t, back, got)
				require.NoError(t, d.Sweep())
				require.Equal(t, map[string]string{"file": state.want}, contents(t, dir))
			}
		})
	}
}

func TestUnsafeDotNameIsLeftAlone(t *testing.T) {
	t.Parallel()
	for name, thing := range unsafeFiles {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := openDir(t, dir)
			thing.make(t, filepath.Join(dir, hiddenFile))
			put(t, filepath.Join(dir, ".z.image-update-agent-aside"), "z")
			hidden := tree(t, dir)[hiddenFile]
			back, err := d.PutBack()
			require.ErrorIs(t, err, ErrUnsafe)
			require.ErrorContains(t, err, thing.why)
			require.ErrorContains(t, err, hiddenFile)
			require.Equal(t, []string{"z"}, back, "one bad name keeps no other")
			require.NoFileExists(t, filepath.Join(dir, "file"))

			put(t, filepath.Join(dir, "file"), "new")
			_, err = d.PutBack()
			require.ErrorIs(t, err, ErrUnsafe)
			require.ErrorIs(t, setAside(d, "file"), ErrUnsafe)
			require.Equal(t, hidden, tree(t, dir)[hiddenFile])
			require.FileExists(t, filepath.Join(dir, "file"))
		})
	}
}

// Something with the name that is not a regular file may be ignored by readers of the directory: the copy stays.
func TestTheOnlyCopyIsKept(t *testing.T) {
	t.Parallel()
	for name, occupy := range map[string]func(string) error{
		"directory":        func(path string) error { return os.Mkdir(path, 0o755) },
		"dangling symlink": func(path string) error { return os.Symlink("nowhere", path) },
		"fifo":             func(path string) error { return syscall.Mkfifo(path, 0o600) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := openDir(t, dir)
			put(t, filepath.Join(dir, hiddenFile), "old")
			require.NoError(t, occupy(filepath.Join(dir, "file")))
			before := tree(t, dir)
			back, err := d.PutBack()
			require.ErrorIs(t, err, ErrUnsafe)
			require.Empty(t, back)
			require.Equal(t, before, tree(t, dir))
			require.NoError(t, os.Remove(filepath.Join(dir, "file")))
			back, err = d.PutBack()
			require.NoError(t, err)
			require.Equal(t, []string{"file"}, back)
		})
	}
}

// Between the check of the name and the removal of the copy, the file was set aside again: the copy is the only one
// now.
func TestCopyThatBecameTheOnlyOneIsRestored(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	put(t, filepath.Join(dir, hiddenFile), "new")
	back, err := d.discard(hiddenFile, "file")
	require.NoError(t, err)
	require.True(t, back)
	require.Equal(t, map[string]string{"file": "new"}, contents(t, dir))
	back, err = d.discard(hiddenFile, "file")
	require.NoError(t, err, "another process was first")
	require.False(t, back)
}

func TestOnlyOurDotNamesArePutBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	for _, name := range []string{
		".image-update-agent-aside", "..image-update-agent-aside", "...image-update-agent-aside",
		"..file.image-update-agent-aside", ".fi\nle.image-update-agent-aside", ".\xff.image-update-agent-aside",
		"file.image-update-agent-aside", ".file.image-update-agent-asides", ".file.old", temporaryName("file"),
	} {
		put(t, filepath.Join(dir, name), "foreign")
	}
	before := tree(t, dir)
	back, err := d.PutBack()
	require.NoError(t, err)
	require.Empty(t, back)
	require.Equal(t, before, tree(t, dir))
}

func TestSetAsideName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	longest := strings.Repeat("x", 229)
	all := []string{"a", "a.image-update-agent-aside", "a.image-update-agent-aside.image-update-agent-aside", "\u00e4 b.yaml", longest}
	for _, name := range all {
		put(t, filepath.Join(dir, name), name)
		require.NoError(t, setAside(d, name))
	}
	for name := range contents(t, dir) {
		require.True(t, strings.HasPrefix(name, "."), name)
	}
	back, err := d.PutBack()
	require.NoError(t, err)
	require.Equal(t, all[:3], back[:3], "sorted by name")
	require.ElementsMatch(t, all, back)
	for name, data := range contents(t, dir) {
		require.Equal(t, name, data)
	}

	put(t, filepath.Join(dir, longest+"x"), "too long")
	require.ErrorIs(t, setAside(d, longest+"x"), ErrName)
	require.FileExists(t, filepath.Join(dir, longest+"x"))
	for _, name := range badNames {
		require.ErrorIs(t, d.SetAside(name, File{}), ErrName, "%q", name)
	}
}

func TestSetAsideOnAFullDisk(t *testing.T) {
	dir := smallDisk(t)
	d, err := OpenDir(dir)
	require.NoError(t, err)
	defer func() { assert.NoError(t, d.Close()) }()
	put(t, filepath.Join(dir, "file"), "content")
	require.ErrorIs(t, os.WriteFile(filepath.Join(dir, "filler"), make([]byte, 1<<20), 0o600), syscall.ENOSPC)
	before := tree(t, dir)
	require.NoError(t, setAside(d, "file"))
	_, err = d.Write("file", []byte("new"), Options{Expect: &File{}})
	require.ErrorIs(t, err, syscall.ENOSPC)
	back, err := d.PutBack()
	require.NoError(t, err)
	require.Equal(t, []string{"file"}, back)
	require.Equal(t, before, tree(t, dir))
}

func TestSetAsideOnAReadOnlyDisk(t *testing.T) {
	dir := smallDisk(t)
	put(t, filepath.Join(dir, "file"), "content")
	put(t, filepath.Join(dir, ".other.image-update-agent-aside"), "aside")
	put(t, filepath.Join(dir, ".both.image-update-agent-aside"), "aside")
	put(t, filepath.Join(dir, "both"), "new")
	require.NoError(t, syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	d, err := OpenDir(dir)
	require.NoError(t, err)
	defer func() { assert.NoError(t, d.Close()) }()
	before := tree(t, dir)
	require.ErrorIs(t, setAside(d, "file"), syscall.EROFS)
	back, err := d.PutBack()
	require.ErrorIs(t, err, syscall.EROFS)
	require.ErrorContains(t, err, "put back "+filepath.Join(dir, "other"))
	require.Empty(t, back)
	require.Equal(t, before, tree(t, dir))
}

// withoutRenameat2 makes the filesystem reject renameat2(2).
func withoutRenameat2(t *testing.T, errno syscall.Errno) {
	t.Helper()
	// Go's os package uses renameat(2).
	refused(t, unix.SYS_RENAMEAT2, errno)
}

// refused makes the kernel answer a system call with that error, only on the calling goroutine's thread, which ends
// with the test.
func refused(t *testing.T, number uint32, errno syscall.Errno) {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread must not be used again
	// The offset of the call's number in struct seccomp_data is 0.
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: number, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	require.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	require.NoError(t, unix.Prctl(unix.PR_SET_SECCOMP, unix.SECCOMP_MODE_FILTER, uintptr(unsafe.Pointer(&program)), 0, 0))
	runtime.KeepAlive(filter)
}

func TestFilesystemWithoutRenameat2(t *testing.T) {
	for _, errno := range []syscall.Errno{unix.EINVAL, unix.ENOSYS} {
		t.Run(errno.Error(), func(t *testing.T) {
			withoutRenameat2(t, errno)
			dir := t.TempDir()
			d := openDir(t, dir)
			put(t, filepath.Join(dir, hiddenFile), "old")
			put(t, filepath.Join(dir, ".both.image-update-agent-aside"), "old")
			put(t, filepath.Join(dir, "both"), "new")
			back, err := d.PutBack()
			require.NoError(t, err)
			require.Equal(t, []string{"file"}, back)
			require.Equal(t, map[string]string{"file": "old", "both": "new"}, contents(t, dir))
			_, err = d.Write("file", []byte("ours"), Options{Expect: &File{}})
			require.ErrorIs(t, err, ErrConflict, "a new file replaces none either")
			_, err = d.Write("other", []byte("ours"), Options{Expect: &File{}})
			require.NoError(t, err)
			require.Equal(t, map[string]string{"file": "old", "both": "new", "other": "ours"}, contents(t, dir))
		})
	}
	t.Run("another error is one", func(t *testing.T) {
		withoutRenameat2(t, unix.EIO)
		dir := t.TempDir()
		d := openDir(t, dir)
		put(t, filepath.Join(dir, hiddenFile), "old")
		_, err := d.PutBack()
		require.ErrorIs(t, err, unix.EIO)
		require.Equal(t, map[string]string{hiddenFile: "old"}, contents(t, dir))
	})
}

// PutBack waits for another process that is putting back, because the older of two copies could be restored; but not
// forever, because a pod is down.
func TestPutBackWaitsForAnotherProcess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, hiddenFile), "old")
		unlock := openDir(t, dir).lockAside()
		d, back := openDir(t, dir), make(chan []string, 1)
		putBack := func() {
			names, err := d.PutBack()
			assert.NoError(t, err)
			back <- names
		}
		go putBack()
		<-time.After(asidePatience / 2) // the bubble's time
		assert.Empty(t, back)
		unlock()
		assert.Equal(t, []string{"file"}, <-back)

		defer openDir(t, dir).lockAside()()
		require.NoError(t, setAside(d, "file"))
		began := time.Now()
		putBack()
		assert.Equal(t, []string{"file"}, <-back)
		assert.Equal(t, asidePatience, time.Since(began))
	})
}

// Whoever can read the directory can lock it, and must not lengthen the time without the pod.
func TestAnotherUserDoesNotDelayASetAside(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		put(t, filepath.Join(dir, "file"), "old")
		lockShared(t, dir)
		lockShared(t, filepath.Join(dir, "file"))
		d, began := openDir(t, dir), time.Now()
		require.NoError(t, setAside(d, "file"))
		_, err := d.PutBack()
		require.NoError(t, err)
		assert.Equal(t, map[string]string{"file": "old"}, contents(t, dir))
		assert.Zero(t, time.Since(began))
	})
}

func TestSweepRemovesTheLockOfAKilledProcess(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, asideLock), []byte("1\n"), 0o600))
	require.NoError(t, openDir(t, dir).Sweep())
	assert.Empty(t, contents(t, dir))
}

// Several processes put back while another sets aside and writes: in any order, the file is never lost, and never an
// older one.
func TestConcurrentPutBack(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put(t, filepath.Join(dir, "file"), "0")
	done := make(chan struct{})
	var group sync.WaitGroup
	for range 3 {
		d := openDir(t, dir)
		group.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				if _, err := d.PutBack(); !assert.NoError(t, err) {
					return
				}
			}
		})
	}
	d := openDir(t, dir)
	last := "0"
	for i := range 300 {
		err := setAside(d, "file")
		if err != nil {
			// Not restored yet, or just renamed: try again.
			require.True(t, errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrConflict), "%v", err)
			continue
		}
		next := strings.Repeat("x", i)
		_, err = d.Write("file", []byte(next), Options{Expect: &File{}})
		if err == nil {
			last = next
			continue
		}
		require.ErrorIs(t, err, ErrConflict, "put back meanwhile")
	}
	close(done)
	group.Wait()
	_, err := d.PutBack()
	require.NoError(t, err)
	require.NoError(t, d.Sweep())
	require.Equal(t, map[string]string{"file": last}, contents(t, dir))
}
