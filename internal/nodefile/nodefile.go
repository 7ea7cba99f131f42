// SPDX-License-Identifier: Apache-2.0

// Package nodefile reads small files of the node, and replaces those in directories that other programs watch or edit:
// kubelet's pod manifests, Salt's grains, the agent's own record.
//
// # Directories
//
// A file of a Dir is whole or not there: new content goes to a dot-named temporary file in the same directory (kubelet
// and this package ignore dot-names), gets mode, owner and labels of the file it replaces, is synced, renamed over it,
// and the directory is synced. Whatever fails before the rename leaves the old file as it was and no temporary file;
// what a crash leaves, Sweep removes. The modification time is never carried over: transactional-update compares whole
// seconds, and would lose an edit that kept it.
//
// An unsafe file (symlink, directory, device, fifo, socket, of another owner than root and the effective user, writable
// by others) is neither read nor replaced nor removed.
//
// A file can be set aside for a while: renamed to a dot-name from which its name can be read, and put back under it by
// whichever process comes first.
//
// A compare-and-swap replaces a file only if it still is the File that was read. It is compared right before the
// rename, under a read lease (fcntl(2), F_SETLEASE), so that a program which has the file open for writing at that
// moment, and may have truncated it just now, is a conflict too. What is left is the instant between the last look at
// the lease and the rename: a program that opens the old file then writes to a file that has lost its name. Programs
// that take no lock cannot be excluded any better; callers repeat their write each cycle. Where the file system has no
// leases, the comparison alone guards.
//
// # Trusted files
//
// Read and Cached read a file by its path, whose content the agent acts on: settings, keys, logins, certificate
// authorities. It belongs to root or to the user of this process, and no other user may write to it.
//
//   - Only regular files are read. A FIFO does not block, and a device is not opened: that alone may act.
//   - At most the caller's limit of bytes is read; a larger file is ErrTooLarge.
//   - Kind and owner are those of the file that is read, although its name may lead elsewhere by then.
//   - Symlinks are followed, because admins use them.
package nodefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

var (
	// ErrUnsafe tells that the file or the directory is of a kind, owner or
	// mode that is not touched; the error's text says which.
	ErrUnsafe = errors.New("unsafe")
	// ErrTooLarge tells that a file has more bytes than the caller reads, or a
	// directory more names than List returns.
	ErrTooLarge = outside.ErrTooLarge
	// ErrConflict tells that a file is not, or not surely, the one expected:
	// read it again and plan anew.
	ErrConflict = errors.New("changed by another program or a person")
	// ErrName tells that a file name is not accepted.
	ErrName = errors.New("bad file name")
)

// maxNames bounds List: kubelet runs a few hundred pods at most, so a
// directory with more files is not one of ours.
const maxNames = 4096

// maxName is NAME_MAX of Linux' file systems, in bytes.
const maxName = 255

// temporary matches the names that Write gives to its temporary files.
var temporary = regexp.MustCompile(`^\..*\.image-update-agent-[0-9a-f]{16}$`)

// Dir is a directory whose files are read and written by name only, never
// through a symlink. It stays with the directory that was opened, even if
// another one takes its path: open it anew each cycle. Its methods may be
// called by several goroutines.
type Dir struct {
	root  *os.Root
	self  *os.File   // the directory itself, for openat(2) and fsync(2)
	aside sync.Mutex // see lockAside
	swap  sync.Mutex // between the comparison and the rename: our own goroutines exclude each other
}

// OpenDir opens the directory at path; symlinks in path are followed. A
// directory that others than root or the effective user own or may write to
// is ErrUnsafe, since there every name can be swapped at any time.
func OpenDir(path string) (*Dir, error) {
	learnToFork()
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), root.Close())
	}
	d := &Dir{root: root, self: self}
	info, err := self.Stat()
	if err == nil {
		err = safeOwner(info)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), d.Close())
	}
	return d, nil
}

// learnToFork has Go find out how it starts processes. It clones itself for that once,
// without syscall.ForkLock: the child would have a file open that is being written.
func learnToFork() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
}

// Close releases the directory.
func (d *Dir) Close() error {
	return errors.Join(d.self.Close(), d.root.Close())
}

// CheckName refuses, with ErrName, what is not a plain visible file name: an
// empty or too long one, one with a leading dot (which also covers "." and
// ".."), a slash, a control character or invalid UTF-8.
func CheckName(name string) error {
	var why string
	switch {
	case name == "":
		why = "empty"
	case len(name) > maxName:
		why = fmt.Sprintf("more than %d bytes", maxName)
	case name[0] == '.':
		why = "leading dot"
	case strings.ContainsRune(name, '/'):
		why = "slash"
	case strings.ContainsFunc(name, unicode.IsControl):
		why = "control character"
	case strings.ToValidUTF8(name, "") != name:
		why = "invalid utf-8"
	default:
		return nil
	}
	return fmt.Errorf("%.64q: %w: %s", name, ErrName, why)
}

// List returns the names in the directory that have no leading dot, sorted,
// whatever they are: Read and CheckName decide about each. More than 4096 of
// them are ErrTooLarge.
func (d *Dir) List() ([]string, error) {
	names, err := d.names(func(name string) bool { return name[0] != '.' })
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.root.Name(), err)
	}
	return names, nil
}

// names collects the accepted names, sorted. It opens the directory anew,
// since a directory handle has one read position for everybody.
func (d *Dir) names(accept func(string) bool) ([]string, error) {
	dir, err := d.root.Open(".")
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	var names []string
	for {
		batch, err := dir.Readdirnames(256)
		for _, name := range batch {
			if accept(name) {
				names = append(names, name)
			}
		}
		if len(names) > maxNames {
			return nil, fmt.Errorf("%w: more than %d names", ErrTooLarge, maxNames)
		}
		if errors.Is(err, io.EOF) {
			slices.Sort(names)
			return names, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// Remove removes the file and syncs the directory. With expect it does so
// only if the file still is that one, else ErrConflict. Without, a file that
// is not there is no error.
func (d *Dir) Remove(name string, expect *File) error {
	if err := d.remove(name, expect); err != nil {
		return fmt.Errorf("remove %s: %w", d.path(name), err)
	}
	return nil
}

func (d *Dir) remove(name string, expect *File) error {
	if err := CheckName(name); err != nil {
		return err
	}
	err := d.ifUnchanged(name, expect, func() error { return d.root.Remove(name) })
	if expect == nil && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.self.Sync()
}

// Sweep removes the temporary files that a crash left, and nothing else. Call
// it while no other process writes, that is once at the start, under the lock that
// keeps a second agent out.
func (d *Dir) Sweep() error {
	left, err := d.names(temporary.MatchString)
	if err != nil {
		return fmt.Errorf("sweep %s: %w", d.root.Name(), err)
	}
	for _, name := range left {
		info, err := d.root.Lstat(name)
		if errors.Is(err, fs.ErrNotExist) || err == nil && !info.Mode().IsRegular() {
			continue
		}
		if err == nil {
			err = d.root.Remove(name)
		}
		if err != nil {
			return fmt.Errorf("sweep %s: %w", d.path(name), err)
		}
	}
	if len(left) == 0 {
		return nil
	}
	return d.self.Sync()
}

// path is for messages only; no file is opened by it.
func (d *Dir) path(name string) string { return filepath.Join(d.root.Name(), name) }

// checkOwner refuses a file that another user than root and that of this process may have written. Others may read it:
// that is its owner's risk.
func checkOwner(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return errors.New("unknown owner")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("mode %#o: others may write to it (chmod go-w)", info.Mode().Perm())
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("owned by user %d, want root", stat.Uid)
	}
	return nil
}

// safeOwner is checkOwner as a kind.
func safeOwner(info fs.FileInfo) error {
	if err := checkOwner(info); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	return nil
}
