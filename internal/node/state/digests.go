// SPDX-License-Identifier: Apache-2.0

package state

import (
	_ "crypto/sha256" // digest.Validate needs linked algorithms
	_ "crypto/sha512"
	"fmt"
	"reflect"

	"github.com/opencontainers/go-digest"
)

var digestType = reflect.TypeFor[digest.Digest]()

// checkDigests validates every digest in a value read from a file: methods of digest.Digest panic on a malformed one.
func checkDigests(value any) error { return checkDigest(reflect.ValueOf(value)) }

func checkDigest(v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		if v.Type() == digestType {
			return validDigest(digest.Digest(v.String()))
		}
	case reflect.Pointer:
		if !v.IsNil() {
			return checkDigest(v.Elem())
		}
	case reflect.Struct:
		for field, inner := range v.Fields() {
			if !field.IsExported() { // not from a file: a time's location
				continue
			}
			if err := checkDigest(inner); err != nil {
				return err
			}
		}
	case reflect.Slice, reflect.Map:
		for _, inner := range v.Seq2() {
			if err := checkDigest(inner); err != nil {
				return err
			}
		}
	}
	return nil
}

func validDigest(d digest.Digest) error {
	if d == "" {
		return nil
	}
	if err := d.Validate(); err != nil {
		return fmt.Errorf("digest %.200q: %w", string(d), err)
	}
	return nil
}
