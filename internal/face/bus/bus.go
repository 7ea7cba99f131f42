// SPDX-License-Identifier: Apache-2.0

// Package bus calls methods of services on the system's D-Bus, and serves an object
// of the daemon there.
//
// A client connects for one or a few questions, receives no signals, and a file
// descriptor only from Take; answers are bounded. A service (Join) receives its calls
// one after the other, bounded, and no descriptors.
//
// A bus or a service that the node does not have is ErrNone or ErrAbsent; one
// that does not answer in time is ErrSilent.
//
// Why a connection of our own, framed here and coded by godbus: any user may send 32 MiB to a service. godbus reads
// messages whole and starts a goroutine for each call: one Ping of 31 MiB takes 305 MB there, and 6 here.
package bus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"strings"
	"syscall"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

var (
	// ErrNone: the node has no system bus: no socket, or no process listens on it.
	ErrNone = errors.New("there is no system bus")
	// ErrAbsent: no connection on the bus owns the name.
	ErrAbsent = errors.New("not on the bus")
	// ErrSilent: no answer came in time.
	ErrSilent = errors.New("no answer in time")
)

// Conn is a connection to a bus, for one question after the other.
type Conn struct{ stream *stream }

// Open connects to the bus at a D-Bus address such as
// "unix:path=/run/dbus/system_bus_socket". Of an address with alternatives the
// first is taken.
func Open(ctx context.Context, address string) (*Conn, error) {
	s, err := dial(ctx, address, false)
	if err != nil {
		return nil, err
	}
	return &Conn{s}, nil
}

// Close hangs up.
func (c *Conn) Close() { c.stream.close() }

// ID returns the ID of the bus. A bus that is started in its place has another one.
func (c *Conn) ID(ctx context.Context) (id string, err error) {
	err = c.Ask(ctx, Driver("GetId"), &id)
	return id, err
}

// Question is a method of an object of a service.
type Question struct {
	Service string
	Path    string
	Method  string // with its interface
	Args    []any
	// Start makes the bus start the service, if it can.
	Start bool
}

// Driver is a question to the bus itself.
func Driver(method string, args ...any) Question {
	const name = "org.freedesktop.DBus"
	return Question{Service: name, Path: "/org/freedesktop/DBus", Method: name + "." + method, Args: args}
}

// Ask calls a method and stores the answer in the variables that into points to; an
// answer of another type is an error. If ctx ends before the answer, the connection
// ends, too.
func (c *Conn) Ask(ctx context.Context, q Question, into ...any) error {
	body, err := c.stream.ask(ctx, q)
	if err == nil {
		err = outside.Error(dbus.Store(body, into...))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", q.Service, err)
	}
	return nil
}

// explain maps errors of the bus, and of a connection that ctx has ended, to those of
// this package.
func explain(ctx context.Context, err error) error {
	answer, ok := errors.AsType[dbus.Error](err)
	switch {
	case ok && (answer.Name == "org.freedesktop.DBus.Error.ServiceUnknown" ||
		answer.Name == "org.freedesktop.DBus.Error.NameHasNoOwner"):
		return ErrAbsent
	case ok:
		return errors.New(outside.Text(answer.Name + ": " + answer.Error()))
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return ErrSilent
	case ctx.Err() != nil:
		return ctx.Err()
	default:
		return outside.Error(err)
	}
}

// At is the address of a bus on a unix socket.
func At(socket string) string { return "unix:path=" + dbus.EscapeBusAddressValue(socket) }

// socketOf finds the unix socket in a D-Bus address; abstract ones begin with @
// as in unix(7) for Go.
func socketOf(address string) (string, error) {
	first, _, _ := strings.Cut(address, ";")
	rest, ok := strings.CutPrefix(first, "unix:")
	if ok {
		for pair := range strings.SplitSeq(rest, ",") {
			key, value, _ := strings.Cut(pair, "=")
			value, err := url.PathUnescape(value) // D-Bus escapes as URLs do
			switch {
			case err != nil || value == "":
			case key == "path":
				return value, nil
			case key == "abstract":
				return "@" + value, nil
			}
		}
	}
	return "", fmt.Errorf("system bus: address %q: not a unix socket", outside.Text(address))
}

// hasNoListener reports whether no process listens on a socket.
func hasNoListener(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ECONNREFUSED)
}

// Take calls a method whose answer is one file descriptor, and returns that. It stays
// open after the connection has ended; the caller closes it.
func Take(ctx context.Context, address string, q Question) (*os.File, error) {
	s, err := dial(ctx, address, true)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.Service, err)
	}
	defer s.close()
	defer s.drop()
	body, err := s.ask(ctx, q)
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", q.Service, err)
	case len(body) != 1 || body[0] != dbus.UnixFDIndex(0) || len(s.fds) != 1:
		return nil, fmt.Errorf("%s: want one file descriptor as the answer", q.Service)
	}
	file := os.NewFile(uintptr(s.fds[0]), q.Service)
	s.fds = nil
	return file, nil
}
