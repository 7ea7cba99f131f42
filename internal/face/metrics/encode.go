// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/kubic-project/image-update-agent/agent/status"
)

// Fields of the status with the tag metric are gauges of that name, described by their tag help: a number, 1 or 0 for a
// bool, seconds since 1970 for a time, absent if the time is zero. Fields with the tag label distinguish the elements
// of a list. Elements beyond maxSeries are combined into one, other: numbers are added, for times the oldest counts.

// field is a tagged field of the status.
type field struct {
	name, help string
	labels     []string
	of         reflect.Type
}

// fieldsOf returns the tagged fields of a struct, and of the structs and lists in it.
func fieldsOf(of reflect.Type, labels []string) []field {
	labels = slices.Concat(labels, labelsOf(of))
	var out []field
	for f := range of.Fields() {
		if name, is := f.Tag.Lookup("metric"); is {
			out = append(out, field{name, f.Tag.Get("help"), labels, f.Type})
		}
		if inner := f.Type; isOurs(f, &inner) {
			out = append(out, fieldsOf(inner, labels)...)
		}
	}
	return out
}

func labelsOf(of reflect.Type) []string {
	var out []string
	for field := range of.Fields() {
		if name, is := field.Tag.Lookup("label"); is {
			out = append(out, name)
		}
	}
	return out
}

// isOurs reports whether a field of the document is a struct of the status, or of a feature's package, or a list of
// them, and sets t to that type.
func isOurs(f reflect.StructField, t *reflect.Type) bool {
	for (*t).Kind() == reflect.Pointer || (*t).Kind() == reflect.Slice {
		*t = (*t).Elem()
	}
	ours := path.Dir(reflect.TypeFor[status.Status]().PkgPath())
	return f.Tag.Get("json") != "-" && (*t).Kind() == reflect.Struct && path.Dir((*t).PkgPath()) == ours
}

// valuesOf has the values of tagged fields, by the metric's name and labels.
type valuesOf map[string]map[string]float64

const between = "\xff" // separates labels in a key; label removes it

func (r valuesOf) read(of reflect.Value, labels []string) {
	if of.Kind() == reflect.Slice {
		for n := range of.Len() {
			r.read(of.Index(n), labels)
		}
		return
	}
	if of = reflect.Indirect(of); !of.IsValid() {
		return
	}
	labels = slices.Clone(labels)
	for n := range of.NumField() {
		if _, is := of.Type().Field(n).Tag.Lookup("label"); is {
			labels = append(labels, label(of.Field(n).String()))
		}
	}
	for n := range of.NumField() {
		field := of.Type().Field(n)
		if name, is := field.Tag.Lookup("metric"); is {
			if value, is := numberOf(of.Field(n).Interface()); is {
				r.add(name, strings.Join(labels, between), value, combining(field.Type))
			}
		}
		if inner := field.Type; isOurs(field, &inner) {
			r.read(of.Field(n), labels)
		}
	}
}

func (r valuesOf) add(name, labels string, value float64, combine func(a, b float64) float64) {
	if r[name] == nil {
		r[name] = map[string]float64{}
	}
	if old, is := r[name][labels]; is {
		value = combine(old, value)
	}
	r[name][labels] = value
}

// numberOf returns the value of a field; false for a zero time, or if it is not a number.
func numberOf(value any) (float64, bool) {
	switch v := value.(type) {
	case bool:
		return number(v), true
	case *time.Time:
		if v == nil {
			return 0, false
		}
		return seconds(*v), true
	case time.Time:
		return seconds(v), !v.IsZero()
	}
	switch v := reflect.ValueOf(value); {
	case v.CanInt():
		return float64(v.Int()), true
	case v.CanUint():
		return float64(v.Uint()), true
	default:
		return 0, false
	}
}

func combining(of reflect.Type) func(a, b float64) float64 {
	if of == reflect.TypeFor[time.Time]() || of == reflect.TypeFor[*time.Time]() {
		return func(a, b float64) float64 { return min(a, b) }
	}
	return func(a, b float64) float64 { return a + b }
}

// tagged sends the tagged fields of a status, and returns them.
func (c *collector) tagged(s status.Status, gauge setGauge) valuesOf {
	all := valuesOf{}
	all.read(reflect.ValueOf(s), nil)
	for _, m := range c.fields {
		for key, value := range bounded(all[m.name], combining(m.of)) {
			var labels []string
			switch {
			case key == other:
				labels = slices.Repeat([]string{other}, len(m.labels))
			case len(m.labels) > 0:
				labels = strings.Split(key, between)
			}
			gauge(m.name, value, labels...)
		}
	}
	return all
}
