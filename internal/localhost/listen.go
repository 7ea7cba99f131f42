// SPDX-License-Identifier: Apache-2.0

package localhost

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

// ServeFile serves the listening socket that file is, as systemd gives it to a service with StandardInput=socket.
func (s *Server) ServeFile(ctx context.Context, file *os.File) error {
	l, err := net.FileListener(file)
	if err != nil {
		return fmt.Errorf("own host: %s is no listening socket: %w", file.Name(), err)
	}
	defer func() { _ = l.Close() }() // systemd has the socket still
	tcp, ok := l.(*net.TCPListener)
	if !ok {
		return fmt.Errorf("own host: %s is a socket of %s: want tcp", file.Name(), l.Addr().Network())
	}
	return s.Serve(ctx, tcp, born())
}

// Serve answers all clients, until no client has come for a second, until the process, which was born at a time, is 3 s
// old, or until ctx ends. Who comes after that waits in the
// socket, for which systemd starts the next process: so no client is lost, nothing stays resident, and
// systemd finds a process that hangs by its age.
func (s *Server) Serve(ctx context.Context, l listener, born time.Time) error {
	r := newRoom()
	// A node that boots may take seconds to start a program.
	end := born.Add(s.times.life)
	if least := time.Now().Add(s.times.least); end.Before(least) {
		end = least
	}
	err := s.admit(ctx, l, r, end)
	r.end(s.times.silence)
	s.sayWhatWasTooMuch(r)
	if err != nil {
		return fmt.Errorf("own host: %w", err)
	}
	return nil
}

// admit lets clients in as they come, until it is time to end.
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

// welcome serves a client beside the others.
func (s *Server) welcome(r *room, conn net.Conn) {
	g := r.enter(conn)
	go func() {
		defer r.leave(g)
		s.serve(g, func() { r.hasAsked(g) })
	}()
}

// sayWhatWasTooMuch says in one line each what a crowd of clients has done.
func (s *Server) sayWhatWasTooMuch(r *room) {
	if n := r.wereCut(); n > 0 {
		s.log.Warn("clients of the own host were cut, as more came than can be served at once", "clients", n)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := s.answers - maxLines; n > 0 {
		s.log.Warn("more manifests were answered than have a line here", "answers", n)
	}
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// isShortage reports whether accept(2) failed for want of something that a client gives back when it leaves.
func isShortage(err error) bool {
	for _, of := range []error{syscall.EMFILE, syscall.ENFILE, syscall.ENOBUFS, syscall.ENOMEM} {
		if errors.Is(err, of) {
			return true
		}
	}
	return false
}
