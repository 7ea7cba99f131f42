// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// lockFd is the file descriptor by which the owner passes on the directory's lock.
const lockFd = 3

// Keep runs the keeper process: it starts init with its own standard input and output, waits for it, and removes the
// node's cgroups and directory. It holds the directory's lock until then (see Sweep).
func Keep(dir string) error {
	unix.CloseOnExec(lockFd)
	if err := makeCgroups(filepath.Base(dir)); err != nil {
		return fmt.Errorf("keeper: %w", errors.Join(err, remove(dir)))
	}
	// The kernel sends Pdeathsig when the thread that forked ends, so the thread has to live as long as the process.
	runtime.LockOSThread()
	program := exec.CommandContext(context.Background(), "/proc/self/exe", "init") // ends with its input
	program.Stdin, program.Stdout, program.Stderr = os.Stdin, os.Stdout, os.Stderr
	program.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNS,
		Pdeathsig:  unix.SIGKILL,
	}
	stops := make(chan os.Signal, 1)
	signal.Notify(stops, unix.SIGINT, unix.SIGTERM, unix.SIGHUP)
	if err := program.Start(); err != nil {
		return fmt.Errorf("keeper: %w", errors.Join(err, remove(dir)))
	}
	go func() {
		<-stops
		_ = program.Process.Kill()
	}()
	return errors.Join(program.Wait(), remove(dir))
}
