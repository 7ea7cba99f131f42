// SPDX-License-Identifier: Apache-2.0

package outside

import (
	"fmt"
	"log/slog"
	"reflect"

	"github.com/kubic-project/image-update-agent/internal/base/lazyregexp"
)

// Hide masks all texts of a document that v points to, except map keys: the last protection before output, for errors
// that include a parser's text. A field for the name of an image keeps what is a reference or a tag.
func Hide(v any) { hide(reflect.ValueOf(v)) }

// namesOfImages are the fields for references, tags and patterns of tags, which have passed their parsers.
var namesOfImages = map[string]bool{
	"Image": true, "Repository": true, "Tag": true, "Reference": true, "Follow": true, "From": true, "To": true,
	"Long": true,
}

// isName reports whether a text can only be a reference, a tag or a digest.
func isName(text string) bool { return nameOfImage().MatchString(text) }

var nameOfImage = lazyregexp.New(
	`^[A-Za-z0-9_][\w.-]*(?::[0-9]+/)?(?:[\w.-]+/)*[\w./-]*(?::[\w.-]+)?(?:@sha(?:256|512):[0-9a-f]+)?$`)

var text = reflect.TypeFor[string]()

func hide(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() && (v.Kind() == reflect.Pointer || v.Elem().Kind() == reflect.Pointer) {
			hide(v.Elem())
		}
	case reflect.String:
		if !v.CanSet() || v.Type() != text { // the agent's own types, such as kinds and digests, are plain words
			return
		}
		if masked := Mask(v.String()); masked != v.String() { // a document may share unchanged texts
			v.SetString(masked)
		}
	case reflect.Struct:
		for n := range v.NumField() {
			field := v.Type().Field(n)
			isKept := namesOfImages[field.Name] && field.Type == text && isName(v.Field(n).String())
			if field.IsExported() && !isKept {
				hide(v.Field(n))
			}
		}
	case reflect.Slice, reflect.Array:
		for n := range v.Len() {
			hide(v.Index(n))
		}
	case reflect.Map:
		hideMap(v)
	}
}

func hideMap(v reflect.Value) {
	for _, key := range v.MapKeys() {
		value := reflect.New(v.Type().Elem()).Elem()
		value.Set(v.MapIndex(key))
		if hide(value); !reflect.DeepEqual(value.Interface(), v.MapIndex(key).Interface()) {
			v.SetMapIndex(key, value)
		}
	}
}

// HideAttr returns a slog.HandlerOptions.ReplaceAttr that masks texts and errors.
func HideAttr(_ []string, a slog.Attr) slog.Attr {
	switch v := a.Value.Any().(type) {
	case string:
		a.Value = slog.StringValue(Mask(v))
	case error:
		a.Value = slog.StringValue(Mask(v.Error()))
	case fmt.Stringer:
		if masked := Mask(v.String()); masked != v.String() { // a URL
			a.Value = slog.StringValue(masked)
		}
	}
	return a
}
