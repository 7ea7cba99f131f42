// SPDX-License-Identifier: Apache-2.0

package tags

import "errors"

// Class is where a text belongs: one of the forms, or why it has none.
type Class string

// The classes, spelled as `tags parse` prints them.
const (
	ClassShort        Class = "short"
	ClassIntermediate Class = "intermediate"
	ClassLong         Class = "long"
	ClassMalformed    Class = "malformed" // SUSE's scheme, broken
	ClassForeign      Class = "foreign"   // another scheme
	ClassInvalid      Class = "invalid"   // not an OCI tag
)

// Classify tells the class of text under the core grammar.
func Classify(text string) Class {
	tag, err := Parse(text)
	switch {
	case err == nil:
		return Class(tag.Form().String())
	case errors.Is(err, ErrInvalid):
		return ClassInvalid
	case errors.Is(err, ErrForeign):
		return ClassForeign
	}
	return ClassMalformed
}
