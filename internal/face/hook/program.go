// SPDX-License-Identifier: Apache-2.0

package hook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// ErrUnsafe says that another user could replace the program.
var ErrUnsafe = errors.New("unsafe")

const (
	// killAfter is how long a program has after SIGTERM.
	killAfter = 5 * time.Second
	// maxLinks limits the symlinks that are followed: the kernel's limit.
	maxLinks = 40
)

// Program is a hook's program.
type Program struct {
	Root    string // the host's root: nothing above it is checked
	Path    string // absolute, below Root
	Args    []string
	Input   []byte
	Output  io.Writer // stdout and stderr
	Timeout time.Duration
}

// Run runs the program to its end, in its own environment. Its child processes end with it.
func (p Program) Run(ctx context.Context) error {
	file, err := p.Check()
	if err != nil {
		return err
	}
	limited, cancel := context.WithTimeout(ctx, p.Timeout)
	defer cancel()
	cmd := exec.CommandContext(limited, file, p.Args...)
	cmd.Args[0] = p.Path
	cmd.Dir = "/"
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/root", "LANG=C.UTF-8"}
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(p.Input), p.Output, p.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = killAfter
	if err := cmd.Start(); err != nil {
		return err // the error names the path
	}
	err = cmd.Wait()
	_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // ESRCH: all have ended
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("%s: %w", p.Path, ctx.Err())
	case limited.Err() != nil:
		return fmt.Errorf("%s: did not end within %s", p.Path, p.Timeout)
	case err != nil && !errors.Is(err, exec.ErrWaitDelay): // a remaining child had the output open
		return fmt.Errorf("%s: %w", p.Path, err)
	}
	return nil
}

// Check returns why the program cannot run: it does not exist, is not executable, or ErrUnsafe. Otherwise it returns
// its path without symlinks.
func (p Program) Check() (string, error) {
	root := filepath.Clean(p.Root)
	at, rest := root, names(strings.TrimPrefix(filepath.Clean(p.Path), root))
	info, err := trusted(at)
	for links := 0; err == nil && len(rest) > 0; {
		if !info.IsDir() {
			return "", fmt.Errorf("%s: %s: not a directory", p.Path, at)
		}
		next := filepath.Join(at, rest[0])
		if info, err = trusted(next); err != nil || info.Mode().Type() != fs.ModeSymlink {
			at, rest = next, rest[1:]
			continue
		}
		target, readErr := os.Readlink(next)
		if links++; readErr != nil || links > maxLinks {
			return "", errors.Join(fmt.Errorf("%s: %s: too many symlinks", p.Path, next), readErr)
		}
		if !filepath.IsAbs(target) {
			target = filepath.Join("/", strings.TrimPrefix(at, root), target) // nothing in at is a symlink
		}
		at, rest = root, append(names(filepath.Clean(target)), rest[1:]...)
		info, err = trusted(at)
	}
	switch {
	case err != nil:
		return "", fmt.Errorf("%s: %w", p.Path, err)
	case !info.Mode().IsRegular():
		return "", fmt.Errorf("%s: not a file", p.Path)
	case info.Mode().Perm()&0o111 == 0:
		return "", fmt.Errorf("%s: not executable (%s)", p.Path, info.Mode().Perm())
	}
	return at, nil
}

func names(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
}

// trusted checks one file, directory or symlink: it must belong to root or to the current user.
func trusted(path string) (fs.FileInfo, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !ok:
		return nil, fmt.Errorf("%w: %s: unknown owner", ErrUnsafe, path)
	case stat.Uid != 0 && int(stat.Uid) != os.Geteuid():
		return nil, fmt.Errorf("%w: %s belongs to user %d", ErrUnsafe, path, stat.Uid)
	case info.Mode().Type() != fs.ModeSymlink && info.Mode().Perm()&0o022 != 0:
		return nil, fmt.Errorf("%w: others may write to %s (%s)", ErrUnsafe, path, info.Mode().Perm())
	}
	return info, nil
}
