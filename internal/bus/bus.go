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
	"bufio"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"syscall"
	"unicode"

	"github.com/godbus/dbus/v5"
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

const (
	// maxAnswer bounds what one connection may bring, in bytes. A list of 200
	// snapshots, more than a file system is fit for, is 20 KB.
	maxAnswer = 256 << 10
	// maxLine bounds Line, in bytes.
	maxLine = 200
)

// Conn is a connection to a bus.
type Conn struct{ conn *dbus.Conn }

// Open connects to the bus at a D-Bus address such as
// "unix:path=/run/dbus/system_bus_socket", until ctx ends. Of an address with
// alternatives the first is taken.
func Open(ctx context.Context, address string) (*Conn, error) {
	socket, err := socketOf(address)
	if err != nil {
		return nil, err
	}
	var dialer net.Dialer
	stream, err := dialer.DialContext(ctx, "unix", socket)
	if isNobody(err) {
		return nil, ErrNone
	}
	if err != nil {
		return nil, fmt.Errorf("system bus: %w", err)
	}
	bounded := &bounded{Conn: stream, left: maxAnswer}
	bounded.reader = bufio.NewReader(limit{bounded})
	conn, err := dbus.NewConn(bounded, dbus.WithContext(ctx))
	if err != nil {
		_ = stream.Close()
		return nil, fmt.Errorf("system bus: %w", err)
	}
	if err := hello(ctx, conn); err != nil {
		_ = conn.Close() // of a connection that was not made
		return nil, fmt.Errorf("system bus: %w", explain(ctx, err))
	}
	return &Conn{conn}, nil
}

// hello logs in as the user that the kernel says we are.
func hello(ctx context.Context, conn *dbus.Conn) error {
	if err := conn.Auth([]dbus.Auth{dbus.AuthExternal(strconv.Itoa(os.Getuid()))}); err != nil {
		return err
	}
	return conn.BusObject().CallWithContext(ctx, "org.freedesktop.DBus.Hello", 0).Err
}

// Close hangs up.
func (c *Conn) Close() { _ = c.conn.Close() } // nothing is on its way

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
// type is an error.
func (c *Conn) Ask(ctx context.Context, q Question, into ...any) error {
	flags := dbus.FlagNoAutoStart
	if q.Start {
		flags = 0
	}
	call := c.conn.Object(q.Service, dbus.ObjectPath(q.Path)).CallWithContext(ctx, q.Method, flags, q.Args...)
	if err := call.Store(into...); err != nil {
		return fmt.Errorf("%s: %w", q.Service, explain(ctx, err))
	}
	return nil
}

// explain turns the library's errors, and the bus's, into ours.
func explain(ctx context.Context, err error) error {
	var answer dbus.Error
	switch {
	case errors.As(err, &answer):
		switch answer.Name {
		case "org.freedesktop.DBus.Error.ServiceUnknown", "org.freedesktop.DBus.Error.NameHasNoOwner":
			return ErrAbsent
		}
		return errors.New(Line(answer.Name + ": " + answer.Error()))
	case errors.Is(ctx.Err(), context.DeadlineExceeded): // which closed the connection
		return ErrSilent
	default:
		return err
	}
}

// Line makes one line for people of what a service said: printable, and not
// too long.
func Line(text string) string {
	text = strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
	if len(text) > maxLine {
		text = strings.ToValidUTF8(text[:maxLine], "") + "..."
	}
	return text
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
	return "", fmt.Errorf("system bus: address %q: not a unix socket", Line(address))
}

func isNobody(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) || errors.Is(err, syscall.ECONNREFUSED)
}

// bounded reads by way of a buffer, as the library reads a message in many
// small pieces, and no more than it may.
type bounded struct {
	net.Conn
	reader *bufio.Reader
	left   int
}

func (b *bounded) Read(p []byte) (int, error) { return b.reader.Read(p) }

// limit is the connection below the buffer.
type limit struct{ *bounded }

func (l limit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errTooMuch
	}
	n, err := l.Conn.Read(p[:min(len(p), l.left)])
	l.left -= n
	return n, err
}
