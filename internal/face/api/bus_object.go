// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	_ "embed" // the introspection
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent/status"
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

const (
	// maxListed bounds the lists among the properties, as the grain is bounded.
	maxListed = 64
	// maxText bounds a text, in bytes; maxWord one that is a name.
	maxText = 4 << 10
	maxWord = 512
)

// record is one element of a list on the bus: a{sv}.
type record = map[string]dbus.Variant

// properties are a status as the object has it.
func (b *Bus) properties(s status.Status) map[string]dbus.Variant {
	all := properties(s)
	all["Revision"] = dbus.MakeVariant(b.revision.Load())
	return all
}

// properties are the tagged fields of a status, and what is made of several of its fields.
func properties(s status.Status) map[string]dbus.Variant {
	out := encode(s)
	maps.Copy(out, encode(made{
		UpdatesAvailable: len(s.Updates) > 0, Images: imagesOf(s), Holds: holdsOf(s), Withdrawn: withdrawnOf(s),
	}))
	cut := []string{}
	for name, value := range out {
		if list, is := value.Value().([]record); is && len(list) > maxListed {
			out[name], cut = dbus.MakeVariant(list[:maxListed]), append(cut, name)
		}
	}
	slices.Sort(cut)
	out["Cut"] = dbus.MakeVariant(cut)
	return out
}

// made are the properties that are no field of a status.
type made struct {
	UpdatesAvailable bool        `dbus:"UpdatesAvailable"`
	Images           []image     `dbus:"Images"`
	Holds            []held      `dbus:"Holds"`
	Withdrawn        []withdrawn `dbus:"Withdrawn"`
}

type image struct {
	status.ImageStatus `dbus:",inline"`

	Runs bool `dbus:"runs"`
}

func imagesOf(s status.Status) []image {
	var out []image
	for _, i := range s.Images[:min(len(s.Images), maxListed+1)] {
		out = append(out, image{i, i.Running != nil && i.Down == nil})
	}
	return out
}

// held is a hold of a pod manifest, or of an image that is followed without one.
type held struct {
	status.Hold `dbus:",inline"`

	PodManifest string `dbus:"podManifest"`
	Image       string `dbus:"image"`
}

func holdsOf(s status.Status) []held {
	var out []held
	add := func(podManifest, image string, all []status.Hold) {
		for _, h := range all[:min(len(all), maxListed+1-len(out))] {
			out = append(out, held{h, podManifest, image})
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
	return out
}

// withdrawn is a container that runs a release which the catalog has withdrawn.
type withdrawn struct {
	PodManifest string `dbus:"podManifest"`
	Container   string `dbus:"container"`
	Image       string `dbus:"image"`
	Tag         string `dbus:"tag"`
	Digest      string `dbus:"digest"`
	Reason      string `dbus:"reason"`
	To          string `dbus:"to"`
}

func withdrawnOf(s status.Status) []withdrawn {
	var out []withdrawn
	for _, i := range s.Images {
		if i.Withdrawn != nil && i.Running != nil {
			out = append(out, withdrawn{
				i.PodManifest, i.Container, i.Image, i.Running.Tag, i.Running.Digest.String(), i.Withdrawn.Reason, i.Withdrawn.To,
			})
		}
	}
	return out
}

// encode returns the fields of a struct that have the tag dbus, by its name. A field without the tag is not on the bus.
//
//	dbus:"name"       a text is bounded by maxWord, a number is a t, a time a t in microseconds since 1970 (0: none)
//	dbus:"name,long"  a text that is bounded by maxText
//	dbus:",inline"    the fields of a struct beside the others
//
// A named digest gives its tag as name and its digest as nameDigest, a list of structs an aa{sv}, a list of texts an
// as. What is nil is empty; a number is then left out.
func encode(of any) record {
	out := record{}
	encodeInto(out, reflect.ValueOf(of))
	return out
}

func encodeInto(out record, of reflect.Value) {
	for n := range of.NumField() {
		tag, tagged := of.Type().Field(n).Tag.Lookup("dbus")
		if !tagged {
			continue
		}
		name, option, _ := strings.Cut(tag, ",")
		if option == "inline" {
			encodeInto(out, of.Field(n))
			continue
		}
		limit := maxWord
		if option == "long" {
			limit = maxText
		}
		switch value := of.Field(n).Interface().(type) {
		case *status.Named:
			named := nameOf(value)
			out[name], out[name+"Digest"] = text(named.Tag, limit), text(named.Digest.String(), limit)
		case time.Time:
			out[name] = dbus.MakeVariant(microseconds(&value))
		case *time.Time:
			out[name] = dbus.MakeVariant(microseconds(value))
		default:
			if encoded, is := encodeValue(of.Field(n), limit); is {
				out[name] = encoded
			}
		}
	}
}

// encodeValue encodes what is no time and no name; false: it is nil.
func encodeValue(v reflect.Value, limit int) (dbus.Variant, bool) {
	switch v.Kind() {
	case reflect.String:
		return text(v.String(), limit), true
	case reflect.Bool:
		return dbus.MakeVariant(v.Bool()), true
	case reflect.Int, reflect.Int64:
		return dbus.MakeVariant(uint64(max(v.Int(), 0))), true
	case reflect.Uint32:
		return dbus.MakeVariant(uint32(v.Uint())), true
	case reflect.Uint64:
		return dbus.MakeVariant(v.Uint()), true
	case reflect.Pointer:
		if v.IsNil() {
			return dbus.Variant{}, false
		}
		return encodeValue(v.Elem(), limit)
	case reflect.Slice:
		if texts, is := reflect.TypeAssert[[]string](v); is {
			list := []string{}
			for _, t := range texts[:min(len(texts), maxListed)] {
				list = append(list, outside.Line(t, limit))
			}
			return dbus.MakeVariant(list), true
		}
		list := []record{}
		for n := range min(v.Len(), maxListed+1) { // one more than are listed
			list = append(list, encode(v.Index(n).Interface()))
		}
		return dbus.MakeVariant(list), true
	default:
		return dbus.Variant{}, false // TestEveryFieldIsOnItsFaces finds it
	}
}

func text(s string, limit int) dbus.Variant { return dbus.MakeVariant(outside.Line(s, limit)) }

// nameOf returns the zero value for a name that is nil.
func nameOf(n *status.Named) status.Named {
	if n == nil {
		return status.Named{}
	}
	return *n
}

// microseconds since 1970, as systemd's interfaces have times; 0: never.
func microseconds(t *time.Time) uint64 {
	if t == nil || t.UnixMicro() < 0 {
		return 0
	}
	return uint64(t.UnixMicro())
}
