// SPDX-License-Identifier: Apache-2.0

// Package bus asks services on the system's D-Bus a question or two and hangs
// up, and lets a service of our own be asked.
//
// Who asks is looking, not listening: no signals, no connection that stays, and a
// file descriptor only where Take asks for one. What comes back is bounded: a
// connection ends with its context, and when it has brought more than maxAnswer.
// Who is asked (Join) stays; there each message is bounded, and none brings
// descriptors.
//
// A bus or a service that the node does not have is ErrNone or ErrAbsent; one
// that is there and says nothing in time is ErrSilent.
package bus

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strings"
	"syscall"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

var (
	// ErrNone: the node has no system bus: no socket, or nobody listens there.
	ErrNone = errors.New("there is no system bus")
	// ErrAbsent: nobody on the bus has that name.
	ErrAbsent = errors.New("not there")
	// ErrSilent: no answer came in time.
	ErrSilent = errors.New("no answer in time")

	errTooMuch = fmt.Errorf("more than %d KiB", maxAnswer>>10)
)

// maxAnswer bounds what one connection may bring, in bytes. A list of 200
// snapshots, more than a file system is fit for, is 20 KB.
const maxAnswer = 256 << 10

// Conn is a connection to a bus, for one question after the other.
type Conn struct{ t taker }

// Open connects to the bus at a D-Bus address such as
// "unix:path=/run/dbus/system_bus_socket". Of an address with alternatives the
// first is taken.
func Open(ctx context.Context, address string) (*Conn, error) {
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer endWith(ctx, conn)()
	c := &Conn{taker{conn: conn, left: maxAnswer}}
	if err := c.t.login(false); err != nil {
		c.Close()
		return nil, fmt.Errorf("system bus: %w", explain(ctx, err))
	}
	return c, nil
}

// Close hangs up.
func (c *Conn) Close() { _ = c.t.conn.Close() } // nothing is on its way

// ID is the bus's own, which no other has, and none that is started in its place.
func (c *Conn) ID(ctx context.Context) (id string, err error) {
	err = c.Ask(ctx, itself("GetId"), &id)
	return id, err
}

// Question is a method of an object of a service.
type Question struct {
	Service string
	Path    string
	Method  string // with its interface
	Args    []any
	// Start: a service that the bus can start is started for it.
	Start bool
}

// Ask asks and stores the answer in what into points to; an answer of another
// type is an error. Where ctx ends before the answer, so does the connection.
func (c *Conn) Ask(ctx context.Context, q Question, into ...any) error {
	defer endWith(ctx, c.t.conn)()
	defer c.t.drop()
	body, err := c.t.ask(q)
	if err == nil {
		err = dbus.Store(body, into...)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", q.Service, explain(ctx, err))
	}
	return nil
}

// explain turns the bus's errors, and those of a connection that has ended with its
// context, into ours.
func explain(ctx context.Context, err error) error {
	var answer dbus.Error
	switch {
	case errors.As(err, &answer):
		switch answer.Name {
		case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner":
			return ErrAbsent
		}
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
func At(socket string) string {
	address := []byte("unix:path=")
	for _, c := range []byte(socket) {
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("-_/.", c) >= 0 {
			address = append(address, c)
			continue
		}
		address = fmt.Appendf(address, "%%%02x", c)
	}
	return string(address)
}

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

func isNobody(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ECONNREFUSED)
}
