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
	"sync"
	"syscall"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

const (
	// maxHandshake bounds a line of the handshake, in bytes; those that count have
	// about 40.
	maxHandshake = 1 << 10
	// maxAnswer bounds an answer, in bytes. A list of 200 snapshots, more than a file
	// system is fit for, is 20 KB.
	maxAnswer = 256 << 10
	// maxCall bounds a call, in bytes: the names of a few hundred images. The bus
	// lets 32 MiB through.
	maxCall = 64 << 10
	// maxFields bounds the fields of its head: five names of 255 bytes and a path.
	maxFields = 4 << 10

	headLength = 16

	// patience is how long the bus may take to read a message; then the connection
	// ends, so that no caller waits for a bus that hangs.
	patience = 5 * time.Second
)

var (
	errTooMuch   = fmt.Errorf("more than %d KiB", maxAnswer>>10)
	errNoMessage = errors.New("not a message: invalid byte order")
)

// stream is a connection to a bus. godbus encodes and decodes the messages; its own
// connection has no bounds, and ends at a message that it cannot decode.
type stream struct {
	conn *net.UnixConn
	fds  []int  // received with the last message
	oob  []byte // buffer in which the kernel passes them

	mu     sync.Mutex // guards serial, and writing
	serial uint32     // of the message that was sent last
}

// dial connects to a bus and authenticates.
func dial(ctx context.Context, address string, descriptors bool) (*stream, error) {
	path, err := socketOf(address)
	if err != nil {
		return nil, err
	}
	conn, err := new(net.Dialer).DialUnix(ctx, "unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case hasNoListener(err):
		return nil, ErrNone
	case err != nil:
		return nil, fmt.Errorf("system bus: %w", err)
	}
	s := &stream{conn: conn, oob: make([]byte, syscall.CmsgSpace(4*rights))}
	if err := s.login(ctx, descriptors); err != nil {
		s.close()
		return nil, fmt.Errorf("system bus: %w", err)
	}
	return s, nil
}

func (s *stream) close() { _ = s.conn.Close() } // unsent data is lost either way

// login is the handshake of the D-Bus specification ("Authentication Protocol"), as
// the user of the process. Without descriptors the bus delivers no message with any.
func (s *stream) login(ctx context.Context, descriptors bool) error {
	defer context.AfterFunc(ctx, s.close)()
	steps := []struct{ say, want string }{
		{"\x00AUTH EXTERNAL " + hex.EncodeToString([]byte(strconv.Itoa(os.Getuid()))) + "\r\n", "OK "},
		{"NEGOTIATE_UNIX_FD\r\n", "AGREE_UNIX_FD"},
	}
	if !descriptors {
		steps = steps[:1]
	}
	for _, step := range steps {
		if err := s.write([]byte(step.say)); err != nil {
			return explain(ctx, err)
		}
		line, err := s.line()
		if err != nil {
			return explain(ctx, err)
		}
		if !strings.HasPrefix(line, step.want) {
			return fmt.Errorf("authentication failed: %s", outside.Text(line))
		}
	}
	if err := s.write([]byte("BEGIN\r\n")); err != nil {
		return explain(ctx, err)
	}
	_, err := s.ask(ctx, Driver("Hello"))
	return err
}

// line reads up to a line end, byte by byte: a message may follow.
func (s *stream) line() (string, error) {
	var line []byte
	for c := make([]byte, 1); !bytes.HasSuffix(line, []byte("\r\n")); line = append(line, c[0]) {
		if len(line) == maxHandshake {
			return "", fmt.Errorf("authentication failed: a line of more than %d bytes", maxHandshake)
		}
		if _, err := io.ReadFull(s, c); err != nil {
			return "", err
		}
	}
	return string(line), nil
}

// ask sends a question and returns the body of its answer. The bus delivers answers
// only from the service that was called. If ctx ends first, the connection ends, too.
func (s *stream) ask(ctx context.Context, q Question) ([]any, error) {
	defer context.AfterFunc(ctx, s.close)()
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
	err := s.send(m)
	for err == nil {
		if m, err = s.next(); m == nil {
			continue
		}
		if to, _ := m.Headers[dbus.FieldReplySerial].Value().(uint32); to != s.serial {
			continue
		}
		if m.Type == dbus.TypeError {
			name, _ := m.Headers[dbus.FieldErrorName].Value().(string)
			return nil, explain(ctx, dbus.Error{Name: name, Body: m.Body})
		}
		return m.Body, nil
	}
	return nil, explain(ctx, err)
}

// send sends a message. A failed write ends the connection.
func (s *stream) send(m *dbus.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serial++; s.serial == 0 {
		s.serial++ // 0 is no valid serial
	}
	if len(m.Body) > 0 {
		m.Headers[dbus.FieldSignature] = dbus.MakeVariant(dbus.SignatureOf(m.Body...))
	}
	var buf bytes.Buffer
	if err := m.EncodeTo(&buf, binary.LittleEndian); err != nil {
		return fmt.Errorf("message: %w", err)
	}
	binary.LittleEndian.PutUint32(buf.Bytes()[8:], s.serial) // godbus sets it only on its own connections
	return s.write(buf.Bytes())
}

func (s *stream) write(data []byte) error {
	err := s.conn.SetWriteDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = s.conn.Write(data)
	}
	if err != nil {
		s.close() // a part of the message may be sent: no other can follow
	}
	return err
}

// head is the beginning of a message.
type head struct {
	bytes        []byte
	order        binary.ByteOrder
	kind         dbus.Type
	fields, body int64 // bytes that follow
}

// head reads the beginning of the next message.
func (s *stream) head() (head, error) {
	s.drop()
	h := head{bytes: make([]byte, headLength), order: binary.LittleEndian}
	if _, err := io.ReadFull(s, h.bytes); err != nil {
		return h, err
	}
	switch h.bytes[0] {
	case 'l':
	case 'B':
		h.order = binary.BigEndian
	default:
		return h, errNoMessage
	}
	h.kind = dbus.Type(h.bytes[1])
	h.fields = (int64(h.order.Uint32(h.bytes[12:])) + 7) &^ 7 // padded
	h.body = int64(h.order.Uint32(h.bytes[4:]))
	return h, nil
}

// next reads an answer. Anything else is skipped, and nil.
func (s *stream) next() (*dbus.Message, error) {
	h, err := s.head()
	switch {
	case err != nil:
		return nil, err
	case h.kind != dbus.TypeMethodReply && h.kind != dbus.TypeError:
		return nil, s.skip(h.fields + h.body)
	case h.fields+h.body > maxAnswer:
		return nil, errTooMuch
	}
	return dbus.DecodeMessage(io.MultiReader(bytes.NewReader(h.bytes), s))
}

func (s *stream) skip(n int64) error {
	_, err := io.CopyN(io.Discard, s, n)
	return err
}

// rights is the space for what one message of the kernel can carry, in
// descriptors (SCM_MAX_FD in unix(7)).
const rights = 253

// Read collects the descriptors that come with the bytes.
func (s *stream) Read(p []byte) (int, error) {
	n, oobn, _, _, err := s.conn.ReadMsgUnix(p, s.oob)
	messages, _ := syscall.ParseSocketControlMessage(s.oob[:max(oobn, 0)]) // the kernel's are well-formed
	for _, m := range messages {
		fds, _ := syscall.ParseUnixRights(&m) // others have none
		s.fds = append(s.fds, fds...)
	}
	return n, err
}

// drop closes the descriptors that were not taken.
func (s *stream) drop() {
	for _, fd := range s.fds {
		_ = syscall.Close(fd) // never used
	}
	s.fds = nil
}
