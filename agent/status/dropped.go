// SPDX-License-Identifier: Apache-2.0

package status

import (
	"cmp"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/kubic-project/image-update-agent/internal/base/outside"
)

// Limits of the record and of the status as indented JSON, in bytes: larger files are not read. A container needs 2 kB
// of each, and a kubelet runs at most some hundred pods.
const (
	MaxRecord = 16 << 20
	MaxStatus = 16 << 20
)

// Dropped is an entry of the record or the status that was dropped because it could not be written.
type Dropped struct {
	Entry  string `json:"entry"` // as in "record: releases registry.suse.com/caasp/v4/velum@sha256:..."
	Reason string `json:"reason"`
}

// entry is one element of a map or list among the fields of a document.
type entry struct {
	name string
	size int
	rank int // 0: dropped first
	err  error
	drop func()
}

// DropFrom removes entries of a document that JSON cannot represent, and then the largest until it has at most limit
// bytes. Entries of the fields in spare go first.
func DropFrom(document any, name string, limit int, spare []string) []Dropped {
	var out []Dropped
	v := reflect.ValueOf(document).Elem()
	leave := func(e entry, why string) {
		out = append(out, Dropped{outside.Text(name + ": " + e.name), outside.Text(why)})
		e.drop()
	}
	var whole []entry
	for _, e := range entriesOf(v, spare) {
		if e.err != nil {
			leave(e, e.err.Error())
		} else {
			whole = append(whole, e)
		}
	}
	compact(v)
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return out // the error is not in an entry
	}
	slices.SortStableFunc(whole, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), cmp.Compare(b.size, a.size))
	})
	for total := len(text); total > limit && len(whole) > 0; whole = whole[1:] {
		leave(whole[0], fmt.Sprintf("too large: %d bytes, in a %s of %d bytes with a limit of %d", whole[0].size, name,
			total, limit))
		total -= whole[0].size
	}
	compact(v)
	return out
}

// entriesOf lists the elements of the maps and lists of a struct, in a fixed order.
func entriesOf(v reflect.Value, spare []string) []entry {
	var out []entry
	for field, values := range v.Fields() {
		kind := values.Kind()
		if kind != reflect.Map && kind != reflect.Slice {
			continue
		}
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		for key, value := range values.Seq2() {
			text, err := json.MarshalIndent(value.Interface(), "    ", "  ")
			e := entry{name: name + " " + nameOf(key, value), size: len(text), rank: 1, err: err}
			if slices.Contains(spare, field.Name) {
				e.rank = 0
			}
			e.drop = func() { values.SetMapIndex(key, reflect.Value{}) }
			if kind == reflect.Slice {
				e.drop = func() { values.Index(int(key.Int())).SetZero() } // compact removes it
			}
			out = append(out, e)
		}
	}
	slices.SortStableFunc(out, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return out
}

// nameOf returns a map's key, or the first field of a list's element.
func nameOf(key, value reflect.Value) string {
	if key.Kind() == reflect.String {
		return key.String()
	}
	if value.Kind() == reflect.Struct && value.NumField() > 0 && value.Field(0).Kind() == reflect.String {
		return value.Field(0).String()
	}
	return fmt.Sprint(key.Int())
}

// compact removes zero elements from the lists. It copies them, because they may be shared.
func compact(v reflect.Value) {
	for _, values := range v.Fields() {
		if values.Kind() != reflect.Slice || values.IsNil() {
			continue
		}
		kept := reflect.MakeSlice(values.Type(), 0, values.Len())
		for _, value := range values.Seq2() {
			if !value.IsZero() {
				kept = reflect.Append(kept, value)
			}
		}
		values.Set(kept)
	}
}

// ReportDropped adds the dropped entries to a status.
func (s *Status) ReportDropped(dropped []Dropped) {
	if len(dropped) == 0 || len(s.Dropped) == len(dropped) {
		return
	}
	s.Dropped = slices.Clone(dropped)
	first := dropped[0]
	text := fmt.Sprintf("entry dropped: %s: %s", first.Entry, first.Reason)
	if more := len(dropped) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	s.SetFailed(Reason{Kind: KindDropped, Text: text})
}
