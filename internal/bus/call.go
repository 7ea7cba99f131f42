// SPDX-License-Identifier: Apache-2.0

package bus

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/godbus/dbus/v5"
)

const (
	// maxCall bounds a call, in bytes: the names of a few hundred images. The bus
	// lets 32 MiB through.
	maxCall = 64 << 10
	// maxFields bounds the fields of its head: five names of 255 bytes and a path.
	maxFields = 4 << 10
	// maxMessage is the largest message of the D-Bus specification.
	maxMessage = 1 << 27

	headLength = 16
)

// Call is a call of one of our methods. All of it but Sender is what the caller
// claims.
type Call struct {
	// Sender is the caller's own name on the bus, which nobody has ever again, as
	// the bus says.
	Sender string
	// Bus is which bus that is (ID): one that is started anew gives the same names to
	// others.
	Bus string
	// Path, Interface (may be empty) and Member say what is called.
	Path, Interface, Member string
	// Signature is of the arguments, as in "asb".
	Signature string
	// Args are as the library decodes them: an as is a []string.
	Args []any
	// Interactive: the caller is ready to be asked for a password.
	Interactive bool
	// Err is why the call was not read, where it was not: of all else only Sender is
	// known.
	Err error

	serial uint32
	silent bool // no answer is wanted
}

// ErrTooLarge: a call had more than maxCall bytes.
var ErrTooLarge = fmt.Errorf("a message of more than %d KiB", maxCall>>10)

var errNoMessage = errors.New("not a message")

// readCall reads a message; false: it was no call, or one that nobody can be told
// anything of.
func readCall(r io.Reader) (Call, bool, error) {
	head := make([]byte, headLength)
	if _, err := io.ReadFull(r, head); err != nil {
		return Call{}, false, err
	}
	var order binary.ByteOrder
	switch head[0] {
	case 'l':
		order = binary.LittleEndian
	case 'B':
		order = binary.BigEndian
	default:
		return Call{}, false, errNoMessage
	}
	fields, body := int64(order.Uint32(head[12:])), int64(order.Uint32(head[4:]))
	padded := (fields + 7) / 8 * 8
	all := headLength + padded + body
	if all > maxMessage {
		return Call{}, false, errNoMessage
	}
	keep := all
	switch {
	case fields > maxFields || dbus.Type(head[1]) != dbus.TypeMethodCall:
		keep = headLength
	case all > maxCall:
		keep = headLength + padded
	}
	frame := make([]byte, keep)
	copy(frame, head)
	if _, err := io.ReadFull(r, frame[headLength:]); err != nil {
		return Call{}, false, err
	}
	if _, err := io.CopyN(io.Discard, r, all-keep); err != nil {
		return Call{}, false, err
	}
	if keep == headLength {
		return Call{}, false, nil
	}
	call := Call{
		Sender: senderOf(frame[headLength:headLength+fields], order),
		serial: order.Uint32(frame[8:]), silent: dbus.Flags(frame[2])&dbus.FlagNoReplyExpected != 0,
	}
	if keep < all {
		call.Err = ErrTooLarge
	} else {
		call.Err = call.decode(frame)
	}
	return call, call.Sender != "", nil
}

// known are the flags that the library knows; it refuses a message with others,
// which the specification wants to be ignored.
const known = dbus.FlagNoReplyExpected | dbus.FlagNoAutoStart | dbus.FlagAllowInteractiveAuthorization

func (c *Call) decode(frame []byte) error {
	frame[2] &= byte(known)
	m, err := dbus.DecodeMessage(bytes.NewReader(frame))
	if err != nil {
		return err
	}
	path, _ := m.Headers[dbus.FieldPath].Value().(dbus.ObjectPath)
	signature, _ := m.Headers[dbus.FieldSignature].Value().(dbus.Signature)
	c.Path, c.Signature, c.Args = string(path), signature.String(), m.Body
	c.Interface, _ = m.Headers[dbus.FieldInterface].Value().(string) // may be missing
	c.Member, _ = m.Headers[dbus.FieldMember].Value().(string)       // the library has checked it
	c.Interactive = m.Flags&dbus.FlagAllowInteractiveAuthorization != 0
	return nil
}

// senderOf finds the field that the bus has put into the head of a message, also
// where the library would not read the message. A field is a byte that says which,
// and a variant: of a number, a signature, or text ("Header Fields").
func senderOf(fields []byte, order binary.ByteOrder) string {
	for at := 0; at+4 < len(fields); at = (at + 7) &^ 7 {
		field, kind := fields[at], fields[at+2]
		at += 4 // the field, the variant's signature: its length, itself, NUL
		switch kind {
		case 'u':
			at += 4
		case 'g':
			at += 1 + int(fields[at]) + 1
		case 's', 'o':
			if at+4 > len(fields) {
				return ""
			}
			begin := at + 4
			length := int(order.Uint32(fields[at:]))
			if length < 0 || length > len(fields)-begin {
				return ""
			}
			if dbus.HeaderField(field) == dbus.FieldSender {
				return string(fields[begin : begin+length])
			}
			at = begin + length + 1
		default:
			return ""
		}
	}
	return ""
}
