// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// private lists the directories that containerd, its shims and kubelet use on every machine whatever their
// configuration is; the node gets its own empty ones.
//   - /run/containerd: the shims' sockets and runc's state
//   - /var/lib/kubelet: the sockets of device plugins
//   - /var/log/containers: links to the logs of containers
func private() []string {
	return []string{"/run/containerd", "/var/lib/kubelet", "/var/log/containers"}
}

// sysctls lists the kernel parameters that kubelet sets when it starts (setupKernelTunables in
// pkg/kubelet/cm/container_manager_linux.go). In the node, kubelet writes to copies of these files instead.
func sysctls() []string {
	return []string{
		"vm/overcommit_memory", "vm/panic_on_oom", "kernel/panic", "kernel/panic_on_oops",
		"kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes",
	}
}

// Init is process 1 of the node. It returns at the end of in, and the kernel then ends the node.
func Init(in io.Reader, out io.Writer) error {
	if os.Getpid() != 1 {
		return errors.New("init: not process 1 of a namespace")
	}
	if err := isolate(); err != nil {
		return fmt.Errorf("init: %w", err)
	}
	n := &initProcess{out: json.NewEncoder(out), ids: map[int]int{}, pids: map[int]int{}}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	go func() {
		for range children {
			n.reap()
		}
	}()
	n.send(event{})
	for decoder := json.NewDecoder(in); ; {
		var r request
		if err := decoder.Decode(&r); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("init: request: %w", err)
		}
		n.handle(r)
	}
}

// isolate separates the mounts from the host's and makes them shared within the node, as systemd does on a real node:
// kubelet needs that for mount propagation into containers.
func isolate() error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mounts: private: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("mounts: shared: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return fmt.Errorf("mounts: /proc: %w", err)
	}
	for _, dir := range private() {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("mounts: %w", err)
		}
		if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "mode=0755"); err != nil {
			return fmt.Errorf("mounts: %s: %w", dir, err)
		}
	}
	for _, name := range sysctls() {
		if err := shadow(filepath.Join("/proc/sys", name)); err != nil {
			return fmt.Errorf("mounts: %w", err)
		}
	}
	return nil
}

// shadow bind-mounts a copy, which is in a private directory, over a file.
func shadow(file string) error {
	value, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	duplicate := filepath.Join("/var/lib/kubelet", "shadow-"+filepath.Base(file))
	if err := os.WriteFile(duplicate, value, 0o600); err != nil {
		return err
	}
	if err := unix.Mount(duplicate, file, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return nil
}

// initProcess holds the requested processes. The lock is held from the fork to the reply, and while children are
// reaped, so that the exit of a process is never sent before its start.
type initProcess struct {
	lock sync.Mutex
	out  *json.Encoder
	ids  map[int]int // process id to request id
	pids map[int]int // request id to process id
}

// send ignores errors: if nobody reads, the owner is gone, and the input ends next.
func (n *initProcess) send(e event) { _ = n.out.Encode(e) }

func (n *initProcess) handle(r request) {
	n.lock.Lock()
	defer n.lock.Unlock()
	var err error
	if r.Command != nil {
		err = n.start(r.ID, *r.Command)
	} else {
		err = n.signal(r.Target, syscall.Signal(r.Signal))
	}
	reply := event{ID: r.ID}
	if err != nil {
		reply.Error = err.Error()
	}
	n.send(reply)
}

func (n *initProcess) start(id int, c Command) error {
	in, err := os.Open(os.DevNull)
	if err != nil {
		return err
	}
	defer func() { _ = in.Close() }()
	out, err := os.OpenFile(c.Stdout, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = out.Close() }()
	errs, err := os.OpenFile(c.Stderr, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = errs.Close() }()
	pid, err := syscall.ForkExec(c.Argv[0], c.Argv, &syscall.ProcAttr{
		Dir: "/", Env: c.Env, Files: []uintptr{in.Fd(), out.Fd(), errs.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return fmt.Errorf("%s: %w", c.Argv[0], err)
	}
	n.ids[pid], n.pids[id] = id, pid
	return nil
}

func (n *initProcess) signal(id int, s syscall.Signal) error {
	pid, running := n.pids[id]
	if !running {
		return syscall.ESRCH
	}
	return syscall.Kill(pid, s)
}

// reap waits for every child that ended: requested ones, and orphans of the namespace.
func (n *initProcess) reap() {
	n.lock.Lock()
	defer n.lock.Unlock()
	for {
		var status syscall.WaitStatus
		var usage syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, &usage)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		if id, ours := n.ids[pid]; ours {
			delete(n.ids, pid)
			delete(n.pids, id)
			n.send(event{ID: id, Exit: exitOf(status, usage)})
		}
	}
}

func exitOf(status syscall.WaitStatus, usage syscall.Rusage) *Exit {
	e := &Exit{
		Code:   status.ExitStatus(),
		CPU:    time.Duration(usage.Utime.Nano() + usage.Stime.Nano()),
		MaxRSS: usage.Maxrss << 10, // getrusage(2): kilobytes
	}
	if status.Signaled() {
		e.Signal = int(status.Signal())
	}
	return e
}
