// SPDX-License-Identifier: Apache-2.0

package status

import "github.com/kubic-project/image-update-agent/tags"

// RebuildsOnly is a followed tag that cannot be ordered, or that the configured pattern orders beside no other tag: no
// tag is newer, and only another digest is offered.
type RebuildsOnly struct {
	Tag string `json:"tag"`
	// Reason is why it cannot be ordered: "a hash in it, which has no order".
	Reason string `json:"reason"`
	// Pattern is a `tags.pattern` that orders the tag and another listed one; empty if none is known.
	Pattern string `json:"pattern,omitempty"`
}

// RebuildsOnlyOf describes a tag that a scheme cannot read, with a pattern that orders it and another one of its
// repository; nil if it can.
func RebuildsOnlyOf(tag string, s tags.Scheme, listed []string) *RebuildsOnly {
	_, err := s.Parse(tag)
	if err == nil || tag == "" {
		return nil
	}
	return &RebuildsOnly{Tag: tag, Reason: tags.Reason(err), Pattern: tags.PatternFor(tag, listed)}
}
