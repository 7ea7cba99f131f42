// SPDX-License-Identifier: Apache-2.0

package api

import (
	"reflect"
	"strings"
	"time"

	"github.com/godbus/dbus/v5"

	"github.com/kubic-project/image-update-agent/agent/status"
	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// encode returns the fields of a struct that have the tag dbus, by its name. A field without the tag is not on the bus.
//
//	dbus:"name"       a text is bounded by maxWord, a number is a t, a time a t in microseconds since 1970 (0: none)
//	dbus:"name,long"  a text that is bounded by maxText
//	dbus:",inline"    the fields of a struct beside the others
//
// A named digest gives its tag as name and its digest as nameDigest, a list of structs an aa{sv}. What is nil is empty;
// a number is then left out.
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
