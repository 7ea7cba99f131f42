// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/kubic-project/image-update-agent/agent/localregistry/table"
)

// tableFile is the table at a path. It is read again when the file changes.
type tableFile struct {
	path string
	seen stamp
	t    table.Table
	err  error
}

// stamp changes when a file is written, replaced, or gets another mode or owner.
type stamp struct {
	dev, ino, size uint64
	mode, uid      uint32
	changed        syscall.Timespec
}

// get returns the table, empty if the file is missing, or why it cannot be used. changed is true once for each change.
func (f *tableFile) get() (t table.Table, changed bool, err error) {
	info, err := os.Stat(f.path)
	var now stamp
	switch {
	case errors.Is(err, fs.ErrNotExist):
		err = nil
	case err == nil:
		now = stampOf(info)
	}
	if err == nil && now == f.seen {
		return f.t, false, f.err
	}
	f.seen, f.t, f.err = now, table.Table{}, err
	if now != (stamp{}) {
		f.t, f.err = read(f.path)
	}
	return f.t, true, f.err
}

// read returns the table at a path. As the agent does with all files whose content it acts on, it reads only a regular
// file that belongs to root or to the user of this process, and that no other user may write to.
func read(path string) (t table.Table, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("%s: %w", path, err)
		}
	}()
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return table.Table{}, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return table.Table{}, err
	}
	if err := isTrusted(info); err != nil {
		return table.Table{}, err
	}
	data, err := io.ReadAll(io.LimitReader(file, table.MaxFile+1))
	if err != nil {
		return table.Table{}, err
	}
	if len(data) > table.MaxFile {
		return table.Table{}, errors.New("too large")
	}
	return table.Parse(data)
}

func isTrusted(info fs.FileInfo) error {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.Mode().IsRegular():
		return errors.New("not a regular file")
	case info.Mode().Perm()&0o022 != 0:
		return fmt.Errorf("mode %#o: others may write to it (chmod go-w)", info.Mode().Perm())
	case !ok:
		return errors.New("unknown owner")
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return fmt.Errorf("owned by user %d, want root", stat.Uid)
	}
	return nil
}

func stampOf(info fs.FileInfo) stamp {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return stamp{size: uint64(info.Size())}
	}
	return stamp{stat.Dev, stat.Ino, uint64(stat.Size), stat.Mode, stat.Uid, stat.Ctim}
}

// Result is the result of a request to the local registry.
type Result string

// The results.
const (
	Served  Result = "served"  // the tag or digest is in the table
	Unknown Result = "unknown" // it is not: containerd asks the next host
	Refused Result = "refused" // not a HEAD of a manifest
)

// JournalFile is the name of the journal of answers in the runtime directory. Processes append to it one after another.
// It is empty after a boot, and at MaxJournal bytes it keeps only the last time that each image was served: any user
// may send requests, and they must not erase what kubelet was served.
const (
	JournalFile = "answers"
	MaxJournal  = 64 << 10
)

// AgentName is the User-Agent of the agent's own requests. They start no container, so they are not recorded.
const AgentName = "image-update-agent"

// Note appends an answer to the journal in a directory: the time, the result, and the image that was served. It returns
// no error, because a failure must not prevent the answer.
func Note(dir string, r Result, e table.Entry, at time.Time) {
	path := filepath.Join(dir, JournalFile)
	line := strconv.FormatInt(at.Unix(), 10) + " " + string(r)
	if r == Served {
		line += " " + e.Image()
	}
	info, err := os.Lstat(path)
	switch {
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return
	case err == nil && info.Size() >= MaxJournal:
		shorten(path)
	}
	file, err := open(path, os.O_WRONLY|os.O_CREATE|os.O_APPEND)
	if err != nil {
		return
	}
	defer file.Close()
	_, _ = file.WriteString(line + "\n")
}

// open opens a regular file for all to read: with the umask of the service the daemon could not. A FIFO would block,
// and with it all other clients.
func open(path string, flags int) (*os.File, error) {
	file, err := os.OpenFile(path, flags|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0o600)
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("not a regular file")
	}
	if err == nil {
		err = file.Chmod(0o644)
	}
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return file, nil
}

// shorten replaces the journal by one with the last served line of each image. If it cannot, it removes the journal.
func shorten(path string) {
	next := path + ".new"
	err := os.Remove(next)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = copyServed(path, next)
	}
	if err == nil {
		err = os.Rename(next, path)
	}
	if err != nil {
		_ = os.Remove(path)
	}
}

func copyServed(from, to string) error {
	journal, err := os.OpenFile(from, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer journal.Close()
	data, err := io.ReadAll(io.LimitReader(journal, 2*MaxJournal))
	if err != nil {
		return err
	}
	file, err := open(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL)
	if err != nil {
		return err
	}
	_, err = file.Write(lastServed(data))
	return errors.Join(err, file.Close())
}

// lastServed returns the last line of each image that was served, the latest ones up to half of MaxJournal, in their
// order.
func lastServed(data []byte) []byte {
	lines := bytes.SplitAfter(data, []byte("\n"))
	seen, size, from := map[string]bool{}, 0, len(lines)
	for n := len(lines) - 1; n >= 0; n-- {
		_, answer, _ := bytes.Cut(lines[n], []byte(" "))
		isServed := bytes.HasPrefix(answer, []byte(string(Served)+" ")) && bytes.HasSuffix(answer, []byte("\n"))
		if !isServed || seen[string(answer)] || size+len(lines[n]) > MaxJournal/2 {
			lines[n] = nil
			continue
		}
		seen[string(answer)] = true
		size += len(lines[n])
		from = n
	}
	return bytes.Join(lines[from:], nil)
}
