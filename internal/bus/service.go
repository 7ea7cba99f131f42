// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/godbus/dbus/v5"
)

// ErrTaken: somebody else has the name on the bus.
var ErrTaken = errors.New("somebody else has the name")

// patience is how long the bus may take to read what we send; then the connection
// is given up, so that nobody waits for a bus that hangs.
const patience = 5 * time.Second

// Service is a name of ours on a bus, with a connection that stays.
//
// It speaks for itself: the library's connection starts a goroutine for each
// message, however many and however large, and cannot be closed while the bus does
// not read.
type Service struct {
	conn  *net.UnixConn
	calls *bufio.Reader
	bus   string // its ID

	mu     sync.Mutex // guards what follows, and writing
	serial uint32
}

// Join connects to a bus, to stay, under a name that nobody else has: else
// ErrTaken. ctx is for the joining alone.
func Join(ctx context.Context, address, name string) (*Service, error) {
	conn, err := dial(ctx, address)
	if err != nil {
		return nil, err
	}
	stop := endWith(ctx, conn)
	t := &taker{conn: conn, left: maxAnswer}
	id, err := t.join(name)
	if !stop() && err == nil {
		err = ctx.Err() // the deadline stays on the connection
	}
	if err != nil {
		_ = conn.Close() // nobody waits for anything from it
		return nil, fmt.Errorf("system bus: %s: %w", name, explain(ctx, err))
	}
	return &Service{conn: conn, calls: bufio.NewReader(conn), bus: id, serial: t.serial}, nil
}

// join returns the bus's ID.
func (t *taker) join(name string) (id string, err error) {
	if err := t.login(false); err != nil {
		return "", err
	}
	// Before there is a name: a call that came here would be dropped.
	body, err := t.ask(itself("GetId"))
	if err == nil {
		err = dbus.Store(body, &id)
	}
	if err != nil {
		return "", err
	}
	body, err = t.ask(itself("RequestName", name, uint32(dbus.NameFlagDoNotQueue)))
	if err != nil {
		return "", err
	}
	var reply uint32
	if err := dbus.Store(body, &reply); err != nil {
		return "", err
	}
	if dbus.RequestNameReply(reply) != dbus.RequestNameReplyPrimaryOwner {
		return "", ErrTaken
	}
	return id, nil
}

// Close hangs up: Next ends, and the name is free.
func (s *Service) Close() { _ = s.conn.Close() } // what is on its way is lost either way

// Next waits for the next call. Other messages are passed over. An error is the
// end of the connection.
func (s *Service) Next() (Call, error) {
	for {
		call, ok, err := readCall(s.calls)
		if err != nil {
			return Call{}, fmt.Errorf("system bus: %w", err)
		}
		if ok {
			call.Bus = s.bus
			return call, nil
		}
	}
}

// Reply answers a call. Safe for concurrent use, as are Fail and Emit.
func (s *Service) Reply(c Call, values ...any) error {
	return s.answer(c, dbus.TypeMethodReply, map[dbus.HeaderField]dbus.Variant{}, values)
}

// Fail answers a call with an error, named as an interface is.
func (s *Service) Fail(c Call, name, text string) error {
	return s.answer(c, dbus.TypeError, map[dbus.HeaderField]dbus.Variant{
		dbus.FieldErrorName: dbus.MakeVariant(name),
	}, []any{text})
}

func (s *Service) answer(c Call, kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body []any) error {
	if c.silent {
		return nil
	}
	headers[dbus.FieldDestination] = dbus.MakeVariant(c.Sender)
	headers[dbus.FieldReplySerial] = dbus.MakeVariant(c.serial)
	return s.send(&dbus.Message{Type: kind, Flags: dbus.FlagNoReplyExpected, Headers: headers, Body: body})
}

// Emit sends a signal to all who listen.
func (s *Service) Emit(path, face, member string, values ...any) error {
	return s.send(&dbus.Message{
		Type: dbus.TypeSignal, Flags: dbus.FlagNoReplyExpected, Body: values,
		Headers: map[dbus.HeaderField]dbus.Variant{
			dbus.FieldPath:      dbus.MakeVariant(dbus.ObjectPath(path)),
			dbus.FieldInterface: dbus.MakeVariant(face),
			dbus.FieldMember:    dbus.MakeVariant(member),
		},
	})
}

func (s *Service) send(m *dbus.Message) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.serial++; s.serial == 0 {
		s.serial++ // no number of a message
	}
	data, err := encode(m, s.serial)
	if err != nil {
		return fmt.Errorf("system bus: message: %w", err)
	}
	err = s.conn.SetWriteDeadline(time.Now().Add(patience))
	if err == nil {
		_, err = s.conn.Write(data)
	}
	if err != nil {
		_ = s.conn.Close() // half a message may be out: nothing can follow it
		return fmt.Errorf("system bus: %w", err)
	}
	return nil
}
