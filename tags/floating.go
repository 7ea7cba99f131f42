// SPDX-License-Identifier: Apache-2.0

package tags

import "strings"

// IsUnder reports whether a floating tag names t. SUSE's short and intermediate tags name builds of one application
// version. In other schemes v1.34 and v1 name v1.34.2, and 1.34-alpine names 1.34.2-alpine but neither 1.34.2 nor
// 1.34.2-debian.
func (t Tag) IsUnder(floating Tag) bool {
	if t.line() <= Short && floating.line() <= Short {
		return !t.IsZero() && sameName(t, floating) && !t.hasMarks() && !floating.hasMarks() &&
			strings.HasPrefix(t.numbers(), floating.numbers()+".")
	}
	return floating.Form() != Long && t.hasV == floating.hasV && t.IsBuildOf(floating)
}

// Series returns the version and the name, which all builds of one application version have in common.
func (t Tag) Series() string { return t.App() + " " + t.pre.of(t.raw) + " " + t.Name() }

// hasMarks reports whether the tag has more than a version.
func (t Tag) hasMarks() bool { return t.pre.is() || t.rev.is() || t.build.is() }

// Floating returns the floating tags that name t, the most specific first. See [Tag.IsUnder].
func (t Tag) Floating() []string {
	if intermediate, ok := t.Intermediate(); ok {
		return []string{intermediate.String(), intermediate.Short().String()}
	}
	if t.hasMarks() || !isDotted(t.numbers()) {
		return nil
	}
	var out []string
	for end := strings.LastIndexByte(t.numbers(), '.'); end > 0; end = strings.LastIndexByte(t.numbers()[:end], '.') {
		out = append(out, t.raw[:int(t.version.start)+end]+t.raw[t.version.end:])
	}
	return out
}
