// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	_ "embed" // the introspection
	"errors"
	"fmt"
	"strings"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
	"github.com/kubic-project/image-update-agent/internal/face/bus"
)

// introspection describes the object (D-Bus specification, "Introspection Data
// Format").
//
//go:embed org.opensuse.ImageUpdateAgent1.xml
var introspection string

// Interfaces and errors of the D-Bus specification ("Standard Interfaces"), which
// sd-bus and GDBus know by these names.
const (
	peerFace       = "org.freedesktop.DBus.Peer"
	introspectFace = "org.freedesktop.DBus.Introspectable"
	propertiesFace = "org.freedesktop.DBus.Properties"

	errDBus             = "org.freedesktop.DBus.Error."
	errBadArgs          = errDBus + "InvalidArgs"
	errNoObject         = errDBus + "UnknownObject"
	errNoInterface      = errDBus + "UnknownInterface"
	errNoMethod         = errDBus + "UnknownMethod"
	errNoProperty       = errDBus + "UnknownProperty"
	errReadOnly         = errDBus + "PropertyReadOnly"
	errTooMuch          = errDBus + "LimitsExceeded"
	errDenied           = errDBus + "AccessDenied"
	errNeedsInteraction = errDBus + "InteractiveAuthorizationRequired"
)

// The errors of the daemon, by their kinds.
const (
	busErrors            = BusName + ".Error."
	BusErrorFailed       = busErrors + KindFailed
	BusErrorUnknownImage = busErrors + KindUnknownImage
	BusErrorInvalidArgs  = busErrors + KindInvalidArgs
	BusErrorNothingToDo  = busErrors + KindNothingToDo
	BusErrorHeld         = busErrors + KindHeld
	BusErrorMoved        = busErrors + KindMoved
)

// busError is an error with a name on the bus.
type busError struct{ name, text string }

func (e busError) Error() string { return e.text }

func refuse(name, format string, args ...any) error {
	return busError{name, fmt.Sprintf(format, args...)}
}

// answer answers a call, or starts one that acts.
func (b *Bus) answer(ctx context.Context, s *bus.Service, c bus.Call) {
	ours := c.Err == nil && c.Path == busPath && (c.Interface == BusName || c.Interface == "")
	if act, ok := actions[c.Member]; ok && ours {
		b.begin(ctx, s, c, func(known func()) ([]any, error) { return b.act(ctx, s, c, act, known) })
		return
	}
	if c.Member == "Allowed" && ours {
		b.begin(ctx, s, c, func(known func()) ([]any, error) { return b.allowed(ctx, c, known) })
		return
	}
	values, err := b.read(c)
	b.reply(s, c, values, err)
}

func (b *Bus) reply(s *bus.Service, c bus.Call, values []any, err error) {
	if err == nil {
		err = s.Reply(c, values...)
	} else {
		e, ok := errors.AsType[busError](err)
		if !ok {
			e = busError{busErrors + kindOf(err), err.Error()}
		}
		err = s.Fail(c, e.name, outside.Line(outside.Mask(e.text), maxText))
	}
	if err != nil {
		b.Log.Debug("cannot send the answer", "method", c.Member, "err", err)
	}
}

// read does what needs no permission.
func (b *Bus) read(c bus.Call) ([]any, error) {
	switch {
	case errors.Is(c.Err, bus.ErrTooLarge):
		return nil, refuse(errTooMuch, "%v", c.Err)
	case c.Err != nil:
		return nil, refuse(errBadArgs, "cannot read the call: %v", c.Err)
	case c.Interface == peerFace && c.Member == "Ping":
		return nil, nil
	case c.Interface == peerFace && c.Member == "GetMachineId" && len(b.MachineID) == 32:
		return []any{b.MachineID}, nil
	case c.Interface == introspectFace && c.Member == "Introspect":
		return describe(c.Path)
	case c.Interface == peerFace, c.Interface == introspectFace:
		return nil, refuse(errNoMethod, "no method %s", c.Member)
	case c.Path != busPath:
		return nil, refuse(errNoObject, "no object %s, use %s", c.Path, busPath)
	case c.Interface == propertiesFace:
		return b.property(c)
	case c.Interface == BusName, c.Interface == "":
		return nil, refuse(errNoMethod, "no method %s", c.Member)
	default:
		return nil, refuse(errNoInterface, "no interface %s", c.Interface)
	}
}

// describe returns the introspection of the object, and of the paths that lead to it.
func describe(path string) ([]any, error) {
	if path == busPath {
		return []any{introspection}, nil
	}
	below, ok := strings.CutPrefix(busPath, strings.TrimSuffix(path, "/")+"/")
	if !ok {
		return nil, refuse(errNoObject, "no object %s, use %s", path, busPath)
	}
	child, _, _ := strings.Cut(below, "/")
	return []any{fmt.Sprintf("<node><node name=%q/></node>\n", child)}, nil
}

// property serves org.freedesktop.DBus.Properties. godbus makes text of a number, so
// the signature is compared.
func (b *Bus) property(c bus.Call) ([]any, error) {
	want, ok := map[string]string{"Get": "ss", "GetAll": "s"}[c.Member]
	var face, name string
	switch into := []any{&face, &name}; {
	case c.Member == "Set":
		return nil, refuse(errReadOnly, "properties are read-only")
	case !ok:
		return nil, refuse(errNoMethod, "no method %s", c.Member)
	case c.Signature != want || dbus.Store(c.Args, into[:len(want)]...) != nil:
		return nil, refuse(errBadArgs, "arguments of type %q, want %q", c.Signature, want)
	}
	all := map[string]dbus.Variant{}
	switch face {
	case BusName, "":
		all = b.properties(b.Daemon.Status())
	case peerFace, introspectFace, propertiesFace: // they have none
	default:
		return nil, refuse(errNoInterface, "no interface %s", face)
	}
	if c.Member == "GetAll" {
		return []any{all}, nil
	}
	value, ok := all[name]
	if !ok {
		return nil, refuse(errNoProperty, "no property %s", name)
	}
	return []any{value}, nil
}
