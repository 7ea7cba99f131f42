// SPDX-License-Identifier: Apache-2.0

package node

import (
	"errors"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// supervise opens the port, and runs processes for waiting clients, until the test ends.
func (o *LocalRegistry) supervise() {
	for o.open() {
		for o.someoneWaits() && o.serveOnce() == nil {
		}
		o.close()
		timer := time.NewTimer(o.again)
		<-timer.C
	}
}

// open opens the port; false: the test is over.
func (o *LocalRegistry) open() bool {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.isOver {
		return false
	}
	socket, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		o.node.tb.Errorf("node: local registry: %v", err)
		return false
	}
	o.socket = socket
	o.changed.Broadcast()
	return true
}

// close closes the port and all waiting connections.
func (o *LocalRegistry) close() {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.shut()
	o.socket = nil
	o.changed.Broadcast()
}

// over stops the process and closes the socket.
func (o *LocalRegistry) over() {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.isOver = true
	o.stop()
	if o.socket != nil {
		o.shut()
	}
	o.changed.Broadcast()
}

// stop ends the process, which then does not count as failed. The caller holds the lock.
func (o *LocalRegistry) stop() {
	if o.process != nil {
		o.stopped = true
		_ = o.process.Kill()
	}
}

// someoneWaits waits for a client; false: the socket was shut.
func (o *LocalRegistry) someoneWaits() (waits bool) {
	raw, err := o.socket.SyscallConn()
	if err != nil {
		return false
	}
	err = raw.Control(func(fd uintptr) {
		for {
			ready := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
			_, err := unix.Poll(ready, -1)
			if errors.Is(err, unix.EINTR) {
				continue
			}
			waits = err == nil && ready[0].Revents == unix.POLLIN
			return
		}
	})
	return err == nil && waits
}

// shut closes the socket, which also ends someoneWaits. The caller holds the lock.
func (o *LocalRegistry) shut() {
	if raw, err := o.socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	_ = o.socket.Close()
}

// serveOnce runs a process and waits for its end. The error is its failure.
func (o *LocalRegistry) serveOnce() error {
	socket, err := o.socket.File()
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	name := filepath.Join(o.node.Dir, "log", "local-registry.log")
	log, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	process, limit, err := o.start(socket, log)
	if err != nil {
		return err
	}
	kill := time.AfterFunc(limit, func() {
		o.lock.Lock()
		defer o.lock.Unlock()
		o.killed++
		_ = process.Process.Kill()
	})
	err = process.Wait()
	kill.Stop()
	o.lock.Lock()
	defer o.lock.Unlock()
	o.process = nil
	o.changed.Broadcast()
	if o.stopped {
		return nil
	}
	return err
}

// start returns a process and the time after which it is killed.
func (o *LocalRegistry) start(socket, log *os.File) (*exec.Cmd, time.Duration, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	process := exec.CommandContext(o.node.tb.Context(), o.argv[0], o.argv[1:]...)
	process.Stdin, process.Stdout, process.Stderr = socket, log, log
	process.Env = []string{searchPath(), "RUNTIME_DIRECTORY=" + o.node.Path(runtimeDir)}
	if err := process.Start(); err != nil {
		return nil, 0, err
	}
	o.process, o.stopped = process.Process, false
	return process, o.limit, nil
}

// pass passes a client's connection to a process.
func (o *LocalRegistry) pass(conn net.Conn, r Request) {
	o.lock.Lock()
	if r.UserAgent != "image-update-agent" {
		o.requests = append(o.requests, r)
	}
	socket := o.socket
	o.lock.Unlock()
	if socket == nil {
		return
	}
	// A power cut deletes /run.
	if err := os.MkdirAll(o.node.Path(runtimeDir), 0o755); err != nil {
		o.node.tb.Errorf("node: local registry: %v", err)
	}
	head := make([]byte, maxHead) // read before the process begins to wait for it: it does so for 300 ms only
	size, err := conn.Read(head)
	if err != nil {
		return
	}
	server, err := net.Dial("tcp", socket.Addr().String())
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
		return // stopped in the meantime
	}
	if err != nil {
		o.node.tb.Errorf("node: local registry: %v", err)
		return
	}
	_, _ = server.Write(head[:size])
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
	_ = server.Close()
}
