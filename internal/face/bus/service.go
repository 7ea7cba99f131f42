// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/godbus/dbus/v5"
)

var (
	// ErrTaken: another connection owns the name on the bus.
	ErrTaken = errors.New("another program owns the name")
	// ErrTooLarge: a call had more than maxCall bytes.
	ErrTooLarge = fmt.Errorf("message larger than %d KiB", maxCall>>10)
)

// Call is a method call to the service. Only Sender comes from the bus; the caller may
// write anything into the rest.
type Call struct {
	// Sender is the caller's unique name, set by the bus, which never gives it to
	// another connection.
	Sender string
	// Bus is the ID of the bus: after a restart the bus gives the same names to others.
	Bus string
	// Path, Interface (may be empty) and Member name the method.
	Path, Interface, Member string
	// Signature is that of the arguments, such as "asb".
	Signature string
	// Args are as godbus decodes them: an as is a []string.
	Args []any
	// Interactive: polkit may ask the caller for a password.
	Interactive bool
	// Err is the reason why the call could not be read. Then only Sender is set.
	Err error

	NoReply bool // no answer is wanted

	serial uint32
}

// knownFlags are the flags that godbus knows; it refuses a message with others, which
// the specification wants to be ignored.
const knownFlags = dbus.FlagNoReplyExpected | dbus.FlagNoAutoStart | dbus.FlagAllowInteractiveAuthorization

// blank is a body, in bytes, that fits every signature without a variant: 255 types
// of at most eight bytes.
const blank = 2 << 10

// call reads a message. Sender is empty if it was no call, or one whose sender cannot
// be decoded.
func (s *stream) call() (Call, error) {
	h, err := s.head()
	switch {
	case err != nil:
		return Call{}, err
	case h.kind != dbus.TypeMethodCall || h.fields > maxFields:
		return Call{}, s.skip(h.fields + h.body)
	}
	kept := h.body
	if headLength+h.fields+h.body > maxCall {
		kept = 0
	}
	frame := make([]byte, headLength+h.fields+max(kept, blank))
	copy(frame, h.bytes)
	if _, err := io.ReadFull(s, frame[headLength:headLength+h.fields+kept]); err != nil {
		return Call{}, err
	}
	if err := s.skip(h.body - kept); err != nil {
		return Call{}, err
	}
	frame[2] &= byte(knownFlags)
	refused := ErrTooLarge
	var m *dbus.Message
	if kept == h.body {
		m, refused = dbus.DecodeMessage(bytes.NewReader(frame))
	}
	if refused != nil { // with a body of zeros, godbus decodes who has sent it
		h.order.PutUint32(frame[4:], blank)
		clear(frame[headLength+h.fields:])
		if m, err = dbus.DecodeMessage(bytes.NewReader(frame)); err != nil {
			return Call{}, nil //nolint:nilerr // the next message may be decoded
		}
	}
	return newCall(m, refused), nil
}

func newCall(m *dbus.Message, refused error) Call {
	text := func(field dbus.HeaderField) string {
		s, _ := m.Headers[field].Value().(string) // Interface may be missing; godbus has checked the others
		return s
	}
	call := Call{
		Sender: text(dbus.FieldSender), Err: refused,
		serial: m.Serial(), NoReply: m.Flags&dbus.FlagNoReplyExpected != 0,
	}
	if refused != nil {
		return call
	}
	path, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	signature, _ := m.Headers[dbus.FieldSignature].Value().(dbus.Signature)
	call.Path, call.Interface, call.Member = string(path), text(dbus.FieldInterface), text(dbus.FieldMember)
	call.Signature, call.Args = signature.String(), m.Body
	call.Interactive = m.Flags&dbus.FlagAllowInteractiveAuthorization != 0
	return call
}

// Service owns a name on a bus, with a connection that stays open.
type Service struct {
	stream *stream
	bus    string // its ID
}

// Join connects to a bus and requests a name: ErrTaken if another connection owns it.
// ctx bounds the joining only.
func Join(ctx context.Context, address, name string) (*Service, error) {
	c, err := Open(ctx, address)
	if err != nil {
		return nil, err
	}
	id, err := c.ID(ctx) // before the name is owned: ask skips calls
	var reply uint32
	if err == nil {
		err = c.Ask(ctx, Driver("RequestName", name, uint32(dbus.NameFlagDoNotQueue)), &reply)
	}
	if err == nil && dbus.RequestNameReply(reply) != dbus.RequestNameReplyPrimaryOwner {
		err = ErrTaken
	}
	if err != nil {
		c.Close()
		return nil, fmt.Errorf("system bus: %s: %w", name, err)
	}
	return &Service{c.stream, id}, nil
}

// Close ends the connection: Next returns an error, and the name is free.
func (s *Service) Close() { s.stream.close() }

// Next waits for the next call. An error is the end of the connection.
func (s *Service) Next() (Call, error) {
	for {
		switch call, err := s.stream.call(); {
		case err != nil:
			return Call{}, fmt.Errorf("system bus: %w", err)
		case call.Sender != "":
			call.Bus = s.bus
			return call, nil
		}
	}
}

// Reply answers a call. Safe for concurrent use, as are Fail and Emit. A message that
// the bus does not read in time ends the connection.
func (s *Service) Reply(c Call, values ...any) error {
	return s.answer(c, dbus.TypeMethodReply, map[dbus.HeaderField]dbus.Variant{}, values)
}

// Fail answers a call with an error of that name, such as a.b.Error.Failed.
func (s *Service) Fail(c Call, name, text string) error {
	return s.answer(c, dbus.TypeError, map[dbus.HeaderField]dbus.Variant{
		dbus.FieldErrorName: dbus.MakeVariant(name),
	}, []any{text})
}

func (s *Service) answer(c Call, kind dbus.Type, headers map[dbus.HeaderField]dbus.Variant, body []any) error {
	if c.NoReply {
		return nil
	}
	headers[dbus.FieldDestination] = dbus.MakeVariant(c.Sender)
	headers[dbus.FieldReplySerial] = dbus.MakeVariant(c.serial)
	return s.send(&dbus.Message{Type: kind, Flags: dbus.FlagNoReplyExpected, Headers: headers, Body: body})
}

// Emit sends a signal to all subscribers.
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
	if err := s.stream.send(m); err != nil {
		return fmt.Errorf("system bus: %w", err)
	}
	return nil
}
