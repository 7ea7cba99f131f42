// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

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
