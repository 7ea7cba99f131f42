// SPDX-License-Identifier: Apache-2.0

// Package nodefile reads small files of the node, and replaces files in directories that other programs watch or edit:
// kubelet's pod manifests, Salt's grains, the agent's record.
//
// # Directories
//
// A file of a Dir is complete or missing: new content is written to a dot-named temporary file in the same directory
// (kubelet and this package ignore dot-names), which gets mode, owner and labels of the replaced file, is synced and
// renamed over it; then the directory is synced. A failure before the rename leaves the old file unchanged and no
// temporary file; Sweep removes those left by a crash. The modification time is never copied: transactional-update
// compares whole seconds, and would lose an edit that kept it.
//
// An unsafe file (a symlink, directory, device, FIFO or socket, a file of an owner other than root and the effective
// user, or one writable by others) is neither read nor replaced nor removed.
//
// A file can be set aside temporarily: renamed to a dot-name that contains its name, and put back by any process.
//
// A compare-and-swap replaces a file only if it is still the File that was read. It compares right before the rename,
// under a read lease (fcntl(2), F_SETLEASE), so that a program which has the file open for writing at that moment, and
// may just have truncated it, is also a conflict. The instant between the last check of the lease and the rename
// remains: a program that opens the old file then writes to a file without a name. Programs without locks cannot be
// excluded better; callers repeat their write each cycle. On a filesystem without leases only the comparison protects.
//
// # Trusted files
//
// Read and Cached read a file by path whose content the agent acts on: settings, keys, logins, certificate authorities.
// It must belong to root or to the user of this process, and no other user may write to it.
//
//   - Only regular files are read. A FIFO does not block, and a device is not opened, because that could have side
//     effects.
//   - At most the caller's limit of bytes is read; a larger file returns ErrTooLarge.
//   - Kind and owner are checked on the opened file, even if its name leads elsewhere by then.
//   - Symlinks are followed, because admins use them.
//
// Why not google/renameio: it keeps no owner, does not sync the directory, and compares nothing.
package nodefile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unicode"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

var (
	// ErrUnsafe says that the kind, owner or mode of the file or directory is not accepted; the text names it.
	ErrUnsafe = errors.New("unsafe")
	// ErrTooLarge says that a file has more bytes than the caller's limit, or a directory more names than List returns.
	ErrTooLarge = outside.ErrTooLarge
	// ErrConflict says that a file is not, or not certainly, the expected one: read it again and make a new plan.
	ErrConflict = errors.New("changed by another program or a person")
	// ErrName says that a file name is not accepted.
	ErrName = errors.New("bad file name")
)

// maxNames limits List: kubelet runs a few hundred pods at most.
const maxNames = 4096

// maxName is NAME_MAX of Linux filesystems, in bytes.
const maxName = 255

// temporary matches the names of Write's temporary files.
var temporary = lazyregexp.New(`^\..*\.image-update-agent-[0-9a-f]{16}$`)

// Dir is a directory whose files are read and written only by name, never through a symlink. It stays the directory
// that was opened, even if another one takes its path: open it again in each cycle. Its methods are safe for concurrent
// use.
type Dir struct {
	root  *os.Root
	self  *os.File   // the directory itself, for openat(2) and fsync(2)
	aside sync.Mutex // see lockAside
	swap  sync.Mutex // between the comparison and the rename: goroutines of this process exclude each other
}

// OpenDir opens the directory at path; symlinks in path are followed. It returns ErrUnsafe for a directory that a user
// other than root or the effective user owns or may write to, because such a user can replace any name in it.
func OpenDir(path string) (*Dir, error) {
	d, err := openAny(path)
	if err != nil {
		return nil, err
	}
	info, err := d.self.Stat()
	if err == nil {
		err = safeOwner(info)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), d.Close())
	}
	return d, nil
}

// openAny opens a directory of any owner.
func openAny(path string) (*Dir, error) {
	learnToFork()
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	self, err := root.Open(".")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open %s: %w", path, err), root.Close())
	}
	return &Dir{root: root, self: self}, nil
}

// learnToFork makes Go find out how to start processes. Go clones itself once for that, without syscall.ForkLock: the
// child would inherit a file that is open for writing.
func learnToFork() {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Release()
	}
}

// Close releases the directory.
func (d *Dir) Close() error {
	return errors.Join(d.self.Close(), d.root.Close())
}

// CheckName returns ErrName for a name that is not a plain visible file name: empty or too long, with a leading dot
// (which also covers "." and ".."), a slash, a control character or invalid UTF-8.
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

// List returns the names in the directory without a leading dot, sorted, of any kind: Read and CheckName decide about
// each. It returns ErrTooLarge for more than 4096.
func (d *Dir) List() ([]string, error) {
	names, err := d.names(func(name string) bool { return name[0] != '.' })
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", d.root.Name(), err)
	}
	return names, nil
}

// names returns the accepted names, sorted. It opens the directory again, because a directory handle has one shared
// read position.
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

// Remove removes the file and syncs the directory. With expect it does so only if the file is still that one, else it
// returns ErrConflict. Without expect, a missing file is not an error.
func (d *Dir) Remove(name string, expect *File) (err error) {
	defer d.tell(&err, "remove", name)
	if err := CheckName(name); err != nil {
		return err
	}
	err = d.ifUnchanged(name, expect, func() error { return d.root.Remove(name) })
	if expect == nil && errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return d.self.Sync()
}

// Sweep removes only the temporary files that a crash left. Call it while no other process writes: once at the start,
// while holding the lock against other agents.
func (d *Dir) Sweep() error {
	if _, err := d.root.Lstat(asideLock); err == nil {
		d.lockAside()() // removes it
	}
	left, err := d.names(temporary().MatchString)
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

// path returns a path for messages; it is not opened.
func (d *Dir) path(name string) string { return filepath.Join(d.root.Name(), name) }

// tell adds to an error what was done with which file.
func (d *Dir) tell(err *error, what, name string) {
	if *err != nil {
		*err = fmt.Errorf("%s %s: %w", what, d.path(name), *err)
	}
}

// checkOwner rejects a file that a user other than root and this process's may have written. Others may read it, at the
// owner's risk.
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

// safeOwner is checkOwner with the error ErrUnsafe.
func safeOwner(info fs.FileInfo) error {
	if err := checkOwner(info); err != nil {
		return fmt.Errorf("%w: %w", ErrUnsafe, err)
	}
	return nil
}
