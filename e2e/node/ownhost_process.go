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

// supervise opens the port, and runs processes for those who come, until the test ends.
func (o *OwnHost) supervise() {
	for o.open() {
		for o.someoneWaits() && o.serveOnce() == nil {
		}
		o.close()
		timer := time.NewTimer(o.again)
		<-timer.C
	}
}

// open opens the port; false: the test is over.
func (o *OwnHost) open() bool {
	o.lock.Lock()
	defer o.lock.Unlock()
	if o.isOver {
		return false
	}
	socket, err := net.ListenTCP("tcp", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		o.node.tb.Errorf("node: own host: %v", err)
		return false
	}
	o.socket = socket
	o.changed.Broadcast()
	return true
}

// close refuses all who wait.
func (o *OwnHost) close() {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.shut()
	o.socket = nil
	o.changed.Broadcast()
}

// over ends everything.
func (o *OwnHost) over() {
	o.lock.Lock()
	defer o.lock.Unlock()
	o.isOver = true
	o.stop()
	if o.socket != nil {
		o.shut()
	}
	o.changed.Broadcast()
}

// stop ends a process, which is no failure. The caller has the lock.
func (o *OwnHost) stop() {
	if o.process != nil {
		o.stopped = true
		_ = o.process.Kill()
	}
}

// someoneWaits returns when there is a client; false: the socket was shut.
func (o *OwnHost) someoneWaits() (waits bool) {
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

// shut closes the socket, also for who waits for clients. The caller has the lock.
func (o *OwnHost) shut() {
	if raw, err := o.socket.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) })
	}
	_ = o.socket.Close()
}

// serveOnce runs a process to its end. The error is its failure.
func (o *OwnHost) serveOnce() error {
	socket, err := o.socket.File()
	if err != nil {
		return err
	}
	defer func() { _ = socket.Close() }()
	name := filepath.Join(o.node.Dir, "log", "agent-localhost.log")
	log, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }()
	process, err := o.start(socket, log)
	if err != nil {
		return err
	}
	kill := time.AfterFunc(o.runtimeMax, func() {
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

func (o *OwnHost) start(socket, log *os.File) (*exec.Cmd, error) {
	o.lock.Lock()
	defer o.lock.Unlock()
	process := exec.CommandContext(o.node.tb.Context(), o.argv[0], o.argv[1:]...)
	process.Stdin, process.Stdout, process.Stderr = socket, log, log
	process.Env = []string{searchPath(), "RUNTIME_DIRECTORY=" + o.node.Path(runtimeDir)}
	if err := process.Start(); err != nil {
		return nil, err
	}
	o.process, o.stopped = process.Process, false
	return process, nil
}

// pass has a client's connection served.
func (o *OwnHost) pass(conn net.Conn, r Request) {
	o.lock.Lock()
	if r.UserAgent != "image-update-agent" {
		o.requests = append(o.requests, r)
	}
	socket := o.socket
	o.lock.Unlock()
	if socket == nil {
		return
	}
	// A power cut takes what is below run.
	if err := os.MkdirAll(o.node.Path(runtimeDir), 0o755); err != nil {
		o.node.tb.Errorf("node: own host: %v", err)
	}
	server, err := net.Dial("tcp", socket.Addr().String())
	if errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) {
		return // it was stopped meanwhile
	}
	if err != nil {
		o.node.tb.Errorf("node: own host: %v", err)
		return
	}
	go func() {
		_, _ = io.Copy(server, conn)
		_ = server.Close()
	}()
	_, _ = io.Copy(conn, server)
	_ = server.Close()
}
