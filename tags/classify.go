// SPDX-License-Identifier: Apache-2.0

package tags

import "errors"

// Class says which form a tag has or why it has none.
type Class string

// The classes, spelled as `tags parse` prints them.
const (
	ClassShort        Class = "short"
	ClassIntermediate Class = "intermediate"
	ClassLong         Class = "long"
	ClassSingle       Class = "single"
	ClassMalformed    Class = "malformed"    // SUSE's scheme, broken
	ClassUnrecognized Class = "unrecognized" // no version that can be ordered
	ClassInvalid      Class = "invalid"      // not an OCI tag
)

// Classify returns the class of text without settings.
func Classify(text string) Class {
	tag, err := Parse(text)
	return classOf(tag, err)
}

// classOf returns the class for the result of [Scheme.Parse].
func classOf(tag Tag, err error) Class {
	switch {
	case err == nil:
		return Class(tag.Form().String())
	case errors.Is(err, ErrInvalid):
		return ClassInvalid
	case errors.Is(err, ErrUnrecognized):
		return ClassUnrecognized
	}
	return ClassMalformed
}
