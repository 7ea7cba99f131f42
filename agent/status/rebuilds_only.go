// SPDX-License-Identifier: Apache-2.0

package status

import (
	"strings"
	"unicode"

	"github.com/kubic-project/image-update-agent/tags"
)

// RebuildsOnly is a followed tag that cannot be parsed: no tag is newer, and only another
// digest is offered.
type RebuildsOnly struct {
	Tag string `json:"tag"`
	// Dialect is the `dialect` that can parse the tag; empty: none can.
	Dialect string `json:"dialect,omitempty"`
	// Follow is the part of the tag that can be parsed, for `follow`; empty: none. A word after the version names another
	// image, as the alpine of 3.0-alpine does: such a tag has no part.
	Follow string `json:"follow,omitempty"`
}

// RebuildsOnlyOf describes a tag that a dialect cannot parse, with a dialect or tag that would
// help; nil: it can.
func RebuildsOnlyOf(tag string, d tags.Dialect) *RebuildsOnly {
	if _, err := d.Parse(tag); err == nil || tag == "" {
		return nil
	}
	only := &RebuildsOnly{Tag: tag}
	if other, is := tags.DialectOf(tag); is {
		only.Dialect = other.String()
		return only
	}
	if part := versionOf(tag); part != "" {
		if _, err := d.Parse(part); err == nil {
			only.Follow = part
		}
	}
	return only
}

// versionOf returns the version that begins a tag of an unknown scheme, as v1.2.3; "": none.
func versionOf(tag string) string {
	rest := strings.TrimLeft(strings.TrimPrefix(tag, "v"), "0123456789.")
	version := strings.TrimRight(strings.TrimSuffix(tag, rest), ".")
	isLetter := func(c rune) bool { return unicode.IsLetter(c) }
	if !strings.Contains(version, ".") || strings.ContainsFunc(rest, isLetter) {
		return ""
	}
	return version
}
