// SPDX-License-Identifier: Apache-2.0

package answer

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// listener is a *net.TCPListener.
type listener interface {
	Accept() (net.Conn, error)
	SetDeadline(time.Time) error
}

// ServeFile serves the listening socket in file, which systemd passes to a service with StandardInput=socket.
func (s *Server) ServeFile(ctx context.Context, file *os.File) error {
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("local registry: %s is not a listening socket: %w", file.Name(), err)
	}
	defer func() { _ = l.Close() }() // systemd still has the socket open
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("local registry: %s is a socket of %s: want tcp", file.Name(), l.Addr().Network())
	}
	return s.Serve(ctx, tcp, born())
}

// Serve answers all clients until no client has come for a second, until the process, started at born, is 3 s old, or
// until ctx ends. Later clients wait in the socket, for which systemd starts the next process: so no client is lost, no
// process stays resident, and systemd detects a hanging process by its age.
func (s *Server) Serve(ctx context.Context, l listener, born time.Time) error {
	r := newRoom()
	// On a booting node a program may take seconds to start.
	end := born.Add(s.times.life)
	if least := time.Now().Add(s.times.least); end.Before(least) {
		end = least
	}
	err := s.admit(ctx, l, r, end)
	r.end(s.times.silence)
	s.sayWhatWasTooMuch(r)
	if err != nil {
		return fmt.Errorf("local registry: %w", err)
	}
	return nil
}

// admit accepts clients until it is time to end.
func (s *Server) admit(ctx context.Context, l listener, r *room, end time.Time) error {
	defer context.AfterFunc(ctx, func() { _ = l.SetDeadline(time.Unix(1, 0)) })()
	for time.Now().Before(end) {
		if err := l.SetDeadline(earlier(end, time.Now().Add(s.times.idle))); err != nil || ctx.Err() != nil {
			return err
		}
		conn, err := l.Accept()
		switch {
		case err == nil:
			s.welcome(r, conn)
		case isShortage(err):
			r.makePlace()
		case !errors.Is(err, os.ErrDeadlineExceeded):
			return err
		case r.isEmpty():
			return nil
		}
	}
	return nil
}

// welcome serves a client concurrently.
func (s *Server) welcome(r *room, conn net.Conn) {
	g := r.enter(conn)
	go func() {
		defer r.leave(g)
		s.serve(g, func() { r.hasAsked(g) })
	}()
}

// sayWhatWasTooMuch logs one line for each limit that clients have exceeded.
func (s *Server) sayWhatWasTooMuch(r *room) {
	if n := r.wereCut(); n > 0 {
		s.log.Warn("closed connections to the local registry: too many clients at once", "clients", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.answers - maxLines; n > 0 {
		s.log.Warn("served more manifests than are logged here", "answers", n)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// isShortage reports whether accept(2) failed for lack of a resource that clients release when they leave.
func isShortage(err error) bool {
	for _, of := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}
