// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// foreignEdits are changes by other programs between reading and writing.
var foreignEdits = map[string]func(t *testing.T, path string){
	"rewritten in place": func(t *testing.T, path string) { put(t, path, "foreign and longer") },
	"same size": func(t *testing.T, path string) {
		info, err := os.Stat(path)
		require.NoError(t, err)
		put(t, path, "OLD")
		require.NoError(t, os.Chtimes(path, info.ModTime(), info.ModTime()))
	},
	"truncated": func(t *testing.T, path string) { require.NoError(t, os.Truncate(path, 0)) },
	"replaced by equal bytes": func(t *testing.T, path string) {
		put(t, path+".tmp", "old")
		require.NoError(t, os.Rename(path+".tmp", path))
	},
	"removed": func(t *testing.T, path string) { require.NoError(t, os.Remove(path)) },
	"mode":    func(t *testing.T, path string) { require.NoError(t, os.Chmod(path, 0o600)) },
	"group":   func(t *testing.T, path string) { require.NoError(t, os.Chown(path, 0, 42)) },
	"being written": func(t *testing.T, path string) {
		writer, err := os.OpenFile(path, os.O_WRONLY, 0)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, writer.Close()) })
	},
}

func TestEditByAnotherProgramIsAConflict(t *testing.T) {
	t.Parallel()
	for name, edit := range foreignEdits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := openDir(t, dir)
			put(t, filepath.Join(dir, "file"), "old")
			was, err := d.Read("file", 100)
			require.NoError(t, err)
			edit(t, filepath.Join(dir, "file"))
			before := tree(t, dir)

			written, err := d.Write("file", []byte("new"), Options{Expect: &was})
			require.ErrorIs(t, err, ErrConflict)
			require.False(t, written)
			require.ErrorIs(t, d.Remove("file", &was), ErrConflict)
			require.ErrorIs(t, d.SetAside("file", was), ErrConflict)
			require.Equal(t, before, tree(t, dir))
		})
	}
}

// The comparison right before the rename counts, not the first one: here the edit happens after the temporary file
// exists.
func TestEditAfterTheTemporaryFileIsAConflict(t *testing.T) {
	t.Parallel()
	for name, edit := range foreignEdits {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			d := openDir(t, dir)
			put(t, filepath.Join(dir, "file"), "old")
			was, err := d.Read("file", 100)
			require.NoError(t, err)
			temp, err := d.writeTemporary("file", []byte("new"), was)
			require.NoError(t, err)
			edit(t, filepath.Join(dir, "file"))
			before := tree(t, dir)
			require.ErrorIs(t, d.place(temp, "file", &was), ErrConflict)
			require.Equal(t, before, tree(t, dir))
		})
	}
}

func TestAFileThatAppearedIsAConflict(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	temp, err := d.writeTemporary("file", []byte("new"), File{Mode: 0o600})
	require.NoError(t, err)
	put(t, filepath.Join(dir, "file"), "foreign")
	before := tree(t, dir)
	require.ErrorIs(t, d.place(temp, "file", &File{}), ErrConflict)
	require.Equal(t, before, tree(t, dir))
	_, err = d.Write("file", []byte("new"), Options{Expect: &File{}})
	require.ErrorIs(t, err, ErrConflict)
	require.Equal(t, before, tree(t, dir))
}

func TestAnUnchangedFileIsReplaced(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	was := File{}
	for _, content := range []string{"one", "two, and longer", "", "three"} {
		written, err := d.Write("file", []byte(content), Options{Expect: &was})
		require.NoError(t, err)
		require.True(t, written)
		was, err = d.Read("file", 100)
		require.NoError(t, err)
		require.Equal(t, content, string(was.Data))
	}
	require.Len(t, tree(t, dir), 1)
}

// A writer that opens the file while the lease is held waits (here it is non-blocking and fails), and the agent gives
// way.
func TestLeaseDetectsAWaitingWriter(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	put(t, path, "old")
	handle, err := os.Open(path)
	require.NoError(t, err)
	defer handle.Close()
	lease, err := takeLease(handle)
	require.NoError(t, err)
	require.NoError(t, lease.check())
	reader, err := os.Open(path)
	require.NoError(t, err, "readers do not wait")
	require.NoError(t, reader.Close())
	require.NoError(t, lease.check())
	_, err = syscall.Open(path, syscall.O_WRONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	require.ErrorIs(t, err, syscall.EWOULDBLOCK)
	require.ErrorIs(t, lease.check(), ErrConflict)
}

func TestFilesystemWithoutLeases(t *testing.T) {
	t.Parallel()
	handle, err := os.Open("/proc/self/status") // any file without leases
	require.NoError(t, err)
	defer handle.Close()
	require.NoError(t, lease{handle: handle}.check())
}

// smallDisk mounts a tmpfs of 64 KiB, visible only to the calling goroutine's thread, which ends with the test: nothing
// stays mounted if the test dies.
func smallDisk(t *testing.T) string {
	t.Helper()
	runtime.LockOSThread() // never unlocked: the thread must not be used again
	require.NoError(t, syscall.Unshare(syscall.CLONE_NEWNS|syscall.CLONE_FS))
	require.NoError(t, syscall.Mount("none", "/", "", syscall.MS_PRIVATE|syscall.MS_REC, ""))
	dir := t.TempDir()
	require.NoError(t, syscall.Mount("none", dir, "tmpfs", 0, "size=64k,mode=755"))
	t.Cleanup(func() { assert.NoError(t, syscall.Unmount(dir, 0)) })
	return dir
}

func TestAFullDiskLeavesTheOldFile(t *testing.T) {
	dir := smallDisk(t)
	d, err := OpenDir(dir)
	require.NoError(t, err)
	defer func() { assert.NoError(t, d.Close()) }()
	old := []byte(strings.Repeat("old ", 5000))
	_, err = d.Write("file", old, Options{Mode: 0o644})
	require.NoError(t, err)
	was, err := d.Read("file", 1<<20)
	require.NoError(t, err)
	before := tree(t, dir)

	large := bytes.Repeat([]byte("new "), 15000)
	for what, opts := range map[string]Options{"write": {}, "swap": {Expect: &was}} {
		written, err := d.Write("file", large, opts)
		require.ErrorIs(t, err, syscall.ENOSPC, what)
		require.False(t, written)
		require.Equal(t, before, tree(t, dir), what)
	}
	_, err = d.Write("other", large, Options{})
	require.ErrorIs(t, err, syscall.ENOSPC)
	require.Equal(t, before, tree(t, dir))

	// The space of the failed attempts is free again.
	written, err := d.Write("file", old[:16000], Options{})
	require.NoError(t, err)
	require.True(t, written)
}

func TestAReadOnlyDiskLeavesTheOldFile(t *testing.T) {
	dir := smallDisk(t)
	put(t, filepath.Join(dir, "file"), "old")
	require.NoError(t, syscall.Mount("none", dir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	d, err := OpenDir(dir)
	require.NoError(t, err)
	defer func() { assert.NoError(t, d.Close()) }()
	before := tree(t, dir)
	_, err = d.Write("file", []byte("new"), Options{})
	require.ErrorIs(t, err, syscall.EROFS)
	require.ErrorIs(t, d.Remove("file", nil), syscall.EROFS)
	require.Equal(t, before, tree(t, dir))
}

// A label that cannot be kept is an error, instead of a file that Salt cannot read. The kernel rejects an invalid
// access list.
func TestALabelThatCannotBeKeptIsAnError(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	_, err := d.writeTemporary("file", nil, File{labels: map[string]string{"system.posix_acl_access": "nonsense"}})
	require.ErrorContains(t, err, "system.posix_acl_access")
	require.Empty(t, tree(t, dir))
}

func TestAnAccessListIsKept(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "file")
	put(t, path, "old")
	require.NoError(t, access(path, 42))
	list := func() string {
		value := make([]byte, 200)
		size, err := unix.Getxattr(path, "system.posix_acl_access", value)
		require.NoError(t, err)
		return string(value[:size])
	}
	was := list()
	_, err := openDir(t, dir).Write("file", []byte("new"), Options{})
	require.NoError(t, err)
	require.Equal(t, was, list())
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, fs.FileMode(0o644), info.Mode())
}

func TestReadersNeverSeeAPartialFile(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	_, err := d.Write("file", version(0), Options{})
	require.NoError(t, err)
	done := make(chan struct{})
	var readers sync.WaitGroup
	for range 4 {
		readers.Go(func() {
			last := 0
			for {
				file, err := d.Read("file", 1<<20)
				if !assert.NoError(t, err) {
					return
				}
				n, ok := versionOf(file.Data)
				if !assert.True(t, ok, "torn: %.40q", file.Data) || !assert.GreaterOrEqual(t, n, last) {
					return
				}
				last = n
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	for n := range 20 {
		_, err := d.Write("file", version(n), Options{})
		require.NoError(t, err)
	}
	close(done)
	readers.Wait()
	require.Len(t, tree(t, dir), 1)
}

// Another process swaps the file for a symlink to a secret and back, faster than a check before the open could detect.
func TestSwappedSymlinkIsNotFollowed(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	put(t, filepath.Join(dir, "file"), "content")
	put(t, filepath.Join(dir, "secret"), "secret")
	require.NoError(t, os.Symlink("secret", filepath.Join(dir, "link")))
	done := make(chan struct{})
	var swapper sync.WaitGroup
	swapper.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
				assert.NoError(t, unix.Renameat2(unix.AT_FDCWD, filepath.Join(dir, "file"),
					unix.AT_FDCWD, filepath.Join(dir, "link"), unix.RENAME_EXCHANGE))
			}
		}
	})
	defer swapper.Wait()
	defer close(done)
	read, refused := 0, 0
	for range 40_000 {
		file, err := d.Read("file", 10)
		if err != nil {
			require.ErrorIs(t, err, ErrUnsafe)
			refused++
			continue
		}
		require.Equal(t, "content", string(file.Data))
		read++
	}
	require.Positive(t, read)
	require.Positive(t, refused)
}

func TestOneOfManySwapsWins(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir())
	was := File{}
	for n := range 30 {
		var wins atomic.Int32
		var writers sync.WaitGroup
		for i := range 4 {
			writers.Go(func() {
				written, err := d.Write("file", version(n*4+i), Options{Expect: &was})
				if written {
					wins.Add(1)
					assert.NoError(t, err)
					return
				}
				assert.ErrorIs(t, err, ErrConflict)
			})
		}
		writers.Wait()
		require.Equal(t, int32(1), wins.Load())
		var err error
		was, err = d.Read("file", 1<<20)
		require.NoError(t, err)
	}
}

// A child between fork and exec still holds its parent's open files: an inherited temporary file would look like a
// writer of the finished file.
func TestForkIsNotAWriter(t *testing.T) {
	t.Parallel()
	d := openDir(t, t.TempDir())
	ctx, stop := context.WithCancel(t.Context())
	var forks sync.WaitGroup
	for range 2 {
		forks.Go(func() {
			for ctx.Err() == nil {
				assert.NoError(t, exec.Command("true").Run())
			}
		})
	}
	// Without the lock it takes some 20 rounds to see a failure. Each round waits for a fork.
	for n := range 100 {
		_, err := d.Write("file", version(n), Options{Expect: &File{}})
		if !assert.NoError(t, err) {
			break
		}
		file, err := d.Read("file", 1<<20)
		assert.NoError(t, err)
		if !assert.NoError(t, d.Remove("file", &file), "round %d", n) {
			break
		}
	}
	stop()
	forks.Wait()
}

// A caller that knows the old content saves reading it; attributes stay, and the write is as safe as others.
func TestWriteOfOtherContent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	path := filepath.Join(dir, "file")
	put(t, path, "old")
	require.NoError(t, os.Chmod(path, 0o640))
	written, err := d.Write("file", []byte("new"), Options{Differs: true})
	require.NoError(t, err)
	assert.True(t, written)
	assert.Equal(t, map[string]string{"file": "new"}, contents(t, dir))
	info, err := os.Stat(path)
	require.NoError(t, err)
	assert.Equal(t, fs.FileMode(0o640), info.Mode())
	_, err = d.Write("file", []byte("newer"), Options{Differs: true, Expect: &File{}})
	require.ErrorIs(t, err, ErrConflict, "an expected file is compared")
}

// Who cannot give a copy to the owner and the group of its original gives nobody more than the original does.
func TestACopyOfAnotherOwner(t *testing.T) {
	t.Parallel()
	for mode, want := range map[fs.FileMode]fs.FileMode{
		0o644: 0o644, 0o640: 0o600, 0o600: 0o600, 0o444: 0o444, 0o604: 0o604, 0o660: 0o600, 0o664: 0o644, 0o755: 0o755, 0o750: 0o700,
	} {
		f := File{Mode: mode, UID: 4711, GID: 42, labels: map[string]string{labelAccess: "x"}}.ForThisUser()
		assert.Equal(t, File{Mode: want, UID: os.Geteuid(), GID: -1}, f)
	}
}

// crashDir makes the test binary a child that rewrites a file in this directory until it is killed.
const crashDir = "NODEFILE_TEST_CRASH_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(crashDir); dir != "" {
		fmt.Fprintln(os.Stderr, rewriteForever(dir))
		os.Exit(1)
	}
	if dir := os.Getenv(sandboxDir); dir != "" {
		fmt.Println(replaceOnce(dir))
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// version returns the n-th content of the file: lengths differ, and the last line repeats the first.
func version(n int) []byte {
	return fmt.Appendf(nil, "%d\n%s%d\n", n, strings.Repeat("x", n*7919%20000)+"\n", n)
}

func versionOf(data []byte) (n int, whole bool) {
	first, _, _ := bytes.Cut(data, []byte("\n"))
	n, err := strconv.Atoi(string(first))
	return n, err == nil && bytes.Equal(data, version(n))
}

// rewriteForever prints each version once it is written.
func rewriteForever(dir string) error {
	d, err := OpenDir(dir)
	if err != nil {
		return err
	}
	was, err := d.Read("file", 1<<20)
	if err != nil {
		return err
	}
	n, _ := versionOf(was.Data)
	for {
		n++
		if _, err := d.Write("file", version(n), Options{Expect: &was}); err != nil {
			return err
		}
		if _, err := fmt.Println(n); err != nil {
			return err
		}
		if was, err = d.Read("file", 1<<20); err != nil {
			return err
		}
	}
}

func TestKilledWriterLeavesACompleteVersion(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	d := openDir(t, dir)
	_, err := d.Write("file", version(0), Options{})
	require.NoError(t, err)
	leftOvers := 0
	for range 40 {
		said := killAtRandom(t, dir)
		file, err := d.Read("file", 1<<20)
		require.NoError(t, err)
		n, whole := versionOf(file.Data)
		require.True(t, whole, "torn: %.40q", file.Data)
		require.GreaterOrEqual(t, n, said, "what was said to be written is there")
		leftOvers += len(names(t, dir)) - 1
		require.NoError(t, d.Sweep())
		require.Equal(t, []string{"file"}, names(t, dir))
	}
	t.Logf("%d of 40 kills left a temporary file", leftOvers)
}

// killAtRandom starts a child, kills it after some writes at a random point, and returns the last version that it
// reported.
func killAtRandom(t *testing.T, dir string) (said int) {
	t.Helper()
	child := exec.CommandContext(t.Context(), os.Args[0])
	child.Env = append(os.Environ(), crashDir+"="+dir)
	child.Stderr = os.Stderr
	output, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	lines := bufio.NewScanner(output)
	for range 1 + rand.IntN(20) {
		require.True(t, lines.Scan(), "the child writes until it is killed")
		said, err = strconv.Atoi(lines.Text())
		require.NoError(t, err)
	}
	require.NoError(t, child.Process.Kill())
	for lines.Scan() {
		if n, err := strconv.Atoi(lines.Text()); err == nil {
			said = max(said, n)
		}
	}
	require.ErrorContains(t, child.Wait(), "killed")
	return said
}

// sandboxDir makes this program replace the file in that directory and report the result, with sandboxAside after it has
// set it aside.
const (
	sandboxDir   = "NODEFILE_TEST_SANDBOX_DIR"
	sandboxAside = "NODEFILE_TEST_SANDBOX_ASIDE"
)

func replaceOnce(dir string) error {
	d, err := OpenDir(dir)
	if err != nil {
		return err
	}
	defer func() { _ = d.Close() }()
	was, err := d.Read("file", 1<<20)
	if err != nil {
		return err
	}
	if os.Getenv(sandboxAside) == "" {
		_, err = d.Write("file", []byte("new"), Options{Expect: &was})
		return err
	}
	if err := d.SetAside("file", was); err != nil {
		return err
	}
	aside, err := d.Aside("file")
	if err == nil {
		_, err = d.Write("file", []byte("new"), Options{Expect: &File{}, Like: &aside})
	}
	_, putBack := d.PutBack()
	return errors.Join(err, putBack)
}

// inSandbox replaces the file as the hardened unit does (PrivateUsers=yes, an empty CapabilityBoundingSet=): as root of
// a user namespace without other users and groups, and without capabilities.
func inSandbox(t *testing.T, dir string, env ...string) string {
	t.Helper()
	only := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 1}}
	child := exec.CommandContext(t.Context(), "/bin/sh", "-c", `exec setpriv --bounding-set=-all "$0"`, os.Args[0])
	child.Env = append(append(os.Environ(), sandboxDir+"="+dir), env...)
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER, UidMappings: only, GidMappings: only}
	out, err := child.CombinedOutput()
	require.NoError(t, err, string(out))
	return strings.TrimSpace(string(out))
}

// The files normally belong to root. The hardened daemon cannot preserve another owner: such a file stays unchanged.
func TestSandboxKeepsTheOwnerOfFiles(t *testing.T) {
	t.Parallel()
	const done = "<nil>"
	for name, c := range map[string]struct {
		prepare func(dir, path string) error
		want    string // a part of the error
	}{
		"root's":                        {func(_, path string) error { return os.Chmod(path, 0o640) }, done},
		"root's, with a label":          {func(_, path string) error { return label(path) }, done},
		"in a directory with its group": {func(dir, _ string) error { return os.Chown(dir, 0, 42) }, done},
		"of a group":                    {func(_, path string) error { return os.Chown(path, 0, 42) }, "keep owner 0:65534"},
		"of nobody's group":             {func(_, path string) error { return os.Chown(path, 0, 65534) }, "keep owner 0:65534"},
		"of a group, in a directory that gives another": {func(dir, path string) error {
			if err := os.Chown(dir, 0, 43); err != nil {
				return err
			}
			// os.Chmod uses another bit for it.
			return firstOf(syscall.Chmod(dir, 0o2755), os.Chown(path, 0, 42))
		}, "keep owner 0:65534"},
		"of a user":              {func(_, path string) error { return os.Chown(path, 4711, 0) }, "unsafe: owned by user 65534"},
		"in a user's directory":  {func(dir, _ string) error { return os.Chown(dir, 4711, 0) }, "unsafe: owned by user 65534"},
		"readable by a user too": {func(_, path string) error { return access(path, 4711) }, "attribute system.posix_acl_access: invalid argument"},
	} {
		for how, env := range map[string][]string{"in place": nil, "aside": {sandboxAside + "=1"}} {
			t.Run(name+", "+how, func(t *testing.T) {
				t.Parallel()
				dir := t.TempDir()
				path := filepath.Join(dir, "file")
				put(t, path, "old")
				require.NoError(t, c.prepare(dir, path))
				before := tree(t, dir)
				got := inSandbox(t, dir, env...)
				if c.want != done {
					assert.Contains(t, got, c.want)
					assert.Equal(t, before, tree(t, dir))
					return
				}
				assert.Equal(t, done, got)
				assert.Equal(t, []string{"file"}, names(t, dir))
				assert.Equal(t, ownerAndMode(before["file"]), ownerAndMode(tree(t, dir)["file"]))
				data, err := os.ReadFile(path)
				require.NoError(t, err)
				assert.Equal(t, "new", string(data))
			})
		}
	}
}

func ownerAndMode(entry string) string {
	owner, _, _ := strings.Cut(entry, " inode ")
	return owner
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// label sets an SELinux label, which a kernel without SELinux ignores, and which only CAP_SYS_ADMIN may write there.
func label(path string) error {
	return unix.Setxattr(path, "security.selinux", []byte("system_u:object_r:etc_t:s0\x00"), 0)
}

// If SELinux is off, a file may still have an old label, which only CAP_SYS_ADMIN may write then. An update does not
// fail because of it.
func TestLabelMayGetLostWithoutSELinux(t *testing.T) {
	for errno, lost := range map[syscall.Errno]bool{unix.EPERM: true, unix.EACCES: false, unix.ENOSPC: false} {
		t.Run(errno.Error(), func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, "file")
			put(t, path, "old")
			require.NoError(t, label(path))
			refused(t, unix.SYS_FSETXATTR, errno)
			before := tree(t, dir)
			err := replaceOnce(dir)
			if !lost {
				require.ErrorIs(t, err, errno)
				require.ErrorContains(t, err, "attribute security.selinux")
				assert.Equal(t, before, tree(t, dir))
				return
			}
			require.NoError(t, err)
			assert.Equal(t, []string{"file"}, names(t, dir))
		})
	}
	t.Run("an access list does not", func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "file")
		put(t, path, "old")
		require.NoError(t, access(path, 4711))
		refused(t, unix.SYS_FSETXATTR, unix.EPERM)
		require.ErrorContains(t, replaceOnce(dir), "attribute system.posix_acl_access")
	})
}

// access gives a user read access to the file: acl(5) as an extended attribute, which is struct posix_acl_xattr_header
// and entries of tag, permissions, id.
func access(path string, user uint32) error {
	list := []byte{2, 0, 0, 0}
	for _, entry := range []struct {
		tag, perm uint16
		id        uint32
	}{{1, 6, 1<<32 - 1}, {2, 4, user}, {4, 4, 1<<32 - 1}, {16, 4, 1<<32 - 1}, {32, 4, 1<<32 - 1}} {
		list = fmt.Appendf(list, "%c%c%c%c%c%c%c%c", 0, 0, 0, 0, 0, 0, 0, 0)
		at := list[len(list)-8:]
		at[0], at[2] = byte(entry.tag), byte(entry.perm)
		at[4], at[5], at[6], at[7] = byte(entry.id), byte(entry.id>>8), byte(entry.id>>16), byte(entry.id>>24)
	}
	return unix.Setxattr(path, "system.posix_acl_access", list, 0)
}
