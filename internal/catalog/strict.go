// SPDX-License-Identifier: Apache-2.0

package catalog

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"unicode/utf8"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/kubic-project/image-update-agent/internal/registry/ocimanifest"
)

// unmarshal decodes JSON that has one reading only: no key twice, no key that differs from a
// known one in upper and lower case, UTF-8, and nothing behind it. A signature would cover one
// reading, and a node have another.
func unmarshal(data []byte, into any) error {
	if !utf8.Valid(data) {
		return errors.New("not UTF-8")
	}
	s := strict{json.NewDecoder(bytes.NewReader(data)), map[reflect.Type]map[string]reflect.Type{}}
	s.UseNumber()
	if err := s.value(reflect.TypeOf(into)); err != nil {
		return err
	}
	if _, err := s.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more data follows")
	}
	return json.Unmarshal(data, into)
}

// unmarshalOCI decodes an OCI manifest of a catalog, with as many entries as bounds allow.
func unmarshalOCI(data []byte, bounds *ocimanifest.Bounds) (ocispec.Manifest, error) {
	var doc ocispec.Manifest
	if len(data) > MaxManifest {
		return doc, newError(KindTooLarge, "the manifest has more than %d bytes", MaxManifest)
	}
	if _, err := bounds.Write(data); err != nil {
		return doc, wrap(KindTooLarge, err, "manifest")
	}
	if err := unmarshal(data, &doc); err != nil {
		return doc, wrap(KindFormat, err, "manifest")
	}
	var keys map[string]json.RawMessage
	if err := json.Unmarshal(data, &keys); err != nil {
		return doc, wrap(KindFormat, err, "manifest")
	}
	for key := range keys {
		if strings.EqualFold(key, "manifests") || strings.EqualFold(key, "fsLayers") {
			return doc, newError(KindFormat, "manifest: ambiguous: has %q", key)
		}
	}
	switch {
	case doc.SchemaVersion != 2:
		return doc, newError(KindFormat, "manifest: schema version %d, not 2", doc.SchemaVersion)
	case doc.MediaType != "" && doc.MediaType != ocispec.MediaTypeImageManifest:
		return doc, newError(KindFormat, "manifest: media type %q: want %s", doc.MediaType, ocispec.MediaTypeImageManifest)
	}
	return doc, nil
}

// strict reads JSON beside the type that it is decoded into.
type strict struct {
	*json.Decoder
	known map[reflect.Type]map[string]reflect.Type
}

// value reads one value. t is nil if the type has no such field.
func (s strict) value(t reflect.Type) error {
	token, err := s.Token()
	if err != nil {
		return err
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch token {
	case json.Delim('{'):
		return s.object(t)
	case json.Delim('['):
		var of reflect.Type
		if t != nil && (t.Kind() == reflect.Slice || t.Kind() == reflect.Array) {
			of = t.Elem()
		}
		for s.More() {
			if err := s.value(of); err != nil {
				return err
			}
		}
		_, err = s.Token()
	}
	return err
}

// object reads the members of an object, and its end.
func (s strict) object(t reflect.Type) error {
	fields := s.fields(t)
	seen := map[string]bool{}
	for s.More() {
		token, err := s.Token()
		if err != nil {
			return err
		}
		key, _ := token.(string)
		if seen[key] {
			return fmt.Errorf("duplicate key %.40q", key)
		}
		seen[key] = true
		of, isKnown := fields[key]
		if !isKnown {
			for name := range fields {
				if strings.EqualFold(name, key) {
					return fmt.Errorf("key %.40q: want %q", key, name)
				}
			}
		}
		if t != nil && t.Kind() == reflect.Map {
			of = t.Elem()
		}
		if err := s.value(of); err != nil {
			return err
		}
	}
	_, err := s.Token()
	return err
}

// fields returns the types of a struct's fields by their names in JSON; nil for other types.
func (s strict) fields(t reflect.Type) map[string]reflect.Type {
	if t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := s.known[t]; ok {
		return known
	}
	out := map[string]reflect.Type{}
	for _, f := range reflect.VisibleFields(t) {
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if f.IsExported() && !f.Anonymous && name != "-" && name != "" {
			out[name] = f.Type
		}
	}
	s.known[t] = out
	return out
}
