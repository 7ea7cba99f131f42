// SPDX-License-Identifier: Apache-2.0

package nodefile

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// File is the result of reading a file: content, attributes, and the identity by which a later write detects changes.
// The zero File means that there was none.
type File struct {
	Data []byte
	// Mode has only the permission bits.
	Mode     fs.FileMode
	UID, GID int

	id     identity
	labels map[string]string // extended attributes that a replacement keeps
}

// identity distinguishes the states of a file. The change time is not part of it: a backup that hard-links the file
// would be a conflict.
type identity struct {
	dev, ino uint64
	size     int64
	mtime    syscall.Timespec
}

// kept are the extended attributes copied to the replacing file: its SELinux label, without which Salt or kubelet may
// not read it, and its access list, without which the mode's group bits would have another meaning.
var kept = []string{labelSELinux, labelAccess}

const (
	labelSELinux = "security.selinux"
	labelAccess  = "system.posix_acl_access"
)

// rereads limits how often a file that changes during reading is read again.
const rereads = 3

// Exists reports whether there was a file.
func (f File) Exists() bool { return f.id.ino != 0 }

// Same reports whether both are the same state of one file: inode, size, modification time, mode, owner and bytes.
func (f File) Same(g File) bool {
	return f.id == g.id && f.Mode == g.Mode && f.UID == g.UID && f.GID == g.GID && bytes.Equal(f.Data, g.Data)
}

// SameAccess reports whether the same users may read and write both: mode, owner and labels.
func (f File) SameAccess(g File) bool {
	return f.Mode == g.Mode && f.UID == g.UID && f.GID == g.GID && maps.Equal(f.labels, g.labels)
}

// Read returns the file with that name. It returns ErrUnsafe or ErrTooLarge (more than limit bytes) as described for
// the package, fs.ErrNotExist (with the zero File) if there is none, and ErrConflict if it changes faster than it can
// be read.
func (d *Dir) Read(name string, limit int64) (file File, err error) {
	defer d.tell(&err, "read", name)
	if err := CheckName(name); err != nil {
		return File{}, err
	}
	handle, file, err := d.open(name)
	if err != nil {
		return File{}, err
	}
	defer handle.Close()
	if err := file.load(handle, limit); err != nil {
		return File{}, err
	}
	return file, nil
}

// open opens a safe file and returns it with its attributes, without reading the content. It uses openat(2) itself,
// because os.Root follows a symlink at the end of a path that stays inside, even when asked not to.
func (d *Dir) open(name string) (*os.File, File, error) {
	// A device must not be opened, because that could have side effects.
	info, err := d.root.Lstat(name)
	if err != nil {
		return nil, File{}, Plain(err)
	}
	if err := checkKind(info); err != nil {
		return nil, File{}, err
	}
	const flags = unix.O_RDONLY | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC
	fd, err := control(d.self, func(dir int) (int, error) { return unix.Openat(dir, name, flags, 0) })
	if errors.Is(err, unix.ELOOP) {
		err = fmt.Errorf("%w: symlink", ErrUnsafe)
	}
	if err != nil {
		return nil, File{}, err
	}
	handle := os.NewFile(uintptr(fd), d.path(name))
	file, err := attributes(handle)
	if err != nil {
		return nil, File{}, errors.Join(err, handle.Close())
	}
	return handle, file, nil
}

// attributes checks the opened file and describes it.
func attributes(handle *os.File) (File, error) {
	info, err := handle.Stat()
	if err != nil {
		return File{}, err
	}
	if err := checkKind(info); err != nil {
		return File{}, err
	}
	if err := safeOwner(info); err != nil {
		return File{}, err
	}
	return describe(handle, info)
}

func describe(handle *os.File, info fs.FileInfo) (File, error) {
	labels, err := readLabels(handle)
	if err != nil {
		return File{}, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return File{}, fmt.Errorf("%w: unknown owner", ErrUnsafe)
	}
	return File{
		Mode: info.Mode().Perm(), UID: int(stat.Uid), GID: int(stat.Gid), labels: labels,
		id: identity{dev: stat.Dev, ino: stat.Ino, size: stat.Size, mtime: stat.Mtim},
	}, nil
}

// Access returns mode, owner and labels of a file of any owner, for Options.Like. Symlinks are followed.
func Access(path string) (File, error) {
	handle, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return File{}, Plain(err)
	}
	defer handle.Close()
	info, err := handle.Stat()
	if err != nil {
		return File{}, err
	}
	return describe(handle, info)
}

// IsOwner reports whether the files have the same owner, who is neither root nor this user.
func (f File) IsOwner(info fs.FileInfo) bool {
	stat, ok := info.Sys().(*syscall.Stat_t)
	return ok && int(stat.Uid) == f.UID && f.UID != 0 && f.UID != os.Geteuid()
}

// ForThisUser returns the access to a copy that this user owns, who may not give it to the owner of the file: the group
// is another one, and may do only what everybody may.
func (f File) ForThisUser() File {
	everybody := f.Mode & 0o007
	return File{Mode: f.Mode&0o700 | f.Mode&(everybody<<3) | everybody, UID: os.Geteuid(), GID: -1}
}

// load reads the content. A file that was written meanwhile is read again, so that the bytes are from one moment as far
// as its times show.
func (f *File) load(handle *os.File, limit int64) error {
	for range rereads {
		data, err := io.ReadAll(io.NewSectionReader(handle, 0, limit+1))
		if err != nil {
			return Plain(err)
		}
		after, err := attributes(handle)
		if err != nil {
			return err
		}
		settled := after.id == f.id && int64(len(data)) == min(after.id.size, limit+1)
		*f = after
		if !settled {
			continue
		}
		if int64(len(data)) > limit {
			return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
		}
		f.Data = data
		return nil
	}
	return fmt.Errorf("%w: while it was read", ErrConflict)
}

func readLabels(handle *os.File) (map[string]string, error) {
	labels := map[string]string{}
	for _, name := range kept {
		value := make([]byte, 4096) // a label has about 50 bytes, an access list 8 per entry
		size, err := control(handle, func(fd int) (int, error) { return unix.Fgetxattr(fd, name, value) })
		if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("attribute %s: %w", name, err)
		}
		labels[name] = string(value[:size])
	}
	return labels, nil
}

// writeLabels sets the labels that the file did not inherit, and removes an inherited access list that is not among
// them.
func writeLabels(handle *os.File, labels map[string]string) error {
	has, err := readLabels(handle)
	if err != nil || maps.Equal(has, labels) {
		return err
	}
	for name, value := range labels {
		_, err := control(handle, func(fd int) (int, error) {
			return 0, unix.Fsetxattr(fd, name, []byte(value), 0)
		})
		if name == labelSELinux && errors.Is(err, unix.EPERM) {
			continue // SELinux is off, so no policy protects the label: the file's owner may set it, or gets EACCES
		}
		if err != nil {
			return fmt.Errorf("attribute %s: %w", name, err)
		}
	}
	_, inherited := has[labelAccess]
	if _, wanted := labels[labelAccess]; inherited && !wanted {
		if _, err := control(handle, func(fd int) (int, error) { return 0, unix.Fremovexattr(fd, labelAccess) }); err != nil {
			return fmt.Errorf("attribute %s: %w", labelAccess, err)
		}
	}
	return nil
}

// checkKind rejects everything but a regular file, by name.
func checkKind(info fs.FileInfo) error {
	var kind string
	switch mode := info.Mode(); {
	case mode.IsRegular():
		return nil
	case mode&fs.ModeSymlink != 0:
		kind = "symlink"
	case mode.IsDir():
		kind = "directory"
	case mode&fs.ModeNamedPipe != 0:
		kind = "fifo"
	case mode&fs.ModeSocket != 0:
		kind = "socket"
	default:
		kind = "device"
	}
	return fmt.Errorf("%w: %s", ErrUnsafe, kind)
}

// control calls a system call with the file's descriptor, and repeats it if a signal interrupted it.
func control(f *os.File, call func(fd int) (int, error)) (int, error) {
	conn, err := f.SyscallConn()
	if err != nil {
		return 0, err
	}
	var result int
	var callErr error
	err = conn.Control(func(fd uintptr) {
		for {
			if result, callErr = call(int(fd)); !errors.Is(callErr, unix.EINTR) {
				return
			}
		}
	})
	return result, errors.Join(err, callErr)
}

// Plain removes the path that package os puts before the cause; the caller names the file once.
func Plain(err error) error {
	if path, ok := errors.AsType[*fs.PathError](err); ok {
		return path.Err
	}
	return err
}

// Read returns the content of a trusted file. Its errors do not name the file.
func Read(path string, limit int64) ([]byte, error) {
	data, _, err := read(path, limit, false)
	return data, err
}

// ReadSecret is like Read for a file that only its owner may read.
func ReadSecret(path string, limit int64) ([]byte, error) {
	data, info, err := read(path, limit, false)
	if err == nil && info.Mode().Perm()&0o077 != 0 {
		return nil, fmt.Errorf("mode %#o: others may read it (chmod go=)", info.Mode().Perm())
	}
	return data, err
}

// read returns the content, and the file's info; nil if it could not be opened.
func read(path string, limit int64, anyOwner bool) ([]byte, fs.FileInfo, error) {
	file, err := Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, nil, Plain(err)
	}
	if err := checkRegular(info, limit); err != nil {
		return nil, info, err
	}
	if err := checkOwner(info); err != nil && !anyOwner {
		return nil, info, err
	}
	data, err := outside.ReadAll(file, limit)
	return data, info, Plain(err)
}

// Open opens a regular file of any owner. Anything else is not opened, because a FIFO may block forever and a device
// may have side effects.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, Plain(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errNotRegular
	}
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, Plain(err)
	}
	if info, err = file.Stat(); err == nil && !info.Mode().IsRegular() { // it was replaced
		err = errNotRegular
	}
	if err != nil {
		return nil, errors.Join(Plain(err), file.Close())
	}
	return file, nil
}

var errNotRegular = errors.New("not a regular file")

// Check returns why a file cannot be read completely: it is not regular, or larger than the limit. A missing file is
// accepted, and so is any owner.
func Check(path string, limit int64) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err == nil:
		err = checkRegular(info, limit)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, Plain(err))
	}
	return nil
}

func checkRegular(info fs.FileInfo, limit int64) error {
	switch {
	case !info.Mode().IsRegular():
		return errNotRegular
	case info.Size() > limit:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, info.Size(), limit)
	}
	return nil
}

// Stamp returns a text that changes when a file is written, replaced, or gets another mode or owner. A copy may keep
// the size and the modification time of the replaced file, but not inode and change time.
func Stamp(info fs.FileInfo) string {
	text := fmt.Sprintf("%d %d %s", info.Size(), info.ModTime().UnixNano(), info.Mode())
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		text += fmt.Sprintf(" %d %d %d %d", stat.Dev, stat.Ino, stat.Uid, stat.Ctim.Nano())
	}
	return text
}

// Cached is a trusted file that is read and parsed again when it changes. For a missing file it returns the zero value
// of T without an error. It is safe for concurrent use.
type Cached[T any] struct {
	Path     string
	Limit    int64 // bytes
	AnyOwner bool  // for public data that decides nothing on its own
	Parse    func([]byte) (T, error)

	mu    sync.Mutex
	stamp string // of the file that was the source of value or err; empty: none
	value T
	err   error
}

// Get returns the current value of the file, or why it cannot be used. changed is true once for each change.
func (f *Cached[T]) Get() (value T, changed bool, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	info, err := os.Stat(f.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR):
		changed, f.stamp, f.value, f.err = f.stamp != "", "", value, nil
	case err != nil:
		changed, f.stamp, f.value, f.err = f.err == nil, "", value, err
	case f.stamp != Stamp(info):
		changed = true
		f.load(info)
	}
	return f.value, changed, f.err
}

// load reads the file. The stamp is of the opened file, so a later change is detected.
func (f *Cached[T]) load(info fs.FileInfo) {
	data, opened, err := read(f.Path, f.Limit, f.AnyOwner)
	if opened != nil {
		info = opened
	}
	f.stamp = Stamp(info)
	if err == nil {
		f.value, err = f.Parse(data)
	}
	if f.err = err; err != nil {
		f.value, f.err = *new(T), fmt.Errorf("%s: %w", f.Path, err)
	}
}
