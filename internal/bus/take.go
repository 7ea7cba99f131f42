// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/internal/outside"
)

// Take asks a question whose answer is one file descriptor, and returns that. It
// stays open when the connection, which is its own, has ended; Close it.
func Take(ctx context.Context, address string, q Question) (*os.File, error) {
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close() }()
	defer endWith(ctx, conn)()
	t := &taker{conn: conn, left: maxAnswer}
	defer t.drop()
	file, err := t.take(q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q.Service, explain(ctx, err))
	}
	return file, nil
}

// endWith has nothing come or go on a connection any more when ctx has ended. stop
// tells whether it has not.
func endWith(ctx context.Context, conn *net.UnixConn) (stop func() bool) {
	return context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) }) // long past
}

// dial opens the socket of a bus.
func dial(ctx context.Context, address string) (*net.UnixConn, error) {
	socket, err := socketOf(address)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: socket, Net: "unix"})
	switch {
	case isNobody(err):
		return nil, ErrNone
	case err != nil:
		return nil, fmt.Errorf("system bus: %w", err)
	default:
		return conn, nil
	}
}

// taker is a connection that asks, and reads descriptors. It frames and bounds
// messages by itself: the library reads them whole, however large, takes descriptors
// only from a socket that it has opened, and nobody closes those that come with a
// message that was not expected.
type taker struct {
	conn   *net.UnixConn
	left   int // bytes that may come
	serial uint32
	fds    []int // those of the message that was read last
}

func (t *taker) take(q Question) (*os.File, error) {
	if err := t.login(true); err != nil {
		return nil, err
	}
	body, err := t.ask(q)
	if err != nil {
		return nil, err
	}
	if len(body) == 1 && len(t.fds) == 1 {
		if i, ok := body[0].(dbus.UnixFDIndex); ok && i == 0 {
			file := os.NewFile(uintptr(t.fds[0]), q.Service)
			t.fds = nil
			return file, nil
		}
	}
	return nil, errors.New("the answer is not one file descriptor")
}

// login is the handshake of the D-Bus specification ("Authentication
// Protocol"), as the user that the kernel says we are. Without descriptors the bus
// lets nobody send any.
func (t *taker) login(descriptors bool) error {
	user := hex.EncodeToString([]byte(strconv.Itoa(os.Getuid())))
	steps := []struct{ say, want string }{
		{"\x00AUTH EXTERNAL " + user + "\r\n", "OK "},
		{"NEGOTIATE_UNIX_FD\r\n", "AGREE_UNIX_FD"},
	}
	if !descriptors {
		steps = steps[:1]
	}
	for _, step := range steps {
		if _, err := io.WriteString(t.conn, step.say); err != nil {
			return err
		}
		line, err := t.line()
		if err != nil {
			return err
		}
		if !strings.HasPrefix(line, step.want) {
			return fmt.Errorf("authentication failed: %s", outside.Text(line))
		}
	}
	if _, err := io.WriteString(t.conn, "BEGIN\r\n"); err != nil {
		return err
	}
	_, err := t.ask(itself("Hello"))
	return err
}

// itself is a question for the bus.
func itself(method string, args ...any) Question {
	const name = "org.freedesktop.DBus"
	return Question{Service: name, Path: "/org/freedesktop/DBus", Method: name + "." + method, Args: args, Start: true}
}

// maxHandshake bounds a line of the handshake, in bytes; those that count have
// about 40.
const maxHandshake = 1 << 10

// line reads up to a line end, byte by byte: what follows may be a message.
func (t *taker) line() (string, error) {
	var line []byte
	var c [1]byte
	for !bytes.HasSuffix(line, []byte("\r\n")) {
		if _, err := io.ReadFull(t, c[:]); err != nil {
			return "", err
		}
		if line = append(line, c[0]); len(line) > maxHandshake {
			return "", fmt.Errorf("authentication failed: a line of more than %d bytes", maxHandshake)
		}
	}
	return string(line), nil
}

// ask sends a question and returns the body of its answer; what else comes
// meanwhile is dropped. The bus lets nobody answer who was not asked.
func (t *taker) ask(q Question) ([]any, error) {
	t.serial++
	if err := t.send(q); err != nil {
		return nil, err
	}
	for {
		t.drop()
		m, err := dbus.DecodeMessage(t)
		if err != nil {
			return nil, err
		}
		if to, _ := m.Headers[dbus.FieldReplySerial].Value().(uint32); to != t.serial {
			continue
		}
		if m.Type == dbus.TypeError {
			name, _ := m.Headers[dbus.FieldErrorName].Value().(string)
			return nil, dbus.Error{Name: name, Body: m.Body}
		}
		return m.Body, nil
	}
}

func (t *taker) send(q Question) error {
	dot := strings.LastIndexByte(q.Method, '.')
	m := &dbus.Message{Type: dbus.TypeMethodCall, Body: q.Args, Headers: map[dbus.HeaderField]dbus.Variant{
		dbus.FieldDestination: dbus.MakeVariant(q.Service),
		dbus.FieldPath:        dbus.MakeVariant(dbus.ObjectPath(q.Path)),
		dbus.FieldInterface:   dbus.MakeVariant(q.Method[:max(dot, 0)]),
		dbus.FieldMember:      dbus.MakeVariant(q.Method[dot+1:]),
	}}
	if !q.Start {
		m.Flags = dbus.FlagNoAutoStart
	}
	data, err := encode(m, t.serial)
	if err != nil {
		return err
	}
	_, err = t.conn.Write(data)
	return err
}

// encode makes the bytes of a message. The library numbers only what goes through
// its own connections; the number is the third word of a message.
func encode(m *dbus.Message, serial uint32) ([]byte, error) {
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	var buf bytes.Buffer
	if err := m.EncodeTo(&buf, binary.LittleEndian); err != nil {
		return nil, err
	}
	binary.LittleEndian.PutUint32(buf.Bytes()[8:], serial)
	return buf.Bytes(), nil
}

// rights is the room for what one message of the kernel can carry, in
// descriptors (SCM_MAX_FD in unix(7)).
const rights = 253

// Read collects the descriptors that come with the bytes.
func (t *taker) Read(p []byte) (int, error) {
	if t.left <= 0 {
		return 0, errTooMuch
	}
	oob := make([]byte, syscall.CmsgSpace(4*rights))
	n, oobn, _, _, err := t.conn.ReadMsgUnix(p[:min(len(p), t.left)], oob)
	t.left -= n
	messages, _ := syscall.ParseSocketControlMessage(oob[:max(oobn, 0)]) // the kernel's are well-formed
	for _, m := range messages {
		fds, _ := syscall.ParseUnixRights(&m) // others have none
		t.fds = append(t.fds, fds...)
	}
	return n, err
}

// drop closes the descriptors that nobody wants.
func (t *taker) drop() {
	for _, fd := range t.fds {
		_ = syscall.Close(fd) // somebody else's, unread
	}
	t.fds = nil
}
