// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	_ "embed" // the interface as others see it
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent"
	"github.com/kubic-project/image-update-agent/internal/bus"
	"github.com/kubic-project/image-update-agent/internal/outside"
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
	errFailed           = errDBus + "Failed"
)

// busError is an error with a name on the bus.
type busError struct{ name, text string }

func (e busError) Error() string { return e.text }

func refuse(name, format string, args ...any) error {
	return busError{name, fmt.Sprintf(format, args...)}
}

// answer answers a call; one that acts does so later. The error is that nothing
// could be sent.
func (b *Bus) answer(ctx context.Context, s *bus.Service, c bus.Call) error {
	ours := c.Err == nil && c.Path == busPath && (c.Interface == BusName || c.Interface == "")
	if act, ok := actions[c.Member]; ok && ours {
		return b.begin(ctx, s, c, act)
	}
	values, err := b.read(c)
	if err != nil {
		return fail(s, c, err)
	}
	return s.Reply(c, values...)
}

func fail(s *bus.Service, c bus.Call, err error) error {
	e, ok := errors.AsType[busError](err)
	if !ok {
		e = busError{errFailed, err.Error()}
	}
	return s.Fail(c, e.name, outside.Line(e.text, maxText))
}

// read does what needs no permission.
func (b *Bus) read(c bus.Call) ([]any, error) {
	switch {
	case errors.Is(c.Err, bus.ErrTooLarge):
		return nil, refuse(errTooMuch, "%v", c.Err)
	case c.Err != nil:
		return nil, refuse(errBadArgs, "not understood: %v", c.Err)
	}
	switch c.Interface {
	case peerFace:
		return b.peer(c)
	case introspectFace:
		return describe(c)
	case propertiesFace:
		if c.Path == busPath {
			return b.property(c)
		}
	case BusName, "":
		if c.Path == busPath {
			return nil, refuse(errNoMethod, "no method %s", c.Member)
		}
	default:
		if c.Path == busPath {
			return nil, refuse(errNoInterface, "no interface %s", c.Interface)
		}
	}
	return nil, refuse(errNoObject, "no object %s: it is %s", c.Path, busPath)
}

func (b *Bus) peer(c bus.Call) ([]any, error) {
	switch {
	case c.Member == "Ping":
		return nil, nil
	case c.Member == "GetMachineId" && len(b.MachineID) == 32:
		return []any{b.MachineID}, nil
	default:
		return nil, refuse(errNoMethod, "no method %s", c.Member)
	}
}

// describe answers with what the object has, and the way to it for those who look for
// objects.
func describe(c bus.Call) ([]any, error) {
	if c.Member != "Introspect" {
		return nil, refuse(errNoMethod, "no method %s", c.Member)
	}
	if c.Path == busPath {
		return []any{introspection}, nil
	}
	below, ok := strings.CutPrefix(busPath, strings.TrimSuffix(c.Path, "/")+"/")
	if !ok {
		return nil, refuse(errNoObject, "no object %s: it is %s", c.Path, busPath)
	}
	child, _, _ := strings.Cut(below, "/")
	return []any{fmt.Sprintf("<node><node name=%q/></node>\n", child)}, nil
}

func (b *Bus) property(c bus.Call) ([]any, error) {
	var face, name string
	switch c.Member {
	case "Get":
		// Without the signature, the library makes text of a number.
		if c.Signature != "ss" || dbus.Store(c.Args, &face, &name) != nil {
			return nil, refuse(errBadArgs, "want interface and property")
		}
		if face != BusName && face != "" {
			return nil, refuse(errNoInterface, "no interface %s", face)
		}
		value, ok := properties(b.Daemon.Status())[name]
		if !ok {
			return nil, refuse(errNoProperty, "no property %s", name)
		}
		return []any{value}, nil
	case "GetAll":
		if c.Signature != "s" || dbus.Store(c.Args, &face) != nil {
			return nil, refuse(errBadArgs, "want an interface")
		}
		switch face {
		case BusName, "":
			return []any{properties(b.Daemon.Status())}, nil
		case peerFace, introspectFace, propertiesFace:
			return []any{map[string]dbus.Variant{}}, nil
		}
		return nil, refuse(errNoInterface, "no interface %s", face)
	case "Set":
		return nil, refuse(errReadOnly, "properties are for reading")
	default:
		return nil, refuse(errNoMethod, "no method %s", c.Member)
	}
}

const (
	// maxListed bounds the lists among the properties, as the grain is bounded.
	maxListed = 64
	// maxText bounds a text, in bytes; maxWord one that is a name.
	maxText = 4 << 10
	maxWord = 512
)

// properties are a status as the object has it.
func properties(s agent.Status) map[string]dbus.Variant {
	updates := []map[string]dbus.Variant{}
	for _, u := range s.Updates[:min(len(s.Updates), maxListed)] {
		updates = append(updates, record(map[string]string{
			"image": u.Image, "change": u.Change, "from": u.From, "to": u.To, "digest": u.Digest.String(),
		}))
	}
	return map[string]dbus.Variant{
		"Version":          dbus.MakeVariant(outside.Line(s.Version, maxWord)),
		"State":            dbus.MakeVariant(string(s.State)),
		"Reason":           dbus.MakeVariant(outside.Line(s.Reason, maxText)),
		"UpdatesAvailable": dbus.MakeVariant(len(s.Updates) > 0),
		"Updates":          dbus.MakeVariant(updates),
		"NotAllowed":       dbus.MakeVariant(notAllowed(s)),
		"Holds":            dbus.MakeVariant(holdsOf(s)),
		"LastCheck":        dbus.MakeVariant(microseconds(s.LastCheck)),
		"NextCheck":        dbus.MakeVariant(microseconds(s.NextCheck)),
	}
}

func notAllowed(s agent.Status) []map[string]dbus.Variant {
	out := []map[string]dbus.Variant{}
	for _, n := range s.NotAllowed[:min(len(s.NotAllowed), maxListed)] {
		out = append(out, record(map[string]string{"image": n.Image, "tag": n.Tag, "rule": n.Rule, "key": n.Key}))
	}
	return out
}

// holdsOf lists the holds of pod manifests, and of images that are followed
// without one.
func holdsOf(s agent.Status) []map[string]dbus.Variant {
	holds := []map[string]dbus.Variant{}
	add := func(podManifest, image string, list []agent.Hold) {
		for _, h := range list[:min(len(list), maxListed-len(holds))] {
			holds = append(holds, record(map[string]string{
				"podManifest": podManifest, "image": image, "name": h.Name, "reason": h.Reason,
			}))
		}
	}
	for _, p := range s.PodManifests {
		add(p.PodManifest, "", p.Holds)
	}
	for _, i := range s.Images {
		if i.PodManifest == "" {
			add("", i.Image, i.Holds)
		}
	}
	return holds
}

// record makes a dictionary of text.
func record(text map[string]string) map[string]dbus.Variant {
	out := map[string]dbus.Variant{}
	for key, value := range text {
		out[key] = dbus.MakeVariant(outside.Line(value, maxWord))
	}
	return out
}

// microseconds since 1970, as systemd's interfaces have times; 0: never.
func microseconds(t *time.Time) uint64 {
	if t == nil || t.UnixMicro() < 0 {
		return 0
	}
	return uint64(t.UnixMicro())
}
