// SPDX-License-Identifier: Apache-2.0

package state

import (
	_ "crypto/sha256" // digest.Validate knows the algorithms that are linked
	_ "crypto/sha512"
	"fmt"
	"reflect"

	"github.com/opencontainers/go-digest"
)

var digestType = reflect.TypeFor[digest.Digest]()

// checkDigests looks at every digest in a value that came from a file. Methods
// of digest.Digest panic on a malformed one, and a file that a person edited
// must not end the daemon again and again.
func checkDigests(value any) error { return checkDigest(reflect.ValueOf(value)) }

func checkDigest(v reflect.Value) error {
	if v.Type() == digestType {
		d := digest.Digest(v.String())
		if d == "" {
			return nil
		}
		if err := d.Validate(); err != nil {
			return fmt.Errorf("digest %.200q: %w", v.String(), err)
		}
		return nil
	}
	for inner := range parts(v) {
		if err := checkDigest(inner); err != nil {
			return err
		}
	}
	return nil
}

// parts yields what a value consists of.
func parts(v reflect.Value) func(yield func(reflect.Value) bool) {
	return func(yield func(reflect.Value) bool) {
		switch v.Kind() {
		case reflect.Pointer:
			if !v.IsNil() {
				yield(v.Elem())
			}
		case reflect.Struct:
			for i := range v.NumField() {
				if !yield(v.Field(i)) {
					return
				}
			}
		case reflect.Slice:
			for i := range v.Len() {
				if !yield(v.Index(i)) {
					return
				}
			}
		case reflect.Map:
			for entry := v.MapRange(); entry.Next(); {
				if !yield(entry.Value()) {
					return
				}
			}
		}
	}
}
