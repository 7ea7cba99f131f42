// SPDX-License-Identifier: Apache-2.0

package registry

import (
	"mime"
	"slices"
	"strings"
)

// nextLink finds the target of the first link with the relation next in the
// values of Link headers (RFC 8288, section 3). What cannot be read is skipped.
func nextLink(values []string) (string, bool) {
	for _, value := range values {
		for {
			target, parameters, rest, ok := cutLink(value)
			if !ok {
				break
			}
			if isNext(parameters) {
				return target, true
			}
			value = rest
		}
	}
	return "", false
}

// cutLink takes the first link off a list: <target>; parameters, rest.
func cutLink(list string) (target, parameters, rest string, ok bool) {
	_, list, ok = strings.Cut(list, "<")
	if !ok {
		return "", "", "", false
	}
	target, list, ok = strings.Cut(list, ">")
	if !ok {
		return "", "", "", false
	}
	quoted := false
	for i := 0; i < len(list); i++ {
		switch c := list[i]; {
		case c == '\\' && quoted:
			i++
		case c == '"':
			quoted = !quoted
		case c == ',' && !quoted:
			return target, list[:i], list[i+1:], true
		}
	}
	return target, list, "", true
}

// isNext reads parameters with the parser for media types: the grammar after
// the first semicolon is the same.
func isNext(parameters string) bool {
	_, values, err := mime.ParseMediaType("link" + parameters)
	if err != nil {
		return false
	}
	return slices.Contains(strings.Fields(strings.ToLower(values["rel"])), "next")
}
