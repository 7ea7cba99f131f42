// SPDX-License-Identifier: Apache-2.0

package contents

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"runtime"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// nobody is a user and group that no other process has: systemd's range for containers ends below it, and so do the
// ranges that kubelet gives to pods. The user nobody would do for files, but containers run as nobody, too.
const nobody = 2147483646

// Read makes another process parse the files: this program with the arguments, which must call Serve with the others
// that it gets. If it has root's rights, the other one has none: another user, no capability, no network, no way to get
// any of them, no process that outlives it, and a bound for memory and time. Nil: there is no list of packages.
func Read(ctx context.Context, files []File, args ...string) ([]Package, error) {
	if len(files) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, maxTime)
	defer cancel()
	for _, f := range files {
		args = append(args, f.Kind+"="+f.Name)
	}
	reader := exec.CommandContext(ctx, "/proc/self/exe", args...)
	reader.Args[0], reader.Env = os.Args[0], []string{"GOMAXPROCS=1", "GOMEMLIMIT=100MiB"}
	reader.Dir, reader.WaitDelay = "/", time.Second
	for _, f := range files {
		reader.ExtraFiles = append(reader.ExtraFiles, f.File)
	}
	reader.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		reader.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
		reader.SysProcAttr.Cloneflags = syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWPID
	}
	answer, message := bounded{most: maxAnswer}, bounded{most: maxMessage}
	reader.Stdout, reader.Stderr = &answer, &message
	if err := withoutNewRights(reader.Run); err != nil {
		said := strings.TrimSpace(message.data.String())
		if said == "" || ctx.Err() != nil {
			return nil, outside.Error(errors.Join(context.Cause(ctx), fmt.Errorf("package reader: %w", err)))
		}
		return nil, outside.Error(errors.New(said))
	}
	packages, err := decode(&answer.data)
	if err != nil {
		return nil, outside.Error(fmt.Errorf("package reader: malformed answer: %w", err))
	}
	return packages, nil
}

// decode reads what Serve has written. No two packages become the same by what is done to their texts.
func decode(answer io.Reader) ([]Package, error) {
	var packages []Package
	for in := json.NewDecoder(answer); ; {
		var p Package
		switch err := in.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, err
		case len(packages) == maxPackages:
			return nil, tooMany(maxPackages, "packages")
		}
		for _, text := range []string{p.Format, p.Name, p.Arch, p.Version, p.Source} {
			if outside.Line(text, maxText) != text {
				return nil, fmt.Errorf("package %.80q %.80q: want at most %d printable bytes", p.Name, p.Version, maxText)
			}
		}
		packages = append(packages, p)
	}
}

// withoutNewRights runs a function whose processes get no rights from the files that they start. The thread ends with
// its goroutine, so nothing else has it.
func withoutNewRights(run func() error) error {
	ended := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			ended <- err
			return
		}
		ended <- run()
	}()
	return <-ended
}

// bounded keeps the first bytes, and fails at more.
type bounded struct {
	data bytes.Buffer // not embedded: io.Copy would call its ReadFrom, which has no bound
	most int
}

func (b *bounded) Write(p []byte) (int, error) {
	n := min(len(p), b.most-b.data.Len())
	b.data.Write(p[:n])
	if n < len(p) {
		return n, fmt.Errorf("more than %d bytes", b.most)
	}
	return n, nil
}

// Serve is the other process: it writes the packages of its files, which are open from descriptor 3 on and named by
// the arguments, to out. It must not be called in a process that does anything else.
func Serve(args []string, out io.Writer) error {
	if err := confine(); err != nil {
		return err
	}
	answer, count := json.NewEncoder(out), 0
	for n, arg := range args {
		kind, name, _ := strings.Cut(arg, "=")
		file := os.NewFile(uintptr(3+n), name)
		found, err := parse(kind, name, file)
		_ = file.Close()
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if count += len(found); count > maxPackages {
			return tooMany(maxPackages, "packages")
		}
		for _, p := range found {
			if err := answer.Encode(p); err != nil {
				return err
			}
		}
	}
	return nil
}

// confine bounds what the process may use, before it reads anything.
func confine() error {
	for resource, most := range map[int]uint64{
		unix.RLIMIT_DATA: maxMemory, unix.RLIMIT_CPU: maxSeconds, unix.RLIMIT_FSIZE: 0, unix.RLIMIT_CORE: 0,
	} {
		if err := unix.Setrlimit(resource, &unix.Rlimit{Cur: most, Max: most}); err != nil {
			return fmt.Errorf("limits of the package reader: %w", err)
		}
	}
	return nil
}

// parse reads one file.
func parse(kind, name string, file *os.File) ([]Package, error) {
	if kind == Go {
		return readGo(name, file)
	}
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > maxDatabase {
		return nil, fmt.Errorf("%d bytes, at most %d", info.Size(), maxDatabase)
	}
	db := make([]byte, info.Size())
	if _, err := file.ReadAt(db, 0); err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	switch kind {
	case RPM:
		return readRPM(db)
	case Dpkg:
		return readDpkg(db, path.Base(name) != "status") // distroless has a file of each package
	case Apk:
		return readApk(db)
	default:
		return nil, errUnknown
	}
}
